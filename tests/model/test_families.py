from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats
from scipy.special import erfcx, expit, gamma

from semistan.errors import InputError
from semistan.model.families.common import log_Phi
from semistan.model.families.families import FAMILIES, family
from semistan.model.families.family import check_response
from support.distributions import (
    Angles,
    Hurdle,
    HurdleAmounts,
    InflatedBeta,
    LogBetaPrime,
    ZeroInflated,
)

ETA = np.linspace(-6, 3, 19)
DISPERSION = {
    "gaussian": {"sigma": 1.7},
    "poisson": {},
    "bernoulli": {},
    "negbinomial": {"shape": 2.5},
    "student": {"sigma": 1.7, "nu": 7.0},
    "lognormal": {"sigma": 0.4},
    "gamma": {"shape": 2.5},
    "beta": {"precision": 6.0},
    "binomial": {},
    "weibull": {"shape": 1.6},
    "exponential": {},
    "skew_normal": {"sigma": 1.7, "alpha": -3.0},
    "asym_laplace": {"sigma": 1.7, "quantile": 0.8},
    "von_mises": {"kappa": 40.0},
    "beta_binomial": {"precision": 6.0},
    "zero_inflated_poisson": {"zi": 0.3},
    "zero_inflated_negbinomial": {"shape": 2.5, "zi": 0.3},
    "hurdle_poisson": {"hu": 0.3},
    "hurdle_negbinomial": {"shape": 2.5, "hu": 0.3},
    "hurdle_gamma": {"shape": 2.5, "hu": 0.3},
    "hurdle_lognormal": {"sigma": 0.4, "hu": 0.3},
    "zero_one_inflated_beta": {"precision": 6.0, "zoi": 0.3, "coi": 0.6},
}
GIVEN = {"trials": 11.0}
SKEW = -3 / np.sqrt(10) * np.sqrt(2 / np.pi)  # mean of the standard skew normal of slant -3
ORACLES = {
    "gaussian": lambda eta: stats.norm(eta, 1.7),
    "poisson": lambda eta: stats.poisson(np.exp(eta)),
    "bernoulli": lambda eta: stats.bernoulli(expit(eta)),
    "negbinomial": lambda eta: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(eta))),
    "student": lambda eta: stats.t(7, eta, 1.7),
    "lognormal": lambda eta: stats.lognorm(0.4, scale=np.exp(eta)),
    "gamma": lambda eta: stats.gamma(2.5, scale=np.exp(eta) / 2.5),
    "beta": lambda eta: stats.beta(6 * expit(eta), 6 * expit(-eta)),
    "binomial": lambda eta: stats.binom(11, expit(eta)),
    "weibull": lambda eta: stats.weibull_min(1.6, scale=np.exp(eta) / gamma(1 + 1 / 1.6)),
    "exponential": lambda eta: stats.expon(scale=np.exp(eta)),
    "skew_normal": lambda eta: stats.skewnorm(
        -3, eta - SKEW * 1.7 / np.sqrt(1 - SKEW**2), 1.7 / np.sqrt(1 - SKEW**2)
    ),
    "asym_laplace": lambda eta: LogBetaPrime(0.2, 0.8, eta, 1.7),
    "von_mises": lambda eta: Angles(2 * np.arctan(eta), 40.0),
    "beta_binomial": lambda eta: stats.betabinom(11, 6 * expit(eta), 6 * expit(-eta)),
    "zero_inflated_poisson": lambda eta: ZeroInflated(ORACLES["poisson"](eta), 0.3),
    "zero_inflated_negbinomial": lambda eta: ZeroInflated(ORACLES["negbinomial"](eta), 0.3),
    "hurdle_poisson": lambda eta: Hurdle(ORACLES["poisson"](eta), 0.3),
    "hurdle_negbinomial": lambda eta: Hurdle(ORACLES["negbinomial"](eta), 0.3),
    "hurdle_gamma": lambda eta: HurdleAmounts(ORACLES["gamma"](eta), 0.3),
    "hurdle_lognormal": lambda eta: HurdleAmounts(ORACLES["lognormal"](eta), 0.3),
    "zero_one_inflated_beta": lambda eta: InflatedBeta(6 * expit(eta), 6 * expit(-eta), 0.3, 0.6),
}
STATSMODELS = {
    "gaussian": sm.families.Gaussian(),
    "poisson": sm.families.Poisson(),
    "bernoulli": sm.families.Binomial(),
    "negbinomial": sm.families.NegativeBinomial(alpha=1 / 2.5),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
}
SCALES = {"gaussian": 1.7**2, "gamma": 1 / 2.5}
COUNTS, POSITIVE = np.array([0.0, 1, 2, 7, 150]), np.array([1e-3, 0.3, 1, 4, 60])
RESPONSES = {
    "gaussian": np.linspace(-9, 9, 7),
    "poisson": COUNTS,
    "bernoulli": np.array([0.0, 1]),
    "negbinomial": COUNTS,
    "student": np.linspace(-9, 9, 7),
    "lognormal": POSITIVE,
    "gamma": POSITIVE,
    "beta": np.array([1e-6, 0.2, 0.5, 0.97]),
    "binomial": np.array([0.0, 1, 4, 11]),
    "weibull": POSITIVE,
    "exponential": POSITIVE,
    "skew_normal": np.linspace(-9, 9, 7),
    "asym_laplace": np.linspace(-9, 9.1, 7),
    "von_mises": np.linspace(-3.1, np.pi, 7),
    "beta_binomial": np.array([0.0, 1, 4, 11]),
    "zero_inflated_poisson": COUNTS,
    "zero_inflated_negbinomial": COUNTS,
    "hurdle_poisson": COUNTS,
    "hurdle_negbinomial": COUNTS,
    "hurdle_gamma": np.r_[0.0, POSITIVE],
    "hurdle_lognormal": np.r_[0.0, POSITIVE],
    "zero_one_inflated_beta": np.array([0.0, 1e-6, 0.2, 0.5, 0.97, 1]),
}

