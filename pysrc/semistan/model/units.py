"""Locations and scales of the training rows: the units in which training and sampling work."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.family import Dispersion, Family
from semistan.model.names import MU
from semistan.model.table.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Locations and scales over the training rows.

    Attributes
    ----------
    columns : dict of pairs of arrays, shape (P,)
        Means and standard deviations of the structured columns of each predictor.
    u_loc, u_scale : arrays, shape (Q,)
        Those of the networks' inputs.
    eta_loc, eta_scale : float
        Of the linear predictor of the mean.
    y_scale : float, optional
        That of a dispersion which is in units of y where eta is not.
    locations : dict
        Where training starts the parameters that are no positive numbers.
    """

    columns: dict[str, tuple[Array, Array]]
    u_loc: Array
    u_scale: Array
    eta_loc: float
    eta_scale: float
    y_scale: float | None = None
    locations: dict[str, float] = field(default_factory=dict)

    @property
    def x_loc(self) -> Array:
        """Means of the mean's structured columns, shape (P,)."""
        return self.columns[MU][0]

    @property
    def x_scale(self) -> Array:
        """Standard deviations of the mean's structured columns, shape (P,)."""
        return self.columns[MU][1]

    @property
    def theta_scale(self) -> Array:
        """The units of the mean's coefficients: those of eta over those of x, shape (P,)."""
        return self.coefficient_scale(MU)

    def scale(self, predictor: str) -> float:
        """Return the unit of a predictor: 1 of a logarithm."""
        return self.eta_scale if predictor == MU else 1.0

    def coefficient_scale(self, predictor: str) -> Array:
        """Return the units of a predictor's coefficients, shape (P,)."""
        return np.asarray(self.scale(predictor) / self.columns[predictor][1])

    @property
    def of_dispersion(self) -> float:
        """The units of a dispersion parameter that has some."""
        return self.eta_scale if self.y_scale is None else self.y_scale

    def start(self, item: Dispersion) -> float:
        """Return where training starts a dispersion parameter, in the user's units."""
        if item.name in self.locations:
            return self.locations[item.name]
        return item.start * (self.of_dispersion if item.has_units else 1.0)

    def location(self, family: Family, predictor: str) -> float:
        """Return where a predictor starts: the log of the unit of a positive parameter."""
        if predictor == MU:
            return self.eta_loc
        item = family.parameter(predictor)
        return float(item.predictor(self.start(item)))


def units_of(design: Design, family: Family, rows: Rows) -> Units:
    """Collect the units from the learnt design and the training rows."""
    assert rows.y is not None
    eta_loc, eta_scale = family.eta_units(rows.y, rows.known)
    return Units(
        column_units(design),
        np.array(design.u.loc),
        np.array(design.u.scale),
        eta_loc,
        eta_scale,
        float(rows.y.std(ddof=1)) if family.in_units_of_y else None,
        family.locations(rows.y),
    )


def column_units(design: Design) -> dict[str, tuple[Array, Array]]:
    """Return locations and scales of the columns of each predictor."""
    return {p.name: (np.array(p.x.loc), np.array(p.x.scale)) for p in design.predictors}
