"""Counts that are 0 with a probability of its own, and Poisson without 0 otherwise.

P(y = 0) = hu, and P(y) = (1 - hu) Poisson(y | mu) / (1 - exp(-mu)) above. As in brms,
mu = exp(eta) is the mean before zeros are taken away (Mullahy, 1986, J. Econometrics 33).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import is_count, log_of_mean
from semistan.model.families.family import Family
from semistan.model.families.shares import (
    HU,
    LARGEST_EXPONENT,
    SMALL_RATE,
    log1m_share,
    log_not_zero,
    log_share,
    truncated_counts,
    with_share,
)

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    hu = dispersion["hu"]
    mu = eta.clamp(max=LARGEST_EXPONENT).exp()
    counted = y * eta - mu - (y + 1).lgamma() - log_not_zero(eta)
    return torch.where(y == 0, log_share(hu), log1m_share(hu) + counted)


def _mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    mu = np.exp(np.maximum(eta, SMALL_RATE))
    above = np.where(eta < SMALL_RATE, 1.0, mu / -np.expm1(-mu))
    return np.asarray((1 - dispersion["hu"]) * above)


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the variance; the second moment is a multiple of the mean that zeros leave alone."""
    mean = _mean(eta, dispersion)
    return np.asarray(mean * (1 + np.exp(eta) - mean))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    drawn = truncated_counts(eta, {}, generator)
    return with_share(dispersion["hu"], 0.0, drawn, generator)


HURDLE_POISSON = Family(
    name="hurdle_poisson",
    link="log",
    aliases=(),
    parameters=(HU,),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=_mean,
    log_lik=_log_lik,
    rng=_rng,
    density="hurdle_poisson_log_lpmf({y} | {eta}, {hu})",
    variance=_variance,
    stan_rng="hurdle_poisson_log_rng({eta}, {hu})",
    density_functions=(
        "shares.stanfunctions",
        "log_not_zero.stanfunctions",
        "hurdle_poisson.stanfunctions",
    ),
    stan_functions=("poisson_log_safe_rng.stanfunctions", "hurdle_poisson_rng.stanfunctions"),
    by_row=True,
)
