"""One meaning for a column, whatever its type, its file, and the length of the table.

A table is made canonical before anything is learnt from it or applied to it:

========================================================  =============================
what a column holds                                       what it becomes
========================================================  =============================
numbers, of any width, nullable, Arrow, sparse, Decimal   float64
whole numbers of which one is beyond 2^53                 Int64 or UInt64, which are exact
truth values                                              bool, or boolean where some lack
text                                                      objects of Python's str
categories of text, numbers, truth values or intervals    categories of text
========================================================  =============================

What is none of these (dates, images, mixed types) stays as it is. Of new rows, a column is read as
the same column was in training: numbers are the labels of a factor's levels, categories of numbers
are numbers, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.formula.formula import Formula

NUMBER, TRUTH, LEVEL = "number", "truth", "level"
KINDS = (NUMBER, TRUTH, LEVEL)
EXACT = 2**53  # up to which every whole number is a float64
LABELLED = (
    "string",
    "integer",
    "floating",
    "boolean",
    "decimal",
    "interval",
    "mixed-integer-float",
)
TRUTH_WORDS = {"True": True, "False": False}


def canonical(
    table: pd.DataFrame, names: Iterable[str], kinds: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return a table whose named columns mean the same whatever types they came in.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows as a user has them.
    names : iterable of str
        The columns that matter; those that the table lacks are passed over.
    kinds : mapping of str to str, optional
        What ``kinds_of`` found of some columns in training.
    """
    present = table.columns[table.columns.isin([*names])]
    if not present.is_unique:
        return table  # which will be refused
    return table.assign(
        **{name: canonical_column(table[name], (kinds or {}).get(name)) for name in present}
    )


def canonical_column(column: pd.Series, learnt: str | None = None) -> pd.Series:
    """Return one column in its canonical type; ``learnt`` is its kind in training."""
    column = _by_values(column, learnt)
    kind = kind_of(column)
    if learnt == LEVEL and kind in (NUMBER, TRUTH):
        return as_text(column)
    if learnt == NUMBER and kind == TRUTH:
        return as_number(column)
    if learnt == TRUTH and kind == LEVEL:
        return _as_truth(column)
    return column


def canonical_names(formula: Formula, *, response: bool = True) -> tuple[str, ...]:
    """Return the columns whose types do not matter: all that the formula uses but images."""
    used = (*(formula.outcome if response else ()), *formula.columns)
    return tuple(dict.fromkeys(name for name in used if name not in formula.own_columns))


def kinds_of(table: pd.DataFrame, names: Iterable[str]) -> dict[str, str]:
    """Return whether columns of a canonical table hold numbers, truth values or levels."""
    found = {name: kind_of(table[name]) for name in names}
    return {name: kind for name, kind in found.items() if kind}


def kind_of(column: pd.Series) -> str | None:
    """Return the kind of a canonical column; None for dates, images and what is mixed."""
    from pandas.api.types import infer_dtype

    if column.dtype.kind == "b":
        return TRUTH
    if column.dtype.kind in "iuf":
        return NUMBER
    if hasattr(column, "cat"):
        return LEVEL if infer_dtype(column.cat.categories) in ("string", "empty") else None
    return LEVEL if infer_dtype(column, skipna=True) == "string" else None


def as_number(column: pd.Series) -> pd.Series:
    """Return numbers or truth values as float64, which is what formulas compute with."""
    if column.dtype == np.float64:
        return column
    return _series(column.to_numpy(dtype=float, na_value=np.nan), column)


