"""Negative binomial counts with extra zeros.

With probability zi a count is 0, otherwise it is negative binomial with mean mu = exp(eta) and
variance mu + mu^2 / shape: P(y = 0) = zi + (1 - zi) (1 + mu / shape)^-shape. As in brms, eta is
the predictor of mu.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import (
    dispersed_counts,
    is_count,
    log_of_mean,
    negbinomial_log_lik,
)
from semistan.model.families.family import SHAPE, Family
from semistan.model.families.shares import ZI, log1m_share, log_share, with_share

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    zi = dispersion["zi"]
    counted = log1m_share(zi) + negbinomial_log_lik(y, eta, dispersion)
    return torch.where(y == 0, torch.logaddexp(log_share(zi), counted), counted)


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    zi, mu = dispersion["zi"], np.exp(eta)
    return np.asarray((1 - zi) * mu * (1 + (zi + 1 / dispersion["shape"]) * mu))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    drawn = dispersed_counts(eta, dispersion, generator)
    return with_share(dispersion["zi"], 0.0, drawn, generator)


ZERO_INFLATED_NEGBINOMIAL = Family(
    name="zero_inflated_negbinomial",
    link="log",
    aliases=("zinb",),
    parameters=(SHAPE, ZI),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, disp: (1 - disp["zi"]) * np.exp(eta),
    log_lik=_log_lik,
    rng=_rng,
    density="zero_inflated_neg_binomial_log_lpmf({y} | {eta}, {shape}, {zi})",
    variance=_variance,
    stan_rng="zero_inflated_neg_binomial_log_rng({eta}, {shape}, {zi})",
    density_functions=("shares.stanfunctions", "zero_inflated_negbinomial.stanfunctions"),
    stan_functions=(
        "poisson_log_safe_rng.stanfunctions",
        "zero_inflated_negbinomial_rng.stanfunctions",
    ),
    by_row=True,
)
