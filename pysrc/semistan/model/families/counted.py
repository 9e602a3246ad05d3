"""What families of counts with zeros of their own take from the distribution of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.common import (
    LARGEST_EXPONENT,
    SMALL_RATE,
    counts,
    dispersed_counts,
    negbinomial_log_lik,
)
from semistan.model.families.family import SHAPE, Dispersion

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Parameters = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts with mean mu = exp(eta), and the probability exp(-rate) of 0.

    Attributes
    ----------
    name, stan : str
        What families' and Stan functions' names end with, but for ``_log_lpmf``.
    parameters : tuple of Dispersion
        Their dispersion parameters.
    log_lik : callable
        Maps torch tensors ``(y, eta, dispersion)`` to log probabilities.
    log_rate : callable
        Maps torch tensors ``(eta, dispersion)`` to the log of the rate.
    rate, excess : callable
        Map arrays ``(mu, dispersion)`` to the rate, and to (variance - mu) / mu^2.
    rng : callable
        Maps ``(eta, dispersion, numpy generator)`` to counts.
    """

    name: str
    stan: str
    parameters: tuple[Dispersion, ...]
    log_lik: Callable[[Tensor, Tensor, Values], Tensor]
    log_rate: Callable[[Tensor, Values], Tensor]
    rate: Callable[[Array, Parameters], Array]
    excess: Callable[[Array, Parameters], Array]
    rng: Callable[[Array, Parameters, np.random.Generator], Array]

    @property
    def arguments(self) -> str:
        """Arguments of the Stan functions: the predictor and the parameters."""
        return ", ".join(["{eta}", *(f"{{{item.name}}}" for item in self.parameters)])


def _negbinomial_log_rate(eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log of shape log(1 + mu / shape)."""
    shape = dispersion["shape"]
    ratio = eta - shape.log()
    log1p = functional.softplus(ratio.clamp(min=SMALL_RATE), threshold=40.0).log()
    return shape.log() + torch.where(ratio < SMALL_RATE, ratio, log1p)


POISSON_COUNTS = Counted(
    name="poisson",
    stan="poisson",
    parameters=(),
    log_lik=lambda y, eta, _: y * eta - eta.clamp(max=LARGEST_EXPONENT).exp() - (y + 1).lgamma(),
    log_rate=lambda eta, _: eta,
    rate=lambda mu, _: mu,
    excess=lambda mu, _: 0 * mu,
    rng=counts,
)
NEGBINOMIAL_COUNTS = Counted(
    name="negbinomial",
    stan="neg_binomial",
    parameters=(SHAPE,),
    log_lik=negbinomial_log_lik,
    log_rate=_negbinomial_log_rate,
    rate=lambda mu, disp: disp["shape"] * np.log1p(mu / disp["shape"]),
    excess=lambda mu, disp: 1 / disp["shape"] + 0 * mu,
    rng=dispersed_counts,
)
