"""The cumulative family, against statsmodels' OrderedModel and direct sums over categories."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import expit
from statsmodels.miscmodels.ordinal_model import OrderedModel

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.errors import InputError
from semistan.model.families.families import family
from semistan.model.families.family import check_response
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.generated import read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik as log_lik_of
from semistan.posterior.predictive import posterior_epred, posterior_linpred
from semistan.posterior.scoring.scores import pointwise
from semistan.program.data import stan_data
from semistan.program.program import stan_program
from semistan.workflow.fit import fit_model
from semistan.workflow.outputs import generate
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.train import train
from support.columns import assert_columns
from support.drawn import random_draws
from support.likelihoods import assert_derivatives, assert_drawn_shares, assert_finite_far_out
from support.small import small_config, small_frame

K = 4
GAPS = {"gap_2": 0.6, "gap_3": 1.3}
TAU = np.array([0, 0.6, 1.9])
CDF = {"logit": expit, "probit": stats.norm.cdf}
FORMULA = "o ~ x + nn(u, v)"

each = pytest.mark.parametrize("link", CDF)


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def record(link, categories=K):
    return family(f"cumulative({link}, {categories})")


def gaps(of=np.float64):
    return {name: of(value) for name, value in GAPS.items()}


def log_lik(link, y, eta):
    return record(link).log_lik(tensor(y), tensor(eta), gaps(tensor)).numpy()


def probabilities(link, eta):
    """P(y = k) of each eta (N,), shape (N, K), as differences of the distribution function."""
    below = CDF[link](TAU - np.asarray(eta)[:, None])
    return np.diff(below, axis=1, prepend=0, append=1)


def ordinal_frame(categories=K):
    return small_frame().assign(o=np.arange(30) % categories + 1)


def ordinal_prepared(link="logit", frame=None, **settings):
    config = small_config(FORMULA, family=f"cumulative({link})", **settings)
    return prepare(config, ordinal_frame() if frame is None else frame)


@each
def test_the_likelihood_is_that_of_statsmodels(link):
    generator = np.random.default_rng(1)
    X, b = generator.normal(size=(60, 2)), np.array([0.8, -1.1])
    y = np.arange(60) % K + 1
    model = OrderedModel(y, X, distr=link)
    # statsmodels has the first threshold, then logarithms of the distances
    expected = model.loglikeobs(np.r_[b, 0, np.log([0.6, 1.3])])
    assert log_lik(link, y, X @ b) == pytest.approx(expected, rel=1e-9)


@each
@pytest.mark.parametrize("eta", [-3.0, 0.4, 2.5])
def test_the_categories_share_one(link, eta):
    found = np.exp(log_lik(link, np.arange(1, K + 1), np.full(K, eta)))
    assert found == pytest.approx(probabilities(link, [eta])[0], rel=1e-12)


def test_two_categories_are_bernoulli():
    y, eta = np.meshgrid([0.0, 1.0], np.linspace(-5, 5, 5))
    two = record("logit", 2).log_lik(tensor(y + 1), tensor(eta), {})
    assert torch.equal(two, family("bernoulli").log_lik(tensor(y), tensor(eta), {}))


def test_far_out_probit_probabilities_are_those_of_the_tail():
    # P(2) = Phi(0.6 - 40) - Phi(-40), of which the second is nothing beside the first
    expected = [stats.norm.logcdf(-40), stats.norm.logcdf(-39.4), stats.norm.logcdf(-38.1)]
    assert log_lik("probit", [1, 2, 3], [40.0] * 3) == pytest.approx(expected, rel=1e-12)
    mirrored = [stats.norm.logsf(41.9), stats.norm.logsf(40.6), stats.norm.logsf(40)]
    assert log_lik("probit", [4, 3, 2], [-40.0] * 3) == pytest.approx(mirrored, rel=1e-12)


@each
@pytest.mark.parametrize("eta", [-700.0, -40.0, 40.0, 700.0])
def test_values_and_both_derivatives_are_finite_far_out(link, eta):
    assert_finite_far_out(record(link), GAPS, eta)


@each
def test_the_derivatives_are_right(link):
    assert_derivatives(record(link), GAPS, [-1.0, 2.0, 0.5, 0.3])


@each
def test_draws_of_gaps_are_columns(link):
    S, eta = 5, np.random.default_rng(1).normal(size=(5, K))
    columns = {
        name: tensor(value * np.linspace(0.5, 2, S)[:, None]) for name, value in GAPS.items()
    }
    y = tensor(np.arange(1, K + 1))
    found = record(link).log_lik(y, tensor(eta), columns)
    for s in range(S):
        one = {name: values[s, 0] for name, values in columns.items()}
        assert torch.equal(found[s], record(link).log_lik(y, tensor(eta[s]), one))


@each
def test_the_mean_is_the_expected_category(link):
    eta = np.linspace(-4, 6, 9)
    expected = probabilities(link, eta) @ np.arange(1, K + 1)
    assert record(link).mean(eta, gaps()) == pytest.approx(expected, rel=1e-12)


@each
def test_random_categories_have_their_probabilities(link):
    eta = np.array([-1.0, 0.5, 2.0])
    expected = probabilities(link, eta)
    assert_drawn_shares(record(link), GAPS, eta, expected)


@each
def test_the_location_of_eta_gives_the_first_category_its_share(link):
    location, scale = record(link).eta_units(np.array([1.0, 2, 4, 3, 1]), {})
    assert (CDF[link](-location), scale) == (pytest.approx(2 / 5), 1)


def test_the_number_of_categories_is_learnt_from_the_data():
    assert ordinal_prepared().config.family == "cumulative(logit, 4)"
    assert ordinal_prepared("probit").config.family == "cumulative(probit, 4)"
    assert ordinal_prepared("probit, 4").config.family == "cumulative(probit, 4)"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("cumulative(logit)", "cumulative"), ("cumulative(5)", "cumulative(logit, 5)"),
        ("cumulative( probit )", "cumulative(probit)"),
    ],
)  # fmt: skip
def test_a_number_may_be_written_or_not(written, text):
    assert str(family(written)) == text
    assert str(family(text)) == text


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("cumulative(cloglog)", "family cumulative has no link 'cloglog'; it has logit, probit"),
        ("cumulative(logit, 5, 6)", "takes a link and a number of categories"),
        ("cumulative(logit, probit)", "as 'cumulative(logit, 5)', got 'logit, probit'"),
        ("cumulative(1)", "needs two categories or more, got 1"),
    ],
)
def test_other_brackets_are_refused(written, named):
    with pytest.raises(InputError, match=re.escape(named)):
        family(written)


@pytest.mark.parametrize(
    ("y", "written", "named"),
    [
        ([1, 2, 4], "cumulative", "no row of response 'o' is in category 3 of 1 to 4"),
        ([2, 3, 3], "cumulative", "is in category 1 of 1 to 3"),
        ([1, 2, 3], "cumulative(logit, 5)", "is in category 4 of 1 to 5"),
        (
            [1, 2, 6],
            "cumulative(logit, 5)",
            "expects categories 1, 2, ..., 5, but response 'o' is 6",
        ),
        (
            [0, 1, 2],
            "cumulative",
            "expects categories 1, 2, ..., K, but response 'o' is 0 in row 1",
        ),
        ([1, 2, 2.5], "cumulative", "is 2.5 in row 3"),
        ([1, 1, 1], "cumulative", "is constant"),
    ],
)
def test_impossible_responses_are_refused(y, written, named):
    frame = ordinal_frame().assign(o=np.resize(np.array(y, dtype=float), 30))
    with pytest.raises(InputError, match=re.escape(named)):
        prepare(small_config(FORMULA, family=written), frame)


def test_new_rows_need_not_have_every_category():
    check_response(record("logit"), np.array([1.0, 2, 2]), "o")


def ordered(frame, labels=("bad", "fair", "good", "best")):
    values = np.array(labels)[frame["o"] - 1]
    return frame.assign(o=pd.Categorical(values, categories=labels, ordered=True))


def test_ordered_categories_are_numbered_in_their_order():
    frame = ordinal_frame()
    prepared = ordinal_prepared(frame=ordered(frame))
    assert prepared.config.family == "cumulative(logit, 4)"
    assert np.array_equal(prepared.rows.y, frame["o"])
    bundle = train(prepared)
    assert np.array_equal(new_rows(bundle, ordered(frame)[:7], response=True).y, frame["o"][:7])


@pytest.mark.parametrize(
    ("written", "change", "named"),
    [
        ("gaussian", lambda f: f, "has 4 ordered categories, which family gaussian does not know"),
        ("cumulative(logit, 3)", lambda f: f, "is 4 in row"),
        ("cumulative(logit, 5)", lambda f: f, "4 ordered categories, family cumulative(logit, 5)"),
        ("cumulative", lambda f: f[f["o"] != "best"], "no row of response 'o' is in category 4 of"),
    ],
)
def test_ordered_categories_that_do_not_fit_are_refused(written, change, named):
    with pytest.raises(InputError, match=re.escape(named)):
        prepare(small_config(FORMULA, family=written), change(ordered(ordinal_frame())))


def test_new_rows_with_other_categories_are_refused():
    bundle = train(ordinal_prepared(frame=ordered(ordinal_frame())))
    other = ordered(ordinal_frame(3), ("bad", "fair", "good"))
    with pytest.raises(InputError, match=r"3 ordered categories, family cumulative\(logit, 4\)"):
        new_rows(bundle, other, response=True)


def test_one_key_gives_all_gaps_their_prior():
    lines = {line.parameter: line for line in priors_as_used(train(ordinal_prepared()))}
    assert [lines[name].used for name in GAPS] == ["lognormal(0, 1)"] * 2
    assert lines["gap_2"].source == "default"
    bundle = train(ordinal_prepared(priors__gap="gamma(2, 1.5)"))
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    assert [lines[name].used for name in GAPS] == ["gamma(2, 1.5)"] * 2
    assert lines["gap_3"].source == "class"
    data = stan_data(bundle, ordinal_prepared().rows)
    assert (data["prior_gap_2_shape"], data["prior_gap_3_rate"]) == (2, 1.5)


@each
def test_the_program_has_the_thresholds_of_the_family(link):
    prepared = ordinal_prepared(link)
    text = stan_program(prepared.model)
    assert re.findall(r"real<lower=0> (gap_\w+);", text) == list(GAPS)
    assert "vector[3] tau = cumulative_sum([0, gap_2, gap_3]');" in text
    density = "cumulative_probit_lpmf" if link == "probit" else "ordered_logistic_lpmf"
    assert f"{density}(y[" in text


def test_many_categories_leave_the_lines_short():
    frame = ordinal_frame(12)
    prepared = ordinal_prepared(frame=frame)
    text = stan_program(prepared.model)
    assert max(map(len, text.splitlines())) <= 80


def test_a_bundle_keeps_link_and_number(tmp_path):
    bundle = train(ordinal_prepared("probit"))
    write_bundle(bundle, tmp_path / "bundle")
    read = read_bundle(tmp_path / "bundle")
    assert read.config.family == "cumulative(probit, 4)"
    assert (read.family.link, read.family.categories) == ("probit", 4)
    assert read.trained.dispersion == bundle.trained.dispersion


@pytest.mark.lengthy
def test_training_finds_the_thresholds_of_the_shares():
    frame = ordinal_frame().assign(o=np.repeat([1, 2, 3, 4], (6, 12, 3, 9)))
    frame = frame.sample(frac=1, random_state=1)
    trained = train(ordinal_prepared(frame=frame, train__epochs=800, train__validation=0)).trained
    assert set(trained.dispersion) == set(GAPS)
    # the order of the gaps is that of the categories' shares
    assert trained.dispersion["gap_2"] > trained.dispersion["gap_3"] > 0


def test_the_score_is_the_ranked_probability_score():
    prepared = ordinal_prepared()
    bundle, rows = train(prepared), prepared.rows
    draws = random_draws(bundle, chains=2, iterations=1000)
    one = replace(
        draws, phi=np.zeros_like(draws.phi),
        theta=np.broadcast_to(bundle.trained.theta, draws.theta.shape),
        dispersion={name: np.full_like(x, GAPS[name]) for name, x in draws.dispersion.items()},
    )  # fmt: skip
    judged = pointwise(SubspacePosterior(bundle, one), rows, generator=np.random.default_rng(1))
    eta = posterior_linpred(SubspacePosterior(bundle, one), rows)[0]
    below = np.cumsum(probabilities("logit", eta), axis=1)[:, :-1]
    rps = np.square(below - (rows.y[:, None] <= np.arange(1, K))).sum(axis=1)
    assert judged.crps == pytest.approx(rps, abs=5 * 1.5 / np.sqrt(2000))
    assert judged.mean == pytest.approx(probabilities("logit", eta) @ np.arange(1, K + 1))


def test_every_column_is_the_programs(toolchain, tmp_path):
    prepared = ordinal_prepared()
    assert_columns(train(prepared), prepared.rows, toolchain, tmp_path)


def test_a_run_has_our_log_likelihood_and_categories_of_its_draws(toolchain, tmp_path):
    fit = fit_model(
        FORMULA, ordinal_frame(), out=tmp_path / "run",
        overrides={"family": "cumulative", "subspace.k": 2, "network.hidden": [3],
                   "train.epochs": 200, "sample.chains": 1, "sample.draws": 400},
    )  # fmt: skip
    assert fit.run.bundle.config.family == "cumulative(logit, 4)"
    intercepts = [f"b_Intercept[{k}]" for k in (1, 2, 3)]
    assert list(fit.posterior.draws.interpreted) == [*intercepts, "b_x", *GAPS]
    linear = posterior_linpred(fit.posterior, fit.run.rows())
    x_mean = fit.run.rows().X.mean() * fit.posterior.draws.theta[0, :, 0]
    tau = np.cumsum(
        [0 * x_mean, *(fit.posterior.draws.dispersion[name][0] for name in GAPS)], axis=0
    )
    for name, threshold in zip(intercepts, tau, strict=True):
        found = fit.posterior.draws.coefficients[name][0]
        assert found == pytest.approx(threshold - linear.mean(axis=1) + x_mean, abs=1e-6)
    generate(fit.run)
    generated, rows = read_generated(fit.run), fit.run.rows()
    ours = log_lik_of(fit.posterior, rows)
    assert generated.log_lik == pytest.approx(ours, rel=1e-9, abs=0)
    expected = posterior_epred(fit.posterior, rows) @ np.arange(1, K + 1)
    assert fit.run.bundle.family.support(generated.y_rep).all()
    error = (generated.y_rep - expected).mean(axis=1)
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(len(error))


# ----------------------------------------------------------------------------- thresholds by row


@pytest.mark.parametrize("name", ["cumulative", "sratio", "acat"])
def test_thresholds_of_groups_are_those_of_a_model_for_each(name):
    """With gap_2 ~ g and gap_3 ~ g, as with brms's thres(gr = g)."""
    generator = np.random.default_rng(1)
    of, y, eta = family(f"{name}(logit, 4)"), np.arange(30) % 4 + 1.0, generator.normal(size=30)
    g, own = np.arange(30) % 2, generator.uniform(0.2, 2, size=(2, 2))
    values = {gap: tensor(own[g, j]) for j, gap in enumerate(GAPS)}
    found = of.log_lik(tensor(y), tensor(eta), values).numpy()
    p = of.probabilities(eta, {gap: own[g, j] for j, gap in enumerate(GAPS)})
    for group in (0, 1):
        here, alone = g == group, {gap: tensor(own[group, j]) for j, gap in enumerate(GAPS)}
        expected = of.log_lik(tensor(y[here]), tensor(eta[here]), alone).numpy()
        assert found[here] == pytest.approx(expected, rel=1e-12)
    assert np.log(p[np.arange(30), y.astype(int) - 1]) == pytest.approx(found, rel=1e-9)


