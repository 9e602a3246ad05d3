"""Positive responses whose logarithm is normal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.common import mean_and_sd, normal_log_lik
from semistan.model.families.family import SIGMA, Family
from semistan.model.families.tails import normal_tails

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    return normal_log_lik(y.log(), eta, dispersion) - y.log()


def _mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    return np.asarray(np.exp(eta + dispersion["sigma"] ** 2 / 2))


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    square = dispersion["sigma"] ** 2
    return np.asarray(np.expm1(square) * np.exp(2 * eta + square))


LOGNORMAL = Family(
    name="lognormal",
    link="identity",
    aliases=(),
    parameters=(SIGMA,),
    integer=False,
    support=lambda y: (y > 0) & np.isfinite(y),
    support_text="positive numbers",
    eta_units=lambda y, given: mean_and_sd(np.log(y), given),
    mean=_mean,
    log_lik=_log_lik,
    rng=lambda eta, disp, generator: generator.lognormal(eta, disp["sigma"]),
    density="lognormal_lpdf({y} | {eta}, {sigma})",
    stan_rng="lognormal_rng({eta}, {sigma})",
    variance=_variance,
    tails=normal_tails("lognormal", lambda y: y.log()),
)
