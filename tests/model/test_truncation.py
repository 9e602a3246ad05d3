"""Responses between bounds, against SciPy, sums and integrals, and a naive loop."""

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from scipy.special import gamma

from semistan.errors import InputError
from semistan.model.families.censored import with_censoring
from semistan.model.families.families import family
from semistan.model.families.truncated import with_truncation
from semistan.model.formula.formula import parse_formula
from semistan.posterior.effects.averages import explanatory
from semistan.posterior.effects.columns import predictors_of, typical_values
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import (
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.program.program import bundle_program
from semistan.workflow.prepare import new_rows, prepare
from support.assertions import assert_mean
from support.distributions import ORACLES
from support.drawn import random_draws
from support.small import small_config, small_frame
from support.untrained import random_bundle

ETA = np.linspace(-2, 3, 6)
BOUNDS = (("lb",), ("ub",), ("lb", "ub"))
EVERY = ORACLES | {"poisson": (lambda eta: stats.poisson(np.exp(eta)), {})}
Y, VALUES = 2.0, {"lb": 1.0, "ub": 7.0}
combinations = pytest.mark.parametrize("known", BOUNDS, ids=" ".join)
families = pytest.mark.parametrize("name", EVERY)


def bounds_of(known):
    return (VALUES["lb"] if "lb" in known else -np.inf, VALUES["ub"] if "ub" in known else np.inf)


def values_of(name, known):
    return EVERY[name][1] | {bound: VALUES[bound] for bound in known}


def float64(value):
    return torch.tensor(value, dtype=torch.float64)


def density(name, known, y, eta):
    values = {key: float64(value) for key, value in values_of(name, known).items()}
    return with_truncation(family(name), known).log_lik(
        torch.as_tensor(y, dtype=torch.float64), torch.as_tensor(eta, dtype=torch.float64), values
    )


@combinations
@families
def test_the_likelihood_is_scipys(name, known):
    oracle, (lb, ub) = EVERY[name][0](ETA), bounds_of(known)
    if name == "poisson":
        share, expected = oracle.cdf(ub) - oracle.cdf(lb - 1), oracle.logpmf(Y)
    else:
        share, expected = oracle.cdf(ub) - oracle.cdf(lb), oracle.logpdf(Y)
        if ub == np.inf:
            share = oracle.sf(lb)
    found = density(name, known, Y, ETA).numpy()
    assert np.allclose(found, expected - np.log(share), rtol=1e-9, atol=1e-11)


@combinations
@families
def test_probabilities_of_what_lies_inside_add_up_to_1(name, known):
    lb, ub = bounds_of(known)
    for eta in ETA[1::2]:
        if name == "poisson":
            y = np.arange(max(lb, 0), min(ub, 300) + 1)
            total = density(name, known, y, eta).exp().sum().item()
        else:
            least = with_truncation(family(name), known).tails.least
            total = integrate.quad(
                lambda y, eta=eta: density(name, known, y, eta).exp().item(), max(lb, least), ub,
                epsabs=1e-10,
            )[0]  # fmt: skip
        assert total == pytest.approx(1, rel=1e-7), eta


@combinations
@families
def test_the_gradient_is_that_of_differences(name, known):
    eta = torch.tensor(ETA, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: density(name, known, Y, e), (eta,), rtol=1e-5)


@combinations
@pytest.mark.parametrize("name", ["gaussian", "lognormal"])
def test_the_density_is_finite_and_differentiable_far_out(name, known):
    for eta in (-800.0, -40.0, 40.0, 800.0):
        leaf = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
        value = density(name, known, Y, leaf)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(leaf.grad)


@combinations
@families
def test_means_and_random_responses_are_scipys(name, known):
    record, generator = with_truncation(family(name), known), np.random.default_rng(1)
    (oracle, _), (lb, ub) = EVERY[name], bounds_of(known)
    values = {key: np.asarray(value) for key, value in values_of(name, known).items()}
    for eta in ETA[::2]:
        expected = oracle(eta).expect(lb=lb, ub=ub, conditional=True)
        assert record.mean(np.array(eta), values) == pytest.approx(expected, rel=1e-7)
        drawn = record.rng(np.full(4000, eta), values, generator)
        assert lb <= drawn.min() <= drawn.max() <= ub
        if np.ptp(drawn) > 0:
            assert_mean(drawn.reshape(4, -1), expected, f"{name} at {eta}")


@combinations
@families
def test_far_out_they_stay_between_the_bounds(name, known):
    record, (lb, ub) = with_truncation(family(name), known), bounds_of(known)
    values = {key: np.asarray(value) for key, value in values_of(name, known).items()}
    eta = np.array([-60.0, -9.0, 9.0, 20.0] if record.link == "log" else [-600.0, 600.0])
    drawn = record.rng(eta, values, np.random.default_rng(1))
    for found in (record.mean(eta, values), drawn):
        assert ((found >= lb) & (found <= ub)).all()


def test_a_row_without_a_bound_is_one_of_the_family():
    for name in ("weibull", "poisson", "lognormal"):
        values = {key: float64(value) for key, value in EVERY[name][1].items()}
        eta, y = torch.tensor(ETA), torch.full((6,), Y, dtype=torch.float64)
        plain = family(name).log_lik(y, eta, values)
        found = with_truncation(family(name), ("lb",)).log_lik(
            y, eta, values | {"lb": torch.zeros(6)}
        )
        assert torch.equal(found, plain)


def test_log_lik_of_delayed_entry_is_that_of_a_naive_loop():
    bundle, rows = random_bundle(
        "weibull", formula="y | cens(h) + trunc(lb=least) + weights(w) ~ x1 + nn(u1)", n=10
    )
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    eta, shape = posterior_linpred(posterior, rows), posterior.parameters(rows)["shape"].ravel()
    found, codes = log_lik(posterior, rows), rows.given["cens"]
    assert set(codes) == {0, 1}
    for s in (0, 41, 99):
        for n in range(len(rows)):
            time = stats.weibull_min(shape[s], scale=np.exp(eta[s, n]) / gamma(1 + 1 / shape[s]))
            seen = time.logsf if codes[n] else time.logpdf
            expected = seen(rows.y[n]) - time.logsf(max(rows.given["lb"][n], 0))
            assert found[s, n] == pytest.approx(rows.given["weights"][n] * expected, rel=1e-8)


def test_counts_can_be_censored_as_well():
    record = with_censoring(family("poisson"), ("cens", "y2"))
    oracle = stats.poisson(np.exp(ETA))
    expected = {
        1: oracle.logsf(Y), -1: oracle.logcdf(Y), 2: np.log(oracle.cdf(5) - oracle.cdf(Y)),
    }  # fmt: skip
    for code, value in expected.items():
        given = {"cens": torch.tensor(float(code)), "y2": torch.tensor(5.0)}
        found = record.log_lik(torch.full((6,), Y, dtype=torch.float64), torch.tensor(ETA), given)
        assert found.numpy() == pytest.approx(value, rel=1e-10)


def test_new_rows_need_the_bounds_and_predictions_lie_between_them():
    bundle, rows = random_bundle("poisson", formula="y | trunc(1, most) ~ x1 + nn(u1)", n=12)
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    new = new_rows(bundle, rows.frame.drop(columns="y"))
    drawn = posterior_predict(posterior, new, np.random.default_rng(1))
    mean = posterior_epred(posterior, new)
    for found in (drawn, mean):
        assert (found >= 1).all()
        assert (found <= rows.given["ub"]).all()
    with pytest.raises(InputError, match="most"):
        new_rows(bundle, rows.frame.drop(columns=["y", "most"]))


def test_columns_of_bounds_explain_nothing_and_are_held_at_whole_numbers():
    formula = "y | trunc(lb=least, ub=u2) ~ x1 + nn(u1, u2)"
    bundle, rows = random_bundle("poisson", formula=formula, n=12)
    assert parse_formula(formula).bounding == ("least",)
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    assert explanatory(posterior) == ("x1", "u1", "u2")
    predictors = predictors_of(posterior, rows.frame)
    assert typical_values(predictors, {})["least"] == round(rows.frame["least"].mean())
    assert typical_values(predictors, {})["u2"] == pytest.approx(rows.frame["u2"].mean())


def test_a_truncated_slope_is_recovered_and_a_plain_one_is_not():
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(2, 8000))
    y = 1.5 * x + y
    x, y = (torch.tensor(values[y > 1]) for values in (x, y))
    given = {"sigma": torch.tensor(1.0), "lb": torch.tensor(1.0)}

    def fit(record):
        def loss(b):
            slope = torch.tensor(b, requires_grad=True)
            value = -record.log_lik(y, slope[0] + slope[1] * x, given).sum()
            value.backward()
            return value.item(), slope.grad.numpy()

        found = optimize.minimize(loss, np.zeros(2), jac=True, method="BFGS")
        return (found.x[1] - 1.5) / np.sqrt(found.hess_inv[1, 1])

    assert abs(fit(with_truncation(family("gaussian"), ("lb",)))) < 4
    assert abs(fit(family("gaussian"))) > 10


