"""What every construction of a subspace hands over, in the user's units."""

from __future__ import annotations

import numpy as np

from semistan.density.problem import Problem
from semistan.model.arrays import Array
from semistan.model.subspace import Subspace
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.blocks import by_network
from semistan.subspace.curve import arc_length
from semistan.subspace.descent import Parameters, losses

CURVE_NODES = 101  # t at which the loss along the final curve is recorded


def trained_result(
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
    theta, slices = best.mean_theta.cpu().numpy(), problem.slices
    return Trained(
        subspace=subspace,
        singular_values=singular_values,
        control_points=control_points,
        linear={
            name: theta[own] * units.coefficient_scale(name) for name, (own, *_) in slices.items()
        },
        dispersion={
            name: float(value) for name, value in problem.dispersion(best.log_dispersion).items()
        },
        history=history,
        curve={"t": t, "loss": losses(problem.for_training(), best, t)} if is_curve else {},
        arc_length=arc_length(control_points),
        terms={
            name: np.concatenate(
                [
                    np.zeros(0),
                    *(
                        theta[part] * term.training_units(units.scale(name))
                        for term, part in zip(problem.terms.get(name, ()), parts, strict=True)
                    ),
                ]
            )
            for name, (_, *parts) in slices.items()
        },
    )
