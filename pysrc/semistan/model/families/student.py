"""Real responses with the heavy-tailed errors of a Student t distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import log_rising, mean_and_sd
from semistan.model.families.family import SIGMA, Dispersion, Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    nu, sigma = dispersion["nu"], dispersion["sigma"]
    tails = (((y - eta) / sigma) ** 2 / nu).log1p()
    constant = log_rising(nu / 2, torch.full_like(nu, 0.5)) - math.log(2 * math.pi) / 2
    return constant - sigma.log() - (nu + 1) / 2 * tails


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    nu = np.broadcast_to(dispersion["nu"], eta.shape)
    return np.asarray(eta + dispersion["sigma"] * generator.standard_t(nu))


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    nu, sigma = np.broadcast_arrays(dispersion["nu"], dispersion["sigma"])
    finite = np.maximum(nu, 2.0)
    with np.errstate(divide="ignore"):
        return np.asarray(sigma**2 * finite / (finite - 2) + 0 * eta)


STUDENT = Family(
    name="student",
    link="identity",
    aliases=("student_t",),
    parameters=(SIGMA, Dispersion("nu", "degrees of freedom", "gamma(2, 0.1)", start=10.0)),
    integer=False,
    support=np.isfinite,
    support_text="finite numbers",
    eta_units=mean_and_sd,
    mean=lambda eta, _: eta,
    log_lik=_log_lik,
    rng=_rng,
    density="student_t_lpdf({y} | {nu}, {eta}, {sigma})",
    stan_rng="student_t_rng({nu}, {eta}, {sigma})",
    links=("log",),
    variance=_variance,
)
