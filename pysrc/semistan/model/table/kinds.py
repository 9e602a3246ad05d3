"""The columns of the user's table: of which kind they are, and what can be made of each.

Numbers and truth values are numbers, strings and categories are factors, and dates become
numbers by ``days()``: the days since the first training date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.model.formula.syntax import formula_error
from semistan.model.table.disguised import advice
from semistan.words import plural

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = "biuf"
KINDS = ("string", "categorical", "boolean", "integer", "floating", "empty")
DATES = ("datetime64", "datetime", "date")


def check_columns(frame: pd.DataFrame, names: Iterable[str], formula: str) -> None:
    """Refuse names that are no column of the table, or of more than one.

    Raises
    ------
    InputError
        With all such names, the place of the first, and the nearest columns.
    """
    known, names = [str(column) for column in frame.columns], list(dict.fromkeys(names))
    if absent := [name for name in names if name not in known]:
        hints = dict.fromkeys(did_you_mean(name, known) for name in absent)
        if len(known) == 1 and all(name in known[0] for name in names):
            hints = {f" They have one, '{known[0]}': --sep says what separates the fields.": None}
        named = ", ".join(f"'{name}'" for name in absent)
        raise formula_error(
            formula,
            f"the formula names {plural('column', len(absent))} {named}, which the data do not "
            f"have.{''.join(hints)}",
            absent[0],
        )
    for name in names:
        if known.count(name) > 1:
            raise InputError(f"the data have {known.count(name)} columns named '{name}'")


def check_numeric(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse columns that are neither numbers nor truth values.

    Raises
    ------
    InputError
        With the first value.
    """
    for name in names:
        column = frame[name]
        if column.dtype.kind not in NUMBERS:
            row = _first_word(column)
            value = column.iloc[row] if len(column) else "no value"
            raise InputError(
                f"column '{name}' must be numeric, got {value!r} ({column.dtype}) in row "
                f"{row + 1}{advice(value)}: what a function or arithmetic is applied to are "
                "numbers, and so is the response but of family bernoulli (two values), "
                "categorical, and of ordered categories, as C(y, levels=['low', 'high']) ~ ..."
            )


def _first_word(column: pd.Series) -> int:
    """Return the position of the first value that is no number; 0 if all are."""
    import pandas as pd

    words = pd.to_numeric(column.astype(str), errors="coerce").isna().to_numpy()
    return int(words.argmax()) if len(words) else 0


def check_kinds(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse columns that are neither numbers nor a factor of strings, numbers or truth values.

    Raises
    ------
    InputError
        With what to write instead.
    """
    for name in names:
        kind = _kind(frame[name])
        if kind.startswith("mixed"):
            raise InputError(
                f"column '{name}' mixes types ({kind}); make all its values numbers or all of "
                "them strings"
            )
        if kind in DATES:
            raise InputError(
                f"column '{name}' holds dates: write days({name}) for the days since the first "
                "training date, or make them strings for a factor"
            )
        if kind not in KINDS:
            raise InputError(
                f"column '{name}' is of type {kind}, which a formula cannot use; turn it into "
                "numbers or strings"
            )


def is_factor(column: pd.Series) -> bool:
    """Say whether a column is a factor wherever it stands: strings or categories."""
    return column.dtype.kind not in NUMBERS


def ordered_columns(frame: pd.DataFrame, names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that are ordered categories."""
    return tuple(name for name in names if getattr(frame[name].dtype, "ordered", False))


def used_levels_only(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Drop levels that no row has, as brms does; they would be constant columns."""
    categories = {
        name: frame[name].cat.remove_unused_categories()
        for name in names
        if hasattr(frame[name], "cat")
    }
    return frame.assign(**categories)


def first_dates(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, str]:
    """Return the first date of each column, in ISO 8601.

    Raises
    ------
    InputError
        If a column holds anything but dates.
    """
    return {name: _dates(name, frame[name]).min().isoformat() for name in names}


def check_dates(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse columns of dates that hold anything else.

    Raises
    ------
    InputError
        With the first value.
    """
    for name in names:
        _dates(name, frame[name])


def in_days(frame: pd.DataFrame, origins: Mapping[str, str]) -> pd.DataFrame:
    """Count columns of dates in days since their origins.

    A column of floating point numbers is in days already.

    Raises
    ------
    InputError
        If a column holds anything but dates.
    """
    import pandas as pd

    days = {
        name: (_dates(name, frame[name]) - pd.Timestamp(origin)) / pd.Timedelta(days=1)
        for name, origin in origins.items()
        if frame[name].dtype.kind != "f"
    }
    return frame.assign(**days)


def _dates(name: str, column: pd.Series) -> pd.Series:
    """Read dates as such, or as text in ISO 8601; those with a zone are in UTC."""
    import pandas as pd

    try:
        if column.dtype.kind in (*NUMBERS, "c", "m"):
            raise TypeError
        read = column if column.dtype.kind == "M" else column.astype(str)
        dates = pd.to_datetime(read, format="ISO8601", utc=True).dt.tz_localize(None)
    except (ValueError, TypeError):
        raise InputError(
            f"days({name}) needs dates such as 2024-05-31 or 2024-05-31T18:30, got "
            f"{column.iloc[0]!r} ({column.dtype})"
        ) from None
    return dates


def _kind(column: pd.Series) -> str:
    """Return pandas's word for the values of a column, or for the levels of a factor."""
    from pandas.api.types import infer_dtype

    values = column.cat.categories if hasattr(column, "cat") else column
    return str(infer_dtype(values, skipna=True))
