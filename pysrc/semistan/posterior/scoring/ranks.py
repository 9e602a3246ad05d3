"""Ranks of true values among draws: are they uniform, and how often do intervals hold the truth.

With true values from the prior, responses from these, and a posterior given the responses, the
rank of a true value among L draws is uniform on 0, ..., L (Talts et al., 2018, arXiv 1804.06788;
Modrák et al., 2023, Bayesian Analysis 20). Uniformity is judged by the distribution function of the
ranks: its largest pointwise deviation, and a band that holds it at all points together with a
probability of 95% if they are uniform (Säilynoja, Bürkner and Vehtari, 2022, Statistics and
Computing 32).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

SIMULATED = 2000  # uniform samples from which the test's distribution is found
MOST_POINTS = 100  # at which distribution functions are compared
LEVEL = 0.95  # of the band
COVERAGE = (0.5, 0.9)  # probabilities of the intervals in the table


@dataclass(frozen=True, slots=True, eq=False)
class Uniformity:
    """A comparison of N values in (0, 1) with the uniform distribution.

    Attributes
    ----------
    points : array, shape (K,)
        Where the distribution functions are compared.
    difference : array, shape (K,)
        Empirical less uniform distribution function.
    lower, upper : array, shape (K,)
        The band of this difference.
    p : float
        Probability of as large a deviation, anywhere, if they are uniform.
    """

    points: Array
    difference: Array
    lower: Array
    upper: Array
    p: float

    @property
    def outside(self) -> bool:
        """Whether the difference leaves its band."""
        return bool(((self.difference < self.lower) | (self.difference > self.upper)).any())


def uniformity(values: Array) -> Uniformity:
    """Compare values (N,) with the uniform distribution on (0, 1)."""
    from scipy.stats import binom

    n = len(values)
    points, chance = _points(n), _chance(n)
    found = float(_tail(_below(values[None], points), n, points)[0])
    critical = float(np.quantile(chance, 1 - LEVEL))
    return Uniformity(
        points,
        _below(values[None], points)[0] / n - points,
        binom.ppf(critical / 2, n, points) / n - points,
        binom.ppf(1 - critical / 2, n, points) / n - points,
        float((1 + (chance <= found).sum()) / (1 + SIMULATED)),
    )


def fractions(ranks: Array, draws: Array, seed: int = 1) -> Array:
    """Spread ranks, each among so many draws, over (0, 1): uniform where they are."""
    jitter = np.random.default_rng(seed).random(len(ranks))
    return np.asarray((ranks + jitter) / (draws + 1))


def coverage(values: Array, probability: float) -> float:
    """Return the share of central intervals of some probability that hold the truth."""
    return float(central(values, probability).mean())


def central(values: Array, probability: float) -> np.ndarray:
    """Say which values lie in the central part of (0, 1) that has some probability."""
    return np.asarray(np.abs(2 * values - 1) <= probability)


def ranks_table(records: pd.DataFrame) -> pd.DataFrame:
    """Judge each quantity of some replications.

    Parameters
    ----------
    records : pandas.DataFrame
        ``replication``, ``quantity``, ``rank`` and ``draws``.

    Returns
    -------
    pandas.DataFrame
        ``quantity``, ``replications``, ``coverage 50%`` and ``coverage 90%`` with their standard
        errors ``SE 50%`` and ``SE 90%``, ``mean rank`` (1/2 if uniform) and ``p`` of uniform ranks.
    """
    import pandas as pd

    return pd.DataFrame([_judged(str(name), part) for name, part in by_quantity(records)])


def by_quantity(records: pd.DataFrame) -> list[tuple[str, Array]]:
    """Return the fractions (N,) of each quantity, in the records' order."""
    return [
        (str(name), fractions(part["rank"].to_numpy(), part["draws"].to_numpy()))
        for name, part in records.groupby("quantity", sort=False)
    ]


def _judged(name: str, values: Array) -> dict[str, object]:
    n = len(values)
    line: dict[str, object] = {"quantity": name, "replications": n}
    for probability in COVERAGE:
        share, percent = coverage(values, probability), f"{100 * probability:g}%"
        line[f"coverage {percent}"] = share
        line[f"SE {percent}"] = float(np.sqrt(probability * (1 - probability) / n))
    return line | {"mean rank": float(values.mean()), "p": uniformity(values).p}


def _points(n: int) -> Array:
    number = min(n, MOST_POINTS)
    return np.asarray(np.arange(1, number + 1) / (number + 1))


@cache
def _chance(n: int) -> Array:
    """Return what ``_tail`` is of samples of n values that are uniform."""
    simulated = np.random.default_rng(1).random((SIMULATED, n))
    return _tail(_below(simulated, _points(n)), n, _points(n))


def _below(samples: Array, points: Array) -> Array:
    """Return how many of each sample (R, N) are at most each point, (R, K)."""
    ordered = np.sort(samples, axis=1)
    return np.stack([np.searchsorted(row, points, "right") for row in ordered])


def _tail(counts: Array, n: int, points: Array) -> Array:
    """Return the smallest two-sided pointwise probability of each sample's counts (R, K)."""
    from scipy.stats import binom

    each = np.minimum(binom.cdf(counts, n, points), binom.sf(counts - 1, n, points))
    return np.asarray(2 * each.min(axis=1))
