"""Smooths one by one and effects of levels, against mgcv, least squares and sums by hand.

The degrees of freedom are mgcv's, with the data of ``table``; how they were made stands in
``tests/model/test_smooth_kinds.py``.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.posterior.effects.groups import group_coefficients, group_effects
from semistan.posterior.effects.smooths import smooth_curves, smooths_table
from semistan.posterior.posterior import SubspacePosterior
from semistan.show.pictures import alt_text, available, draw
from semistan.show.pictures.material import memory_material
from semistan.workflow.explain import slopes
from semistan.workflow.fit import fit_model
from support.drawn import random_draws
from support.figures import untidy
from support.small import small_bundle, small_config

N, SP, SIGMA = 60, 0.7, 0.5
MGCV = {  # of each smooth; R prints ten digits
    "g + s(x, by=g, k=8)": [4.261669446, 4.268868302, 4.261669446],
    "s(x, by=z, k=6)": [4.892715668],
    "s(x, k=8, bs='cc')": [4.182497992],
    "s(x, k=8)": [5.258135596],
}


def table():
    i = np.arange(N)
    x, z = (i * 37 % 60) / 6, (i * 23 % 60) / 20 - 1
    noise = ((i * i * 7) % 11 - 5) / 10
    y = np.sin(x) * (1 + i % 3) / 2 + z * np.cos(x / 2) + noise
    frame = pd.DataFrame({"x": x, "z": z, "g": np.array(["a", "b", "c"])[i % 3], "y": y})
    frame = frame.assign(h=1 + i % 4, i=[f"patient {j % 20}" for j in i])
    return frame.assign(u=x * z, w=np.round(np.abs(y) * 3))


def posterior_of(formula, spread=None, **settings):
    bundle, rows = small_bundle(formula, table(), **settings)
    draws = random_draws(bundle)
    constant = {
        name: np.full_like(x, (spread or {}).get(name, 1)) for name, x in draws.spread.items()
    }
    sigma = {name: np.full_like(x, SIGMA) for name, x in draws.dispersion.items()}
    return SubspacePosterior(
        bundle, replace(draws, spread=constant if spread else draws.spread, dispersion=sigma)
    ), rows


def sds_at(bundle):
    """The standard deviations at which a spline's penalty is ``SP`` times its bending."""
    (term,) = bundle.design.terms
    of = getattr(term, "one", term)
    direction = of.T[:, 0]
    bending = direction @ of.spline.penalty(of.knots) @ direction / of.scale**3
    # mgcv's weight is sigma^2 / sds^2 over the integral of f''^2 of one coefficient
    return dict.fromkeys(term.spread, SIGMA / np.sqrt(SP * bending))


@pytest.mark.parametrize("terms", MGCV)
def test_degrees_of_freedom_are_mgcvs(terms):
    formula = f"y ~ {terms} + nn(u)"
    bundle, _ = small_bundle(formula, table())
    posterior, rows = posterior_of(formula, sds_at(bundle))
    found = smooths_table(posterior, rows)
    assert found["edf"].to_numpy() == pytest.approx(MGCV[terms], abs=1e-6)
    assert tuple(found["sd"]) == bundle.design.terms[0].spread


def test_of_counts_each_row_counts_as_much_as_its_mean():
    formula = "w ~ x + s(z, k=5) + (1 | g) + nn(u)"
    posterior, rows = posterior_of(
        formula, {"sds_sz_1": 0.3, "sd_g__Intercept": 0.4}, family="poisson"
    )
    columns = rows.predictors["mu"]
    levels = np.eye(3)[columns.blocks[1].level]
    A = np.column_stack([np.ones(N), columns.X, columns.blocks[0].Z, levels])
    P = np.diag([0.0] * 3 + [1 / 0.3**2] * 3 + [1 / 0.4**2] * 3)
    W = np.exp(posterior.predictor(rows).mean(axis=0))
    information = A.T @ (W[:, None] * A)
    F = np.linalg.solve(information + P, information)
    (edf,) = smooths_table(posterior, rows)["edf"]
    assert edf == pytest.approx(np.diag(F)[[2, 3, 4, 5]].sum(), rel=1e-9)


