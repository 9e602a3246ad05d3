"""What every construction of a subspace hands over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.arrays import Array
from semistan.model.completion import Completion
from semistan.model.names import MU
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
    linear : dict of arrays, shape (P,)
        Structured coefficients of each predictor in the user's units. Those of the mean are
        solved for given the trained network (``coefficients.py``); their mean where each control
        point has its own.
    dispersion : dict
        Dispersion parameters in the user's units: at the means of its columns, where its networks
        are 0, of one that has a predictor.
    history : dict of arrays
        ``epoch``, ``loss``, ``validation_loss`` with its standard error, ``validation_error``, and
        ``arc_length`` during training, in ``stage`` 1, 2, ... if there are several.
    curve : dict of arrays
        ``t`` and the training ``loss`` along the final curve, with the theta above; empty for a
        single network.
    arc_length : float
        Length of the final curve.
    terms : dict of arrays, shape (R,)
        What training moved of each predictor's other terms, one after the other.
    information : dict of arrays
        What the training rows say of each standardised coefficient of the terms, by the parameter
        and in its shape: minus the second derivative of the log-likelihood by the coefficient in
        the user's units.
    w_frozen : array, shape (d_frozen,)
        Weights of the constant leading layers; none if there are none.
    h_loc, h_scale : arrays, shape (m,)
        Means and standard deviations over the training rows of the features behind these layers.
    completion : Completion, optional
        What the weights outside the subspace add.
    """

    subspace: Subspace
    singular_values: Array
    control_points: Array
    linear: dict[str, Array]
    dispersion: dict[str, float]
    history: dict[str, Array]
    curve: dict[str, Array]
    arc_length: float
    terms: dict[str, Array] = field(default_factory=dict)
    information: dict[str, Array] = field(default_factory=dict)
    w_frozen: Array = field(default_factory=lambda: np.zeros(0))
    h_loc: Array = field(default_factory=lambda: np.zeros(0))
    h_scale: Array = field(default_factory=lambda: np.zeros(0))
    completion: Completion | None = None

    def feature_units(self, m: int) -> tuple[Array, Array]:
        """Return locations and scales of m features, which are as they are without such layers."""
        if len(self.h_loc):
            return self.h_loc, self.h_scale
        return np.zeros(m), np.ones(m)

    @property
    def theta(self) -> Array:
        """The mean's structured coefficients, shape (P,)."""
        return self.linear[MU]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the training rows came from: the file (None for a table in memory) and its size."""

    path: str | None
    rows: int
    dropped: int
