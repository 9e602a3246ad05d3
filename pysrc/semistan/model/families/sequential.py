"""The sequential model of ordered categories (Tutz, 1990, Br. J. Math. Stat. Psychol. 43).

A category is reached through all below it, and is the last one if eta plus noise, drawn anew at
each, does not pass its threshold. The thresholds have no order of their own:

    P(y = k | y >= k) = F(tau_k - eta),    k < K

As F is symmetric, the continuation ratio model, brms's ``cratio``, is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.family import Dispersion, Family, Predicted
from semistan.model.families.noise import NOISE, Noise
from semistan.model.families.ordinal import (
    expected_category,
    ordinal_family,
    share_of_first,
    thresholds,
)

if TYPE_CHECKING:
    from torch import Tensor

NAME, ALIAS, LINKS = "sratio", "cratio", tuple(NOISE)
GAP = Dispersion("gap", "", "normal(0, 2.5)", start=0.0, link="identity")


def log_lik(
    noise: Noise, K: int, y: Tensor, eta: Tensor, dispersion: Mapping[str, Tensor]
) -> Tensor:
    """Return log P(y) of each row: categories passed, and that y is not."""
    total = 0 * eta
    for k, tau in enumerate(thresholds(dispersion, K), start=1):
        above = eta - tau
        total = total + (y > k) * noise.log_cdf(above) + (y == k) * noise.log_cdf(-above)
    return total


def probabilities(noise: Noise, K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return P(y = k) of each category, shape (..., K)."""
    found, reached = [], np.ones_like(eta)
    for tau in thresholds(dispersion, K):
        found.append(reached * noise.cdf(tau - eta))
        reached = reached * noise.cdf(eta - tau)
    return np.stack(np.broadcast_arrays(*found, reached), axis=-1)


def rng(
    noise: Noise,
    K: int,
    eta: Array,
    dispersion: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw a category for each element of eta."""
    y, goes_on = np.ones(eta.shape), np.ones(eta.shape, dtype=bool)
    for tau in thresholds(dispersion, K):
        goes_on &= eta + noise.draw(generator, eta.shape) > tau
        y += goes_on
    return y


def of_categories(link: str, K: int) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet."""
    noise, each = NOISE[link], partial(probabilities, NOISE[link], K)
    return ordinal_family(
        NAME,
        link,
        K,
        GAP,
        eta_units=partial(share_of_first, link),
        mean=partial(expected_category, each),
        log_lik=partial(log_lik, noise, K),
        rng=partial(rng, noise, K),
        density=f"sratio_{link}_lpmf({{y}} | {{eta}}, tau)",
        stan_rng=f"sratio_{link}_rng({{eta}}, tau)",
        density_functions=(
            *(("log_Phi.stanfunctions",) if link == "probit" else ()),
            f"sratio_{link}.stanfunctions",
        ),
        by_row=True,
        probabilities=each,
        predicted=Predicted(
            "{link} P[y > k | y \N{GREATER-THAN OR EQUAL TO} k]",
            "latent {y}",
            "going beyond a category that is reached",
        ),
    )