each = pytest.mark.parametrize("record", FAMILIES, ids=lambda record: record.name)


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def dispersion(record, of=np.float64):
    assert set(DISPERSION[record.name]) == set(record.dispersion)
    values = DISPERSION[record.name] | {name: GIVEN[name] for name in record.given}
    return {name: of(value) for name, value in values.items()}


def log_density(record, y, eta):
    oracle = ORACLES[record.name](eta)
    return oracle.logpmf(y) if record.integer else oracle.logpdf(y)


def log_lik(record, y, eta):
    tensors = (tensor(a) for a in (y, eta))
    return record.log_lik(*tensors, dispersion(record, tensor)).numpy()


def test_every_family_has_an_oracle():
    assert {record.name for record in FAMILIES} == set(ORACLES)


@each
def test_the_likelihood_is_scipys(record):
    y, eta = np.meshgrid(RESPONSES[record.name], ETA)
    assert np.allclose(log_lik(record, y, eta), log_density(record, y, eta), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", STATSMODELS)
def test_the_likelihood_is_statsmodels(name):
    record, oracle = family(name), STATSMODELS[name]
    y, eta = (a.ravel() for a in np.meshgrid(RESPONSES[name], ETA))
    scale = {"scale": SCALES[name]} if name in SCALES else {}
    expected = [
        oracle.loglike(y[i : i + 1], oracle.link.inverse(eta[i : i + 1]), **scale)
        for i in range(len(y))
    ]
    # statsmodels adds 1e-20 within its logarithms and clips mu at the machine's epsilon
    assert np.allclose(log_lik(record, y, eta), expected, rtol=1e-8, atol=1e-8)


@each
@pytest.mark.parametrize("eta", [-700.0, 700.0])
def test_the_likelihood_is_finite_far_out(record, eta):
    values = log_lik(record, RESPONSES[record.name], np.full(len(RESPONSES[record.name]), eta))
    assert np.isfinite(values).all()


@each
def test_the_gradient_of_the_likelihood_is_finite_and_right(record):
    y = RESPONSES[record.name]
    eta = torch.linspace(-2, 2, len(y), dtype=torch.float64, requires_grad=True)
    tensors = dispersion(record, tensor)
    assert torch.autograd.gradcheck(
        lambda e: record.log_lik(torch.tensor(y), e, tensors), (eta,), rtol=1e-5
    )


@each
def test_the_mean_is_scipys(record):
    assert np.allclose(
        record.mean(ETA, dispersion(record)), ORACLES[record.name](ETA).mean(), rtol=1e-12
    )


@each
def test_the_variance_is_scipys(record):
    expected = ORACLES[record.name](ETA).stats("mvk")[1]
    assert np.allclose(record.variance(ETA, dispersion(record)), expected, rtol=1e-9)


@each
def test_the_mean_of_an_extreme_predictor_does_not_warn(record):
    assert np.isfinite(record.mean(np.array([-700.0, 700.0]), dispersion(record))).all()


@each
def test_random_responses_have_the_moments_of_the_distribution(record):
    eta, S = np.array([-1.0, 0.3, 2.0]), 20_000
    disp = dispersion(record, lambda value: np.full((S, 1), value))
    draws = record.rng(np.tile(eta, (S, 1)), disp, np.random.default_rng(1))
    oracle = ORACLES[record.name](eta)
    mean, variance, kurtosis = oracle.stats("mvk")
    assert draws.shape == (S, 3)
    assert record.support(draws).all()
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / S))
    error = variance * np.sqrt((kurtosis + 2) / S)
    assert np.all(np.abs(draws.var(axis=0) - variance) < 5 * error + variance * 10 / S)


