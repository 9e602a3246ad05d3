"""Standard normal variables between two bounds, by the tail in which less is lost.

Bounds above 0 are turned to the other side, where log Phi has all digits.
"""

from __future__ import annotations

import math

import numpy as np

from semistan.model.arrays import Array


def log_probability(lower: Array, upper: Array) -> Array:
    """Return the log probability between two bounds."""
    from scipy.special import log_ndtr

    lower, upper, _ = _turned(lower, upper)
    with np.errstate(divide="ignore"):
        return np.asarray(log_ndtr(upper) + np.log(-np.expm1(log_ndtr(lower) - log_ndtr(upper))))


def mean(lower: Array, upper: Array) -> Array:
    """Return the mean between two bounds."""
    log_constant = log_probability(lower, upper) + 0.5 * math.log(2 * math.pi)
    densities = [np.exp(-0.5 * bound**2 - log_constant) for bound in (lower, upper)]
    return np.asarray(densities[0] - densities[1])


def draw(lower: Array, upper: Array, generator: np.random.Generator) -> Array:
    """Draw one variable between each two bounds."""
    from scipy.special import log_ndtr, ndtri_exp

    lower, upper, sign = _turned(lower, upper)
    u = generator.random(lower.shape)
    below = np.exp(log_ndtr(lower) - log_ndtr(upper))
    return np.asarray(sign * ndtri_exp(log_ndtr(upper) + np.log(u + (1 - u) * below)))


def _turned(lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Return bounds in the lower half if both were in the upper one, and the sign of that."""
    lower, upper = np.broadcast_arrays(lower, upper)
    turned = lower > 0
    sign = np.where(turned, -1.0, 1.0)
    return np.where(turned, -upper, lower), np.where(turned, -lower, upper), sign
