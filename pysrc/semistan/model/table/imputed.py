"""Columns that ``mi()`` takes: their missing values, and which of the training rows these are of.

A missing value of a training row is a parameter of its own, and one of another row is not. So that
rows can be told apart wherever they are taken to, the table of the training rows has a column
``Ymi_x`` with the number of each missing value of x, 0 in other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Index
from semistan.model.formula.formula import Formula

if TYPE_CHECKING:
    import pandas as pd


def number_column(name: str) -> str:
    """Return the column with the numbers of a column's missing values."""
    return f"Ymi_{name}"


def with_numbers(formula: Formula, table: pd.DataFrame) -> pd.DataFrame:
    """Number the missing values of the training rows, column by column, from 1."""
    gone = {name: table[name].isna().to_numpy() for name in formula.imputed}
    if not gone:
        return table  # a copy of which may be large
    return table.assign(
        **{number_column(name): np.where(each, each.cumsum(), 0) for name, each in gone.items()}
    )


def numbers_of(name: str, table: pd.DataFrame) -> Index:
    """Return the number (N,) of each row's missing value, 0 of a row that has none of its own."""
    column = number_column(name)
    if column not in table.columns:
        return np.zeros(len(table), dtype=int)
    return np.asarray(table[column].fillna(0), dtype=int)


def numbers_in(formula: Formula, table: pd.DataFrame) -> tuple[str, ...]:
    """Return those of the columns of numbers that a table has."""
    names = map(number_column, formula.imputed)
    return tuple(name for name in names if name in table.columns)
