"""Counts whose variance is their mean."""

from __future__ import annotations

import numpy as np

from semistan.model.families.common import (
    counts,
    is_count,
    log_of_mean,
    poisson_log_lik,
)
from semistan.model.families.family import Family
from semistan.model.families.poisson_tails import POISSON_TAILS

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
    log_lik=poisson_log_lik,
    rng=counts,
    density="poisson_log_lpmf({y} | {eta})",
    stan_rng="poisson_log_safe_rng({eta})",
    glm="poisson_log_glm_lpmf",
    has_log_lik=True,
    stan_functions=("poisson_log_safe_rng.stanfunctions",),
    variance=lambda eta, _: np.exp(eta),
    cumulant="cumulant_poisson.stanfunctions",
    tails=POISSON_TAILS,
)
