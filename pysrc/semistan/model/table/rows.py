"""Rows of a table as numbers, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistan.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What the penalised coefficients of one term multiply in each row.

    The term adds ``Z[n] @ r[level[n]]``, with coefficients r (levels, m): those of a group-level
    term's levels, or of a smooth, which is of one level.

    Attributes
    ----------
    Z : array, shape (N, m)
        Columns.
    level : array of int, shape (N,)
        From 0; -1 for none, numbers beyond those of the training rows for new ones.
    new : tuple of str
        Labels of the new levels.
    """

    Z: Array
    level: Index
    new: tuple[str, ...] = ()

    def take(self, positions: np.ndarray) -> Block:
        """Return the rows at some positions."""
        return Block(self.Z[positions], self.level[positions], self.new)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in the user's units.

    Attributes
    ----------
    y : array, shape (N,), or None
        Response.
    X, U : arrays, shapes (N, P) and (N, Q)
        Structured design and network inputs.
    index : tuple
        Label of each row.
    frame : pandas.DataFrame, optional
        The columns of the user's table from which these were made.
    given : dict of arrays, shape (N,)
        ``offsets``, ``weights`` and ``trials``, those that the formula has.
    blocks : tuple of Block
        Columns of the smooths, then of the group-level terms.
    further : dict of arrays, shape (N, P_s)
        The structured design of each dispersion parameter that has a predictor.
    """

    y: Array | None
    X: Array
    U: Array
    index: tuple[Any, ...]
    frame: pd.DataFrame | None = None
    given: dict[str, Array] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    further: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.U)

    def first(self, n: int) -> Rows:
        """Return the first n rows."""
        return self.take(np.arange(min(n, len(self))))

    def evenly(self, most: int) -> Rows:
        """Return at most so many rows, evenly spaced."""
        return self if len(self) <= most else self.take(evenly_spaced(len(self), most))

    def take(self, positions: np.ndarray) -> Rows:
        """Return the rows at some positions, counted from 0."""
        return Rows(
            None if self.y is None else self.y[positions],
            self.X[positions],
            self.U[positions],
            tuple(self.index[i] for i in positions),
            None if self.frame is None else self.frame.iloc[positions],
            {name: values[positions] for name, values in self.given.items()},
            tuple(block.take(positions) for block in self.blocks),
            {name: X[positions] for name, X in self.further.items()},
        )


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """Return at most so many positions among ``size``, evenly spaced."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(int)
