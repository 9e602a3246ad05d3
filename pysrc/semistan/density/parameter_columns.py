"""What the program writes for dispersion parameters with a predictor, computed from draws of q."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from semistan.density.parameter_coordinates import split_coordinates
from semistan.density.target import Target
from semistan.model.arrays import Array
from semistan.model.varying import predictor_start


@dataclass(frozen=True, slots=True, eq=False)
class ParameterColumns:
    """Columns (S,) by name: what is sampled, intercepts and coefficients."""

    parameters: dict[str, Array] = field(default_factory=dict)
    quantities: dict[str, Array] = field(default_factory=dict)


def parameter_columns(
    target: Target, q: Array, mean_output: Callable[[str], Array]
) -> ParameterColumns:
    """Compute the columns.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.
    mean_output : callable
        Maps a parameter's name to the mean of its networks' output over the rows, shape (S,).
    """
    bundle, found = target.bundle, ParameterColumns()
    for item, tau, standardised in split_coordinates(bundle.design, q[:, target.further].T):
        name, (loc, scale) = item.name, bundle.units.further[item.name]
        theta = standardised / scale[:, None]
        found.parameters.update({f"tau_{name}": each for each in tau})
        numbered = {f"theta_{name}.{j}": each for j, each in enumerate(theta, start=1)}
        found.parameters.update(numbered)
        level = np.sum(tau, axis=0) if item.has_tau else mean_output(name)
        start = predictor_start(bundle.family, bundle.units, name)
        found.quantities[item.intercept] = start + level - loc @ theta
        found.quantities.update(zip(item.coefficients, theta, strict=True))
    return found
