"""The family dirichlet, against SciPy, the family beta and derivatives by differences."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import softmax

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.derivatives import _safe_bends, expansion
from semistan.density.target import make_target, value_and_gradient
from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.model.families.families import family
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_predict
from semistan.posterior.scoring.scores import pointwise, scores
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.show.r_script import write_r_script
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.sample import sample
from semistan.workflow.simulate import with_response
from support.assertions import Z
from support.columns import states
from support.drawn import random_draws
from support.r import r_with, run_r
from support.small import small_config, small_frame
from support.untrained import DIRICHLET, random_bundle

RECORD = family("dirichlet(bus, car, train, walk)")
MU = {"mutrain": 0.7, "muwalk": -1.2}
FORMULA = "cbind(bus, car, train) ~ x + nn(u, v)"
READ_RUN = Path(__file__).parents[1] / "show" / "read_run.R"
OPTIONS = SampleConfig(chains=2, warmup=100, draws=50, seed=5, kernel="stan")


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def shares(**columns):
    """The small frame with shares of three ways to travel."""
    frame = small_frame()
    drawn = np.random.default_rng(1).dirichlet([5, 2, 3], size=len(frame))
    return frame.assign(**dict(zip(("bus", "car", "train"), drawn.T, strict=True))).assign(
        **columns
    )


def prepared(formula=FORMULA, family="dirichlet", frame=None, **settings):
    return prepare(
        small_config(formula, family=family, **settings), shares() if frame is None else frame
    )


# ----------------------------------------------------------------------------- the distribution


def test_the_likelihood_is_scipys():
    generator = np.random.default_rng(1)
    eta, train = generator.normal(scale=2, size=(2, 5, 7))
    y = generator.dirichlet([1, 2, 3, 4], size=7)
    precision = generator.uniform(0.5, 30, (5, 1))
    values = {"mutrain": tensor(train), "muwalk": tensor(MU["muwalk"])}
    found = RECORD.log_lik(tensor(y), tensor(eta), values | {"precision": tensor(precision)})
    assert found.shape == (5, 7)
    for s, i in np.ndindex(5, 7):
        a = precision[s, 0] * softmax([0, eta[s, i], train[s, i], MU["muwalk"]])
        assert found[s, i].item() == pytest.approx(stats.dirichlet(a).logpdf(y[i]), rel=1e-9)


def test_with_two_categories_it_is_the_beta():
    eta = np.random.default_rng(1).normal(scale=3, size=(5, 7))
    y = np.random.default_rng(2).uniform(0.01, 0.99, 7)
    values = {"precision": tensor(6.5)}
    pairs = tensor(np.column_stack([1 - y, y]))
    found = family("dirichlet(no, yes)").log_lik(pairs, tensor(eta), values)
    expected = family("beta").log_lik(tensor(y), tensor(eta), values)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-10)


@pytest.mark.parametrize("eta", [-800.0, 800.0])
def test_far_out_values_and_derivatives_are_finite(eta):
    at = torch.full((2,), eta, dtype=torch.float64, requires_grad=True)
    values = {name: tensor(value) for name, value in MU.items()} | {"precision": tensor(3.0)}
    y = tensor([[0.2, 0.3, 0.1, 0.4], [0.7, 0.1, 0.1, 0.1]])
    value = RECORD.log_lik(y, at, values)
    (slope,) = torch.autograd.grad(value.sum(), at)
    assert torch.isfinite(value).all() and torch.isfinite(slope).all()


def test_replications_have_the_mean_and_covariance_of_the_distribution():
    S, precision = 20_000, np.array([0.3, 12.0])
    eta = np.tile([0.5, -1.0], (S, 1))
    y = RECORD.rng(eta, MU | {"precision": precision}, np.random.default_rng(1))
    assert y.shape == (S, 2, 4)
    assert y.sum(axis=-1) == pytest.approx(1)
    for i, each in enumerate(precision):
        p = softmax([0, eta[0, i], *MU.values()])
        expected = (np.diag(p) - np.outer(p, p)) / (1 + each)
        assert np.all(np.abs(y[:, i].mean(axis=0) - p) < Z * np.sqrt(np.diag(expected) / S))
        centred = y[:, i] - p
        products = centred[:, :, None] * centred[:, None, :]
        mcse = products.std(axis=0) / np.sqrt(S)
        assert np.all(np.abs(products.mean(axis=0) - expected) < Z * mcse)


def test_replications_of_a_tiny_precision_are_corners_and_never_nan():
    generator = np.random.default_rng(1)
    y = RECORD.rng(np.zeros(4000), {"mutrain": 0.0, "muwalk": 0.0, "precision": 1e-5}, generator)
    assert np.isfinite(y).all()
    corners = y.argmax(axis=-1)
    assert y.max(axis=-1).min() > 0.99
    assert np.abs(np.bincount(corners) / 4000 - 0.25).max() < Z * np.sqrt(0.25 * 0.75 / 4000)


# ----------------------------------------------------------------------------- the model


def test_the_columns_are_the_categories_and_the_first_is_the_reference():
    found = prepared()
    assert found.design.categories == ("bus", "car", "train")
    assert found.design.coefficients == ("b_mucar_x",)
    assert [item.name for item in found.design.others] == ["mutrain"]
    assert found.config.family == DIRICHLET
    assert np.array_equal(found.rows.y, shares()[["bus", "car", "train"]])
    again = prepare(found.config, shares())
    assert (again.config, again.design) == (found.config, found.design)


@pytest.mark.parametrize(
    ("formula", "family", "columns", "message"),
    [
        ("bus ~ nn(u)", "dirichlet", {}, "has the share of each of several categories, each in a "
         "column: write the response as cbind(a, b, c) ~ ..., got 'bus'"),
        ("cbind(bus, car) ~ nn(u)", "dirichlet", {}, "the shares 'cbind(bus, car)' must add up to "
         "1, but their sum is"),
        (FORMULA, "beta", {}, "dirichlet of shares; the family is beta"),
        ("cbind(bus, car, train) | trials(tries) ~ nn(u)", "dirichlet", {}, "the family is "
         "dirichlet; leave it out"),
        (FORMULA, "dirichlet(car, bus, train)", {}, "does not name the columns of "
         "'cbind(bus, car, train)' in their order"),
        (FORMULA, "dirichlet", {"car": 0.0}, "expects numbers between 0 and 1, both excluded, but "
         "response 'car' is 0 in row 1"),
        (FORMULA, "dirichlet", {"bus": 0.2, "car": 0.3, "train": 0.5},
         "response 'cbind(bus, car, train)' is constant (0.2, 0.3, 0.5)"),
        ("cbind(bus, car, train) ~ bus + nn(u)", "dirichlet", {}, "'bus' is the response, which "
         "cannot be a predictor of itself"),
        ("cbind(bus, car, train) | cens(c) ~ nn(u)", "dirichlet", {"c": 0}, "cens() is for "
         "families gaussian, lognormal, weibull, exponential, cox and poisson, the family is "
         "dirichlet"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(formula, family, columns, message):
    with pytest.raises(InputError, match=re.escape(message)):
        prepared(formula, family, shares(**columns))


def test_shares_in_single_precision_are_taken():
    frame = shares()
    frame = frame.astype(dict.fromkeys(("bus", "car", "train"), "float32"))
    assert prepared(frame=frame).rows.y.sum(axis=1) == pytest.approx(1, abs=1e-6)


def test_new_rows_need_no_shares():
    bundle, rows = random_bundle(DIRICHLET)
    frame = rows.frame.drop(columns=["bus", "car", "train"])
    assert new_rows(bundle, frame).y is None
    with pytest.raises(InputError, match="must add up to 1"):
        new_rows(bundle, rows.frame.assign(bus=rows.frame["bus"] / 2), response=True)


# ----------------------------------------------------------------------------- the density


def test_the_derivatives_are_those_of_the_density():
    bundle, rows = random_bundle(DIRICHLET, formula="cbind(bus, car, train) ~ x1 + nn(u1)")
    target = make_target(bundle, rows)
    for q in states(bundle):
        _, slope = value_and_gradient(target, q)
        assert expansion(target, torch.tensor(q)).gradient.numpy() == pytest.approx(slope, rel=1e-8)


def test_each_rows_curvature_is_the_nearest_that_bends_upwards():
    upwards, mixed = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    rows = tensor([upwards, mixed])
    bends = {("a", "a"): rows[:, 0, 0], ("b", "a"): rows[:, 1, 0], ("b", "b"): rows[:, 1, 1]}
    found = {pair: bend.numpy() for pair, bend in _safe_bends(bends, RECORD).items()}
    assert found["a", "a"] == pytest.approx(np.array([2, 1.5]))
    assert found["b", "a"] == pytest.approx(np.array([1, 1.5]))
    assert found["b", "b"] == pytest.approx(np.array([3, 1.5]))


# ----------------------------------------------------------------------------- answers


def posterior():
    bundle, rows = random_bundle(DIRICHLET)
    return SubspacePosterior(bundle, random_draws(bundle)), rows


def test_predictions_are_mean_shares_and_replicated_ones():
    fit, rows = posterior()
    p = posterior_epred(fit, rows)
    assert p.shape == (fit.size, len(rows), 3)
    assert p.sum(axis=-1) == pytest.approx(1)
    y = posterior_predict(fit, rows, np.random.default_rng(1))
    assert y.sum(axis=-1) == pytest.approx(1)
    precision = fit.members[0].draws.dispersion["precision"].ravel()
    density = [
        [stats.dirichlet(precision[s] * p[s, i]).logpdf(rows.y[i]) for i in range(len(rows))]
        for s in range(3)
    ]
    assert log_lik(fit, rows)[:3] == pytest.approx(np.array(density), rel=1e-8)


def test_shares_have_an_error_over_all_categories():
    fit, rows = posterior()
    found = pointwise(fit, rows, generator=np.random.default_rng(1))
    several = {each.name: each.value for each in scores(fit.family, found)}
    error = posterior_epred(fit, rows).mean(axis=0) - rows.y
    assert set(several) == {"LPPD", "RMSE"}
    assert several["RMSE"] == pytest.approx(np.sqrt(np.square(error).mean()))


def test_simulated_shares_take_the_columns_of_the_observed():
    fit, rows = posterior()
    y = posterior_predict(fit, rows, np.random.default_rng(1))[0]
    frame = with_response(fit.members[0].bundle, rows, y)
    assert np.array_equal(frame[["bus", "car", "train"]], y)


def test_a_bundle_is_read_back_and_predicts_the_same(tmp_path):
    fit, rows = posterior()
    write_bundle(fit.members[0].bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    same = new_rows(again, rows.frame, response=True)
    assert np.array_equal(same.y, rows.y)
    expected = log_lik(fit, rows)
    assert log_lik(SubspacePosterior(again, fit.members[0].draws), same) == pytest.approx(
        expected, rel=1e-9
    )


# ----------------------------------------------------------------------------- the program


def test_the_program_reads_shares():
    bundle, rows = random_bundle(DIRICHLET)
    text = bundle_program(bundle)
    assert "array[N] vector<lower=0, upper=1>[3] y;  // response" in text
    assert "//   y ~ dirichlet_logit(logits', precision)" in text
    assert np.array_equal(stan_data(bundle, rows)["y"], rows.y)


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dirichlet") / "run"
    run = new_run(*random_bundle(DIRICHLET), folder, OPTIONS, toolchain)
    fit = sample(run, toolchain)
    generate_quantities(fit.run, toolchain)
    return fit


def test_generated_quantities_are_ours(fit):
    rows = fit.run.rows()
    generated = read_generated(fit.run)
    assert generated.log_lik == pytest.approx(log_lik(fit.posterior, rows), rel=1e-6, abs=1e-6)
    assert generated.y_rep.shape == (100, len(rows), 3)
    assert generated.y_rep.sum(axis=-1) == pytest.approx(1, abs=1e-5)
    p = posterior_epred(fit.posterior, rows)
    precision = fit.posterior.members[0].draws.dispersion["precision"].reshape(-1, 1, 1)
    mcse = np.sqrt((p * (1 - p) / (1 + precision)).sum(axis=0)) / len(p)
    assert np.all(np.abs(generated.y_rep.mean(axis=0) - p.mean(axis=0)) < Z * mcse)


def test_r_reads_the_shares_in_the_order_of_the_replications(fit, tmp_path):
    rscript = r_with("rstan", "posterior", "loo", "bayesplot")
    script = write_r_script(fit.run)
    run_r([rscript, READ_RUN, script, tmp_path])
    y = pd.read_csv(tmp_path / "responses.csv")["y"]
    assert y.to_numpy() == pytest.approx(fit.run.rows().y.T.ravel(), rel=1e-9)
    assert (fit.run.path / "figures-r" / "responses.pdf").stat().st_size > 0
