"""Real responses with normal errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families import normal_inside
from semistan.model.families.common import mean_and_sd, normal_log_lik
from semistan.model.families.family import SIGMA, Family
from semistan.model.families.tails import normal_tails


def _mean_inside(eta: Array, dispersion: Mapping[str, Array], lb: Array, ub: Array) -> Array:
    sigma = dispersion["sigma"]
    return eta + sigma * normal_inside.mean((lb - eta) / sigma, (ub - eta) / sigma)


GAUSSIAN = Family(
    name="gaussian",
    link="identity",
    aliases=("normal",),
    parameters=(SIGMA,),
    integer=False,
    support=np.isfinite,
    support_text="finite numbers",
    eta_units=mean_and_sd,
    mean=lambda eta, _: eta,
    log_lik=normal_log_lik,
    rng=lambda eta, disp, generator: generator.normal(eta, disp["sigma"]),
    density="normal_lpdf({y} | {eta}, {sigma})",
    stan_rng="normal_rng({eta}, {sigma})",
    glm="normal_id_glm_lpdf",
    has_log_lik=True,
    links=("log",),
    is_normal=True,
    variance=lambda eta, disp: disp["sigma"] ** 2 + 0 * eta,
    cumulant="cumulant_gaussian.stanfunctions",
    tails=normal_tails("gaussian", _mean_inside),
)
