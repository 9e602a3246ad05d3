"""How large numbers may be, and what a table's sizes mean for a fit, before anything is trained.

A number of double precision ends at 1e308, and the program squares quotients of two columns' units:
columns between 1e-50 and 1e50 leave room for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array

SMALLEST, LARGEST = 1e-50, 1e50
LARGEST_COUNT = 2**31 - 1  # a whole number in Stan has 32 bits
LARGEST_INTEGER = 2.0**63  # and one in NumPy 64
PRECISE_COUNT = 1e5  # above which a count without dispersion is known to 0.3%
FEW_ROWS = 10
FAR = 1e4  # times the distance of the quartiles
COLUMNS = 1000  # looked at, at the most


def check_size(matrix: Array, columns: tuple[str, ...]) -> None:
    """Refuse numbers that are too large to be squared.

    Raises
    ------
    InputError
        With the first one's column and row.
    """
    bad = np.abs(matrix) > LARGEST
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"'{columns[column]}' is {matrix[row, column]:g} in row {row + 1}, and at most "
            f"{LARGEST:g} is possible; mend it, or use another unit, as I({columns[column]} / 1e60)"
        )


def check_spread(name: str, spread: float) -> None:
    """Refuse a column whose differences vanish when they are squared.

    Raises
    ------
    InputError
        With its spread, and what to do.
    """
    if 0 < spread < SMALLEST:
        raise InputError(
            f"'{name}' varies by {spread:.2g}, and at least {SMALLEST:g} is possible; use another "
            "unit: multiply the column"
        )


def check_count(name: str, values: Array) -> None:
    """Refuse whole numbers that Stan cannot hold.

    Raises
    ------
    InputError
        With the first one's row, and other families.
    """
    bad = np.flatnonzero(values > LARGEST_COUNT)
    if bad.size:
        raise InputError(
            f"{name} is {values[bad[0]]:.0f} in row {bad[0] + 1} ({bad.size} of {values.size} "
            f"rows), and whole numbers in Stan end at {LARGEST_COUNT}; count in thousands, or take "
            "family lognormal or gamma for numbers as large as these"
        )


def whole(values: Array) -> Any:
    """Return whole numbers as integers, or as they are if one is too large for that."""
    return values.astype(np.int64) if (np.abs(values) < LARGEST_INTEGER).all() else values


def size_notes(y: Array, counts: bool, X: Array, columns: tuple[str, ...]) -> Iterator[str]:
    """Yield warnings of sizes that are possible, but whose posterior is not what one may expect.

    Parameters
    ----------
    y : array, shape (N,)
        Response.
    counts : bool
        Whether it is a count without a dispersion parameter.
    X : array, shape (N, m)
        The columns of the predictors and networks.
    columns : tuple of str
        Their names.
    """
    if len(y) < FEW_ROWS:
        yield (
            f"warning: {len(y)} rows say little about {X.shape[1]} columns, a network and a "
            "dispersion: what follows is mostly the priors'"
        )
    typical = float(np.median(y)) if counts else 0.0
    if typical > PRECISE_COUNT:
        yield (
            f"warning: the family has no dispersion parameter, and takes counts around "
            f"{typical:.3g} to be known to {100 / np.sqrt(typical):.2g}%: whatever the model lacks "
            "makes its intervals far too narrow. Count in larger units, or take a family with "
            "dispersion, as negbinomial or lognormal"
        )
    for name, column in zip(columns, X.T[:COLUMNS], strict=False):
        yield from _far_row(name, column)


def _far_row(name: str, column: Array) -> Iterator[str]:
    """Yield a warning if one row is so far from the others that it alone decides."""
    low, middle, high = np.quantile(column, (0.25, 0.5, 0.75))
    row = int(np.abs(column - middle).argmax())
    times = abs(column[row] - middle) / (high - low) if high > low else 0.0
    if times > FAR:
        yield (
            f"warning: '{name}' is {column[row]:.3g} in row {row + 1}, {times:.1g} times as far "
            "out as its quartiles are apart: that row alone decides what the column does, and "
            f"a network sees all others as one; mend it, or transform it, as log({name})"
        )
