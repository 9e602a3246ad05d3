"""Counts that are 0 with a probability of its own, and negative binomial without 0 otherwise.

P(y = 0) = hu, and P(y) = (1 - hu) NB(y | mu, shape) / (1 - (1 + mu / shape)^-shape) above. As in
brms, mu = exp(eta) is the mean before zeros are taken away (Mullahy, 1986, J. Econometrics 33).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.common import is_count, log_of_mean, negbinomial_log_lik
from semistan.model.families.family import SHAPE, Family
from semistan.model.families.shares import (
    HU,
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


def _log_rate(eta: Tensor, shape: Tensor) -> Tensor:
    """Return the log of -log P(0) = shape log(1 + mu / shape)."""
    ratio = eta - shape.log()
    log1p = functional.softplus(ratio.clamp(min=SMALL_RATE), threshold=40.0).log()
    return shape.log() + torch.where(ratio < SMALL_RATE, ratio, log1p)


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    hu, shape = dispersion["hu"], dispersion["shape"]
    counted = negbinomial_log_lik(y, eta, dispersion) - log_not_zero(_log_rate(eta, shape))
    return torch.where(y == 0, log_share(hu), log1m_share(hu) + counted)


def _mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    shape = dispersion["shape"]
    mu = np.exp(np.maximum(eta, SMALL_RATE))
    above = np.where(eta < SMALL_RATE, 1.0, mu / -np.expm1(-shape * np.log1p(mu / shape)))
    return np.asarray((1 - dispersion["hu"]) * above)


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the variance; the second moment is a multiple of the mean that zeros leave alone."""
    mean = _mean(eta, dispersion)
    return np.asarray(mean * (1 + (1 + 1 / dispersion["shape"]) * np.exp(eta) - mean))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    drawn = truncated_counts(eta, {"shape": dispersion["shape"]}, generator)
    return with_share(dispersion["hu"], 0.0, drawn, generator)


HURDLE_NEGBINOMIAL = Family(
    name="hurdle_negbinomial",
    link="log",
    aliases=(),
    parameters=(SHAPE, HU),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=_mean,
    log_lik=_log_lik,
    rng=_rng,
    density="hurdle_neg_binomial_log_lpmf({y} | {eta}, {shape}, {hu})",
    variance=_variance,
    stan_rng="hurdle_neg_binomial_log_rng({eta}, {shape}, {hu})",
    density_functions=(
        "shares.stanfunctions",
        "log_not_zero.stanfunctions",
        "hurdle_negbinomial.stanfunctions",
    ),
    stan_functions=("poisson_log_safe_rng.stanfunctions", "hurdle_negbinomial_rng.stanfunctions"),
    by_row=True,
)
