from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, poisson

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.model.subspace import along
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.posterior import SubspacePosterior
from support.by_hand import eta_by_hand
from support.drawn import random_draws
from support.small import small_bundle, small_frame

FORMULA = "y ~ x + z + g + nn(u, v)"


def model(formula=FORMULA, frame=None, **settings):
    frame = small_frame() if frame is None else frame
    bundle, _ = small_bundle(formula, frame, **settings)
    return bundle, random_draws(bundle), frame


def importance(bundle, draws, frame, seed=1, **options):
    generator = np.random.default_rng(seed)
    return permutation_importance(
        SubspacePosterior(bundle, draws), frame, generator=generator, **options
    )


def mean_log_lik(bundle, draws, frame, y):
    """Mean log-likelihood of each draw, with SciPy's densities."""
    rows = apply_design(bundle.design, frame, response=False)
    eta = eta_by_hand(bundle, draws, rows.X, rows.U)
    if bundle.family.name == "poisson":
        return poisson.logpmf(y, np.exp(eta)).mean(axis=1)
    return norm.logpdf(y, eta, draws.flat(draws.dispersion["sigma"])[:, None]).mean(axis=1)


def losses_by_hand(bundle, draws, frame, y, name, repeats, seed=1):
    generator = np.random.default_rng(seed)
    intact, losses = mean_log_lik(bundle, draws, frame, y), []
    for _ in range(repeats):
        order = generator.permutation(len(frame))
        shuffled = frame.assign(**{name: frame[name].to_numpy()[order]})
        losses.append(intact - mean_log_lik(bundle, draws, shuffled, y))
    return np.mean(losses, axis=0)


def without(bundle, draws, coefficient, q):
    """Cut a structured column, and input q of a network without hidden layers, out of a model."""
    p_bar, Pi = bundle.subspace.p_bar.copy(), bundle.subspace.Pi.copy()
    p_bar[q], Pi[q] = 0, 0
    trained = replace(bundle.trained, subspace=along(p_bar, Pi, "by hand"))
    theta = draws.theta.copy()
    theta[..., bundle.design.coefficients.index(coefficient)] = 0
    return replace(bundle, trained=trained), replace(draws, theta=theta)


def test_the_number_of_trials_is_not_permuted():
    formula = "wins | trials(tries) ~ x + nn(u, v)"
    bundle, draws, frame = model(formula, family="binomial")
    found = importance(bundle, draws, frame)
    assert sorted(found["term"]) == ["u", "v", "x"]
    assert np.isfinite(found["Estimate"]).all()
    bundle, draws, frame = model(formula.replace("x +", "x + tries +"), family="binomial")
    assert "tries" in set(importance(bundle, draws, frame)["term"])


def test_a_row_of_weight_w_counts_w_times_before_and_after_permuting():
    frame = small_frame().assign(w=np.arange(30) % 4.0)
    bundle, draws, _ = model(f"y | weights(w) ~{FORMULA.partition('~')[2]}", frame)
    plain, _, _ = model(FORMULA, frame)
    table = importance(bundle, draws, frame, variables=["x"], repeats=1)
    order, y = np.random.default_rng(1).permutation(30), frame["y"].to_numpy()

    def density(table):
        rows = apply_design(plain.design, table, response=False)
        eta = eta_by_hand(bundle, draws, rows.X, rows.U)
        sigma = draws.flat(draws.dispersion["sigma"])[:, None]
        return np.average(norm.logpdf(y, eta, sigma), weights=frame["w"], axis=1)

    loss = density(frame) - density(frame.assign(x=frame["x"].to_numpy()[order]))
    assert table["Estimate"][0] == pytest.approx(loss.mean(), rel=1e-9)


def test_what_the_model_does_not_use_has_no_importance_at_all():
    bundle, draws, frame = model(network__hidden=[])
    table = importance(*without(bundle, draws, "b_z", 1), frame).set_index("term")
    assert (table.loc[["z", "v"]] == 0).all(axis=None)
    assert (table.loc[["x", "u", "g"], "Estimate"] != 0).all()


