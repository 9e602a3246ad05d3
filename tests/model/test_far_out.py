"""Likelihoods where the linear predictor is far out, against numbers of 60 digits by mpmath."""

import mpmath as mp
import numpy as np
import pytest
import torch

from semistan.model.families.families import FAMILIES, family

ETA = (-800.0, -300.0, -40.0, 40.0, 300.0, 800.0)
RECORDS = [f"{record.name}({link})" for record in FAMILIES for link in (record.link, *record.links)]
VALUES = {"sigma": 1.5, "shape": 2.5, "nu": 4.0, "precision": 6.0, "alpha": -3.0, "trials": 11.0}
SHAPE = mp.mpf("2.5")
TAIL = 1e300  # beyond which a log density may be infinite


def log_p(link, eta):
    """The logs of p and 1 - p by mpmath."""
    mp.mp.dps = 60
    eta = mp.mpf(eta)
    if link == "logit":
        return -mp.log1p(mp.exp(-eta)), -mp.log1p(mp.exp(eta))
    if link == "probit":
        return log_ncdf(eta), log_ncdf(-eta)
    if link == "cloglog":
        rate = mp.exp(eta)
        return mp.log(-mp.expm1(-rate)) if rate < 10**6 else mp.mpf(0), -rate
    return mp.log(mp.atan2(1, -eta) / mp.pi), mp.log(mp.atan2(1, eta) / mp.pi)


def log_ncdf(x):
    """log Phi(x); in the lower tail by the asymptotic series, to a relative 1e-20 below -30."""
    if x > -30:
        return mp.log(mp.ncdf(x)) if x < 5 else mp.log1p(-mp.ncdf(-x))
    terms, term = mp.mpf(1), mp.mpf(1)
    for i in range(1, 12):
        term *= -(2 * i - 1) / x**2
        terms += term
    return -(x**2) / 2 - mp.log(2 * mp.pi) / 2 - mp.log(-x) + mp.log(terms)


def binary(link, y, eta, n=1):
    p, q = log_p(link, eta)
    return mp.log(mp.binomial(n, y)) + (y * p if y else 0) + ((n - y) * q if n > y else 0)


def negbinomial(y, eta, shape=SHAPE):
    total = mp.log(shape + mp.exp(eta))
    ways = mp.loggamma(y + shape) - mp.loggamma(shape) - mp.loggamma(y + 1)
    return ways + y * (eta - total) + shape * (mp.log(shape) - total)


def gamma(y, eta, shape=SHAPE):
    rate = shape * mp.exp(-eta)
    return shape * mp.log(rate) - mp.loggamma(shape) + (shape - 1) * mp.log(y) - rate * y


def beta(y, eta, precision=6):
    p, q = (mp.exp(value) for value in log_p("logit", eta))
    a, b = precision * p, precision * q
    ways = mp.loggamma(precision) - mp.loggamma(a) - mp.loggamma(b)
    return ways + (a - 1) * mp.log(y) + (b - 1) * mp.log1p(-y)


ORACLES = {
    **{f"bernoulli({link})": (lambda y, eta, link=link: binary(link, y, eta), (0, 1))
       for link in ("logit", "probit", "cloglog", "cauchit")},
    **{f"binomial({link})": (lambda y, eta, link=link: binary(link, y, eta, 11), (0, 4, 11))
       for link in ("logit", "probit", "cloglog", "cauchit")},
    "poisson(log)": (lambda y, eta: y * mp.mpf(eta) - mp.exp(eta) - mp.loggamma(y + 1), (0, 7)),
    "negbinomial(log)": (negbinomial, (0, 7, 150)),
    "gamma(log)": (gamma, (0.3, 60.0)),
    "beta(logit)": (beta, (0.2, 0.97)),
}  # fmt: skip


def in_torch(text, y, eta):
    """The log density and its gradient, of eta first."""
    record = family(text)
    given = {name: VALUES[name] for name in record.given}
    values = {item.name: VALUES.get(item.name, 0.3) for item in record.parameters}
    tensors = {name: torch.tensor([value], dtype=torch.float64) for name, value in values.items()}
    eta = torch.tensor([eta], dtype=torch.float64)
    for tensor in (eta, *tensors.values()):
        tensor.requires_grad_()
    known = {name: torch.tensor([value], dtype=torch.float64) for name, value in given.items()}
    found = record.log_lik(torch.tensor([float(y)], dtype=torch.float64), eta, known | tensors)
    gradient = torch.autograd.grad(found.sum(), [eta, *tensors.values()], allow_unused=True)
    return found.item(), np.array([part.item() for part in gradient if part is not None])


@pytest.mark.parametrize("text", ORACLES)
def test_values_far_out_are_those_of_many_digits(text):
    oracle, responses = ORACLES[text]
    for y in responses:
        for eta in ETA:
            expected, (found, _) = oracle(y, eta), in_torch(text, y, eta)
            if abs(expected) > TAIL:
                assert found < -TAIL / 1e4, (y, eta)
            else:
                assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-12), (y, eta)


@pytest.mark.parametrize("text", RECORDS)
def test_nothing_is_undefined_far_out(text):
    """A density is a number or 0, and where it is a number, so is its gradient."""
    record = family(text)
    responses = [y for y in (0.0, 0.3, 1.0, 4.0, -2.0) if record.support(np.array([y])).all()]
    assert responses
    for y in responses:
        for eta in ETA:
            value, gradient = in_torch(text, y, eta)
            assert value < np.inf, (y, eta)  # nor undefined
            assert value == -np.inf or np.isfinite(gradient).all(), (y, eta)
