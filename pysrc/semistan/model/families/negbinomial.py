"""Counts whose variance is mean + mean^2 / shape."""

from __future__ import annotations

import numpy as np

from semistan.model.families.common import (
    dispersed_counts,
    is_count,
    log_of_mean,
    negbinomial_log_lik,
)
from semistan.model.families.family import SHAPE, Family

NEGBINOMIAL = Family(
    name="negbinomial",
    link="log",
    aliases=("neg_binomial_2", "negative_binomial"),
    parameters=(SHAPE,),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=negbinomial_log_lik,
    rng=dispersed_counts,
    density="neg_binomial_2_log_lpmf({y} | {eta}, {shape})",
    stan_rng="poisson_log_safe_rng({eta} + log(gamma_rng({shape}, {shape})))",
    glm="neg_binomial_2_log_glm_lpmf",
    variance=lambda eta, disp: np.exp(eta) + np.exp(2 * eta) / disp["shape"],
    stan_functions=("poisson_log_safe_rng.stanfunctions",),
)