@each
def test_random_responses_depend_on_the_generator_alone(record):
    eta = np.zeros((4, 5))
    disp = dispersion(record, lambda value: np.full((4, 1), value))
    first, again, other = (record.rng(eta, disp, np.random.default_rng(s)) for s in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@each
def test_the_location_of_eta_is_the_link_of_the_mean(record):
    y = np.array([0.0, 1, 1, 0, 1])
    if record.name.startswith("hurdle_lognormal"):
        y = np.array([0.0, 0.9, 0.7, 0, 0.8])
    if record.name in ("lognormal", "gamma", "beta", "weibull", "exponential"):
        y = np.array([0.2, 0.9, 0.7, 0.4, 0.8])
    given = {name: np.full(5, GIVEN[name]) for name in record.given}
    location, scale = record.eta_units(y, given)
    if record.name.endswith("lognormal"):
        logs = np.log(y[y > 0])
        assert (location, scale) == pytest.approx((logs.mean(), logs.std(ddof=1)))
        return
    if record.name == "von_mises":
        assert 2 * np.arctan(location) == pytest.approx(stats.circmean(y), rel=1e-12)
        return
    shares = {name: 0.0 for name in ("zi", "hu", "zoi", "coi") if name in record.dispersion}
    if "quantile" in record.dispersion:
        shares["quantile"] = 0.5  # of which alone eta is the mean
    mean = record.mean(np.array(location), dispersion(record) | shares)
    y = y[y > 0] if record.name == "hurdle_gamma" else y
    if "hu" in shares:  # the location is that of counts with their zeros, of amounts without
        mean = np.exp(location)
    assert mean == pytest.approx(y.mean(), rel=1e-12)
    assert scale == (np.std(y, ddof=1) if record.link == "identity" else 1)


@pytest.mark.parametrize(
    ("name", "y", "named"),
    [
        ("poisson", [1, -1, 2], "counts 0, 1, 2, ..., but response 'r' is -1 in row 2 (1 of 3"),
        ("poisson", [1, 2, 0.5], "is 0.5 in row 3"),
        ("poisson", [1, np.inf, 2], "is inf in row 2"),
        ("poisson", [1, np.nan, 2], "is nan in row 2"),
        ("bernoulli", [2, 0, 2], "0 or 1, but response 'r' is 2 in row 1 (2 of 3 rows)"),
        ("bernoulli", [0, 1, 0.5], "is 0.5 in row 3"),
        ("gaussian", [0, np.inf, 1], "is inf in row 2"),
        ("gaussian", [3, 3, 3], "response 'r' is constant (3)"),
        ("bernoulli", [1, 1], "is constant"),
        ("poisson", [0, 0], "is constant"),
        ("gamma", [1, 0, 2], "positive numbers, but response 'r' is 0 in row 2"),
        ("lognormal", [1, -1, 2], "is -1 in row 2"),
        ("beta", [0.5, 1, 0.2], "between 0 and 1, both excluded, but response 'r' is 1 in row 2"),
        ("negbinomial", [1, 2.5], "is 2.5 in row 2"),
    ],
)
def test_an_impossible_response_is_located(name, y, named):
    with pytest.raises(InputError) as caught:
        check_response(family(name), np.array(y, float), "r")
    assert named in str(caught.value)


@each
def test_a_possible_response_is_accepted(record):
    check_response(record, RESPONSES[record.name], "r")


@each
def test_a_family_answers_to_its_name_and_aliases(record):
    assert all(family(name) is record for name in (record.name, *record.aliases))


def test_the_normal_tail_has_its_value_and_slope():
    for x in (-1e9, -1e5, -31.0, -30.1, -29.9, -7.0, 0.0, 3.0, 30.0):
        leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        value = log_Phi(leaf)
        value.backward()
        assert value.item() == pytest.approx(stats.norm.logcdf(x), rel=1e-11, abs=1e-300)
        slope = np.sqrt(2 / np.pi) / erfcx(-x / np.sqrt(2))
        assert leaf.grad.item() == pytest.approx(slope, rel=1e-10, abs=1e-300)


def test_normal_is_gaussian():
    assert family("normal").name == "gaussian"


def test_an_unknown_family_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown family 'guassian'. Did you mean 'gaussian'\?"):
        family("guassian")


def test_the_documented_record_is_a_family():
    page = (Path(__file__).parents[2] / "docs" / "add-a-family.md").read_text("utf-8")
    names = {}
    exec(page.split("```py\n")[1].split("```")[0], names)
    record = names["RAYLEIGH"]
    eta, y = np.meshgrid(np.linspace(-3, 3, 7), POSITIVE)
    oracle = stats.rayleigh(scale=np.exp(eta) / np.sqrt(np.pi / 2))
    found = record.log_lik(tensor(y), tensor(eta), {}).numpy()
    assert np.allclose(found, oracle.logpdf(y), rtol=1e-10)
    assert np.allclose(record.mean(eta, {}), oracle.mean(), rtol=1e-12)
    draws = record.rng(np.zeros(20_000), {}, np.random.default_rng(0))
    assert abs(draws.mean() - 1) < 5 * draws.std() / np.sqrt(20_000)
