"""Tails of Poisson counts, by incomplete gamma functions, and counts between two bounds.

    P(Y <= k) = Q(k + 1, mu),    P(Y > k) = P(k + 1, mu),    mu = exp(eta)

Where these fade, 20 terms of their series and the limit of its remainder are exact to seven digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT, counts
from semistan.model.families.counts_inside import draw_inside, log_probability
from semistan.model.families.family import Tails

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Parameters = Mapping[str, Array]
FADES, TERMS = -500.0, 20  # as in poisson_inside.stanfunctions


def at_most(k: Tensor, eta: Tensor, _: Values) -> Tensor:
    """Return log P(Y <= k)."""
    mu = eta.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
    first = k * eta - mu - (k + 1).lgamma()
    fades = first <= FADES
    tail = fades & (mu >= k + 1)
    safe = torch.where(tail, mu, k + 21)
    term, total = torch.ones_like(safe), torch.zeros_like(safe)
    for j in range(TERMS):
        total = total + term
        term = term * (k - j) / safe
    series = first + (total + term / (1 - (k - TERMS) / safe)).log()
    near = torch.special.gammaincc(k + 1, torch.where(fades, k + 1, mu)).log()
    return torch.where(fades, torch.where(tail, series, 0.0), near)


def above(k: Tensor, eta: Tensor, _: Values) -> Tensor:
    """Return log P(Y > k)."""
    mu = eta.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
    first = (k + 1) * eta - mu - (k + 2).lgamma()
    fades = first <= FADES
    tail = fades & (mu <= k + 1)
    safe = torch.where(tail, mu, 0.5)
    term, total = torch.ones_like(safe), torch.zeros_like(safe)
    for j in range(2, TERMS + 2):
        total = total + term
        term = term * safe / (k + j)
    series = first + (total + term / (1 - safe / (k + TERMS + 2))).log()
    near = torch.special.gammainc(k + 1, torch.where(fades, k + 1, mu)).log()
    return torch.where(fades, torch.where(tail, series, 0.0), near)


def _log_p(k: Array, eta: Array, _: Parameters) -> Array:
    from scipy.special import gammaln

    with np.errstate(over="ignore"):
        return np.asarray(k * eta - np.exp(eta) - gammaln(k + 1))


def _rng(eta: Array, _: Parameters, lb: Array, ub: Array, generator: np.random.Generator) -> Array:
    return draw_inside(POISSON_TAILS, counts, _log_p, eta, {}, lb, ub, generator)


def _mean(eta: Array, _: Parameters, lb: Array, ub: Array) -> Array:
    """Return the mean: k p(k) is mu p(k - 1)."""
    ratio = log_probability(POISSON_TAILS, eta, {}, lb - 1, ub - 1)
    return np.exp(eta + ratio - log_probability(POISSON_TAILS, eta, {}, lb, ub))


POISSON_TAILS = Tails(
    log_below=at_most,
    log_above=above,
    least=-1.0,
    density="poisson_censored_lpmf({y} | {eta}, {cens}, {y2})",
    files=("censored.stanfunctions", "poisson_inside.stanfunctions",
           "poisson_censored.stanfunctions"),
    inside="poisson_inside({lb}, {ub}, {eta})",
    inside_rng="poisson_inside_rng({lb}, {ub}, {eta})",
    inside_files=("censored.stanfunctions", "poisson_inside.stanfunctions"),
    rng_files=("poisson_log_safe_rng.stanfunctions", "poisson_inside_rng.stanfunctions"),
    rng=_rng,
    mean=_mean,
)  # fmt: skip