def test_a_curve_is_line_and_bends_and_0_on_average_over_its_rows():
    posterior, rows = posterior_of("y ~ g + z + s(x, by=g, k=5) + nn(u)")
    curves = smooth_curves(posterior, rows, resolution=7)
    assert [curve.view.level for curve in curves] == ["a", "b", "c"]
    draws, (term,) = posterior.draws, posterior.design.terms
    for number, (curve, level) in enumerate(zip(curves, "abc", strict=True)):
        of = table().query("g == @level").x.to_numpy()
        slope = draws.flat(draws.coefficients[f"b_x_g{level}"])
        s = draws.flat(draws.terms["s_1"])[:, number]
        at = lambda x: np.outer(slope, x) + s @ term.one.basis(x).Z.T  # noqa: E731, B023
        expected = at(np.linspace(of.min(), of.max(), 7)) - at(of).mean(axis=1, keepdims=True)
        assert curve.values == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert np.array_equal(curve.at_rows, of)


def test_the_curve_of_a_smooth_by_a_number_is_the_change_for_one_unit():
    posterior, rows = posterior_of("y ~ s(x, k=5) + s(x, by=z, k=5) + nn(u)")
    _, curve = smooth_curves(posterior, rows, resolution=5)
    draws, term = posterior.draws, posterior.design.terms[1]
    flat = {name: draws.flat(x) for name, x in (draws.coefficients | draws.terms).items()}
    expected = flat["b_z"][:, None] + np.outer(flat["b_x_z"], curve.x)
    expected = expected + flat["s_2"] @ term.basis(curve.x).Z.T
    assert curve.values == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_effects_of_levels_are_a_smooth_with_its_degrees_of_freedom():
    posterior, rows = posterior_of("y ~ s(g, bs='re') + nn(u)", {"sds_sg_1": 0.4})
    levels = np.eye(3)[np.arange(N) % 3]
    A, P = np.column_stack([np.ones(N), levels]), np.diag([0] + [1 / 0.4**2] * 3)
    information = A.T @ A / SIGMA**2
    F = np.linalg.solve(information + P, information)
    (edf,) = smooths_table(posterior, rows)["edf"]
    assert edf == pytest.approx(np.diag(F)[1:].sum(), rel=1e-9)
    (curve,) = smooth_curves(posterior, rows)
    r = posterior.draws.flat(posterior.draws.terms["r_s1"])[:, :, 0]
    assert curve.view.places == ("a", "b", "c")
    assert curve.values == pytest.approx(r - r.mean(axis=1, keepdims=True))


def test_the_points_of_a_monotonic_effect_are_its_categories():
    posterior, rows = posterior_of("y ~ mo(h) + nn(u)")
    (curve,) = smooth_curves(posterior, rows)
    effects = posterior.draws.flat(posterior.draws.terms["mo_1"])
    of_rows = effects[:, np.arange(N) % 4]
    assert curve.view.places == (1, 2, 3, 4)
    assert curve.values == pytest.approx(effects - of_rows.mean(axis=1, keepdims=True))
    assert smooths_table(posterior, rows).empty  # it has no penalty


@pytest.mark.parametrize(
    ("terms", "curves"),
    [
        ("s(x) + gp(z)", 2),
        ("gp(x, by=g) + gp(x, by=z)", 4),
        ("t2(x, z) + s(x, by=g)", 6),
        ("gp(x, z)", 3),
        ("s(x, by=g)", 3),
        ("s(x, by=z) + s(g, bs='re')", 2),
        ("mo(h) + s(i, bs='re')", 2),
    ],
)
def test_pictures_have_a_curve_for_each_and_say_so(terms, curves):
    posterior, rows = posterior_of(f"y ~ {terms} + nn(u)")
    material = memory_material(posterior, rows)
    figure = draw(material, "smooths")
    assert sum(len(axes.collections) for axes in figure.axes) == curves
    assert not untidy(figure)
    assert alt_text(material, "smooths").count(" between") == curves