def refused(formula, message, name="weibull", **columns):
    frame = small_frame(12).assign(c=["right", "none"] * 6, **columns)
    with pytest.raises(InputError, match=message):
        prepare(small_config(formula, family=name), frame)


def test_what_cannot_be_is_refused():
    refused("z | trunc(lb=1.5) ~ nn(u)", r"must be at least trunc\(lb=1.5\).* in row \d+ \(")
    refused("count | trunc(ub=1) ~ nn(u)", r"must be at most trunc\(ub=1\)", "poisson")
    refused("count | trunc(lb=-0.5) ~ nn(u)", "must be whole numbers", "poisson")
    refused("z | trunc(lb=low, ub=0) ~ nn(u)", r"must be above trunc\(lb=low\)", low=0.0)
    refused("z | trunc(lb=0) ~ nn(u)", "families gaussian, .* family is gamma", "gamma")
    refused("count | trunc(1) ~ nn(u)", "PyTorch has no derivative", "negbinomial")
    refused("z | trunc(ub=99) + cens(c) ~ nn(u)", "an interval that ends at the bound")
    for text in ("1, 2, 3", "lb=1, lb=2", "up=3", "", "lb="):
        with pytest.raises(InputError, match=r"trunc\(\) takes a lower bound"):
            parse_formula(f"y | trunc({text}) ~ nn(u)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", ("0", "")), ("0, 10", ("0", "10")), ("ub=b", ("", "b")), ("-1.5, ub=b", ("-1.5", "b"))],
)
def test_bounds_have_places_or_names(text, expected):
    formula = parse_formula(f"y | trunc({text}) ~ x + nn(u)")
    assert (formula.lb, formula.ub) == expected
    assert ("b" in formula.columns) == ("b" in expected)


def test_a_program_has_the_bounds_that_the_formula_has():
    bundle, _ = random_bundle("gaussian", formula="y | trunc(ub=most) ~ x1 + nn(u1)", n=10)
    text = bundle_program(bundle)
    assert "vector[N] ub;" in text
    assert "vector[N] lb;" not in text
    assert "gaussian_inside(negative_infinity(), ub[n]," in text
