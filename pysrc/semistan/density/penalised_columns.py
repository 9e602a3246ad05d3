"""What the program writes for smooths and group-level terms, computed from draws of q."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from semistan.density.noncentred import coefficients, parts_of_design, values_of
from semistan.density.target import Target
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.terms.group import Group
from semistan.model.terms.names import coefficient_columns


@dataclass(frozen=True, slots=True, eq=False)
class PenalisedColumns:
    """Columns (S,) by name: standardised parameters, coefficients, correlations."""

    parameters: dict[str, Array]
    coefficients: dict[str, Array]
    correlations: dict[str, Array]


def penalised_columns(target: Target, q: Array, spread: Mapping[str, Array]) -> PenalisedColumns:
    """Compute the columns.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.
    spread : mapping
        Among others the standard deviations (S,) by name, in the user's units.
    """
    design, x = target.bundle.design, q[:, target.penalised]
    if not design.penalised:
        return PenalisedColumns({}, {}, {})
    values = [values_of(design, row) for row in x]
    parameters: dict[str, Array] = {}
    correlations: dict[str, Array] = {}
    for part in parts_of_design(design):
        for name in filter(None, part.names):
            parameters |= _named(name, np.stack([draw[name] for draw in values]))
        if isinstance(part.term, Group) and part.L:
            L = np.stack([draw[part.names[1]] for draw in values])
            matrix, pairs = L @ np.swapaxes(L, 1, 2), part.term.pairs
            values_of_pairs = (matrix[:, i, j] for i, j in pairs)
            correlations |= dict(zip(part.term.correlations, values_of_pairs, strict=True))
    return PenalisedColumns(parameters, _coefficients(target, x, spread), correlations)


def _coefficients(target: Target, x: Array, spread: Mapping[str, Array]) -> dict[str, Array]:
    names = [name for term in target.bundle.design.penalised for name in term.spread]
    r = (
        np.stack(
            [
                coefficients(
                    target.bundle,
                    torch.tensor(row),
                    {name: float(spread[name][i]) for name in names},
                ).numpy()
                for i, row in enumerate(x)
            ]
        )
        * target.bundle.units.r_scale
    )
    columns: dict[str, Array] = {}
    start = 0
    for part, labels in zip(
        parts_of_design(target.bundle.design),
        coefficient_columns(target.bundle.design), strict=True,
    ):  # fmt: skip
        block = r[:, start : start + part.z].reshape(len(r), part.rows, part.effects)
        columns |= dict(zip(labels, np.swapaxes(block, 1, 2).reshape(len(r), -1).T, strict=True))
        start += part.z
    return columns


def _named(name: str, values: Array) -> dict[str, Array]:
    """Number the elements as Stan does, the first index fastest."""
    shape = values.shape[1:]
    positions = (index[::-1] for index in np.ndindex(shape[::-1]))
    return {
        ".".join([name, *(str(i + 1) for i in index)]): values[(slice(None), *index)]
        for index in positions
    }
