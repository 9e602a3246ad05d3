"""Positive times with a constant hazard, exp(-eta): eta is the log of the mean, as in brms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.families.common import LARGEST_EXPONENT, log_of_mean
from semistan.model.families.family import Family
from semistan.model.families.tails import hazard_tails

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return -eta - (y.log() - eta).clamp(max=LARGEST_EXPONENT).exp()


EXPONENTIAL = Family(
    name="exponential",
    link="log",
    aliases=(),
    parameters=(),
    integer=False,
    support=lambda y: (y > 0) & np.isfinite(y),
    support_text="positive numbers",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=_log_lik,
    rng=lambda eta, _, generator: np.exp(eta) * generator.standard_exponential(eta.shape),
    density="exponential_lpdf({y} | exp(-{eta}))",
    variance=lambda eta, _: np.exp(2 * eta),
    tails=hazard_tails("exponential", lambda y, eta, _: y.log() - eta, "{eta}"),
    stan_rng="exponential_rng(exp(-{eta}))",
)
