"""Bases of the functions of one input: splines of a number, indicators of a factor's levels.

A number has cubic splines with knots at its quantiles, polynomials where there are fewer than four
functions, and lines from value to value where it has few distinct values, which are exact there.
A factor has the indicators of its levels, of the most frequent ones if there are many. The basis
is centred and orthonormal over weighted rows, and does not change with the units of the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistan.model.arrays import Array

SIZES = (18, 10, 6, 4, 3, 2, 1)  # so that the knots of a smaller basis are among a larger one's
CUBIC = 3
DEPENDENT = 1e-7  # singular values below this share of the largest are 0


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Functions of one input.

    Attributes
    ----------
    knots : array
        Of the splines; none of a factor.
    degree : int
        Of the splines.
    levels : tuple of int
        The codes of a factor that have an indicator.
    mean : array, shape (m,)
        Of the functions as they are, over the rows.
    turn : array, shape (m, size)
        What makes them orthonormal.
    """

    knots: Array
    degree: int
    levels: tuple[int, ...]
    mean: Array
    turn: Array

    @property
    def size(self) -> int:
        """Number of functions."""
        return int(self.turn.shape[1])

    def columns(self, values: Array) -> Array:
        """Return the functions (n, size) at some values (n,)."""
        return np.asarray((_raw(values, self.knots, self.degree, self.levels) - self.mean)
                          @ self.turn)  # fmt: skip


def spline_basis(values: Array, weights: Array, size: int) -> Basis:
    """Return functions of a number, at most ``size``.

    Parameters
    ----------
    values : array, shape (n,)
        The number in each row.
    weights : array, shape (n,)
        The rows' weights, which sum to 1.
    size : int
        The most functions, one of ``SIZES``.
    """
    distinct = np.unique(values)
    if len(distinct) <= size + 1:  # exact: a line from each value to the next
        knots = np.concatenate([distinct[:1], distinct, distinct[-1:]])
        return _learnt(values, weights, knots, 1, ())
    degree = min(size, CUBIC)
    inner = size - degree
    at = np.quantile(values, np.arange(1, inner + 1) / (inner + 1))
    at = np.unique(at[(at > distinct[0]) & (at < distinct[-1])])
    ends = [distinct[:1]] * (degree + 1), [distinct[-1:]] * (degree + 1)
    return _learnt(values, weights, np.concatenate([*ends[0], at, *ends[1]]), degree, ())


def level_basis(codes: npt.NDArray[np.intp], weights: Array, size: int) -> Basis:
    """Return indicators of the levels of a factor, of all but one if that is at most ``size``.

    Levels without an indicator share the value of the functions.

    Parameters
    ----------
    codes : array of int, shape (n,)
        The level of each row, from 0.
    weights : array, shape (n,)
        The rows' weights, which sum to 1.
    size : int
        The most functions.
    """
    frequency = np.bincount(codes, weights)
    order = np.argsort(-frequency, kind="stable")
    order = order[frequency[order] > 0]
    chosen = order[1:] if len(order) <= size + 1 else order[:size]
    return _learnt(
        codes.astype(float), weights, np.zeros(0), 0, tuple(int(code) for code in chosen)
    )


def _learnt(
    values: Array, weights: Array, knots: Array, degree: int, levels: tuple[int, ...]
) -> Basis:
    raw = _raw(values, knots, degree, levels)
    mean = weights @ raw
    root = np.sqrt(weights)[:, None]
    _, size, V = np.linalg.svd(root * (raw - mean), full_matrices=False)
    kept = size > DEPENDENT * max(size.max(initial=0.0), np.finfo(float).tiny)
    return Basis(knots, degree, levels, mean, V[kept].T / size[kept])


def _raw(values: Array, knots: Array, degree: int, levels: tuple[int, ...]) -> Array:
    """Return the functions as they are, without the constant among them."""
    if not len(knots):
        return np.asarray(np.equal.outer(values, np.array(levels)), dtype=float)
    from scipy.interpolate import BSpline

    inside = np.clip(values, knots[0], knots[-1])
    return np.asarray(BSpline.design_matrix(inside, knots, degree).toarray()[:, 1:])
