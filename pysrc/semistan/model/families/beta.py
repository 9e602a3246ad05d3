"""Proportions between 0 and 1, with variance mean (1 - mean) / (1 + precision)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional
from semistan.model.arrays import Array
from semistan.model.families.common import expit, logit_of_mean
from semistan.model.families.family import Dispersion, Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

TINY = 1e-300  # of a beta distribution's parameter, which may underflow but not be 0


def beta_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log density of proportions whose mean has the logit eta."""
    precision = dispersion["precision"]
    log_a, log_b = (precision.log() + functional.logsigmoid(sign * eta) for sign in (1, -1))
    a, b = log_a.exp(), log_b.exp()
    # 1 / gamma(a) = a / gamma(1 + a) is finite where a underflows
    ways = precision.lgamma() + log_a - (1 + a).lgamma() + log_b - (1 + b).lgamma()
    return ways + (a - 1) * y.log() + (b - 1) * (-y).log1p()


def beta_rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    """Draw proportions."""
    precision = dispersion["precision"]
    a, b = (np.maximum(precision * expit(sign * eta), TINY) for sign in (1, -1))
    return np.asarray(generator.beta(a, b))


PRECISION = Dispersion(
    "precision", "precision: large values are less dispersed", "exponential(0.05)", start=10.0
)
BETA = Family(
    name="beta",
    link="logit",
    aliases=(),
    parameters=(PRECISION,),
    integer=False,
    support=lambda y: (y > 0) & (y < 1),
    support_text="numbers between 0 and 1, both excluded",
    eta_units=logit_of_mean,
    mean=lambda eta, _: expit(eta),
    log_lik=beta_log_lik,
    rng=beta_rng,
    density="beta_logit_lpdf({y} | {eta}, {precision})",
    stan_rng="beta_logit_rng({eta}, {precision})",
    variance=lambda eta, disp: expit(eta) * expit(-eta) / (1 + disp["precision"]),
    links=("probit", "cloglog"),
    density_functions=("beta_logit.stanfunctions",),
    by_row=True,
)
