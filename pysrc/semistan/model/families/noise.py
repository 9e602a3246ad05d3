"""What is added to a predictor whose sum is held against thresholds: logistic or normal noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.common import log_Phi

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise by the link that it is the inverse of, symmetric about 0.

    Attributes
    ----------
    cdf : callable
        Its distribution function F in NumPy.
    draw : callable
        Maps a NumPy generator and a shape to draws.
    log_cdf : callable
        log F in torch.
    log_between : callable
        Maps torch tensors a, b and b - a > 0 to log(F(b) - F(a)).
    """

    cdf: Callable[[Array], Array]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    log_cdf: Callable[[Tensor], Tensor]
    log_between: Callable[[Tensor, Tensor, Tensor], Tensor]


def _logistic_between(a: Tensor, b: Tensor, width: Tensor) -> Tensor:
    """Return log(F(b) F(-a) (1 - exp(a - b)))."""
    return functional.logsigmoid(b) + functional.logsigmoid(-a) + (-(-width).expm1()).log()


def _normal_between(a: Tensor, b: Tensor, _: Tensor) -> Tensor:
    """Take the interval in the lower tail, by log(F(b)) + log(1 - F(a) / F(b))."""
    flipped = a + b > 0
    high = log_Phi(torch.where(flipped, -a, b))
    low = log_Phi(torch.where(flipped, -b, a))
    inside: Tensor = high + (-(low - high).expm1()).log()
    return inside


def _Phi(eta: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(eta))


NOISE: dict[str, Noise] = {
    "logit": Noise(
        lambda eta: np.exp(-np.logaddexp(0.0, -eta)),
        lambda generator, shape: generator.logistic(size=shape),
        lambda eta: functional.logsigmoid(eta),
        _logistic_between,
    ),
    "probit": Noise(
        _Phi,
        lambda generator, shape: generator.standard_normal(shape),
        log_Phi,
        _normal_between,
    ),
}
