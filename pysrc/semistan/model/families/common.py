"""What several families share: bounds of exponents, units of the linear predictor, and draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Given = Mapping[str, Array]
LARGEST_EXPONENT = 700.0  # exp() of 710 is infinite
SMALL_RATE = -36.0  # 1 - exp(-x) is x to the last digit where x = exp() of it
LARGE_SHAPE = 15.0  # above which the series of log gamma is exact
LARGE_LOG_MEAN = math.log(1e9)  # as in poisson_log_safe_rng.stanfunctions


def normal_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the normal log density of responses."""
    sigma = dispersion["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)


def log_Phi(x: Tensor) -> Tensor:
    """Return the log of the standard normal distribution function.

    The derivative of torch's is wrong by 1% at -1e7, and it cannot be evaluated at several draws at
    a time. Below -30, five terms of the asymptotic series are exact to 1e-12, as in
    ``log_Phi.stanfunctions``.
    """
    far = x < -30
    tail = torch.where(far, x, -31.0)
    r = tail**-2
    series = 1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r * (1 - 9 * r))))
    below = -0.5 * tail**2 - 0.5 * math.log(2 * math.pi) - (-tail).log() + series.log()
    left = x.clamp(min=-30.0, max=0.0) * -math.sqrt(0.5)
    right = torch.where(x > 0, x, 0.0) * math.sqrt(0.5)
    near = torch.special.erfcx(left).log() - left**2 - math.log(2)
    above = (-0.5 * torch.erfc(right)).log1p()
    return torch.where(far, below, torch.where(x > 0, above, near))


def stirling_rest(x: Tensor) -> Tensor:
    """Return log gamma(x) less Stirling's formula, (x - 1/2) log x - x + log(2 pi) / 2.

    Differences of logarithms of gamma functions lose as many digits as they are larger than what
    remains, 12 of 16 at 1e12; differences of this lose none. Above 15, six terms of its series
    (Abramowitz and Stegun, 6.1.41) are exact to 1e-16.
    """
    far = x > LARGE_SHAPE
    r = torch.where(far, x, LARGE_SHAPE) ** -1
    s = r**2
    series = r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188)))))
    series = series - r**11 * (691 / 360360)
    near = torch.where(far, LARGE_SHAPE, x)
    formula = (near - 0.5) * near.log() - near + 0.5 * math.log(2 * math.pi)
    return torch.where(far, series, near.lgamma() - formula)


def log_rising(a: Tensor, y: Tensor) -> Tensor:
    """Return log(gamma(a + y) / gamma(a)) - y log(a) for y >= 0, which tends to 0 for large a."""
    total, ratio = a + y, (y / a).log1p()
    return (total - 0.5) * ratio - y + stirling_rest(total) - stirling_rest(a)


def poisson_log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    """Return the log probability of counts with mean exp(eta)."""
    return y * eta - eta.exp() - (y + 1).lgamma()


def negbinomial_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log probability of counts with mean exp(eta) and a shape."""
    shape = dispersion["shape"]
    log1p_ratio = functional.softplus(eta - shape.log(), threshold=40.0)
    ways = log_rising(shape, y) - (y + 1).lgamma()
    return ways + y * (eta - log1p_ratio) - shape * log1p_ratio


def counts(eta: Array, _: Mapping[str, Array], generator: np.random.Generator) -> Array:
    """Draw counts; NumPy stops near a mean of 1e19, the normal limit is used above 1e9."""
    large = eta > LARGE_LOG_MEAN
    counts = generator.poisson(np.exp(np.where(large, 0.0, eta))).astype(float)
    if large.any():
        with np.errstate(over="ignore"):
            mean = np.exp(eta[large])
        noise = np.exp(-0.5 * eta[large]) * generator.standard_normal(mean.shape)
        counts[large] = np.round(mean * (1 + noise))
    return counts


def dispersed_counts(
    eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    """Draw counts whose log mean varies by a gamma variable of mean 1."""
    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    with np.errstate(divide="ignore"):
        varied = np.log(generator.gamma(shape, 1 / shape))
    return counts(eta + varied, {}, generator)


def expit(eta: Array) -> Array:
    """Return the probability whose logit is eta."""
    return np.exp(-np.logaddexp(0.0, -eta))


def mean_and_sd(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of a predictor that is the mean of y."""
    rest = y - given.get("offsets", 0.0)
    return float(rest.mean()), float(rest.std(ddof=1))


def is_count(y: Array) -> np.ndarray:
    """Return where a response is 0, 1, 2, ..."""
    return np.asarray((y >= 0) & (y == np.floor(y)) & np.isfinite(y))


def log_of_mean(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of a predictor that is the log of the mean."""
    offsets = given.get("offsets", np.zeros(1))
    exposure = np.exp(offsets - offsets.max()).mean()
    return float(np.log(y.mean()) - np.log(exposure) - offsets.max()), 1.0


def logit_of_mean(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of a predictor that is the logit of the mean, or of that of a trial."""
    trials = given.get("trials", np.ones(len(y)))
    mean = y.sum() / trials.sum()
    offset = float(np.mean(given.get("offsets", 0.0)))
    return float(np.log(mean) - np.log1p(-mean)) - offset, 1.0


def log_gamma(generator: np.random.Generator, shape: Array) -> Array:
    """Draw the logarithm of gamma variables, of which one with a small shape would underflow.

    It is one of shape + 1, times U^(1 / shape).
    """
    above = np.log(generator.gamma(shape + 1))
    return np.asarray(above - generator.standard_exponential(shape.shape) / shape)
