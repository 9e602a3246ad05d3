"""What every construction of a subspace hands over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.network import Array
from semistan.subspace.blocks import by_network
from semistan.subspace.curve import arc_length
from semistan.subspace.descent import Parameters, losses
from semistan.subspace.problem import Problem, Units
from semistan.subspace.subspace import Subspace

CURVE_NODES = 101  # t at which the loss along the final curve is recorded


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


def hand_over(
    problem: Problem,
    units: Units,
    best: Parameters,
    history: dict[str, Array],
    subspace: Subspace,
    singular_values: Array,
) -> Trained:
    """Collect what was trained, in the user's units.

    Parameters
    ----------
    problem : Problem
        The training rows.
    units : Units
        The user's units.
    best : Parameters
        The trained state, one or several control points.
    history : dict of arrays
        Records of the training.
    subspace : Subspace
        Where the Bayesian weights may move; with several networks, each gets its own part of it.
    singular_values : array, shape (k,)
        Spread along each direction.
    """
    subspace, singular_values = by_network(problem.network, subspace, singular_values)
    control_points = best.control_points.cpu().numpy()
    t = np.linspace(0, 1, CURVE_NODES)
    is_curve = len(control_points) > 1
    coefficients, P = best.mean_theta.cpu().numpy(), problem.Z.shape[1]
    return Trained(
        subspace=subspace,
        singular_values=singular_values,
        control_points=control_points,
        w_frozen=best.w_frozen.cpu().numpy(),
        theta=coefficients[:P] * units.theta_scale,
        r=coefficients[P : problem.coefficients] * units.r_scale,
        dispersion={
            name: float(value) for name, value in problem.dispersion(best.log_dispersion).items()
        },
        history=history,
        curve={"t": t, "loss": losses(problem, best, t)} if is_curve else {},
        arc_length=arc_length(control_points),
        further={
            name: coefficients[part] / units.further[name][1]
            for name, part in problem.further_coefficients.items()
        },
    )
