"""Log-likelihoods at large shapes, where differences of log gamma keep few digits, by mpmath."""

from functools import partial

import mpmath
import numpy as np
import pytest
import torch

from semistan.model.families.common import log_rising, stirling_rest
from semistan.model.families.families import family

SHAPES = [0.01, 1.0, 14.9, 15.1, 1e3, 1e6, 1e9, 1e12, 1e15, 1e20]
DIGITS, TRIALS, SIGMA = 60, 1000, 1.5


def negbinomial(y, eta, shape):
    mu, L = mpmath.exp(eta), mpmath.loggamma
    ways = L(y + shape) - L(shape) - L(y + 1)
    return ways + y * (eta - mpmath.log(shape + mu)) - shape * mpmath.log1p(mu / shape)


def not_zero(eta, shape):
    return mpmath.log(-mpmath.expm1(-shape * mpmath.log1p(mpmath.exp(eta) / shape)))


def beta_binomial(y, eta, precision):
    a, b = (precision / (1 + mpmath.exp(sign * eta)) for sign in (-1, 1))
    L, n = mpmath.loggamma, mpmath.mpf(TRIALS)
    ways = L(n + 1) - L(y + 1) - L(n - y + 1)
    return ways + mpmath.log(mpmath.beta(a + y, b + n - y)) - mpmath.log(mpmath.beta(a, b))


def student(y, eta, nu):
    L, z = mpmath.loggamma, (y - eta) / SIGMA
    constant = L((nu + 1) / 2) - L(nu / 2) - mpmath.log(mpmath.pi * nu) / 2 - mpmath.log(SIGMA)
    return constant - (nu + 1) / 2 * mpmath.log1p(z**2 / nu)


def gamma(y, eta, shape):
    ratio = mpmath.log(y) - eta
    return (
        shape * (ratio - mpmath.exp(ratio)) - mpmath.log(y)
        + shape * mpmath.log(shape) - mpmath.loggamma(shape)
    )  # fmt: skip


COUNTS = [(0, 0.5), (3, 1.0), (40, 3.0), (100_000, 11.6)]
SHARE = 0.25
EXACT = {
    "negbinomial": (negbinomial, "shape", COUNTS),
    "zero_inflated_negbinomial": (
        lambda y, eta, shape: mpmath.log(
            (1 - SHARE) * mpmath.exp(negbinomial(y, eta, shape)) + SHARE * (y == 0)
        ),
        "shape", COUNTS,
    ),
    "hurdle_negbinomial": (
        lambda y, eta, shape: mpmath.log(1 - SHARE)
        + negbinomial(y, eta, shape) - not_zero(eta, shape),
        "shape", COUNTS[1:],
    ),
    "beta_binomial": (beta_binomial, "precision", [(0, -4.0), (4, -3.5), (700, 0.8)]),
    "student": (student, "nu", [(0.3, 0.1), (5.0, 1.0)]),
    "gamma": (gamma, "shape", [(1.0, 0.0), (1.3, 0.25), (1e-3, -7.0)]),
}  # fmt: skip
ROWS = [(name, *row) for name, (_, _, rows) in EXACT.items() for row in rows]


def number(value):
    return torch.tensor(float(value), dtype=torch.float64)


def slope(of, at, direction):
    """The derivative along a direction, by central differences of sixty digits."""
    h = mpmath.mpf(10) ** -20
    above, below = (
        [x + sign * h * d for x, d in zip(at, direction, strict=True)] for sign in (1, -1)
    )
    return (of(*above) - of(*below)) / (2 * h)


@pytest.mark.parametrize(("name", "y", "eta"), ROWS)
def test_values_and_gradients_are_those_of_sixty_digits(name, y, eta):
    exact, parameter, _ = EXACT[name]
    given = {"trials": TRIALS, "sigma": SIGMA, "zi": SHARE, "hu": SHARE}
    others = {key: number(value) for key, value in given.items()}
    for shape in SHAPES:
        leaf = torch.tensor([eta, np.log(shape)], dtype=torch.float64, requires_grad=True)
        own = {parameter: leaf[1].exp()}
        value = family(name).log_lik(number(y), leaf[0], others | own)
        value.backward()
        with mpmath.workdps(DIGITS):
            y = mpmath.mpf(y)
            at = (mpmath.mpf(eta), mpmath.mpf(float(leaf[1].exp().detach())))
            expected = exact(y, *at)
            by_eta = slope(partial(exact, y), at, (1, 0))
            by_shape = slope(partial(exact, y), at, (0, at[1]))
        assert value.item() == pytest.approx(float(expected), rel=1e-9, abs=1e-12), shape
        found = leaf.grad.numpy()
        assert found[0] == pytest.approx(float(by_eta), rel=1e-9, abs=1e-9 * max(1, y)), shape
        assert found[1] == pytest.approx(float(by_shape), rel=1e-8, abs=1e-9 * max(1, y)), shape


@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("y", [0.0, 0.5, 3.0, 1e5])
def test_the_rising_factorial_is_that_of_sixty_digits(a, y):
    with mpmath.workdps(DIGITS):
        expected = mpmath.loggamma(mpmath.mpf(a) + y) - mpmath.loggamma(a) - y * mpmath.log(a)
        rest = mpmath.loggamma(a) - (a - mpmath.mpf(0.5)) * mpmath.log(a) + a
        rest -= mpmath.log(2 * mpmath.pi) / 2
    found = log_rising(*torch.tensor([a, y], dtype=torch.float64)).item()
    assert found == pytest.approx(float(expected), rel=1e-12, abs=1e-15 * max(1, y))
    own = stirling_rest(torch.tensor(a, dtype=torch.float64)).item()
    assert own == pytest.approx(float(rest), rel=1e-12, abs=3e-15)


def test_a_log_probability_is_never_above_zero():
    y = torch.arange(200.0).double()
    for shape in SHAPES:
        log_p = family("negbinomial").log_lik(y, number(1), {"shape": number(shape)})
        assert (log_p < 0).all()
        if shape >= 1:
            assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-12)