def test_a_gap_with_a_predictor_reports_intercepts_in_place_of_thresholds(toolchain, tmp_path):
    prepared = prepare(small_config(f"{FORMULA}, gap_2 ~ g", family="cumulative"), ordinal_frame())
    assert prepared.config.family == "cumulative(logit, 4)"
    text = stan_program(prepared.model)
    assert "vector[3] tau" not in text and "real b_Intercept" in text
    assert re.findall(r"real<lower=0> (gap_\w+);", text) == ["gap_3"]
    bundle = train(prepared)
    assert_columns(bundle, prepared.rows, toolchain, tmp_path)
    found = list(SubspacePosterior(bundle, random_draws(bundle)).coefficients)
    assert {"b_Intercept", "b_x", "b_gap_2_Intercept", "b_gap_2_gb"} <= set(found)


@pytest.mark.parametrize(
    ("name", "link"),
    [("cumulative", "log"), ("sratio", "identity"), ("acat(logit, 4)", "identity")],
)
def test_a_predictor_of_all_gaps_is_written_out(name, link):
    prepared = prepare(small_config(f"{FORMULA}, gap ~ g", family=name), ordinal_frame())
    assert prepared.config.formula == f"{FORMULA}, gap_2 ~ g, gap_3 ~ g"
    assert prepared.design.varying == ("gap_2", "gap_3")
    assert [item.link for item in prepared.design.others] == [link, link]


@pytest.mark.parametrize(
    ("further", "named"),
    [
        ("gap_4 ~ x", "Did you mean 'gap_3'"),
        ("shape ~ x", "family cumulative has no such parameter. Known: gap_2, gap_3"),
    ],
)
def test_predictors_of_other_parameters_are_refused(further, named):
    with pytest.raises(InputError, match=re.escape(named)):
        prepare(small_config(f"{FORMULA}, {further}", family="cumulative"), ordinal_frame())


def test_thresholds_by_group_are_written_as_predictors():
    with pytest.raises(InputError, match=re.escape("y ~ g + x, gap ~ g")):
        prepare(small_config("o | thres(gr=g) ~ x + nn(u)", family="cumulative"), ordinal_frame())
