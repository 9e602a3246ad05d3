"""Counts that are 0 with a probability of its own, otherwise Poisson or negbinomial without 0.

P(y = 0) = hu, and P(y) = (1 - hu) P0(y) / (1 - P0(0)) above. As in brms, mu = exp(eta) is the mean
before zeros are taken away (Mullahy, 1986, J. Econometrics 33).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import SMALL_RATE, is_count, log_of_mean
from semistan.model.families.counted import NEGBINOMIAL_COUNTS, POISSON_COUNTS, Counted
from semistan.model.families.family import Family, Predicted
from semistan.model.families.shares import (
    HU,
    log1m_share,
    log_not_zero,
    log_share,
    truncated_counts,
    with_share,
)

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _hurdle(counted: Counted) -> Family:
    """Return the family of some counts behind a hurdle."""

    def log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
        hu = dispersion["hu"]
        above = counted.log_lik(y, eta, dispersion)
        above = above - log_not_zero(counted.log_rate(eta, dispersion))
        return torch.where(y == 0, log_share(hu), log1m_share(hu) + above)

    def mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
        mu = np.exp(np.maximum(eta, SMALL_RATE))
        above = np.where(eta < SMALL_RATE, 1.0, mu / -np.expm1(-counted.rate(mu, dispersion)))
        return np.asarray((1 - dispersion["hu"]) * above)

    def variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
        """Return it by the second moment, a multiple of the mean that zeros leave alone."""
        found, mu = mean(eta, dispersion), np.exp(eta)
        return np.asarray(found * (1 + (1 + counted.excess(mu, dispersion)) * mu - found))

    def rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
        own = {item.name: dispersion[item.name] for item in counted.parameters}
        return with_share(dispersion["hu"], 0.0, truncated_counts(eta, own, generator), generator)

    name = f"hurdle_{counted.name}"
    return Family(
        name=name,
        link="log",
        aliases=(),
        parameters=(*counted.parameters, HU),
        integer=True,
        support=is_count,
        support_text="counts 0, 1, 2, ...",
        eta_units=log_of_mean,
        mean=mean,
        log_lik=log_lik,
        rng=rng,
        density=f"hurdle_{counted.stan}_log_lpmf({{y}} | {counted.arguments}, {{hu}})",
        variance=variance,
        stan_rng=f"hurdle_{counted.stan}_log_rng({counted.arguments}, {{hu}})",
        density_functions=(
            "shares.stanfunctions",
            "log_not_zero.stanfunctions",
            f"{name}.stanfunctions",
        ),
        stan_functions=("poisson_log_safe_rng.stanfunctions", f"{name}_rng.stanfunctions"),
        by_row=True,
        predicted=Predicted(
            "{link} \N{GREEK SMALL LETTER MU}", "mean of {y} before zeros are taken away"
        ),
    )


HURDLE_POISSON = _hurdle(POISSON_COUNTS)
HURDLE_NEGBINOMIAL = _hurdle(NEGBINOMIAL_COUNTS)
