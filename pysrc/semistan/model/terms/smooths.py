"""The smooths that ``s()`` may be: of all rows, by a number, by a factor, of levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.table.columns import evaluate
from semistan.model.table.kinds import is_factor
from semistan.model.terms.kinds import TermKind, is_one_of
from semistan.model.terms.smooth import STORED, learn_smooth, smooth_from_plain
from semistan.model.terms.smooth_by import by_factor_from_plain, learn_by_factor
from semistan.model.terms.smooth_re import LEVELS, learn_levels, levels_from_plain
from semistan.model.terms.splines import SPLINES
from semistan.model.terms.term import Term

if TYPE_CHECKING:
    import pandas as pd

LARGEST_BASIS = 200
BASES = (*SPLINES, LEVELS)


def _learn(call: TermCall, table: pd.DataFrame, name: str, key: str) -> Term:
    """Learn whichever of the smooths a call is."""
    if call.option("bs", "cr") == LEVELS:
        return learn_levels(call, table, name, key)
    x = evaluate(call.expression, table)
    if not call.by:
        return learn_smooth(call, x, name, key)
    if is_factor(table[variables(call.by)[0]]):
        return learn_by_factor(call, x, table, name, key)
    by = evaluate(call.by, table)
    size = float(np.sqrt((by**2).mean()))
    return replace(learn_smooth(call, x, name, key), by=call.by, by_scale=size)


def _from_plain(content: Mapping[str, Any], key: str) -> Term:
    """Rebuild whichever of the smooths a state is of."""
    if content.get("bs") == LEVELS:
        return levels_from_plain(content, key)
    if "levels" in content:
        return by_factor_from_plain(content, key)
    return smooth_from_plain(content, key)


def _straight(call: TermCall) -> tuple[str, ...]:
    """Return the line of a natural spline, or the lines by level or with another column."""
    if call.option("bs", "cr") != "cr":
        return ()
    return (f"{call.expression}:{call.by}" if call.by else call.expression,)


def _also(call: TermCall, table: pd.DataFrame) -> tuple[str, ...]:
    """Return the column that a smooth is multiplied by, which is the constant times it."""
    numeric = call.by and not is_factor(table[variables(call.by)[0]])
    return (call.by,) if numeric else ()


def _is_dimension(value: object) -> bool:
    return type(value) is int and 3 <= value <= LARGEST_BASIS


def _is_period(value: Any) -> bool:
    two = isinstance(value, list) and [type(x) in (int, float) for x in value] == [True, True]
    return two and value[0] < value[1]


KIND = TermKind(
    takes="one expression and k, as s(x) or s(x, k=10), the basis bs='cr', 'cc' or 're' with "
    "knots=[from, to] of a period, and a column by, as s(x, by=g) or s(month, bs='cc')",
    options={"k": _is_dimension, "bs": partial(is_one_of, BASES), "knots": _is_period},
    straight=_straight,
    also=_also,
    has_by=True,
    varies="a smooth of each level of g is s(x, by=g), and a coefficient of z that varies with x "
    "s(x, by=z)",
    stored=STORED,
    learn=_learn,
    from_plain=_from_plain,
)
