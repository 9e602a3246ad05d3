"""A response in words: ``Yes`` and ``No`` of a bernoulli one, ordered text with its levels.

``C(y, levels=['No', 'Yes']) ~ ...`` says which is which. A bernoulli response of two words gets its
levels by itself, and its model's formula has them from then on, so that new rows are read alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError, did_you_mean
from semistan.model.families.family import Family
from semistan.model.formula.formula import Formula, parse_formula
from semistan.model.formula.syntax import formula_error, masked
from semistan.model.spelling import in_formula
from semistan.model.table.canonical import label
from semistan.model.table.kinds import NUMBERS

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 8


def with_levels_of(
    formula: Formula, record: Family, table: pd.DataFrame
) -> tuple[Formula, str | None]:
    """Complete the formula of a bernoulli response that is text; say which value is 1.

    Parameters
    ----------
    formula : Formula
        The parsed formula.
    record : Family
        The response's family.
    table : pandas.DataFrame
        The training rows.

    Returns
    -------
    Formula
        With the levels of the response, if it is text.
    str or None
        Which is which, in words.

    Raises
    ------
    InputError
        If levels are given to a family that has none, or text has not two values, or its levels are
        needed.
    """
    name = formula.response.strip("`")
    if formula.levels:
        if not (record.binary or record.ordered):
            raise formula_error(
                formula.text,
                "levels of a response are for the families bernoulli, cumulative, sratio and acat, "
                f"the family is {record.name}",
                formula.response,
            )
        return formula, None
    if name not in table or not _is_text(table[name]):
        return formula, None
    found = _values(table[name])
    written = f"C({in_formula(name)}, levels={list(found[:MOST_SHOWN])})"
    if record.ordered:
        raise InputError(
            f"response '{name}' is text, whose order family {record.name} needs: write "
            f"{written} ~ ... with the levels from the lowest to the highest"
        )
    if not record.binary:
        return formula, None
    if len(found) != 2:
        raise InputError(
            f"family {record.name} expects two values, but response '{name}' has {len(found)}: "
            f"{', '.join(map(repr, found[:MOST_SHOWN]))}; family categorical takes more"
        )
    text, end = formula.text, masked(formula.text).index("~")
    end = text.index("|") if "|" in masked(text)[:end] else end
    completed = parse_formula(f"{written} {text[end:]}")
    said = f"'{found[1]}' of response '{name}' is 1, '{found[0]}' is 0"
    return completed, f"{said}; C({name}, levels=[...]) says otherwise"


def with_outcome(formula: Formula, record: Family, table: pd.DataFrame) -> pd.DataFrame:
    """Number the response by the levels that the formula gives it.

    Two levels of a bernoulli response become 0 and 1, those of others ordered categories.

    Raises
    ------
    InputError
        If a row has another value.
    """
    import pandas as pd

    name = formula.response.strip("`")
    if not formula.levels or name not in table:
        return table
    column, levels = table[name], formula.levels
    if record.binary and column.dtype.kind in NUMBERS and {*column.dropna()} <= {0, 1}:
        return table  # as a run keeps it
    values = [label(value) for value in column]
    if absent := [value for value in dict.fromkeys(values) if value not in levels]:
        raise InputError(
            f"response '{name}' is '{absent[0]}' in row {values.index(absent[0]) + 1}, which is "
            f"not among its levels {list(levels)}.{did_you_mean(absent[0], levels)}"
        )
    numbered: Any = pd.Categorical(values, list(levels), ordered=True)
    if record.binary:
        if len(levels) != 2:
            raise InputError(f"family {record.name} has two levels, got {list(levels)}")
        numbered = numbered.codes.astype(float)
    return table.assign(**{name: numbered})


def _is_text(column: pd.Series) -> bool:
    """Say whether values are strings, or categories without an order."""
    if hasattr(column, "cat"):
        return not column.cat.ordered
    return column.dtype.kind not in (*NUMBERS, "M", "m") and all(
        isinstance(value, str) for value in column
    )


def _values(column: pd.Series) -> Sequence[str]:
    """Return the values that rows have, in alphabetical order or that of the categories."""
    if hasattr(column, "cat"):
        return [label(value) for value in column.cat.remove_unused_categories().cat.categories]
    return sorted({label(value) for value in column})
