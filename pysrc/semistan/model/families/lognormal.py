"""Positive responses whose logarithm is normal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families import normal_inside
from semistan.model.families.common import mean_and_sd, normal_log_lik
from semistan.model.families.family import SIGMA, Family, Predicted
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


def _mean_inside(eta: Array, dispersion: Mapping[str, Array], lb: Array, ub: Array) -> Array:
    """Return the mean between two bounds, by their probability at eta + sigma^2."""
    sigma = dispersion["sigma"]
    with np.errstate(divide="ignore"):
        lower, upper = (np.log(np.maximum(bound, 0)) for bound in (lb, ub))
    log_p = [
        normal_inside.log_probability((lower - mu) / sigma, (upper - mu) / sigma)
        for mu in (eta + sigma**2, eta)
    ]
    return np.asarray(np.exp(eta + sigma**2 / 2 + log_p[0] - log_p[1]))


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
    predicted=Predicted("{link} E[log y]", "mean of log {y}"),
    tails=normal_tails(
        "lognormal", _mean_inside, least=0.0, to_normal=lambda y: y.log(), from_normal=np.exp
    ),
)
