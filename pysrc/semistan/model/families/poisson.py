"""Counts whose variance is their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.families.common import counts, is_count, log_of_mean
from semistan.model.families.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return y * eta - eta.exp() - (y + 1).lgamma()


POISSON = Family(
    name="poisson",
    link="log",
    aliases=(),
    parameters=(),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=_log_lik,
    rng=counts,
    density="poisson_log_lpmf({y} | {eta})",
    stan_rng="poisson_log_safe_rng({eta})",
    glm="poisson_log_glm_lpmf",
    has_log_lik=True,
    stan_functions=("poisson_log_safe_rng.stanfunctions",),
    variance=lambda eta, _: np.exp(eta),
    cumulant="cumulant_poisson.stanfunctions",
)
