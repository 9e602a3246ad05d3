"""Counts with extra zeros, Poisson or negbinomial.

With probability zi a count is 0, otherwise it is counted with mean mu = exp(eta) (Lambert, 1992,
Technometrics 34): P(y = 0) = zi + (1 - zi) P0(0). As in brms, eta is the predictor of mu.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import is_count, log_of_mean
from semistan.model.families.counted import NEGBINOMIAL_COUNTS, POISSON_COUNTS, Counted
from semistan.model.families.family import Family, Predicted
from semistan.model.families.shares import ZI, log1m_share, log_share, with_share

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _zero_inflated(counted: Counted, aliases: tuple[str, ...]) -> Family:
    """Return the family of some counts with extra zeros."""

    def log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
        zi = dispersion["zi"]
        other = log1m_share(zi) + counted.log_lik(y, eta, dispersion)
        return torch.where(y == 0, torch.logaddexp(log_share(zi), other), other)

    def variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
        zi, mu = dispersion["zi"], np.exp(eta)
        return np.asarray((1 - zi) * mu * (1 + (zi + counted.excess(mu, dispersion)) * mu))

    def rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
        return with_share(dispersion["zi"], 0.0, counted.rng(eta, dispersion, generator), generator)

    name = f"zero_inflated_{counted.name}"
    return Family(
        name=name,
        link="log",
        aliases=aliases,
        parameters=(*counted.parameters, ZI),
        integer=True,
        support=is_count,
        support_text="counts 0, 1, 2, ...",
        eta_units=log_of_mean,
        mean=lambda eta, disp: (1 - disp["zi"]) * np.exp(eta),
        log_lik=log_lik,
        rng=rng,
        density=f"zero_inflated_{counted.stan}_log_lpmf({{y}} | {counted.arguments}, {{zi}})",
        variance=variance,
        stan_rng=f"zero_inflated_{counted.stan}_log_rng({counted.arguments}, {{zi}})",
        density_functions=("shares.stanfunctions", f"{name}.stanfunctions"),
        stan_functions=("poisson_log_safe_rng.stanfunctions", f"{name}_rng.stanfunctions"),
        by_row=True,
        predicted=Predicted("{link} E[y | no extra 0]", "mean of {y} without the extra zeros"),
    )


ZERO_INFLATED_POISSON = _zero_inflated(POISSON_COUNTS, ("zip",))
ZERO_INFLATED_NEGBINOMIAL = _zero_inflated(NEGBINOMIAL_COUNTS, ("zinb",))
