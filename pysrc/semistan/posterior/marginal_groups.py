"""Means with the effects of groups integrated out, in each draw.

What the levels of all groups add to a predictor of a row is normal with mean 0, and with a standard
deviation s that the draw and the row determine. So the mean over all levels there may be is

    integral of mu(eta + s z) normal(z | 0, 1) dz,

an integral of one dimension for each predictor with groups, whatever their number; where effects
are correlated across predictors, as of (1 | ID | g), s is a root of their covariance matrix. That
is what a population has on average; mu(eta), of a level at the centre, is not, where the link
bends: a logistic mean over patients is nearer to 1/2 than that of the patient in the middle (as in
Hedeker, du Toit, Demirtas and Gibbons, 2018, Biometrics 74(1)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

import numpy as np
from scipy.special import ndtri

from semistan.model.arrays import Array
from semistan.model.predictor import Predictor
from semistan.model.table.rows import Rows
from semistan.model.terms.group import Group
from semistan.posterior.options import MARGINAL
from semistan.posterior.posterior import Posterior

NODES = {1: 32, 2: 16}  # of Gauss and Hermite along each dimension, by their number
POINTS = 9  # 2^9 points of Sobol in more dimensions


def has_groups(predictor: Predictor) -> bool:
    """Say whether a predictor has group-level effects."""
    return any(isinstance(term, Group) for term in predictor.terms)


def over_groups(
    posterior: Posterior,
    rows: Rows,
    predictors: Mapping[str, Array],
    value: Callable[[Mapping[str, Array]], Array],
) -> Array:
    """Return a value at some predictors, or its mean over all levels of their groups.

    Parameters
    ----------
    posterior : Posterior
        The posterior, of S draws.
    rows : Rows
        N rows.
    predictors : mapping of arrays, shape (S, N)
        Predictors by name, without what is integrated out.
    value : callable
        Takes them, and returns an array (S, N, ...).
    """
    if posterior.groups != MARGINAL:
        return value(predictors)
    known = posterior.design.predictors
    grouped = [item.name for item in known if item.name in predictors and has_groups(item)]
    if not grouped:
        return value(predictors)
    roots = posterior.group_roots(rows, grouped)
    total: Array | float = 0.0
    for z, weight in nodes(len(grouped)):
        moved = {name: predictors[name] for name in grouped}
        for (name, of), root in roots.items():
            moved[name] = moved[name] + root * z[grouped.index(of)]
        total = total + weight * value({**predictors, **moved})
    return np.asarray(total)


def nodes(dimensions: int) -> Iterator[tuple[tuple[float, ...], float]]:
    """Yield points z and weights, with which sums are means over standard normal z."""
    if dimensions not in NODES:
        from scipy.stats.qmc import Sobol

        corners = Sobol(dimensions, scramble=False).random_base2(POINTS)
        for z in ndtri(corners + 0.5 ** (POINTS + 1)):  # in the middle of each interval
            yield tuple(z), 0.5**POINTS
        return
    z, weights = np.polynomial.hermite_e.hermegauss(NODES[dimensions])
    weights = weights / weights.sum()
    for places in product(range(len(z)), repeat=dimensions):
        yield tuple(z[list(places)]), float(weights[list(places)].prod())
