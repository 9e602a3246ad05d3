"""The adjacent-category model of ordered categories (Agresti, 2010, Analysis of Ordinal Data, 4.1).

Of two neighbouring categories, the upper one has the log odds eta less a threshold. The thresholds
have no order of their own:

    P(y = k + 1) / P(y = k) = exp(eta - tau_k),    k < K
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional
from semistan.model.arrays import Array
from semistan.model.families.family import Dispersion, Family, Given, Predicted
from semistan.model.families.ordinal import (
    expected_category,
    ordinal_family,
    thresholds,
)

if TYPE_CHECKING:
    from torch import Tensor

NAME, LINKS = "acat", ("logit",)
GAP = Dispersion("gap", "", "normal(0, 2.5)", start=0.0, link="identity")


def log_lik(K: int, y: Tensor, eta: Tensor, dispersion: Mapping[str, Tensor]) -> Tensor:
    """Return log P(y) of each row."""
    found = score = total = 0 * eta
    for k, tau in enumerate(thresholds(dispersion, K), start=2):
        score = score + eta - tau
        found = found + (y == k) * score
        total = total + functional.softplus(score - total, threshold=40.0)
    return found - total


def probabilities(K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return P(y = k) of each category, shape (..., K)."""
    scores = [np.zeros_like(eta)]
    for tau in thresholds(dispersion, K):
        scores.append(scores[-1] + eta - tau)
    stacked = np.stack(np.broadcast_arrays(*scores), axis=-1)
    odds = np.exp(stacked - stacked.max(axis=-1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


def rng(
    K: int, eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    """Draw a category for each element of eta."""
    below = probabilities(K, eta, dispersion).cumsum(axis=-1)[..., :-1]
    return np.asarray(1.0 + (generator.random(eta.shape)[..., None] > below).sum(axis=-1))


def odds_of_second(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of eta where the odds of category 2 against 1 are the observed ones."""
    second, first = (max(int((y == k).sum()), 1) for k in (2, 1))
    return math.log(second / first) - float(np.mean(given.get("offsets", 0.0))), 1.0


def of_categories(link: str, K: int) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet."""
    each = partial(probabilities, K)
    return ordinal_family(
        NAME,
        link,
        K,
        GAP,
        eta_units=odds_of_second,
        mean=partial(expected_category, each),
        log_lik=partial(log_lik, K),
        rng=partial(rng, K),
        density="acat_logit_lpmf({y} | {eta}, tau)",
        stan_rng="acat_logit_rng({eta}, tau)",
        density_functions=("acat_logit.stanfunctions",),
        by_row=True,
        probabilities=each,
        predicted=Predicted(
            "log P[y = k + 1] / P[y = k]",
            "log-odds of the next {y}",
            "a category against the one below it",
        ),
    )
