"""Standard deviations of penalised coefficients at which a mode can be looked for.

The joint density of coefficients and their standard deviations has its mode where the standardised
coefficients vanish, far from its mass. So their covariance within each term is held at an estimate
of its own while a mode is climbed to, and is replaced by what that mode says, as in the EM
algorithm (Laird and Ware, 1982, Biometrics 38): the average over levels l of E[r_l r_l'], r_l being
normal around the mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.noncentred import (
    LEAST_SPREAD,
    Part,
    factor_of,
    partial_correlations,
    parts_of_design,
)
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from semistan.density.target import Target

MOST_CORRELATED = 0.95


def held_coordinates(target: Target, size: int) -> Array:
    """Return a mask (n,) of q's elements that are correlations or standard deviations."""
    held, start = np.zeros(size, dtype=bool), target.penalised.start
    for part in parts_of_design(target.bundle.design):
        held[start + part.z : start + part.z + part.L] = True
        start += part.z + part.L
    spread = [name not in target.bundle.family.dispersion for name in target.sampled]
    held[size - len(spread) :] = spread
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
    q, start, first_log = q.copy(), target.penalised.start, len(q) - len(target.sampled)
    for part in parts_of_design(target.bundle.design):
        z, L = (slice(start, start + part.z), slice(start + part.z, start + part.z + part.L))
        logs = {
            i: first_log + target.sampled.index(name)
            for i, name in enumerate(part.term.spread)
            if name in target.sampled
        }
        sd = np.array([target.constants.get(name, np.nan) for name in part.term.spread])
        sd[list(logs)] = np.exp(q[list(logs.values())])
        root = sd[:, None] * factor_of(q[L], part.effects)
        matrix = q[z].reshape(part.effects, part.rows)
        second = matrix @ matrix.T / part.rows + _mean_covariance(covariance[z, z], part)
        estimate = root @ second @ root.T
        new = np.sqrt(np.diag(estimate))
        new = np.maximum(new, LEAST_SPREAD * target.bundle.units.eta_scale / part.term.units)
        sd[list(logs)] = new[list(logs)]
        q[L] = partial_correlations(_correlation(estimate)) if part.L else q[L]
        new_root = sd[:, None] * factor_of(q[L], part.effects)
        q[z] = np.linalg.solve(new_root, root @ matrix).ravel()
        q[list(logs.values())] = np.log(sd[list(logs)])
        start += part.z + part.L
    return q


def _mean_covariance(covariance: Array, part: Part) -> Array:
    """Average the covariance of the effects (m, m) over the levels."""
    blocks = covariance.reshape(part.effects, part.rows, part.effects, part.rows)
    return np.asarray(np.einsum("aibi->ab", blocks) / part.rows)


def _correlation(covariance: Array) -> Array:
    """Return the correlation matrix, with the correlations kept away from 1."""
    sd = np.sqrt(np.diag(covariance))
    correlation = np.clip(covariance / np.outer(sd, sd), -MOST_CORRELATED, MOST_CORRELATED)
    shrunk = correlation * min(1.0, MOST_CORRELATED / np.abs(correlation - np.eye(len(sd))).max())
    np.fill_diagonal(shrunk, 1.0)
    return np.asarray(shrunk)
