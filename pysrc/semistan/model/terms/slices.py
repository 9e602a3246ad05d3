"""How a surface of two columns is shown: by curves over the first, at values of the second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.formula.expression import variables
from semistan.model.table.columns import evaluate
from semistan.model.terms.term import View

if TYPE_CHECKING:
    import pandas as pd

AT = (0.1, 0.5, 0.9)  # quantiles of the second column


def slices(of: View, second: str, table: pd.DataFrame) -> tuple[View, ...]:
    """Return a view at low, middle and high values of the second expression."""
    column, values = variables(second)[0], evaluate(second, table)
    rows = np.argsort(values)[[int(share * (len(values) - 1)) for share in AT]]
    found = []
    for value in table[column].iloc[rows]:
        at = {**of.at, column: value}
        less = {**of.less, column: value} if of.less else {}
        found.append(replace(of, level=f"{column} = {value:.4g}", at=at, less=less))
    return tuple(found)
