"""What every construction of a subspace hands over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.arrays import Array
from semistan.model.subspace import Subspace


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What training hands over: the subspace and everything outside it.

    Attributes
    ----------
    subspace : Subspace
        Where the Bayesian weights may move.
    singular_values : array, shape (k,)
        Spread of what spans the subspace along each direction.
    control_points : array, shape (m, d)
        Of the trained curve; a single network is one point. Chains start along it.
    w_frozen : array, shape (d_frozen,)
        Weights of the frozen layers.
    theta : array, shape (P,)
        Structured coefficients in the user's units, solved for given the trained network
        (``coefficients.py``); their mean where each control point has its own.
    dispersion : dict
        Dispersion parameters in the user's units.
    history : dict of arrays
        ``epoch``, ``loss``, ``validation_loss`` and ``arc_length`` during training.
    curve : dict of arrays
        ``t`` and the training ``loss`` along the final curve, with the theta above; empty for a
        single network.
    arc_length : float
        Length of the final curve.
    r : array, shape (R,)
        Penalised coefficients of smooths and groups, level by level.
    further : dict of arrays, shape (P_s,)
        Coefficients of each dispersion parameter that has a predictor; ``dispersion`` then has its
        value at the means of its columns, where its networks are 0.
    """

    subspace: Subspace
    singular_values: Array
    control_points: Array
    w_frozen: Array
    theta: Array
    dispersion: dict[str, float]
    history: dict[str, Array]
    curve: dict[str, Array]
    arc_length: float
    r: Array = field(default_factory=lambda: np.zeros(0))
    further: dict[str, Array] = field(default_factory=dict)
