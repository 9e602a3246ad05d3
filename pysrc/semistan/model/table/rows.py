"""Rows of a table as numbers, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array, Index
from semistan.model.names import MU

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What one term needs of each row: columns, and a level.

    A term with penalised coefficients r (levels, m) adds ``Z[n] . r[level[n]]``; a smooth is of
    one level.

    Attributes
    ----------
    Z : array, shape (N, m)
        Columns.
    level : array of int, shape (N,)
        From 0; -1 for none, numbers beyond those of the training rows for new ones.
    new : tuple of str
        Labels of the new levels.
    of_new : tuple of int
        What each of them belongs to, where levels belong to others.
    """

    Z: Array
    level: Index
    new: tuple[str, ...] = ()
    of_new: tuple[int, ...] = ()

    def take(self, positions: np.ndarray) -> Block:
        """Return the rows at some positions."""
        return Block(self.Z[positions], self.level[positions], self.new, self.of_new)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What one predictor needs of some rows.

    Attributes
    ----------
    X : array, shape (N, P)
        Structured design.
    blocks : tuple of Block
        What the other terms need, in the predictor's order.
    offset : array, shape (N,), optional
        What is known of the predictor.
    """

    X: Array
    blocks: tuple[Block, ...] = ()
    offset: Array | None = None

    def take(self, positions: np.ndarray) -> Columns:
        """Return the rows at some positions."""
        return Columns(
            self.X[positions],
            tuple(block.take(positions) for block in self.blocks),
            None if self.offset is None else self.offset[positions],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in the user's units.

    Attributes
    ----------
    y : array, shape (N,), or None
        Response; of shape (N, K) if it counts K categories.
    predictors : dict of Columns
        What each predictor needs, by its name; that of the mean is ``mu``.
    U : array, shape (N, Q)
        Network inputs; those of images alone are uint8 or float32, where their pixels were.
    index : tuple
        Label of each row.
    frame : pandas.DataFrame, optional
        The columns of the user's table from which these were made.
    given : dict of arrays, shape (N,)
        ``weights``, ``trials``, ``se``, ``cens``, ``y2``, ``lb`` and ``ub``, those that the formula
        has.
    """

    y: Array | None
    predictors: dict[str, Columns]
    U: Array
    index: tuple[Any, ...]
    frame: pd.DataFrame | None = None
    given: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.U)

    @property
    def X(self) -> Array:
        """The structured design (N, P) of the mean."""
        return self.predictors[MU].X

    @property
    def known(self) -> dict[str, Array]:
        """What is given of each row, with the ``offsets`` of the mean if there are some."""
        offset = self.predictors[MU].offset
        return self.given if offset is None else {**self.given, "offsets": offset}

    def first(self, n: int) -> Rows:
        """Return the first n rows."""
        return self.take(np.arange(min(n, len(self))))

    def evenly(self, most: int) -> Rows:
        """Return at most this many rows, evenly spaced."""
        return self if len(self) <= most else self.take(evenly_spaced(len(self), most))

    def take(self, positions: np.ndarray) -> Rows:
        """Return the rows at some positions, counted from 0."""
        return Rows(
            None if self.y is None else self.y[positions],
            {name: columns.take(positions) for name, columns in self.predictors.items()},
            self.U[positions],
            tuple(self.index[i] for i in positions),
            None if self.frame is None else self.frame.iloc[positions],
            {name: values[positions] for name, values in self.given.items()},
        )


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """Return at most this many positions among ``size``, evenly spaced."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(int)