@pytest.mark.parametrize("chunk", [4, 1000])
def test_it_is_a_loop_over_permutations(chunk, monkeypatch):
    bundle, draws, frame = model()
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", chunk * draws.size)
    table = importance(bundle, draws, frame, repeats=3, interval=0.5).set_index("term")
    assert sorted(table.index) == ["g", "u", "v", "x", "z"]
    for name, line in table.iterrows():
        loss = losses_by_hand(bundle, draws, frame, frame["y"].to_numpy(), name, 3)
        expected = [loss.mean(), loss.std(ddof=1), *np.percentile(loss, (25, 75))]
        assert np.allclose(line.iloc[:4], expected, rtol=1e-9, atol=1e-12)
    assert list(table.columns) == ["Estimate", "Est.Error", "l-50% CI", "u-50% CI", "Relative"]


def test_the_response_is_kept_where_it_is_made_of_the_permuted_column():
    bundle, draws, frame = model("{y - 9 * z} ~ x + nn(z, v)")
    loss = losses_by_hand(bundle, draws, frame, (frame["y"] - 9 * frame["z"]).to_numpy(), "z", 2)
    table = importance(bundle, draws, frame, variables="z", repeats=2)
    assert np.isclose(table["Estimate"].item(), loss.mean(), rtol=1e-9)


def test_one_strong_column_comes_first_and_is_certainly_important():
    generator = np.random.default_rng(4)
    bundle, draws, frame = model("count ~ x + C(g) + nn(u, v)", family="poisson")
    draws.theta[..., 0] = generator.normal(0.4, 0.01, draws.theta.shape[:2])
    rows = apply_design(bundle.design, frame, response=False)
    mu = np.exp(eta_by_hand(bundle, draws, rows.X, rows.U)).mean(axis=0)
    frame = frame.assign(count=generator.poisson(mu))
    table = importance(bundle, draws, frame)
    assert table["term"].iloc[0] == "x"
    assert table["l-95% CI"].iloc[0] > 0
    assert table["Estimate"].is_monotonic_decreasing
    assert np.array_equal(table["Relative"], table["Estimate"] / table["Estimate"].iloc[0])
    loss = losses_by_hand(bundle, draws, frame, frame["count"].to_numpy(), "x", 5)
    assert np.isclose(table["Estimate"].iloc[0], loss.mean(), rtol=1e-9)


def test_a_line_does_not_depend_on_the_columns_asked_for():
    bundle, draws, frame = model()
    every = importance(bundle, draws, frame).set_index("term")
    some = importance(bundle, draws, frame, variables=["v", "x"]).set_index("term")
    assert some.drop(columns="Relative").equals(
        every.loc[list(some.index)].drop(columns="Relative")
    )
    other = importance(bundle, draws, frame, variables=["v", "x"], seed=2).set_index("term")
    assert (other.loc[some.index, "Estimate"] != some["Estimate"]).all()


def test_nothing_is_relative_to_a_column_that_only_harms():
    bundle, draws, frame = model()
    draws.theta[..., 0] = 3
    table = importance(bundle, draws, frame.assign(y=lambda f: -3 * f["x"]), variables="x")
    assert table["Estimate"].item() < 0
    assert np.isnan(table["Relative"].item())


def test_a_sample_of_rows_is_permuted_among_itself():
    bundle, draws, frame = model()
    alone = importance(bundle, draws, frame, rows=1)
    assert (alone["Estimate"] == 0).all()
    assert (importance(bundle, draws, frame, rows=9)["Estimate"] != 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variables": ["x", "gg"]}, "does not use a column 'gg'. Did you mean 'g'?"),
        ({"variables": "y"}, "'y' is the response"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"interval": 0}, "between 0 and 1, got 0"),
        ({"rows": -2}, "rows must be at least 1, got -2"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(InputError) as caught:
        importance(*model(), **options)
    assert message in str(caught.value)


def test_the_response_is_needed():
    bundle, draws, frame = model()
    with pytest.raises(InputError, match="names column 'y', which the data do not have"):
        importance(bundle, draws, frame.drop(columns="y"))
