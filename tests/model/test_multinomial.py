"""The family multinomial, against SciPy, the binomial and the categorical on a longer table."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import softmax

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.derivatives import derivatives
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_predict
from semistan.posterior.scoring.scores import pointwise, scores
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.show.inference_data import inference_data, write_inference_data
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
from support.untrained import CATEGORICAL, MULTINOMIAL, random_bundle

RECORD = family("multinomial(bus, car, train, walk)")
MU = {"mutrain": 0.7, "muwalk": -1.2}
FORMULA = "cbind(bus, car, train) | trials(n) ~ x + nn(u, v)"
READ_RUN = Path(__file__).parents[1] / "show" / "read_run.R"
OPTIONS = SampleConfig(chains=2, warmup=100, draws=50, seed=5, kernel="stan")


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def journeys(**columns):
    """The small frame with counts of three ways to travel."""
    frame = small_frame()
    counts = np.random.default_rng(1).multinomial(frame["tries"], [0.5, 0.2, 0.3])
    names = dict(zip(("bus", "car", "train"), counts.T, strict=True))
    return frame.assign(**names, n=frame["tries"]).assign(**columns)


def prepared(formula=FORMULA, family="multinomial", frame=None, **settings):
    return prepare(
        small_config(formula, family=family, **settings), journeys() if frame is None else frame
    )


# ----------------------------------------------------------------------------- the distribution


def test_the_likelihood_is_scipys():
    generator = np.random.default_rng(1)
    eta, train = generator.normal(scale=2, size=(2, 5, 7))
    y = generator.multinomial(np.arange(7) + 1, [0.1, 0.2, 0.3, 0.4])
    values = {"mutrain": tensor(train), "muwalk": tensor(MU["muwalk"])}
    found = RECORD.log_lik(tensor(y), tensor(eta), values).numpy()
    assert found.shape == (5, 7)
    for s, i in np.ndindex(5, 7):
        p = softmax([0, eta[s, i], train[s, i], MU["muwalk"]])
        assert found[s, i] == pytest.approx(stats.multinomial(i + 1, p).logpmf(y[i]), rel=1e-10)


def test_with_two_categories_it_is_the_binomial():
    eta = np.random.default_rng(1).normal(scale=3, size=(5, 7))
    wins, trials = np.array([0, 1, 2, 3, 4, 5, 0]), np.array([3, 1, 4, 8, 4, 9, 1])
    y, given = np.column_stack([trials - wins, wins]), {"trials": tensor(trials)}
    found = family("multinomial(no, yes)").log_lik(tensor(y), tensor(eta), given)
    expected = family("binomial").log_lik(tensor(wins), tensor(eta), given)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-10)


@pytest.mark.parametrize("eta", [-800.0, 800.0])
def test_far_out_values_and_derivatives_are_right(eta):
    at = torch.full((2,), eta, dtype=torch.float64, requires_grad=True)
    values = {name: tensor(value) for name, value in MU.items()}
    value = RECORD.log_lik(tensor([[2, 0, 0, 0], [0, 2, 0, 0]]), at, values)
    logs = np.array([0, eta]) - max(eta, np.logaddexp.reduce([0, *MU.values()]))
    assert value.detach().numpy() == pytest.approx(2 * logs, rel=1e-12)
    (slope,) = torch.autograd.grad(value.sum(), at)
    assert slope.numpy() == pytest.approx([-2.0 * (eta > 0), 2.0 * (eta < 0)], abs=1e-12)


def test_replications_have_the_mean_and_covariance_of_their_trials():
    S, trials = 20_000, np.array([1.0, 12.0])
    eta = np.tile([0.5, -1.0], (S, 1))
    y = RECORD.rng(eta, MU | {"trials": trials}, np.random.default_rng(1))
    assert y.shape == (S, 2, 4)
    assert np.all(y.sum(axis=-1) == trials)
    for i, n in enumerate(trials):
        p = softmax([0, eta[0, i], *MU.values()])
        expected = n * (np.diag(p) - np.outer(p, p))
        assert np.all(np.abs(y[:, i].mean(axis=0) - n * p) < Z * np.sqrt(np.diag(expected) / S))
        centred = y[:, i] - n * p
        products = centred[:, :, None] * centred[:, None, :]
        mcse = products.std(axis=0) / np.sqrt(S)
        assert np.all(np.abs(products.mean(axis=0) - expected) < Z * mcse)


def test_where_training_starts_each_category_has_its_share_of_the_trials():
    y = np.array([[3, 0, 1, 1], [1, 1, 2, 1]])
    eta, scale = RECORD.eta_units(y, {})
    p = RECORD.probabilities(np.array([eta]), RECORD.locations(y))
    assert p == pytest.approx(np.array([[0.4, 0.1, 0.3, 0.2]]))
    assert scale == 1


# ----------------------------------------------------------------------------- the model


def test_the_columns_are_the_categories_and_the_first_is_the_reference():
    found = prepared()
    assert found.design.categories == ("bus", "car", "train")
    assert found.design.coefficients == ("b_mucar_x",)
    assert [item.name for item in found.design.others] == ["mutrain"]
    assert found.config.family == MULTINOMIAL
    assert np.array_equal(found.rows.y, journeys()[["bus", "car", "train"]])
    again = prepare(found.config, journeys())
    assert (again.config, again.design) == (found.config, found.design)


def test_the_counts_of_one_category_may_be_constant():
    frame = journeys(car=2, n=lambda table: table["bus"] + table["car"] + table["train"])
    assert np.all(prepared(frame=frame).rows.y[:, 1] == 2)


def test_columns_in_backticks_are_counted():
    frame = journeys().rename(columns={"car": "by car"})
    found = prepared("cbind(bus, `by car`, train) | trials(n) ~ nn(u)", frame=frame)
    assert found.design.categories == ("bus", "by car", "train")
    assert parse_formula(found.config.formula).outcome == ("bus", "by car", "train")


@pytest.mark.parametrize(
    ("formula", "family", "columns", "message"),
    [
        ("bus | trials(n) ~ nn(u)", "multinomial", {}, "as cbind(a, b, c) | trials(n) ~ ..., got "
         "'bus'; a column that names the category of each row has family categorical"),
        ("cbind(bus, car, train) ~ nn(u)", "multinomial", {}, "needs the number of trials, as "
         "cbind(bus, car, train) | trials(n) ~ ...; if it is 1 in each row, use family "
         "categorical"),
        ("cbind(bus, car) | trials(n) ~ nn(u)", "multinomial", {}, "must be the sum of "
         "'cbind(bus, car)', at least 1"),
        (FORMULA, "poisson", {}, "'cbind(bus, car, train)' has a column for each "
         "category, for family multinomial of counts or dirichlet of shares; the family is "
         "poisson"),
        (FORMULA, "binomial", {}, "the family is binomial"),
        (FORMULA, "multinomial(car, bus, train)", {}, "does not name the columns of "
         "'cbind(bus, car, train)' in their order"),
        (FORMULA, "multinomial", {"car": 0.5}, "but response 'car' is 0.5 in row 1"),
        (FORMULA, "multinomial", {"car": -1}, "expects counts, but response 'car' is -1 in row 1"),
        (FORMULA, "multinomial", {"bus": 1, "car": 2, "train": 3, "n": 6},
         "response 'cbind(bus, car, train)' is constant (1, 2, 3)"),
        (FORMULA, "multinomial", {"bus": "many"}, "'bus'"),
        (FORMULA, "multinomial", {"car": 0}, "no row has a trial in category 'car' of "
         "'cbind(bus, car, train)'"),
        ("cbind(bus) | trials(n) ~ nn(u)", "multinomial", {}, "takes two or more columns"),
        ("cbind(bus, bus) | trials(n) ~ nn(u)", "multinomial", {}, "takes two or more columns"),
        ("cbind(bus, log(car)) | trials(n) ~ nn(u)", "multinomial", {}, "two or more columns"),
        ("cbind(bus, car, train) | trials(n) ~ bus + nn(u)", "multinomial", {}, "'bus' is the "
         "response, which cannot be a predictor of itself"),
        ("cbind(bus, car, tram) | trials(n) ~ nn(u)", "multinomial", {}, "'tram'"),
        ("y ~ cbind(u, v) + nn(u)", "gaussian", {}, "cbind"),
        ("cbind(bus, car, train) | trials(n) ~ nn(u), mubus ~ x", "multinomial", {}, "'bus' is "
         "the reference"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(formula, family, columns, message):
    with pytest.raises(InputError, match=re.escape(message)):
        prepared(formula, family, journeys(**columns))


def test_new_rows_need_their_trials_but_no_counts():
    bundle, _ = random_bundle(MULTINOMIAL)
    frame = random_bundle(MULTINOMIAL)[1].frame
    rows = new_rows(bundle, frame.drop(columns=["bus", "car", "train"]))
    assert rows.y is None
    with pytest.raises(InputError, match="'tries'"):
        new_rows(bundle, frame.drop(columns="tries"))
    with pytest.raises(InputError, match="must be the sum"):
        new_rows(bundle, frame.assign(bus=frame["bus"] + 1), response=True)


# ----------------------------------------------------------------------------- the density


def one_row_a_trial(bundle, rows):
    """The categorical model of the same trials, of which each is a row."""
    place = np.repeat(np.arange(len(rows)), rows.y.sum(axis=1).astype(int))
    codes = np.concatenate([np.repeat([1.0, 2.0, 3.0], row.astype(int)) for row in rows.y])
    other, _ = random_bundle(CATEGORICAL, formula="y ~ x1 + nn(u1, u2, u3)")
    other = replace(other, units=bundle.units, trained=bundle.trained)
    return other, replace(rows.take(place), y=codes)


def test_the_density_is_that_of_one_row_a_trial_but_for_the_ways_to_order_them():
    bundle, rows = random_bundle(MULTINOMIAL)
    other, longer = one_row_a_trial(bundle, rows)
    target, expected = make_target(bundle, rows), make_target(other, longer)
    q = torch.tensor(states(bundle))
    found = [negative_log_posterior(target, x) for x in q]
    differences = np.array(found) - [negative_log_posterior(expected, x) for x in q]
    n = rows.y.sum(axis=1)
    ways = np.log([stats.multinomial(a, b / a).pmf(b) for a, b in zip(n, rows.y, strict=True)])
    ways -= (rows.y * np.log(np.where(rows.y, rows.y / n[:, None], 1))).sum(axis=1)
    assert differences == pytest.approx(np.full(len(q), -ways.sum()), rel=1e-9)
    for x in q:
        for ours, theirs in zip(derivatives(target, x), derivatives(expected, x), strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# ----------------------------------------------------------------------------- answers


def posterior():
    bundle, rows = random_bundle(MULTINOMIAL)
    return SubspacePosterior(bundle, random_draws(bundle)), rows


def test_predictions_are_probabilities_and_replicated_counts():
    fit, rows = posterior()
    p = posterior_epred(fit, rows)
    assert p.shape == (fit.size, len(rows), 3)
    assert p.sum(axis=-1) == pytest.approx(1)
    y = posterior_predict(fit, rows, np.random.default_rng(1))
    assert np.all(y.sum(axis=-1) == rows.given["trials"])
    density = [
        [stats.multinomial(n, p[s, i]).logpmf(rows.y[i]) for i, n in enumerate(rows.y.sum(axis=1))]
        for s in range(3)
    ]
    assert log_lik(fit, rows)[:3] == pytest.approx(np.array(density), rel=1e-9)


def test_scores_are_those_of_one_row_a_trial():
    fit, rows = posterior()
    other, longer = one_row_a_trial(fit.members[0].bundle, rows)
    longer = SubspacePosterior(other, fit.members[0].draws), longer
    ours, theirs = (
        pointwise(*each, generator=np.random.default_rng(1)) for each in ((fit, rows), longer)
    )
    place = np.repeat(np.arange(len(rows)), rows.y.sum(axis=1).astype(int))
    trials = rows.y.sum(axis=1)
    names = [each.name for each in scores(fit.family, ours)]
    assert names == ["LPPD", "accuracy", "Brier"]
    weighted = replace(ours, weight=trials)
    for a, b in zip(
        scores(fit.family, weighted)[1:], scores(other.family, theirs)[1:], strict=True
    ):
        assert a.value == pytest.approx(b.value, rel=1e-9), a.name
    share = np.bincount(place, theirs.of_category(1).y) / trials
    assert ours.of_category(1).y == pytest.approx(share)


def test_simulated_counts_take_the_columns_of_the_observed():
    fit, rows = posterior()
    y = posterior_predict(fit, rows, np.random.default_rng(1))[0]
    frame = with_response(fit.members[0].bundle, rows, y)
    assert np.array_equal(frame[["bus", "car", "train"]], y)
    assert np.array_equal(frame["tries"], rows.frame["tries"])


def test_a_bundle_is_read_back_and_predicts_the_same(tmp_path):
    fit, rows = posterior()
    bundle = fit.members[0].bundle
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    same = new_rows(again, rows.frame, response=True)
    assert np.array_equal(same.y, rows.y)
    expected = log_lik(fit, rows)
    assert log_lik(SubspacePosterior(again, fit.members[0].draws), same) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("cbind(bus, car, train)", "cbind(bus, car, tries)"),
        ("cbind(bus, car, train)", "cbind(bus, train)"),
        ("cbind(bus, car, train)", "bus"),
        ("multinomial(bus, car, train)", CATEGORICAL),
        ("multinomial(bus, car, train)", "multinomial(bus, train)"),
    ],
)
def test_a_bundle_of_other_categories_is_refused(text, other, tmp_path):
    write_bundle(random_bundle(MULTINOMIAL)[0], tmp_path / "bundle")
    path = tmp_path / "bundle" / "bundle.json"
    path.write_text(path.read_text().replace(text, other))
    with semistan.trust_edited(), pytest.raises(InputError, match=r"damaged|cbind"):
        read_bundle(tmp_path / "bundle")


# ----------------------------------------------------------------------------- the program


def test_the_program_reads_counts():
    bundle, rows = random_bundle(MULTINOMIAL)
    text = bundle_program(bundle)
    assert "array[N, 3] int<lower=0> y;  // response" in text
    assert "//   y ~ multinomial_logit(logits')" in text
    assert stan_data(bundle, rows)["y"].tolist() == rows.y.astype(int).tolist()


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("multinomial") / "run"
    run = new_run(*random_bundle(MULTINOMIAL), folder, OPTIONS, toolchain)
    fit = sample(run, toolchain)
    generate_quantities(fit.run, toolchain)
    return fit


def test_generated_quantities_are_ours(fit):
    rows = fit.run.rows()
    generated = read_generated(fit.run)
    assert generated.log_lik == pytest.approx(log_lik(fit.posterior, rows), rel=1e-6)
    assert generated.y_rep.shape == (100, len(rows), 3)
    assert np.all(generated.y_rep.sum(axis=-1) == rows.given["trials"])
    p, n = posterior_epred(fit.posterior, rows), rows.given["trials"][:, None]
    mcse = np.sqrt((n * p * (1 - p)).sum(axis=0)) / len(p)
    assert np.all(np.abs(generated.y_rep.mean(axis=0) - (n * p).mean(axis=0)) < Z * mcse)


def test_counts_have_a_dimension_of_categories_in_inference_data(fit):
    rows = fit.run.rows()
    data = inference_data(fit.run, fit.posterior, rows)
    name = "cbind(bus, car, train)"
    assert data.observed_data[name].dims == ("__obs__", "category")
    assert data.observed_data["category"].values.tolist() == ["bus", "car", "train"]
    assert np.array_equal(data.observed_data[name], rows.y)
    assert data.posterior_predictive[name].dims == ("chain", "draw", "__obs__", "category")
    assert data.log_likelihood[name].dims == ("chain", "draw", "__obs__")
    write_inference_data(data, fit.run.path / "again.nc")


def test_r_reads_the_counts_in_the_order_of_the_replications(fit, tmp_path):
    rscript = r_with("rstan", "posterior", "loo", "bayesplot")
    script = write_r_script(fit.run)
    assert '\ncategories <- c("bus", "car", "train")' in script.read_text("utf-8")
    run_r([rscript, READ_RUN, script, tmp_path])
    y = pd.read_csv(tmp_path / "responses.csv")["y"]
    assert y.tolist() == fit.run.rows().y.T.ravel().tolist()
    assert (fit.run.path / "figures-r" / "responses.pdf").stat().st_size > 0
