"""Locations and scales of the training rows: the units in which training and sampling work."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.families import Dispersion, Family
from semistan.model.table.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Locations and scales of X (P,), U (Q,) and the linear predictor over the training rows.

    ``block_units`` (m,) and ``block_levels`` are those of each penalised term, ``y_scale`` that of
    a dispersion which is in units of y where eta is not, ``further`` has locations and scales
    (P_s,) of the columns of each dispersion parameter that has a predictor, and ``locations`` where
    training starts the parameters that are no positive numbers.
    """

    x_loc: Array
    x_scale: Array
    u_loc: Array
    u_scale: Array
    eta_loc: float
    eta_scale: float
    block_units: tuple[Array, ...] = ()
    block_levels: tuple[int, ...] = ()
    y_scale: float | None = None
    further: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    locations: dict[str, float] = field(default_factory=dict)

    @property
    def of_dispersion(self) -> float:
        """The units of a dispersion parameter that has some."""
        return self.eta_scale if self.y_scale is None else self.y_scale

    def start(self, item: Dispersion) -> float:
        """Return where training starts a dispersion parameter, in the user's units."""
        if item.name in self.locations:
            return self.locations[item.name]
        return item.start * (self.of_dispersion if item.has_units else 1.0)

    @property
    def r_scale(self) -> Array:
        """The units of each penalised coefficient, level by level, shape (R,)."""
        scales = (
            np.tile(self.eta_scale / units, levels)
            for units, levels in zip(self.block_units, self.block_levels, strict=True)
        )
        return np.concatenate([np.zeros(0), *scales])

    @property
    def theta_scale(self) -> Array:
        """The units of each coefficient: those of eta over those of x, shape (P,)."""
        return self.eta_scale / self.x_scale


def units_of(design: Design, family: Family, rows: Rows) -> Units:
    """Collect the units from the learnt design and the training rows."""
    assert rows.y is not None
    eta_loc, eta_scale = family.eta_units(rows.y, rows.given)
    return Units(
        np.array(design.x.loc),
        np.array(design.x.scale),
        np.array(design.u.loc),
        np.array(design.u.scale),
        eta_loc,
        eta_scale,
        *block_units(design),
        float(rows.y.std(ddof=1)) if family.in_units_of_y else None,
        parameter_units(design),
        family.locations(rows.y),
    )


def block_units(design: Design) -> tuple[tuple[Array, ...], tuple[int, ...]]:
    """Return the units (m,) and the number of levels of each penalised term."""
    units = tuple(np.broadcast_to(term.units, term.size) for term in design.penalised)
    return units, tuple(len(term.levels) for term in design.penalised)


def parameter_units(design: Design) -> dict[str, tuple[Array, Array]]:
    """Return locations and scales of the columns of each parameter that has a predictor."""
    return {p.name: (np.array(p.x.loc), np.array(p.x.scale)) for p in design.parameters}
