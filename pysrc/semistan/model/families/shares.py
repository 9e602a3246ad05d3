"""Shares of a response's rows that are not from the distribution of the others: extra zeros.

A share is a parameter in (0, 1) with a logit link, as brms's ``zi``, ``hu``, ``zoi`` and ``coi``.
Where its predictor is far out it rounds to 0 or 1, and its logarithm stays finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT, SMALL_RATE, counts
from semistan.model.families.family import Dispersion

if TYPE_CHECKING:
    from torch import Tensor

ZI = Dispersion("zi", "probability of an extra zero", "beta(1, 1)", start=0.2, link="logit")
HU = Dispersion("hu", "probability of a zero", "beta(1, 1)", start=0.3, link="logit")
ZOI = Dispersion("zoi", "probability of 0 or 1", "beta(1, 1)", start=0.2, link="logit")
COI = Dispersion("coi", "probability of 1 among 0 and 1", "beta(1, 1)", start=0.5, link="logit")


def log_share(share: Tensor) -> Tensor:
    """Return the logarithm of a share, finite at 0."""
    return share.clamp(min=1e-300).log()


def log1m_share(share: Tensor) -> Tensor:
    """Return the logarithm of 1 less a share, finite at 1."""
    return (-share.clamp(max=1 - 1e-16)).log1p()


def log_not_zero(log_rate: Tensor) -> Tensor:
    """Return log(1 - exp(-exp(log_rate))): the log probability of a count that is not 0."""
    rate = log_rate.clamp(SMALL_RATE, LARGEST_EXPONENT).exp()
    return torch.where(log_rate < SMALL_RATE, log_rate, (-(-rate).expm1()).log())


def with_share(
    share: Array, value: Array | float, others: Array, generator: np.random.Generator
) -> Array:
    """Replace a random share of responses by a value."""
    return np.where(generator.random(others.shape) < share, value, others)


def truncated_counts(
    eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    """Draw counts that are not 0, with a shape or, without one, Poisson ones.

    They are the arrivals in the unit of time at a constant rate, which varies by a gamma variable
    if there is a shape: the first one is drawn given that it comes in time, the others given it.
    """
    mu = np.exp(np.minimum(eta, LARGEST_EXPONENT))
    chance = generator.random(eta.shape)
    if "shape" not in dispersion:
        spent = -np.log1p(chance * np.expm1(-mu))
        rate = mu - spent
    else:
        shape = np.broadcast_to(dispersion["shape"], eta.shape)
        hazard = -np.log1p(chance * np.expm1(-shape * np.log1p(mu / shape)))
        spent = shape * np.expm1(np.minimum(hazard / shape, LARGEST_EXPONENT))
        rate = (mu - spent) * generator.gamma(shape + 1, 1 / (shape + spent))
    return 1 + counts(np.log(np.maximum(rate, 1e-300)), {}, generator)
