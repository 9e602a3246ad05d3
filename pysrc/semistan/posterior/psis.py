"""Pareto-smoothed importance sampling: weights of draws from the logarithms of their ratios.

The largest ratios of a row, its tail, are replaced by quantiles of a generalised Pareto
distribution that is fitted to them. Its shape k says how heavy the tail is.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25(72). ArviZ fits the distribution.
"""

from __future__ import annotations

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.arviz import quiet_arviz

EQUAL = 1e-12  # logarithms of ratios that differ by less are equal but for rounding
LIFT = 2.0**-50  # the least that can be added to a logarithm so that its exponential is another


def pareto_smoothed(log_ratios: Array) -> tuple[Array, Array]:
    """Smooth the ratios of each row.

    Parameters
    ----------
    log_ratios : array, shape (N, S)
        Of S draws, up to a constant in each row.

    Returns
    -------
    tuple of arrays
        Log weights (N, S), those of a row summing to 1, and Pareto k (N,). A tail of equal ratios
        has nothing to fit: its weights stay as they are, and k is 0. Where ratios are infinite, the
        draws with them share all weight, and k is infinite.
    """
    finite = np.isfinite(log_ratios.max(axis=1))
    weights, k = _as_they_are(log_ratios), np.where(finite, 0.0, np.inf)
    largest = np.sort(log_ratios, axis=1)[:, -_tail_size(log_ratios) - 1 :]
    fitted = finite & (largest[:, -1] > largest[:, 0] + EQUAL)
    if fitted.any():
        weights[fitted], k[fitted] = quiet_arviz().psislw(_lifted_ties(log_ratios[fitted]))
    return weights, k


def _as_they_are(log_ratios: Array) -> Array:
    """Return log weights (N, S) in proportion to the ratios."""
    from scipy.special import logsumexp

    infinite = np.isposinf(log_ratios)
    shares = np.where(infinite, 0.0, -np.inf)
    finite = np.where(infinite.any(axis=1, keepdims=True), shares, log_ratios)
    return np.asarray(finite - logsumexp(finite, axis=1, keepdims=True))


def _tail_size(log_ratios: Array) -> int:
    size = log_ratios.shape[1]
    return int(np.ceil(min(size / 5, 3 * np.sqrt(size))))


def _lifted_ties(log_ratios: Array) -> Array:
    """Lift ratios of the tail that equal its cutoff by one rounding, in logarithms (N, S).

    Where draws repeat, ArviZ takes fewer ratios for the tail than R's loo, whose tail has a
    fixed size: it compares with the cutoff, R counts.
    """
    shifted = log_ratios - log_ratios.max(axis=1, keepdims=True)
    tail = _tail_size(log_ratios)
    order = np.argsort(shifted, axis=1, kind="stable")
    values = np.take_along_axis(shifted, order[:, -tail - 1 :], axis=1)
    tied = np.where(values == values[:, :1], values + LIFT, values)
    np.put_along_axis(shifted, order[:, -tail:], tied[:, 1:], axis=1)
    return np.asarray(shifted)
