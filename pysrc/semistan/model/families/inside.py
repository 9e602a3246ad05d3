"""Probabilities of intervals, from the tail in which less is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.families.family import Tails

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

EPSILON = 1e-16  # the least difference of two logarithms, as in censored.stanfunctions
ANYWHERE = 1.0  # stands for a bound where there is none, so that no derivative is infinite


def log_inside(
    tails: Tails, lb: Tensor | None, ub: Tensor | None, eta: Tensor, values: Values
) -> Tensor:
    """Return log P(lb < Y <= ub).

    Parameters
    ----------
    tails : Tails
        Of the distribution.
    lb, ub : Tensor, shape (N,), or None
        The bounds. One of the two is given; nothing lies at or below ``tails.least``.
    eta : Tensor, shape (N,) or (S, N)
        Linear predictor.
    values : dict of Tensor
        The dispersion.
    """
    if lb is None:
        assert ub is not None
        return tails.log_below(ub, eta, values)
    unbounded = lb <= tails.least
    start = torch.where(unbounded, ANYWHERE, lb)
    above = tails.log_above(start, eta, values)
    if ub is None:
        return torch.where(unbounded, 0.0, above)
    below, to_end = tails.log_below(start, eta, values), tails.log_below(ub, eta, values)
    beyond = tails.log_above(ub, eta, values)
    in_upper_half = below > -math.log(2)
    inside = torch.where(in_upper_half, _minus(above, beyond), _minus(to_end, below))
    return torch.where(unbounded, to_end, inside)


def _minus(a: Tensor, b: Tensor) -> Tensor:
    """Return log(exp(a) - exp(b))."""
    return a + (-(b - a).clamp(max=-EPSILON).expm1()).log()
