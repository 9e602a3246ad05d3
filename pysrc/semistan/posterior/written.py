"""How numbers are written wherever they are read: on the screen, in the report, by Python's repr.

A number has the decimals that show two significant digits of its error, or some significant digits
if it has none. It is written as ``3.1e-14`` where its first digit is beyond the fifth decimal or
the ninth digit before the point. Only 0 is written as 0: what would be rounded to it keeps its
first digit, so that an interval that excludes 0 is seen to do so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MISSING = "-"
SMALLEST, LARGEST = -5, 9  # exponents between which there is a plain decimal point
MOST_DECIMALS = 6  # of a number without an error
MOST_DIGITS = 15  # after the point of 3.1e-14: what a double knows
SIGNIFICANT = 5
WHOLE = 10**LARGEST  # whole numbers below it are written in full


def digits_of(error: float) -> int:
    """Return the decimals that show two significant digits of a standard error.

    Those of an error of hundreds are negative; if there is no error, there are 2.
    """
    if not (error > 0 and math.isfinite(error)):
        return 2
    return 1 - math.floor(math.log10(error))


def written(value: float, decimals: int, missing: str = MISSING) -> str:
    """Write a number with some decimals, ``missing`` for one that does not exist.

    Parameters
    ----------
    value : float
        The number.
    decimals : int
        As of ``digits_of``; negative ones are none where the decimal point is plain.
    missing : str
        What stands for NaN and infinite numbers.
    """
    if not math.isfinite(value):
        return missing
    exponent = math.floor(math.log10(abs(value))) if value else 0
    if SMALLEST <= exponent < LARGEST:
        text = f"{value:.{min(max(decimals, 0), MOST_DIGITS)}f}"
        if float(text) or not value:
            return text.lstrip("-") if not value else text
        return f"{value:.{-exponent}f}"
    return f"{value:.{min(max(decimals + exponent, 0), MOST_DIGITS)}e}"


def significant(value: float, digits: int = SIGNIFICANT, missing: str = MISSING) -> str:
    """Write a number that has no error with some significant digits."""
    if not value or not math.isfinite(value):
        return written(value, 0, missing)
    exponent = math.floor(math.log10(abs(value)))
    decimals = digits - 1 - exponent
    return written(value, min(decimals, MOST_DECIMALS) if exponent >= SMALLEST else decimals,
                   missing)  # fmt: skip


def cell(value: Any) -> str:
    """Write what stands in a table: a number, or anything else as it is."""
    return significant(float(value)) if isinstance(value, float | np.floating) else str(value)


def cells(column: pd.Series) -> list[str]:
    """Write a column of a table: without a decimal point where all of its numbers are whole."""
    values = column.to_numpy()
    if values.dtype.kind == "f" and np.all((values == np.rint(values)) & (abs(values) < WHOLE)):
        return [written(value, 0) for value in values]
    return [cell(value) for value in values]


def table_text(table: pd.DataFrame) -> str:
    """Lay out a table as text, without its index."""
    return str(table.apply(cells, result_type="expand").to_string(index=False))
