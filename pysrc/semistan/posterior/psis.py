"""Pareto-smoothed importance sampling: weights of draws from the logarithms of their ratios.

The largest ratios of a row, its tail, are replaced by quantiles of a generalised Pareto
distribution that is fitted to them. Its shape k says how heavy the tail is.

The tail has a fixed size, as in R's loo: also where draws repeat, and in every release of ArviZ,
of which some take one ratio less.

Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25(72); the fit is that of Zhang and Stephens
(2009), Technometrics 51(3), shrunk towards 1/2 with the weight of ten ratios.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from semistan.model.arrays import Array

EQUAL = 1e-12  # logarithms of ratios that differ by less are equal but for rounding
LEAST = 2.0**-50  # the least excess over the cutoff, relative to it: of ratios that equal it
FEWEST = 5  # ratios in a tail to which a distribution is fitted
BLOCK = 4_000_000  # numbers that are held at once for several rows


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
        has nothing to fit: its weights stay as they are, and k is 0. They stay so as well where
        fewer than five ratios are in the tail, or ratios are infinite, and k is infinite; the draws
        with infinite ratios share all weight.
    """
    largest, draws = log_ratios.max(axis=1), log_ratios.shape[1]
    size = int(np.ceil(min(draws / 5, 3 * np.sqrt(draws)))) if draws > 1 else 0  # of the tail
    finite = np.isfinite(largest)
    weights, k = _as_they_are(log_ratios), np.where(finite, 0.0, np.inf)
    cutoff = np.partition(log_ratios, -size - 1, axis=1)[:, -size - 1] if size else largest
    varied = finite & (largest > cutoff + EQUAL)
    if size < FEWEST:
        k[varied] = np.inf
        return weights, k
    for rows in _blocks(np.flatnonzero(varied), size):
        weights[rows], k[rows] = _smoothed(log_ratios[rows], size)
    return weights, k


def _as_they_are(log_ratios: Array) -> Array:
    """Return log weights (N, S) in proportion to the ratios."""
    from scipy.special import logsumexp

    infinite = np.isposinf(log_ratios)
    shares = np.where(infinite, 0.0, -np.inf)
    finite = np.where(infinite.any(axis=1, keepdims=True), shares, log_ratios)
    return np.asarray(finite - logsumexp(finite, axis=1, keepdims=True))


def _blocks(rows: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Yield numbers of rows, so many at a time as can be fitted in little memory."""
    step = max(1, BLOCK // (size * _candidates(size)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _candidates(size: int) -> int:
    """Return how many values of the distribution's parameter are weighed against each other."""
    return 30 + int(np.sqrt(size))


def _smoothed(log_ratios: Array, size: int) -> tuple[Array, Array]:
    """Return log weights (B, S) and Pareto k (B,) of rows whose tails vary."""
    from scipy.special import logsumexp

    logs = log_ratios - log_ratios.max(axis=1, keepdims=True)
    order = np.argsort(logs, axis=1, kind="stable")[:, -size - 1 :]
    ratios = np.exp(np.take_along_axis(logs, order, axis=1))
    cutoff, tail = ratios[:, :1], ratios[:, 1:]
    excess = np.maximum(tail - cutoff, LEAST * cutoff)
    p = (np.arange(1, size + 1) - 0.5) / size
    with np.errstate(all="ignore"):  # a tail over all that a number can be has no fit
        k, sigma = _generalised_pareto(excess)
        quantiles = sigma[:, None] * np.expm1(-k[:, None] * np.log1p(-p)) / k[:, None]
        smooth = np.minimum(np.log(cutoff + quantiles), 0.0)  # at the most the largest ratio
    fitted = np.isfinite(k) & np.isfinite(smooth).all(axis=1)
    kept = np.take_along_axis(logs, order[:, 1:], axis=1)
    np.put_along_axis(logs, order[:, 1:], np.where(fitted[:, None], smooth, kept), axis=1)
    return logs - logsumexp(logs, axis=1, keepdims=True), np.where(fitted, k, np.inf)


def _generalised_pareto(excess: Array) -> tuple[Array, Array]:
    """Return shape k and scale sigma (B,) of generalised Pareto distributions.

    Parameters
    ----------
    excess : array, shape (B, n)
        Positive and in ascending order.
    """
    from scipy.special import softmax

    n, m = excess.shape[1], _candidates(excess.shape[1])
    quartile = excess[:, int(n / 4 + 0.5) - 1]
    steps = 1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))
    theta = 1 / excess[:, -1:] + steps / (3 * quartile[:, None])
    shapes = np.log1p(-theta[:, :, None] * excess[:, None, :]).mean(axis=2)
    density = n * (np.log(-theta / shapes) - shapes - 1)  # the profile log-likelihood
    best = (theta * softmax(density, axis=1)).sum(axis=1)
    k = np.log1p(-best[:, None] * excess).mean(axis=1)
    return (n * k + 5) / (n + 10), -k / best
