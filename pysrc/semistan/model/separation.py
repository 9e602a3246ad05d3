"""Columns that tell the response's categories apart: their coefficients have no finite estimate.

The likelihood then rises without end along the coefficient, and the prior alone says where it stops
(Albert and Anderson, 1984, Biometrika 71). Columns are judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.table.rows import Rows


def separation_notes(record: Family, design: Design, rows: Rows) -> Iterator[str]:
    """Yield a warning for each structured column that tells two categories apart.

    Parameters
    ----------
    record : Family
        The family; only those of binary responses and unordered categories are judged.
    design : Design
        The predictors.
    rows : Rows
        The training rows.
    """
    assert rows.y is not None
    if record.binary:
        pairs = [(0.0, "0", 1.0, "1")]
    elif record.levels and not record.composed:
        named = enumerate(record.levels[1:], start=2)
        pairs = [(1.0, record.levels[0], float(k), level) for k, level in named]
    else:
        return
    counted = rows.given.get("weights", np.ones(len(rows))) > 0
    for predictor, (low, low_text, high, high_text) in zip(design.predictors, pairs, strict=True):
        X = rows.predictors[predictor.name].X
        below, above = (X[counted & _has(rows.y, code)] for code in (low, high))
        for j, name in enumerate(predictor.coefficients):
            if _apart(below[:, j], above[:, j]):
                yield (
                    f"warning: '{predictor.x.columns[j]}' alone tells response {high_text} from "
                    f"{low_text}: the likelihood of {name} rises without end, so that its prior "
                    "says how large it is"
                )


def _has(y: Array, code: float) -> np.ndarray:
    """Say which rows are of a category, or have trials in it."""
    return y == code if y.ndim == 1 else y[:, int(code) - 1] > 0


def _apart(a: Array, b: Array) -> bool:
    """Say whether no value of one lies beyond any of the other; one value may be in both."""
    if not (a.size and b.size):
        return False
    least, most = min(a.min(), b.min()), max(a.max(), b.max())
    return bool(least < most and (a.max() <= b.min() or b.max() <= a.min()))
