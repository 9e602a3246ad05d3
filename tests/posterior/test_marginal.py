import numpy as np
import pytest
import torch

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.model.networks.networks import forward
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred
from support.by_hand import eta_by_hand, slopes_by_hand
from support.drawn import random_draws
from support.small import (
    category_bundle,
    category_frame,
    family_bundle,
    further_bundle,
    small_bundle,
    small_frame,
)

REACH = 1e-6  # of finite differences, relative to the largest figure of a line


def lines(values, interval=0.95):
    """The four figures of draws (S, G), one line per column."""
    probabilities = (50 - 50 * interval, 50 + 50 * interval)
    bounds = np.percentile(values, probabilities, axis=0)
    return np.column_stack([values.mean(axis=0), values.std(axis=0, ddof=1), *bounds])


def figures(table):
    return table.iloc[:, 2:].to_numpy()


def assert_close(table, expected):
    error = np.abs(figures(table) - expected)
    assert (error < REACH * np.abs(expected).max(axis=1, keepdims=True)).all(), error / expected


def theta_of(bundle, draws, *names):
    """Draws of some coefficients, shape (S, number of names)."""
    return np.column_stack([draws.flat(draws.coefficients[name]) for name in names])


def model(formula, frame=None, **settings):
    frame = small_frame() if frame is None else frame
    bundle, _ = small_bundle(formula, frame, **settings)
    return bundle, random_draws(bundle), frame


def mu_by_hand(bundle, draws, frame):
    rows = apply_design(bundle.design, frame, response=False)
    return bundle.family.mean(eta_by_hand(bundle, draws, rows.X, rows.U), {})


def refusal(bundle, draws, frame, **options):
    with pytest.raises(InputError) as caught:
        average_marginal_effects(SubspacePosterior(bundle, draws), frame, **options)
    return str(caught.value)


def test_of_a_linear_gaussian_model_they_are_the_coefficients():
    bundle, draws, frame = model("y ~ x + C(g) + nn(u, v)", network__hidden=[])
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame)
    theta = theta_of(bundle, draws, "b_x", "b_gb", "b_gc")
    expected = lines(np.hstack([theta, slopes_by_hand(bundle, draws)]))
    assert_close(table, expected)
    assert list(table["term"]) == ["x", "g", "g", "u", "v"]
    assert list(table["contrast"]) == ["dY/dX", "b - a", "c - a", "dY/dX", "dY/dX"]


def test_of_a_column_in_both_parts_they_add_up():
    bundle, draws, frame = model("y ~ v + nn(v, u)", network__hidden=[])
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables=["v", "v"])
    total = theta_of(bundle, draws, "b_v") + slopes_by_hand(bundle, draws)[:, :1]
    assert_close(table, lines(total))
    assert len(table) == 1


def test_of_a_logistic_model_they_are_mean_p_times_1_minus_p_times_theta():
    bundle, _ = family_bundle("bernoulli")
    draws, frame = random_draws(bundle), small_frame()
    p = mu_by_hand(bundle, draws, frame)
    expected = (p * (1 - p)).mean(axis=1, keepdims=True) * theta_of(bundle, draws, "b_x")
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables=["x"])
    assert_close(table, lines(expected))


def test_of_a_logarithm_in_a_log_linear_model_they_are_mean_mu_theta_over_z():
    frame = small_frame().assign(z=lambda f: np.exp((f["x"] - f["x"].mean()) / 2))
    bundle, draws, frame = model("count ~ log(z) + nn(u, v)", frame, family="poisson")
    mu, z = mu_by_hand(bundle, draws, frame), frame["z"].to_numpy()
    expected = (mu / z).mean(axis=1, keepdims=True) * theta_of(bundle, draws, "b_logz")
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables=["z"])
    assert_close(table, lines(expected))


def test_on_the_linear_predictor_an_interaction_is_averaged():
    bundle, draws, frame = model("count ~ x*z + x:g + nn(u, v)", family="poisson")
    table = average_marginal_effects(
        SubspacePosterior(bundle, draws), frame, variables="x", scale="linpred"
    )
    shares = np.array([1, frame["z"].mean(), *((frame["g"] == level).mean() for level in "bc")])
    slope = theta_of(bundle, draws, "b_x", "b_x_z", "b_x_gb", "b_x_gc") @ shares
    assert_close(table, lines(slope[:, None]))


def test_of_the_network_they_are_its_mean_gradient():
    bundle, draws, frame = model("y ~ x + nn(u, v)")
    units = bundle.units
    Z = (frame[["u", "v"]].to_numpy() - units.u_loc) / units.u_scale
    gradients = []
    for phi in draws.flat(draws.phi):
        inputs = torch.tensor(Z, requires_grad=True)
        forward(bundle.network, torch.tensor(bundle.subspace.lift(phi)), inputs).mean().backward()
        gradients.append(units.eta_scale * inputs.grad.numpy().sum(axis=0) / units.u_scale)
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables=["u", "v"])
    assert_close(table, lines(np.array(gradients)))


def test_at_the_ends_of_a_spline_they_stay_within_its_range():
    bundle, draws, frame = model("y ~ bs(x, df=1, degree=1) + nn(u, v)")
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables="x")
    slope = theta_of(bundle, draws, bundle.design.coefficients[0]) / np.ptp(frame["x"])
    assert_close(table, lines(slope))


def test_of_a_switch_coded_0_and_1_the_slope_is_at_the_observed_values():
    frame = small_frame().assign(on=np.arange(30) % 2)
    bundle, draws, frame = model("count ~ on + nn(u, v)", frame, family="poisson")
    mu = mu_by_hand(bundle, draws, frame).mean(axis=1, keepdims=True)
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables="on")
    assert_close(table, lines(mu * theta_of(bundle, draws, "b_on")))