def test_a_model_without_smooths_has_no_such_picture():
    material = memory_material(*posterior_of("y ~ x + (1 | g) + nn(u)"))
    assert "smooths" not in available(material)


def test_effects_of_levels_are_the_draws_and_coefficients_their_sums():
    posterior, _ = posterior_of("y ~ x + (1 + x | g) + nn(u), sigma ~ (1 | g)")
    effects, coefficients = group_effects(posterior), group_coefficients(posterior)
    draws = posterior.draws
    r, r_sigma = (draws.flat(draws.terms[name]) for name in ("r_1", "r_sigma_1"))
    assert list(effects["predictor"]) == ["mu"] * 6 + ["sigma"] * 3
    assert list(effects["level"]) == ["a", "b", "c"] * 3
    assert list(effects["effect"]) == ["Intercept"] * 3 + ["x"] * 3 + ["Intercept"] * 3
    expected = np.concatenate([r[..., 0].mean(0), r[..., 1].mean(0), r_sigma[..., 0].mean(0)])
    assert effects["Estimate"].to_numpy() == pytest.approx(expected)
    b = {name: draws.flat(x) for name, x in draws.coefficients.items()}
    whole = b["b_x"][:, None] + r[..., 1]
    of_x = coefficients.query("effect == 'x'")
    assert of_x["Estimate"].to_numpy() == pytest.approx(whole.mean(axis=0))
    assert of_x["u-95% CI"].to_numpy() == pytest.approx(np.quantile(whole, 0.975, axis=0))
    of_sigma = coefficients.query("predictor == 'sigma'")["Estimate"].to_numpy()
    assert of_sigma == pytest.approx((b["b_sigma_Intercept"][:, None] + r_sigma[..., 0]).mean(0))


def test_effects_without_a_coefficient_are_themselves():
    posterior, _ = posterior_of("y ~ (0 + z || g) + nn(u)")
    assert group_coefficients(posterior).equals(group_effects(posterior))


def test_thresholds_of_a_level_are_less_its_effect():
    frame = table().assign(rating=np.arange(N) % 3 + 1)
    bundle, _ = small_bundle("rating ~ (1 | g) + nn(u)", frame, family="cumulative")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    found, draws = group_coefficients(posterior), posterior.draws
    assert list(found["effect"]) == ["Intercept[1]"] * 3 + ["Intercept[2]"] * 3
    r = draws.flat(draws.terms["r_1"])[..., 0]
    second = draws.flat(draws.coefficients["b_Intercept[2]"])[:, None] - r
    assert found["Estimate"].to_numpy()[3:] == pytest.approx(second.mean(axis=0))


@pytest.mark.lengthy
def test_columns_of_categories_and_of_nested_groups_have_effects(tmp_path):
    """mo(c) knows no numbers between categories; a level of g keeps its h where h is changed."""
    i = np.arange(N)
    frame = table().assign(c=i % 4 + 1, g=i % 6, h=np.where(i % 6 < 3, "low", "high"))
    sample = {"method": "elliptical-slice", "chains": 1, "draws": 20, "warmup": 5}
    config = small_config("y ~ mo(c) + (1 || gr(g, by=h)) + nn(u)", sample=sample)
    run = fit_model(config, frame, out=tmp_path / "run").run
    marginal = slopes(run).set_index(["term", "contrast"])["Estimate"]
    assert list(marginal["c"].index) == ["2 - 1", "3 - 1", "4 - 1"]
    effect = semistan.effect(run, "c").table()
    assert list(effect["c"]) == [1, 2, 3, 4]
    assert marginal["c"].to_numpy() == pytest.approx(np.diff(effect["Estimate"]).cumsum())
    assert set(semistan.importance(run, frame, repeats=1)["term"]) == {"c", "g", "h", "u"}
    assert set(marginal.index.get_level_values("term")) == {"c", "u"}  # columns of groups are not
