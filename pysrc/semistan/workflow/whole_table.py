"""The table that a run was fitted to, with the columns that its formula does not use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.data.images import with_pictures
from semistan.data.tables import dialect_of, read_table
from semistan.errors import InputError, did_you_mean
from semistan.model.design import apply_design
from semistan.model.formula.formula import parse_formula
from semistan.model.table.missing import complete_rows
from semistan.model.table.outcome import with_outcome
from semistan.posterior.run import Run

if TYPE_CHECKING:
    import pandas as pd


def column_of(run: Run, name: str, flag: str, data: str | Path | None = None) -> np.ndarray:
    """Return a column (N,) of the training rows, from the run or else from the user's own table.

    Parameters
    ----------
    run : Run
        The run.
    name : str
        The column; it need not be in the formula.
    flag : str
        What named it, for an error.
    data : path, optional
        The training table, if it is no longer where it was.

    Raises
    ------
    InputError
        If there is no such column, or the table is not there or not that of the fit.
    """
    table = run.table()
    if name not in table.columns:
        table = _whole_table(run, table, data)
    if name not in table.columns:
        raise InputError(
            f"{flag} names column '{name}', which the data do not have."
            f"{did_you_mean(name, table.columns)}"
        )
    return np.asarray(table[name])


def _whole_table(run: Run, fitted: pd.DataFrame, data: str | Path | None) -> pd.DataFrame:
    """Read the user's table again, less the rows that the fit dropped."""
    path = data or run.bundle.source.path
    if path is None:
        raise InputError("the run was fitted to a table in memory: give it by --data FILE.csv")
    formula = parse_formula(run.bundle.config.formula)
    config = run.bundle.config
    design = run.bundle.design
    table = read_table(path, dialect_of(config, design.text_columns))
    whole, missing = complete_rows(
        formula, table, response=True, drop_missing=config.drop_missing, kinds=design.kinds
    )
    trunks = design.trunks
    _, whole = with_pictures(formula, whole, positions=missing.kept, trunks=trunks)
    whole = with_outcome(formula, run.bundle.family, whole)
    rows = apply_design(design, whole, response=True)
    if not np.array_equal(np.asarray(rows.y), np.asarray(run.rows().y)):
        raise InputError(
            f"'{path}' does not hold the {len(fitted)} rows that the run was fitted to"
        )
    return whole