@pytest.mark.lengthy
@pytest.mark.parametrize("chunk", [3, 1000])
def test_factors_and_booleans_are_differences_to_the_reference(chunk, monkeypatch):
    frame = small_frame().assign(on=np.arange(30) % 4 == 0)
    bundle, draws, frame = model("count ~ g*x + on + nn(u, v, on)", frame, family="poisson")
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", chunk * draws.size)
    table = average_marginal_effects(
        SubspacePosterior(bundle, draws), frame, variables=["on", "g"], interval=0.8
    )

    def mean(**values):
        return mu_by_hand(bundle, draws, frame.assign(**values)).mean(axis=1)

    differences = [
        mean(on=True) - mean(on=False), mean(g="b") - mean(g="a"), mean(g="c") - mean(g="a"),
    ]  # fmt: skip
    assert np.allclose(figures(table), lines(np.column_stack(differences), 0.8), rtol=1e-9)
    assert list(table["contrast"]) == ["True - False", "b - a", "c - a"]
    assert list(table.columns) == [
        "term", "contrast", "Estimate", "Est.Error", "l-80% CI", "u-80% CI",
    ]  # fmt: skip


def test_numeric_columns_are_averaged_in_chunks(monkeypatch):
    bundle, draws, frame = model("y ~ x*z + nn(u, v)")
    whole = average_marginal_effects(SubspacePosterior(bundle, draws), frame)
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 7 * draws.size)
    assert np.allclose(
        figures(average_marginal_effects(SubspacePosterior(bundle, draws), frame)), figures(whole)
    )


def test_rows_are_drawn_by_the_generator_and_the_range_stays_that_of_the_table():
    bundle, draws, frame = model("count ~ g + bs(x, df=4) + nn(u, v)", family="poisson")
    table = average_marginal_effects(
        SubspacePosterior(bundle, draws),
        frame,
        variables="g",
        rows=1,
        generator=np.random.default_rng(2),
    )
    mu = {level: mu_by_hand(bundle, draws, frame.assign(g=level)) for level in "abc"}
    one_row = [(mu["b"] - mu["a"])[:, i].mean() for i in range(len(frame))]
    assert np.isclose(one_row, table["Estimate"].iloc[0], rtol=1e-9).sum() == 1
    slope = average_marginal_effects(
        SubspacePosterior(bundle, draws),
        frame,
        variables="x",
        rows=1,
        generator=np.random.default_rng(2),
    )
    assert np.isfinite(figures(slope)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variables": "xx"}, "does not use a column 'xx'. Did you mean 'x'?"),
        ({"variables": ["x", "y"]}, "'y' is the response of formula"),
        ({"scale": "linpredd"}, "Did you mean 'linpred'?"),
        ({"interval": 95}, "between 0 and 1, got 95"),
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"rows": 3}, "needs a generator"),
    ],
)
def test_bad_input_is_refused(options, message):
    assert message in refusal(*model("y ~ x + C(g) + nn(u, v)"), **options)


def test_rows_count_by_their_weights_and_columns_that_only_name_groups_are_left_out():
    bundle, _ = further_bundle("gaussian")
    one, frame = SubspacePosterior(bundle, random_draws(bundle)), small_frame()
    table = average_marginal_effects(one, frame)
    assert list(table["term"]) == ["x", "u", "v"]
    step = 1e-4
    mu = [
        posterior_epred(
            one, apply_design(bundle.design, frame.assign(x=frame["x"] + change), response=False)
        )
        for change in (-step, step)
    ]
    slope = np.average(mu[1] - mu[0], axis=1, weights=frame["z"]) / (2 * step)
    assert_close(table[table["term"] == "x"], lines(slope[:, None]))
    of_groups = average_marginal_effects(one, frame, variables="g")
    assert list(of_groups["contrast"]) == ["b - a", "c - a"]


def test_a_column_without_variation_has_no_marginal_effect():
    bundle, draws, frame = model("y ~ x + nn(u, v)")
    assert "column 'x' is constant in these rows (2)" in refusal(bundle, draws, frame.assign(x=2))


def test_of_categories_they_are_changes_of_each_probability(monkeypatch):
    """d p_k / d x = p_k (theta_k - sum_j p_j theta_j), with theta = 0 of the reference."""
    (bundle, _), frame = category_bundle(), category_frame()
    draws = random_draws(bundle)
    p = posterior_epred(
        SubspacePosterior(bundle, draws), apply_design(bundle.design, frame, response=False)
    )
    theta = np.insert(theta_of(bundle, draws, "b_mucar_x", "b_mutrain_trip_x"), 0, 0, axis=1)
    slopes = p * (theta[:, None] - (p * theta[:, None]).sum(axis=-1, keepdims=True))
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 21 * draws.size)
    table = average_marginal_effects(SubspacePosterior(bundle, draws), frame, variables=["x", "g"])
    assert list(table)[:4] == ["term", "contrast", "category", "Estimate"]
    assert list(table["category"]) == [n for n in ("bus", "car", "train trip") for _ in range(3)]
    expected = lines(slopes.mean(axis=1))
    found = table[table["term"] == "x"].iloc[:, 3:].to_numpy()
    assert (np.abs(found - expected) < REACH * np.abs(expected).max()).all()
    b, a = (
        posterior_epred(
            SubspacePosterior(bundle, draws),
            apply_design(bundle.design, frame.assign(g=g), response=False),
        )
        for g in "ba"
    )
    found = table[table["contrast"] == "b - a"]["Estimate"]
    assert found.to_numpy() == pytest.approx((b - a).mean(axis=(0, 1)), rel=1e-9)
