"""Bases of cubic splines given by their values at knots: natural ones, and periodic ones.

    f(x) = sum_j a_j(x) g_j,    integral of f''(x)^2 dx = g' S g,

where g are the values at the knots. A natural spline (mgcv's ``cr``) is straight beyond them, and
what its penalty leaves free is a straight line. A periodic one (``cc``) has one value, slope and
bend at both ends, goes on there from its beginning, and only its level is free.

Wood (2017), Generalized Additive Models, 2nd edition, sections 5.3.1 and 5.3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from semistan.model.arrays import Array


@dataclass(frozen=True, slots=True)
class Spline:
    """A kind of cubic spline.

    Attributes
    ----------
    free : int
        How many of the columns 1 and x its penalty leaves free.
    values : callable
        Maps k knots to the number of values g that determine it.
    basis : callable
        Maps knots and places z (N,) to a(z) (N, values).
    bends : callable
        Maps knots to the second derivatives there, (k, values).
    text : str
        What it is called.
    """

    free: int
    values: Callable[[int], int]
    basis: Callable[[Array, Array], Array]
    bends: Callable[[Array], Array]
    text: str

    def penalty(self, knots: Array) -> Array:
        """Return S: second derivatives are linear between the knots, so that it is exact."""
        bends, h = self.bends(knots), np.diff(knots)
        mass = np.zeros((len(knots), len(knots)))
        for j, width in enumerate(h):
            mass[j : j + 2, j : j + 2] += width / 6 * np.array([[2, 1], [1, 2]])
        return np.asarray(bends.T @ mass @ bends)

    def left_free(self, z: Array) -> Array:
        """Return the columns that the penalty leaves free, (N, free)."""
        return np.column_stack([np.ones(len(z)), z][: self.free])

    def directions(self, knots: Array) -> Array:
        """Return T (values, m) with g = T s and g' S g = s's where the spline bends."""
        values, vectors = np.linalg.eigh(self.penalty(knots))
        return np.asarray(vectors[:, self.free :] / np.sqrt(values[self.free :]))


def _natural(knots: Array, z: Array) -> Array:
    """Return a(z) (N, k): each natural cubic spline that is 1 at one knot and 0 at the others."""
    from scipy.interpolate import CubicSpline

    spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    inside = np.clip(z, knots[0], knots[-1])
    return np.asarray(spline(inside) + spline(inside, 1) * (z - inside)[:, None])


def _natural_bends(knots: Array) -> Array:
    from scipy.interpolate import CubicSpline

    return np.asarray(CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(knots, 2))


def _periodic(knots: Array, z: Array, derivative: int = 0) -> Array:
    """Return a(z) (N, k - 1), the last knot being the first again."""
    from scipy.interpolate import CubicSpline

    around = np.eye(len(knots) - 1)[[*range(len(knots) - 1), 0]]
    spline = CubicSpline(knots, around, bc_type="periodic")
    return np.asarray(spline(z, derivative))


SPLINES = {
    "cr": Spline(2, lambda k: k, _natural, _natural_bends, "a spline"),
    "cc": Spline(
        1, lambda k: k - 1, _periodic, lambda knots: _periodic(knots, knots, 2), "a periodic spline"
    ),
}
