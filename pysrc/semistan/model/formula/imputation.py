"""What missing values are predicted from: ``x | mi() ~ z`` behind a comma, for ``mi(x)``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from semistan.model.formula.bars import split_bars
from semistan.model.formula.expression import (
    is_call_of,
    parse_sides,
    stripped,
    unique,
    variables,
)
from semistan.model.formula.right import PredictorFormula
from semistan.model.formula.syntax import (
    Span,
    check_text,
    formula_error,
    masked,
    term_calls,
)
from semistan.model.names import MU

MI = "mi"
_LEFT = re.compile(r"\s*(\w+)\s*\|\s*mi\s*\(\s*\)\s*~")
EXAMPLE = "y ~ mi(x) + nn(u), x | mi() ~ z"


def imputation_at(text: str, span: Span) -> tuple[str, int] | None:
    """Return the column of ``x | mi() ~ z`` and the place of its ``~``; None of another part."""
    match = _LEFT.match(masked(text)[slice(*span)])
    if match is None:
        return None
    first, last = (span[0] + place for place in match.span(1))
    return text[first:last].strip("`"), span[0] + match.end() - 1


def read_imputation(text: str) -> tuple[str, ...]:
    """Read ``~ z``, all else of the formula being blank; return the terms.

    Raises
    ------
    InputError
        If a term is none of columns, or the intercept is removed.
    """
    bars = split_bars(text)
    check_text(text, bars.plain)
    _, terms = parse_sides(bars.plain, text)
    called = (call for call in term_calls() for term in terms if is_call_of(term, call))
    if text.strip() == "~" or bars.groups or next(called, None) or ("1",) not in terms:
        message = (
            "missing values are predicted from columns and an intercept, as x | mi() ~ z + log(v), "
            "or from their mean, as x | mi() ~ 1; networks, smooths and groups cannot stand here"
        )
        raise formula_error(text, message, stripped(text, masked(text).index("~"), len(text)))
    return unique(":".join(term) for term in terms if term != ("1",))


def with_imputations(
    mean: PredictorFormula, found: Mapping[str, tuple[str, ...]], text: str
) -> PredictorFormula:
    """Give each ``mi(x)`` of the mean what its missing values are predicted from.

    Raises
    ------
    InputError
        If one has no such part, or a part belongs to none.
    """
    calls = [call for call in mean.calls if call.kind == MI]
    columns = {call.expression: _column(call.expression, text) for call in calls}
    for name in found:
        if name not in columns.values():
            message = f"no mi({name}) stands in the formula of the response, as in '{EXAMPLE}'"
            raise formula_error(text, message, name)
    for expression, name in columns.items():
        if name not in found:
            message = (
                "say behind a comma what its missing values are predicted from, as in "
                f"'{EXAMPLE}'; '{name} | mi() ~ 1' predicts them from their mean"
            )
            raise formula_error(text, message, f"mi({expression})")
    return replace(
        mean,
        calls=tuple(
            replace(call, predicted_by=found[columns[call.expression]]) if call in calls else call
            for call in mean.calls
        ),
    )


def _column(expression: str, text: str) -> str:
    """Return the column that ``mi()`` takes."""
    names = variables(expression)
    if names != (expression.strip("`"),):
        message = f"mi() takes a column as it is, as mi({names[0]}); transform it in the table"
        raise formula_error(text, message, expression)
    return names[0]


def check_imputed(text: str, predictors: Sequence[PredictorFormula], weights: str) -> None:
    """Refuse ``mi(x)`` of other predictors than the mean's, and x anywhere else.

    Rows that count several times, as by ``weights()``, would have several missing values.

    Raises
    ------
    InputError
        With its place.
    """
    calls = [(part.name, call) for part in predictors for call in part.calls if call.kind == MI]
    if any(name != MU for name, _ in calls):
        message = "mi() stands in the formula of the response alone"
        raise formula_error(text, message, f"{MI}(")
    if calls and weights:
        message = (
            "mi() does not know rows that count several times: write them out in the table, and "
            "leave weights() out"
        )
        raise formula_error(text, message, "weights(")
    used = [v for part in predictors for term in part.expressions for v in variables(term)]
    used += [name for part in predictors for group in part.groups for name in group.levels_of]
    for _, call in calls:
        (name,) = variables(call.expression)
        if used.count(name) > 1:
            message = f"'{name}' has missing values, and stands in {call.text} alone"
            raise formula_error(text, message, name)
