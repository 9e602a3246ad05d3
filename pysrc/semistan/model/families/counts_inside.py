"""Random counts between two bounds: those that fall there or, where few do, one after another.

In the second case the mean is beyond a bound, and counts are likely near that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.family import Tails
from semistan.model.families.inside import log_inside

Parameters = Mapping[str, Array]
ROUNDS, STEPS = 100, 100_000  # as in poisson_inside_rng.stanfunctions


def log_probability(
    tails: Tails, eta: Array, dispersion: Parameters, lb: Array, ub: Array
) -> Array:
    """Return log P(lb < Y <= ub) of arrays; one of the bounds may be infinite."""
    lower, upper = (None if np.isinf(bound).all() else torch.tensor(bound) for bound in (lb, ub))
    values = {name: torch.tensor(np.asarray(value)) for name, value in dispersion.items()}
    return np.asarray(log_inside(tails, lower, upper, torch.tensor(eta), values).numpy())


def draw_inside(
    tails: Tails,
    draw: Callable[[Array, Parameters, np.random.Generator], Array],
    log_p: Callable[[Array, Array, Parameters], Array],
    eta: Array,
    dispersion: Parameters,
    lb: Array,
    ub: Array,
    generator: np.random.Generator,
) -> Array:
    """Draw a count above lb and at most at ub for each element.

    Parameters
    ----------
    tails : Tails
        Of the distribution, whose mean is exp(eta).
    draw, log_p : callable
        Random counts without bounds, and the log probability of a count, of NumPy arrays.
    """
    total = log_probability(tails, eta, dispersion, lb, ub)
    names, arrays = list(dispersion), np.broadcast_arrays(eta, lb, ub, total, *dispersion.values())
    eta, lb, ub, total, *values = (np.ravel(array) for array in arrays)
    found, left = np.empty(len(eta)), np.arange(len(eta))
    of = dict(zip(names, values, strict=True))
    for _ in range(ROUNDS):
        drawn = draw(eta[left], {name: value[left] for name, value in of.items()}, generator)
        inside = (drawn > lb[left]) & (drawn <= ub[left])
        found[left[inside]] = drawn[inside]
        left = left[~inside]
        if not left.size:
            break
    first, last = np.maximum(lb[left] + 1, 0), ub[left]
    up = (eta[left] < np.log(np.maximum(first, 0.5))) | np.isinf(last)
    at, step = np.where(up, first, last), np.where(up, 1.0, -1.0)
    end, u = np.where(up, last, first), generator.random(left.size)
    of = {name: value[left] for name, value in of.items()}
    for _ in range(STEPS):
        u = u - np.exp(log_p(at, eta[left], of) - total[left])
        going = (u >= 0) & (at != end)
        if not going.any():
            break
        at = at + step * going
        u = np.where(going, u, -1.0)
    found[left] = at
    return found.reshape(arrays[0].shape)
