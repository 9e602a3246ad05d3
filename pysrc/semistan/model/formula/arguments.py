"""Arguments of what stands beside a bar, ``se(s, sigma=TRUE)``, which formulaic does not see."""

from __future__ import annotations

import ast
import re

from semistan.model.formula.expression import as_python, operand
from semistan.model.formula.syntax import (
    Span,
    check_expression,
    check_part,
    formula_error,
    masked,
    term_calls,
)

TRUTH = {"true": True, "false": False}


def truth(name: str, text: str) -> bool | None:
    """Read ``name=TRUE``; None of anything else."""
    word = re.fullmatch(rf"{name}\s*=\s*(\w+)", text)
    return TRUTH.get(word[1].lower()) if word else None


def argument(span: Span, takes: str, text: str) -> str:
    """Return the expression between two places.

    Raises
    ------
    InputError
        With what the call ``takes``, if there is none, or one that is not allowed.
    """
    start, end = span
    if start >= end:
        raise formula_error(text, takes, (start, start + 1))
    source = masked(text)
    check_part(text, source, start, end)
    if "@" in source[start:end]:  # an interaction
        shown = text[start:end].strip()
        raise formula_error(text, f"'{shown}' is not allowed: {takes}", (start, end))
    tree, quoted = as_python(text[start:end], text)
    check_expression(tree, text)
    if isinstance(tree.body, ast.Call) and getattr(tree.body.func, "id", None) in term_calls():
        raise formula_error(text, takes, (start, end))
    return operand(tree.body, quoted)
