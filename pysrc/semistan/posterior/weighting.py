"""How rows count in averages: by the weights that the formula gives them, if it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import parse_formula
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Rows

if TYPE_CHECKING:
    import pandas as pd


def counting(rows: Rows) -> Array:
    """Return how often each row (N,) with a response counts in scores.

    That is its weight, 1 if the formula has none; a row without trials has no response to be
    predicted, and counts 0.
    """
    weights = rows.given.get("weights", np.ones(len(rows)))
    return np.where(rows.given.get("trials", 1) == 0, 0.0, weights)


def left_whole(weights: Array | None) -> str:
    """Say of rows whose weights (N,) may be frequencies that they are left out whole."""
    if weights is None or not (weights > 1).any() or (weights != np.floor(weights)).any():
        return ""
    return (
        f"A row is left out whole: {int((weights > 1).sum())} of {len(weights)} rows have a weight "
        "above 1, and if that says how many observations they stand for, all of these are left out "
        "together, which is harder to predict than one of them."
    )


def row_weights(config: ModelConfig, table: pd.DataFrame) -> Array:
    """Return the rows' weights (n,): 1 if the formula has none or the table not their columns."""
    text = parse_formula(config.formula).weights
    if not text or not set(variables(text)) <= set(table.columns):
        return np.ones(len(table))
    return evaluate(text, table)


def weighting(config: ModelConfig, columns: Iterable[str] | None = None) -> str:
    """Say how rows count in averages, as ``weighted by w``; nothing of a formula without weights.

    Parameters
    ----------
    config : ModelConfig
        The fit's.
    columns : iterable of str, optional
        The rows' columns, where those of the weights may be missing.
    """
    text = parse_formula(config.formula).weights
    if not text:
        return ""
    missing = set() if columns is None else {*variables(text)} - {*columns}
    if missing:
        return f"unweighted (the rows have no column '{min(missing)}')"
    return f"weighted by {text}"
