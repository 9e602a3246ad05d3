"""Proportions between 0 and 1, both of which occur (Ospina and Ferrari, 2010, Stat. Papers 51).

With probability zoi a proportion is 0 or 1, and then it is 1 with probability coi; otherwise it
has a beta distribution with mean expit(eta) and a precision, brms's phi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.beta import PRECISION, beta_log_lik, beta_rng
from semistan.model.families.common import Given, expit, logit_of_mean
from semistan.model.families.family import Family, Predicted
from semistan.model.families.shares import COI, ZOI, log1m_share, log_share, with_share

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    zoi, coi = dispersion["zoi"], dispersion["coi"]
    inner = (y > 0) & (y < 1)
    between = beta_log_lik(torch.where(inner, y, 0.5), eta, dispersion)
    end = log_share(zoi) + torch.where(y == 0, log1m_share(coi), log_share(coi))
    return torch.where(inner, log1m_share(zoi) + between, end)


def _mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    zoi = dispersion["zoi"]
    return np.asarray(zoi * dispersion["coi"] + (1 - zoi) * expit(eta))


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    zoi, mean = dispersion["zoi"], expit(eta)
    between = mean**2 + mean * expit(-eta) / (1 + dispersion["precision"])
    second = zoi * dispersion["coi"] + (1 - zoi) * between
    return np.asarray(second - _mean(eta, dispersion) ** 2)


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    ends = (generator.random(eta.shape) < dispersion["coi"]).astype(float)
    return with_share(dispersion["zoi"], ends, beta_rng(eta, dispersion, generator), generator)


def _units(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of the proportions between 0 and 1, or of all if none is."""
    inner = (y > 0) & (y < 1)
    return logit_of_mean(y[inner] if inner.any() else y, given)


ZERO_ONE_INFLATED_BETA = Family(
    name="zero_one_inflated_beta",
    link="logit",
    aliases=("zoib",),
    parameters=(PRECISION, ZOI, COI),
    integer=False,
    support=lambda y: (y >= 0) & (y <= 1),
    support_text="numbers from 0 to 1",
    eta_units=_units,
    mean=_mean,
    log_lik=_log_lik,
    rng=_rng,
    density="zero_one_inflated_beta_lpdf({y} | {eta}, {precision}, {zoi}, {coi})",
    variance=_variance,
    stan_rng="zero_one_inflated_beta_rng({eta}, {precision}, {zoi}, {coi})",
    density_functions=(
        "shares.stanfunctions",
        "beta_logit.stanfunctions",
        "zero_one_inflated_beta.stanfunctions",
    ),
    by_row=True,
    predicted=Predicted("{link} E[y | 0 < y < 1]", "mean of {y} between 0 and 1"),
)
