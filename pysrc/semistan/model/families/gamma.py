"""Positive responses with variance mean^2 / shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.common import log_of_mean, stirling_rest
from semistan.model.families.family import SHAPE, Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    shape, ratio = dispersion["shape"], y.log() - eta
    by_mean = shape * (ratio - ratio.expm1())
    return by_mean - y.log() + 0.5 * (shape / (2 * math.pi)).log() - stirling_rest(shape)


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    return np.asarray(np.exp(eta) * generator.gamma(shape, 1 / shape))


GAMMA = Family(
    name="gamma",
    link="log",
    aliases=(),
    parameters=(SHAPE,),
    integer=False,
    support=lambda y: (y > 0) & np.isfinite(y),
    support_text="positive numbers",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=_log_lik,
    rng=_rng,
    variance=lambda eta, disp: np.exp(2 * eta) / disp["shape"],
    density="gamma_lpdf({y} | {shape}, {shape} {times} exp(-{eta}))",
    stan_rng="gamma_rng({shape}, {shape} * exp(-{eta}))",
)
