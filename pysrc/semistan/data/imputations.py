"""Imputed tables: a file of each, or one file of all, as mice and Stata write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semistan.data.dialect import Dialect
from semistan.data.tables import read_table
from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = {".imp": (".id",), "_mi_m": ("_mi_id", "_mi_miss")}  # of tables; what else is beside them
ORIGINAL = 0  # the number of the table with its holes


def read_imputations(
    paths: Sequence[Path | str], dialect: Dialect, say: Callable[[str], None]
) -> list[pd.DataFrame]:
    """Read the completions of a table.

    Parameters
    ----------
    paths : sequence of path
        A file of each, or one whose column ``.imp`` (mice) or ``_mi_m`` (Stata) numbers them; the
        table of number 0, with its holes, is left out.
    dialect : Dialect
        How text files are written; what is not given is guessed.
    say : callable
        Receives a line that says how an unusual text file was read.

    Returns
    -------
    list of pandas.DataFrame
        At least two, of as many rows and with the same columns.

    Raises
    ------
    InputError
        If there are fewer, or they are not of one table.
    """
    tables = [read_table(path, dialect, say) for path in paths]
    names = [str(path) for path in paths]
    if len(tables) == 1:
        tables, names = _parted(tables[0], names[0])
    if len(tables) < 2:
        raise InputError(f"multiple imputation needs two tables or more, got {names[0]}")
    first = tables[0]
    for name, table in zip(names, tables, strict=True):
        if set(table.columns) != set(first.columns):
            odd = sorted(map(str, set(table.columns) ^ set(first.columns)))
            raise InputError(
                f"imputed tables have the same columns, but {names[0]} and {name} differ in "
                f"{', '.join(odd)}"
            )
        if len(table) != len(first):
            raise InputError(
                f"imputed tables have the same rows, but {names[0]} has {len(first)} and {name} "
                f"{len(table)}"
            )
    return tables


def _parted(table: pd.DataFrame, path: str) -> tuple[list[pd.DataFrame], list[str]]:
    """Part a long table by its numbers."""
    number = next((name for name in NUMBERS if name in table), None)
    if number is None:
        raise InputError(
            f"'{path}' is one table: name a file of each imputation, or one with a column "
            f"{' or '.join(NUMBERS)} that numbers them, as mice's complete(imp, 'long')"
        )
    beside = [name for name in (number, *NUMBERS[number]) if name in table]
    parts = {
        m: part.drop(columns=beside).reset_index(drop=True)
        for m, part in table.groupby(number, sort=True)
        if m != ORIGINAL
    }
    for part in parts.values():
        part.attrs = dict(table.attrs)
    return list(parts.values()), [f"table {m:g} of {path}" for m in parts] or [path]
