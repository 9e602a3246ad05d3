"""Poisson counts with extra zeros.

With probability zi a count is 0, otherwise it is Poisson with mean mu = exp(eta) (Lambert, 1992,
Technometrics 34): P(y = 0) = zi + (1 - zi) exp(-mu). As in brms, eta is the predictor of mu.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import counts, is_count, log_of_mean
from semistan.model.families.family import Family
from semistan.model.families.shares import (
    LARGEST_EXPONENT,
    ZI,
    log1m_share,
    log_share,
    with_share,
)

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    zi = dispersion["zi"]
    mu = eta.clamp(max=LARGEST_EXPONENT).exp()
    zero = torch.logaddexp(log_share(zi), log1m_share(zi) - mu)
    return torch.where(y == 0, zero, log1m_share(zi) + y * eta - mu - (y + 1).lgamma())


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    zi, mu = dispersion["zi"], np.exp(eta)
    return np.asarray((1 - zi) * mu * (1 + zi * mu))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    return with_share(dispersion["zi"], 0.0, counts(eta, {}, generator), generator)


ZERO_INFLATED_POISSON = Family(
    name="zero_inflated_poisson",
    link="log",
    aliases=("zip",),
    parameters=(ZI,),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, disp: (1 - disp["zi"]) * np.exp(eta),
    log_lik=_log_lik,
    rng=_rng,
    density="zero_inflated_poisson_log_lpmf({y} | {eta}, {zi})",
    variance=_variance,
    stan_rng="zero_inflated_poisson_log_rng({eta}, {zi})",
    density_functions=("shares.stanfunctions", "zero_inflated_poisson.stanfunctions"),
    stan_functions=(
        "poisson_log_safe_rng.stanfunctions",
        "zero_inflated_poisson_rng.stanfunctions",
    ),
    by_row=True,
)
