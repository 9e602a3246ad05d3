"""The probability integral transform of each row, predicted without it, and when it is uniform.

    pit_i = P(Y_i < y_i | y_-i) + v_i P(Y_i = y_i | y_-i),    v_i ~ U(0, 1)

by PSIS-LOO. The empirical distribution function of uniform values stays, at all points at once, in
a band of given probability: at each point the central interval of the binomial distribution, of a
coverage that simulations of uniform samples adjust (Säilynoja, Bürkner and Vehtari, 2022,
Statistics and Computing 32, algorithm 1).

A row of weight 0 has no part in the fit, so that y_-i is y. The response of a row without trials is
0 with certainty: its transform is v_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import log_lik, posterior_predict, row_chunks
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.loo import loo_obstacle, psis_weights

POINTS = 100  # at which the distribution function is compared, at most
SIMULATIONS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The empirical distribution function of N values, and where it would be if uniform.

    Attributes
    ----------
    z : array, shape (K,)
        Points between 0 and 1.
    ecdf, lower, upper : array, shape (K,)
        The share of values up to each, and the band's bounds.
    """

    z: Array
    ecdf: Array
    lower: Array
    upper: Array

    @property
    def outside(self) -> int:
        """At how many points the function leaves the band."""
        return int(((self.ecdf < self.lower) | (self.ecdf > self.upper)).sum())


def loo_pit(posterior: Posterior, rows: Rows, generator: np.random.Generator) -> tuple[Array, int]:
    """Return the transform (N,) of the training rows, each predicted without it.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows.
    generator : numpy.random.Generator
        Of replicated responses, and for the transform of discrete ones.

    Returns
    -------
    tuple of array and int
        The transform, and in how many rows Pareto k is above 0.7, where it is unreliable.

    Raises
    ------
    InputError
        For unordered categories, draws whose PSIS-LOO cannot be computed, and rows whose transform
        is not finite.
    """
    if obstacle := pit_obstacle(posterior):
        raise InputError(obstacle)
    found, above = [], 0
    for chunk in row_chunks(posterior, rows):
        logs, k = psis_weights(log_lik(posterior, chunk), posterior.config.sample.temperature)
        weights, y = np.exp(logs).T, chunk.y
        assert y is not None
        replicated = posterior_predict(posterior, chunk, generator)
        below, at = ((weights * part).sum(axis=0) for part in (replicated < y, replicated == y))
        found.append(below + generator.random(len(chunk)) * at)
        above += int((~(k <= 0.7)).sum())
    pit = np.concatenate(found)
    check_finite("the probability integral transform", pit)
    return np.clip(pit, 0, 1), above


def pit_obstacle(posterior: Posterior) -> str:
    """Say why rows have no such transform; nothing if they have."""
    if posterior.family.mean is None:
        return "unordered categories have no distribution function"
    if posterior.family.censored:
        return "the response may be censored, so that its place among replicated ones is not known"
    return loo_obstacle(posterior) or ""


def uniform_band(values: Array, prob: float, generator: np.random.Generator) -> Band:
    """Compare values (N,) with the uniform distribution on 0 to 1, by a simultaneous band."""
    from scipy.stats import binom

    n = len(values)
    z = np.arange(1, min(n, POINTS)) / min(n, POINTS) if n > 1 else np.array([0.5])
    counts = np.stack([_counts(generator.random(n), z) for _ in range(SIMULATIONS)])
    tails = np.minimum(binom.cdf(counts, n, z), binom.sf(counts - 1, n, z))
    level = np.quantile(2 * tails.min(axis=1), 1 - prob)
    lower, upper = binom.ppf(level / 2, n, z), binom.isf(level / 2, n, z)
    return Band(z, _counts(values, z) / n, lower / n, upper / n)


def _counts(values: Array, z: Array) -> np.ndarray:
    """Return how many values are at most z, at each point."""
    return np.searchsorted(np.sort(values), z, side="right")
