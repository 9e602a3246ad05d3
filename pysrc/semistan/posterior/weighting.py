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

if TYPE_CHECKING:
    import pandas as pd


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