def as_numbers(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return a canonical table whose named columns are float64 where they are no levels."""
    numeric = (name for name in names if table[name].dtype.kind in "biuf")
    return table.assign(**{name: as_number(table[name]) for name in numeric})


def as_text(column: pd.Series) -> pd.Series:
    """Return the labels of a column's values as text; what is missing stays so."""
    import pandas as pd

    codes, values = pd.factorize(column)
    labels = np.array([*(label(value) for value in values), np.nan], dtype=object)
    return _series(labels[codes], column)  # a missing value has the code -1


def label(value: Any) -> str:
    """Write a level: whole numbers without a point, anything else as Python does.

    Raises
    ------
    InputError
        For a whole number beyond 2^53 in floating point, which stands for its neighbours too.
    """
    if isinstance(value, float | np.floating) and (number := float(value)).is_integer():
        if abs(number) > EXACT:
            raise InputError(
                f"the level {number:.0f} is a float beyond 2^53, where neighbouring "
                "whole numbers are one; read the column as whole numbers or as text, as by "
                "dtype=str"
            )
        return str(int(number))
    if isinstance(value, Decimal | Fraction):
        return label(float(value))
    return str(value)


def _by_values(column: pd.Series, learnt: str | None) -> pd.Series:
    """Return a column in the canonical type that its own values have."""
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype, is_string_dtype

    if hasattr(column, "cat"):
        return _categories(column, learnt)
    if _is_dictionary(column):  # Arrow's categories
        return _categories(column.astype("category"), learnt)
    if column.dtype == object:
        found = infer_dtype(column, skipna=True)
        if found == "boolean":
            return _truth(column)
        return _numbers_of_objects(column) if _holds_numbers(column, found) else column
    if is_bool_dtype(column.dtype):
        return _truth(column)
    if is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
        return _number(column)
    if is_string_dtype(column.dtype):
        return _series(column.to_numpy(dtype=object, na_value=np.nan), column)
    if hasattr(column.dtype, "pyarrow_dtype"):  # dates
        return _series(column.astype(object).to_numpy(), column)
    return column


def _is_dictionary(column: pd.Series) -> bool:
    import pyarrow as pa

    kind = getattr(column.dtype, "pyarrow_dtype", None)
    return kind is not None and bool(pa.types.is_dictionary(kind))


def _categories(column: pd.Series, learnt: str | None) -> pd.Series:
    """Return categories of text, or the numbers or truth values that they were in training."""
    from pandas.api.types import infer_dtype

    categories = column.cat.categories
    found = infer_dtype(categories)
    if found == "empty" or found not in LABELLED:
        return column
    if learnt in (NUMBER, TRUTH) and found != "string":
        return _by_values(_series(column.to_numpy(), column), None)
    labels = [label(value) for value in categories]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"column '{column.name}' has two categories that are both written "
            f"'{next(text for text in labels if labels.count(text) > 1)}'; rename one"
        )
    if labels == list(categories) and categories.dtype == object:
        return column
    return column.cat.rename_categories(np.array(labels, dtype=object))


def _number(column: pd.Series) -> pd.Series:
    """Return float64, or an exact type of whole numbers if one is too large for it."""
    if column.dtype.kind in "iu":
        values = column.dropna()
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if low < -EXACT or high > EXACT:
            return column.astype("UInt64" if high > np.iinfo(np.int64).max else "Int64")
    return as_number(column)


def _holds_numbers(column: pd.Series, found: str) -> bool:
    """Say whether all objects that are not missing are real numbers, and no truth values."""
    if found in ("integer", "floating", "decimal", "mixed-integer-float"):
        return True
    if found not in ("mixed", "mixed-integer"):
        return False
    values = column.dropna()
    return len(values) > 0 and all(
        isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)
        for value in values
    )


def _numbers_of_objects(column: pd.Series) -> pd.Series:
    """Return objects that are numbers as such; whole ones that no type holds are text."""
    import pandas as pd

    whole = pd.api.types.infer_dtype(column, skipna=True) == "integer"
    if not whole:
        return _series(np.array(column.astype(float), dtype=float), column)
    for kind in ("Int64", "UInt64"):
        try:
            return _number(column.astype(kind))
        except (OverflowError, TypeError, ValueError):
            continue
    return as_text(column)


def _truth(column: pd.Series) -> pd.Series:
    return column.astype("boolean" if column.isna().any() else bool)


def _as_truth(column: pd.Series) -> pd.Series:
    """Return truth values that were written as words, or the column if it has others."""
    values = column.astype(object)
    if not set(values.dropna().unique()) <= TRUTH_WORDS.keys():
        return column
    return _truth(values.map(TRUTH_WORDS))


def _series(values: np.ndarray, like: pd.Series) -> pd.Series:
    """Return values under the name and index of a column; objects stay objects."""
    import pandas as pd

    return pd.Series(values, index=like.index, name=like.name, dtype=values.dtype)
