"""Directions around a curve: where the linearised predictions vary most, behind its own.

The curve's directions come first. Behind them are the leading directions of the predictive
covariance at the middle of the curve (``leading.py``), each less what lies in the span of
those before it. As their number grows, the subspace tends to all weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem, Weights
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig
from semistan.model.subspace import Subspace, along
from semistan.subspace.leading import leading_directions
from semistan.subspace.span import pointing_up

if TYPE_CHECKING:
    from torch import Generator


def widened(
    curve: Subspace,
    spread: Array,
    k: int,
    problem: Problem,
    middle: Weights,
    config: SubspaceConfig,
    generator: Generator,
) -> tuple[Subspace, Array]:
    """Add directions to those of a curve.

    Parameters
    ----------
    curve : Subspace
        The span of the control points.
    spread : array
        Of the control points along it.
    k : int
        Dimension of the subspace, with the curve's.
    problem : Problem
        The training rows.
    middle : Weights
        The state in the middle of the curve, where the network is linearised.
    config : SubspaceConfig
        Its curvature.
    generator : torch.Generator
        Chooses rows of long tables.

    Returns
    -------
    Subspace
        With orthonormal directions.
    array, shape (k,)
        The spread of the control points, which is 0 along the added directions.

    Raises
    ------
    SemistanError
        If the predictions vary in fewer dimensions.
    """
    more = k - curve.k
    added, _ = leading_directions(problem, middle, more, config.curvature, generator)
    rest = added - curve.Pi @ (curve.Pi.T @ added)
    basis = np.linalg.qr(np.hstack([curve.Pi, rest]))[0][:, curve.k :]
    Pi = np.hstack([curve.Pi, pointing_up(basis)])
    return along(curve.p_bar, Pi, curve.origin), np.concatenate([spread, np.zeros(more)])
