"""Coefficients that are orthogonalised to the network: which, by least squares, and coverage."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from semistan.density import predictor
from semistan.density.predictor import network_output
from semistan.errors import InputError
from semistan.model.left_out import left_out
from semistan.model.orthogonal import (
    announcement,
    further_names,
    orthogonal_columns,
    raw_columns,
)
from semistan.posterior import orthogonal
from semistan.posterior.collinearity import LIMIT, collinearity, regress
from semistan.posterior.draws import Draws, level, orthogonalised
from semistan.posterior.orthogonal import Orthogonal, network_along, read_gamma, write_gamma
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_linpred
from semistan.posterior.summary import summarise
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.show.pictures import draw
from semistan.show.pictures.coefficients import coefficients_alt
from semistan.show.pictures.densities import densities_alt
from semistan.show.pictures.material import memory_material
from semistan.show.pictures.words import interval_words
from semistan.show.report.coefficients import labels_of
from support.drawn import random_draws
from support.small import small_frame, small_prepared
from support.untrained import LINEAR, shared_bundle


def read(bundle, rows, draws):
    """Add orthogonalised coefficients as reading a run does."""
    columns = orthogonal_columns(bundle.config, bundle.design)
    return orthogonalised(bundle, draws, network_along(bundle, rows, draws.phi, columns))


def consistent_draws(bundle, rows, **arguments):
    """Return random draws whose b_Intercept is the mean of eta over the rows, moved to X = 0."""
    draws = random_draws(bundle, **arguments)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    intercept = (eta - draws.flat(draws.theta) @ rows.X.T).mean(axis=1)
    draws.coefficients["b_Intercept"] = intercept.reshape(draws.phi.shape[:2])
    return draws


# ---- Which columns, and what they are called

WIDE = small_frame(40).assign(**{"odd name": np.linspace(0, 1, 40) ** 2, "b": np.arange(40) // 3})
CHOSEN = [
    ("y ~ x + C(g) + nn(u, v)", []),
    ("y ~ x + C(g) + nn(log(x + 90), v)", ["x"]),
    ("y ~ x + u + u:x + nn(u, v)", ["u"]),
    ("y ~ x + C(g):u + u:x + nn(u, x)", ["x", "u:x"]),
    ("y ~ poly(z, 2) + log(z) + x + nn(z)", ["poly(z, 2)[1]", "poly(z, 2)[2]", "log(z)"]),
    ("y ~ C(flag) + C(flag):x + nn(flag, v)", ["C(flag)[T.1]"]),
    ("y ~ g*C(flag) + nn(g)", ["g[T.b]", "g[T.c]"]),
    ("y ~ C(flag):g + nn(g, u)", ["g[T.b]", "g[T.c]"]),
    ("y ~ C(flag):g + nn(g) + nn(flag)", ["g[T.b]", "g[T.c]"]),
    (
        "y ~ g:C(flag) + nn(g, flag)",
        [
            "C(flag)[T.1]",
            "g[T.b]:C(flag)[0]",
            "g[T.c]:C(flag)[0]",
            "g[T.b]:C(flag)[1]",
            "g[T.c]:C(flag)[1]",
        ],
    ),
    ("y ~ x + C(flag):g:x + nn(x, g)", ["x", "g[T.b]:x", "g[T.c]:x"]),
    ("y ~ `odd name` + g + x:`odd name` + nn(`odd name`)", ["odd name"]),
]


@pytest.mark.parametrize(("formula", "expected"), CHOSEN)
def test_auto_takes_the_terms_of_which_the_network_sees_everything(formula, expected):
    prepared = small_prepared(formula, WIDE)
    columns = orthogonal_columns(prepared.config, prepared.design)
    assert [prepared.design.x.columns[j] for j in columns] == expected


def test_all_takes_every_column_and_off_takes_none():
    for mode, expected in (("all", (0, 1, 2)), ("off", ())):
        prepared = small_prepared("y ~ x + C(g) + nn(u, x)", orthogonalise=mode)
        assert orthogonal_columns(prepared.config, prepared.design) == expected


def test_the_columns_have_names_of_their_own():
    prepared = small_prepared("y ~ C(g) + x + nn(u, x)")
    assert further_names(prepared.config, prepared.design) == {"b_x_orth": 2}
    sheared = small_prepared("y ~ C(g) + x + nn(u, x)", orthogonalise_in="model")
    assert further_names(sheared.config, sheared.design) == {"b_x_raw": 2}


@pytest.mark.parametrize(
    ("column", "where"), [("x_orth", "posterior"), ("Intercept_orth", "posterior"),
                          ("x_raw", "model")],
)  # fmt: skip
def test_a_column_of_such_a_name_is_refused_where_it_clashes(column, where):
    frame = small_frame().rename(columns={"z": column})
    terms = {"orthogonalise_in": where}
    with pytest.raises(InputError, match=rf"'{column}' would be called 'b_{column}', as an orth"):
        small_prepared(f"y ~ x + {column} + nn(u, x)", frame, **terms)
    small_prepared(f"y ~ x + {column} + nn(u, v)", frame, **terms)


def test_the_naive_construction_has_no_prior_that_a_program_could_move():
    naive = {"subspace__construction": "naive"}
    small_prepared("y ~ x + nn(u, x)", **naive)
    small_prepared("y ~ x + nn(u, v)", orthogonalise_in="model", **naive)
    with pytest.raises(InputError, match=r"'naive' theta moves with phi.* 'posterior'"):
        small_prepared("y ~ x + nn(u, x)", orthogonalise_in="model", **naive)


@pytest.mark.parametrize(
    ("inputs", "settings", "expected"),
    [
        ("u", {}, None),
        ("u", {"orthogonalise": "all"}, r"^orthogonalised .* besides: b_gb_orth, .*, b_x_orth$"),
        ("u, x", {}, r"^nn\(\) sees all that the terms of b_x use .* reported besides: b_x_orth$"),
        ("u, x", {"orthogonalise_in": "model"}, r"b_x use .* samples orthogonalised .*: b_x$"),
        ("u, x", {"orthogonalise": "off"}, "^warning: .* b_x use .* use --orthogonalise auto$"),
    ],
)
def test_what_is_done_is_said(inputs, settings, expected):
    prepared = small_prepared(f"y ~ C(g) + x + nn({inputs})", **settings)
    text = announcement(prepared.config, prepared.design)
    assert text is None if expected is None else re.search(expected, text)


# ---- Least squares


@pytest.mark.parametrize("columns", [(0,), (1, 0), (0, 1)])
def test_gamma_is_each_draws_least_squares(columns):
    bundle, rows = shared_bundle()
    draws, units = random_draws(bundle, iterations=5), bundle.units
    gamma = network_along(bundle, rows, draws.phi, columns)
    assert gamma.shape == (2, 5, len(columns))
    design = np.column_stack([rows.X[:, list(columns)], np.ones(len(rows))])
    for phi, found in zip(draws.flat(draws.phi), draws.flat(gamma), strict=True):
        w = bundle.subspace.lift(phi)
        f = network_output(bundle.network, units, w, rows.U)
        expected = np.linalg.lstsq(design, units.eta_scale * f, rcond=None)[0][:-1]
        assert found == pytest.approx(expected, rel=1e-10)


def test_it_does_not_matter_how_many_draws_and_rows_are_taken_at_a_time(monkeypatch):
    bundle, rows = shared_bundle()
    phi = random_draws(bundle, iterations=7).phi
    whole = network_along(bundle, rows, phi, (0, 1))
    for most in (1, 40, 4 * 30 * 3):
        for module in (orthogonal, predictor):
            monkeypatch.setattr(module, "MOST_ACTIVATIONS", most)
        assert network_along(bundle, rows, phi, (0, 1)) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("mode", ("auto", "all"))
@pytest.mark.parametrize("name", ("gaussian", "poisson", "bernoulli"))
def test_the_parts_change_and_what_is_predicted_does_not(name, mode):
    bundle, rows = shared_bundle(name, mode=mode)
    raw = consistent_draws(bundle, rows)
    draws = read(bundle, rows, raw)
    new = rows.take(np.arange(3, 8))
    eta = posterior_linpred(SubspacePosterior(bundle, draws), new)
    assert np.max(np.abs(eta - posterior_linpred(SubspacePosterior(bundle, raw), new))) < 1e-10
    assert (
        np.max(
            np.abs(
                log_lik(SubspacePosterior(bundle, draws), new)
                - log_lik(SubspacePosterior(bundle, raw), new)
            )
        )
        < 1e-10
    )
    parts = [
        posterior_linpred(SubspacePosterior(bundle, draws), new, part=part)
        for part in ("structured", "nn")
    ]
    intercept = draws.flat(draws.coefficients["b_Intercept_orth"])[:, None]
    assert np.max(np.abs(intercept + sum(parts) - eta)) < 1e-10 * np.max(np.abs(eta))
    effects = draws.effects
    assert draws.flat(effects) @ new.X.T == pytest.approx(parts[0], rel=1e-12)
    expected = effects[..., 0]
    assert draws.coefficients["b_x1_orth"] == pytest.approx(expected, rel=1e-12)
    assert np.min(np.abs(draws.coefficients["b_x1_orth"] / draws.coefficients["b_x1"] - 1)) > 1e-6
    assert ("b_x2_orth" in draws.coefficients) == (mode == "all")
    assert np.array_equal(effects[..., 1], draws.theta[..., 1]) == (mode == "auto")


@pytest.mark.parametrize("mode", ("auto", "all"))
def test_the_networks_part_is_centred_and_orthogonal_over_the_training_rows(mode):
    bundle, rows = shared_bundle(mode=mode)
    draws = read(bundle, rows, consistent_draws(bundle, rows))
    f = posterior_linpred(SubspacePosterior(bundle, draws), rows, part="nn")
    X = rows.X[:, : 2 if mode == "all" else 1]
    cosines = (
        f
        @ (X - X.mean(axis=0))
        / np.outer(np.linalg.norm(f, axis=1), np.linalg.norm(X - X.mean(axis=0), axis=0))
    )
    assert np.max(np.abs(cosines)) < 1e-10
    assert np.max(np.abs(f.mean(axis=1))) < 1e-10 * np.abs(f).max()
    raw = consistent_draws(bundle, rows)
    assert (
        np.min(
            np.abs(
                posterior_linpred(SubspacePosterior(bundle, raw), rows, part="nn")
                @ (X - X.mean(axis=0))
            )
        )
        > 0
    )


def test_thinned_draws_keep_their_gamma():
    bundle, rows = shared_bundle()
    draws = read(bundle, rows, random_draws(bundle))
    some = draws.thin(10)
    assert some.effects[..., 0] == pytest.approx(some.coefficients["b_x1_orth"])
    assert some.effects.shape == (2, 5, 2)


def test_gamma_is_kept_with_the_draws_and_columns_that_it_belongs_to(tmp_path):
    bundle, rows = shared_bundle()
    draws = read(bundle, rows, random_draws(bundle))
    path = tmp_path / "orthogonal.npz"
    assert read_gamma(path, draws.phi, (0,)) is None
    write_gamma(path, draws.phi, draws.orthogonal)
    assert np.array_equal(read_gamma(path, draws.phi, (0,)), draws.orthogonal.gamma)
    assert read_gamma(path, draws.phi, (1,)) is None
    assert read_gamma(path, draws.phi + 1e-9, (0,)) is None


def test_nothing_changes_where_nothing_is_shared():
    bundle, rows = shared_bundle(formula="y ~ x1 + x2 + nn(u1, u2, u3)")
    off = replace(bundle, config=bundle.config.model_copy(update={"orthogonalise": "off"}))
    inside = replace(bundle, config=bundle.config.model_copy(update={"orthogonalise_in": "model"}))
    for other in (off, inside):
        assert bundle_program(other) == bundle_program(bundle)
        assert list(stan_data(other, rows)) == list(stan_data(bundle, rows))
    assert summarise(SubspacePosterior(bundle, random_draws(bundle)), rows).notes == (
        left_out(bundle, 1),
    )


def test_afterwards_the_program_is_what_it_would_be_anyway():
    bundle, _ = shared_bundle(mode="all")
    off, _ = shared_bundle(mode="off")
    assert bundle_program(bundle) == bundle_program(off)


# ---- Coverage


@pytest.fixture(scope="module")
def coverage():
    """Of 90% intervals for x1's coefficient over 100 responses: raw and orthogonalised.

    The subspace is all of a linear network, so that the posterior is Gaussian and known.
    """
    priors = {"b": "normal(0, 1)", "sigma": "constant(5)", "autoscale": False}
    bundle, rows = shared_bundle(
        formula="y ~ x1 + nn(x1, u1, u2)", rows=100, priors=priors,
        subspace={"construction": "full"}, **LINEAR,
    )  # fmt: skip
    units, data = bundle.units, stan_data(bundle, rows)
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    G = np.hstack([units.eta_scale * inputs @ bundle.subspace.matrix, rows.X - units.x_loc])
    offset = units.eta_loc + units.eta_scale * inputs @ bundle.subspace.p_bar
    sigma, scale = 5.0, np.concatenate([data["prior_phi_scale"], data["prior_b_scale"]])
    covariance = np.linalg.inv(G.T @ G / sigma**2 + np.diag(scale**-2.0))
    root = np.linalg.cholesky(covariance)
    generator, theta = np.random.default_rng(8), 4.0
    eta = offset + theta * (rows.X[:, 0] - units.x_loc[0])
    truth = np.polyfit(rows.X[:, 0], eta, 1)[0]  # theta and what the network says along x1
    covered = []
    for _ in range(100):
        y = eta + sigma * generator.normal(size=len(rows))
        mean = covariance @ (G.T @ (y - offset)) / sigma**2
        q = mean + generator.normal(size=(1, 1000, 5)) @ root.T
        draws = read(bundle, rows, gaussian_draws(bundle, q))
        intervals = {
            name: np.quantile(draws.coefficients[name], (0.05, 0.95))
            for name in ("b_x1", "b_x1_orth")
        }
        true = {"b_x1": theta, "b_x1_orth": truth}
        covered.append([low < true[name] < high for name, (low, high) in intervals.items()])
    return np.sum(covered, axis=0)


def gaussian_draws(bundle, q):
    """Wrap draws (C, S, k + P) of a model without dispersion; what is not used is left empty."""
    k, P = bundle.subspace.k, len(bundle.design.coefficients)
    theta = q[..., k:]
    names = dict(zip(bundle.design.coefficients, np.moveaxis(theta, -1, 0), strict=True))
    zero = np.zeros(q.shape[:2])
    assert theta.shape[-1] == P
    return Draws(q[..., :k], theta, {"b_Intercept": zero, **names}, {}, zero, {}, 10)


def test_orthogonalised_intervals_cover_at_their_rate_and_raw_ones_do_not(coverage):
    raw, found = coverage
    lower, upper = binom(100, 0.9).ppf([1e-4, 1 - 1e-4])
    assert lower <= found <= upper
    assert raw < lower


# ---- The summary


def test_the_summary_has_both_and_says_which_to_read():
    bundle, rows = shared_bundle()
    summary = summarise(
        SubspacePosterior(bundle, read(bundle, rows, consistent_draws(bundle, rows))), rows
    )
    names = [row.name for row in summary.rows]
    assert names == ["b_Intercept", "b_x1", "b_x2", "b_Intercept_orth", "b_x1_orth", "sigma"]
    (note,) = [note for note in summary.notes if note.startswith("Orthogonalised")]
    assert "read b_Intercept_orth, b_x1_orth. b_Intercept, b_x1 stand beside" in note
    assert note in repr(summary)
    assert note in summary._repr_html_()


def test_names_that_look_like_orthogonalised_ones_are_plain_coefficients():
    bundle, rows = shared_bundle()
    like = ("b_Intercept_orthodox", "b_x2_orth")
    mean = replace(bundle.design.mean, coefficients=like)
    design = replace(bundle.design, predictors=(mean,))
    off = bundle.config.model_copy(update={"orthogonalise": "off"})
    plain = replace(bundle, config=off, design=design)
    draws = random_draws(plain)
    assert np.array_equal(level(plain, draws), draws.coefficients["b_Intercept"])

    named = replace(bundle, design=design)
    found = read(named, rows, consistent_draws(named, rows))
    assert np.array_equal(level(named, found), found.coefficients["b_Intercept_orth"])
    (note,) = [
        note
        for note in summarise(SubspacePosterior(named, found), rows).notes
        if note.startswith("Orthogonalised")
    ]
    assert "read b_Intercept_orth, b_Intercept_orthodox_orth. b_Intercept, " in note


def test_convergence_is_not_judged_on_what_only_the_priors_identify():
    bundle, rows = shared_bundle()
    draws = read(bundle, rows, consistent_draws(bundle, rows, iterations=200))
    assert list(draws.identified) == ["b_x2", "b_Intercept_orth", "b_x1_orth", "sigma"]

    def failed(changed):
        apart = draws.coefficients[changed] + [[0.0], [50 * np.ptp(draws.coefficients[changed])]]
        coefficients = draws.coefficients | {changed: apart}
        checks = summarise(
            SubspacePosterior(bundle, replace(draws, coefficients=coefficients)), rows
        ).checks
        return not next(c for c in checks if c.name == "Rhat of coefficients").passed

    assert failed("b_x1_orth")
    assert not failed("b_x1")


def test_in_the_program_the_raw_coefficient_is_the_one_that_is_not_judged():
    bundle, rows = shared_bundle()
    draws = consistent_draws(bundle, rows)
    gamma = network_along(bundle, rows, draws.phi, (0,))
    draws = replace(
        draws,
        coefficients=draws.coefficients | {"b_x1_raw": draws.coefficients["b_x1"]},
        orthogonal=Orthogonal((0,), gamma, in_model=True, unidentified=("b_x1_raw",)),
    )
    assert list(draws.identified) == ["b_Intercept", "b_x1", "b_x2", "sigma"]
    note = summarise(SubspacePosterior(bundle, draws), rows).notes[0]
    assert "read b_x1. b_x1_raw stands beside the network as it is, which can imitate it." in note


# ---- Collinearity


def test_r2_is_that_of_least_squares_adjusted():
    generator = np.random.default_rng(1)
    X = generator.normal(size=(50, 3)) @ generator.normal(size=(3, 3)) + 100
    f = X @ [1.0, -2.0, 0.5] + 3 * generator.normal(size=50)
    design = np.column_stack([X, np.ones(50)])
    residual = f - design @ np.linalg.lstsq(design, f, rcond=None)[0]
    expected = 1 - (residual @ residual / 46) / f.var(ddof=1)
    assert regress(f, X, ("a", "b", "c")).r2 == pytest.approx(expected, rel=1e-9)


def test_the_fewest_columns_are_named():
    generator = np.random.default_rng(2)
    X = generator.normal(size=(200, 3))
    columns = ("a", "b", "c")
    assert regress(5 * X[:, 1] + 0.01 * X[:, 0], X, columns).columns == ("b",)
    assert regress(X[:, 2] - 1.1 * X[:, 0], X, columns).columns == ("a", "c")


def test_a_constant_network_few_rows_or_no_columns_give_nothing():
    X = np.random.default_rng(0).normal(size=(9, 2))
    for found in (
        regress(np.full(9, 2.0), X, ("a", "b")),
        regress(X[:3, 0], X[:3], ("a", "b")),
        regress(X[:, 0], X[:, :0], ()),
    ):
        assert (found.r2, found.columns, found.warning()) == (0.0, (), None)


def test_a_network_that_says_what_a_column_says_is_warned_of_unless_it_is_orthogonal_to_it():
    arguments = {"formula": "y ~ x1 + x2 + nn(x1, 2 * x1, 3 * x1)", **LINEAR}
    bundle, rows = shared_bundle(mode="off", **arguments)
    draws = consistent_draws(bundle, rows)
    found = collinearity(SubspacePosterior(bundle, draws), rows)
    assert found.r2 > LIMIT
    assert found.columns == ("x1",)
    warning = found.warning()
    assert warning.startswith("Warning: x1 explains 100% of the network's part (limit 80%)")
    assert summarise(SubspacePosterior(bundle, draws), rows).notes == (warning, left_out(bundle, 1))
    bundle, _ = shared_bundle(mode="auto", **arguments)
    orthogonal_draws = read(bundle, rows, draws)
    assert collinearity(SubspacePosterior(bundle, orthogonal_draws), rows).warning() is None
    assert len(summarise(SubspacePosterior(bundle, orthogonal_draws), rows).notes) == 2


# ---- Pictures and the report


@pytest.mark.parametrize("standardise", (False, True))
def test_pictures_have_both(standardise):
    bundle, rows = shared_bundle()
    material = memory_material(
        SubspacePosterior(bundle, read(bundle, rows, consistent_draws(bundle, rows))), rows
    )
    draw(material, "coefficients", standardise=standardise)
    text = coefficients_alt(material, standardise=standardise)
    orthogonal_x1 = material.posterior.coefficients["b_x1_orth"]
    shown = orthogonal_x1 * bundle.units.x_scale[0] if standardise else orthogonal_x1
    assert f"b_x1_orth: {interval_words(shown)}" in text
    assert ("b_Intercept_orth" in text) == (not standardise)
    draw(material, "densities")
    assert f"b_x1_orth: {interval_words(orthogonal_x1)}" in densities_alt(material)


def test_trained_values_belong_to_what_stands_beside_the_network():
    bundle, _ = shared_bundle()
    assert raw_columns(bundle.config, bundle.design) == {"b_x1": 0, "b_x2": 1}
    inside, _ = shared_bundle(where="model")
    assert raw_columns(inside.config, inside.design) == {"b_x1_raw": 0, "b_x2": 1}


def test_the_report_says_what_the_further_names_are():
    bundle, _ = shared_bundle()
    labels = labels_of(SimpleNamespace(bundle=bundle, posterior=bundle))
    assert labels["b_x1_orth"] == "x1, orthogonalised"
    assert labels["b_Intercept_orth"] == "intercept, orthogonalised"
    other, _ = shared_bundle(where="model")
    inside = labels_of(SimpleNamespace(bundle=other, posterior=other))
    assert inside["b_x1_raw"] == "x1, beside the network"
    assert "b_Intercept_orth" not in inside
