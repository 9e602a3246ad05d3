"""Standard deviations of penalised coefficients at which a mode can be looked for.

The joint density of coefficients and their standard deviations has its mode where the standardised
coefficients vanish, far from its mass. So their covariance within each term is held at an estimate
of its own while a mode is climbed to, and is replaced by what that mode says, as in the EM
algorithm (``Reestimated``). The scales that a joint prior of coefficients samples are held where
the trained coefficients have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.parameter import REAL
from semistan.model.terms.term import Reestimated

if TYPE_CHECKING:
    from torch import Tensor

    from semistan.density.target import Target


def held_coordinates(target: Target, size: int) -> np.ndarray:
    """Return a mask (n,) of q's elements that are correlations, standard deviations or scales."""
    terms = target.bundle.design.terms
    names = [name for term in terms if isinstance(term, Reestimated) for name in term.held]
    names += [parameter.name for parameter in target.made_of if parameter.kind is not REAL]
    held = np.zeros(size, dtype=bool)
    held[target.layout.positions(names)] = True
    return held


def reestimated(target: Target, q: Array, covariance: Array) -> Array:
    """Return q with new correlations and standard deviations, and the same coefficients.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (n,)
        A mode given the old ones.
    covariance : array, shape (n, n)
        Of the Laplace approximation there; only that of the standardised coefficients is used.
    """
    sampled = target.layout.unpack(torch.tensor(q))
    units = {p.name: p.unit_at(sampled) for p in target.layout.centred}
    values = {name: value.numpy() for name, value in sampled.items()}
    values |= {name: np.array(value) for name, value in target.constants.items()}
    for predictor in target.bundle.design.predictors:
        for term in predictor.terms:
            if isinstance(term, Reestimated):
                at = target.layout.positions([term.standardised])
                scale = target.bundle.units.scale(predictor.name)
                unit = _flat(units.get(term.standardised, 1.0), len(at))
                own = unit[:, None] * covariance[np.ix_(at, at)] * unit
                values |= term.reestimated(values, own, set(target.constants), scale)
    return target.layout.pack(values)


def _flat(unit: Tensor | float, size: int) -> Array:
    """Return a unit in the order of coordinates, a matrix column by column."""
    return np.full(size, unit) if isinstance(unit, float) else unit.numpy().T.ravel()
