"""A term or a factor of a formula as Python: which columns it uses, and how it is written again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from semistan.model.formula.syntax import DAYS, check_expression, formula_error
from semistan.model.spelling import in_formula, spelled, unmarked


def variables(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``log(x):C(g)`` uses, in order."""
    tree, quoted = as_python("*".join(factors(expression)), expression)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in functions | roots
    ]
    return _in_order(names, quoted)


def check_term(term: str, text: str) -> None:
    """Refuse a term that is anything but columns, arithmetic and the listed functions.

    Raises
    ------
    InputError
        With its place in the formula.
    """
    for factor in factors(term):
        check_expression(as_python(factor, text)[0], text)


def dated(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``days(d):C(g)`` counts in days, in order."""
    tree, quoted = as_python("*".join(factors(expression)), expression)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == DAYS
    ]
    return _in_order([arg for call in calls for arg in call.args], quoted)


def listed_levels(factor: str) -> Any:
    """Return the option ``levels`` of ``C(g, levels=['a', 'b'])``, None where there is none."""
    tree, quoted = as_python(factor, factor)
    options = tree.body.keywords if isinstance(tree.body, ast.Call) else []
    listed = (_written(option.value, quoted) for option in options if option.arg == "levels")
    return ast.literal_eval(next(listed, "None"))


def first_argument(factor: str) -> str:
    """Return the first argument of a call as a factor, empty if it has none."""
    tree, quoted = as_python(factor, factor)
    arguments = tree.body.args if isinstance(tree.body, ast.Call) else []
    return operand(arguments[0], quoted) if arguments else ""


def factors(term: str) -> tuple[str, ...]:
    """Return the factors of a term: ``a`` and ``C(b)`` of ``a:C(b)``."""
    return tuple(split_outside(term, ":"))


def _in_order(nodes: Iterable[ast.expr], quoted: Mapping[str, str]) -> tuple[str, ...]:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return unique(quoted.get(node.id, unmarked(node.id)) for node in names)


def parse_sides(plain: str, text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return both sides as terms, each a tuple of factors that can be parsed again."""
    from formulaic import Formula as Formulaic
    from formulaic.errors import FormulaicError

    try:
        parsed = Formulaic(spelled(plain))
    except (FormulaicError, SyntaxError, TypeError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, SyntaxError):  # whose own words are about Python
            reason = "expected columns and arithmetic between the parentheses of a function"
        raise formula_error(text, f"cannot read this: {reason}") from None
    parts = [getattr(parsed, side, ()) for side in ("lhs", "rhs")]
    sides = [list(part) for part in (parts if parts[1] else ((), parsed))]
    if not all(hasattr(term, "factors") for side in sides for term in side):
        raise formula_error(text, "this has several parts; use one '~'")
    lhs, rhs = (
        [tuple(_rewritten(factor, text) for factor in term.factors) for term in side]
        for side in sides
    )
    return lhs, rhs


def _rewritten(factor: Any, text: str) -> str:
    """Write a factor so that formulaic reads it again: ```odd name```, ``I(x + 1)``."""
    expression = str(factor.expr)
    if factor.eval_method.value == "lookup":
        return in_formula(unmarked(expression))
    if factor.eval_method.value == "literal":
        return expression
    tree, quoted = as_python(expression, text)
    return operand(tree.body, quoted)


def operand(node: ast.expr, quoted: Mapping[str, str]) -> str:
    """Write a node of Python as a factor: arithmetic goes into ``I()``."""
    source = _written(node, quoted)
    plain = unmarked(ast.unparse(node), "`")
    source = re.sub(r"quoted_\d+_", lambda match: f"`{quoted[match[0]]}`", plain)
    return source if isinstance(node, ast.Name | ast.Call) else f"I({source})"


def _written(node: ast.expr, quoted: Mapping[str, str]) -> str:
    return re.sub(r"quoted_\d+_", lambda match: f"`{quoted[match[0]]}`", ast.unparse(node))


def is_call_of(term: Iterable[str], name: str) -> bool:
    """Say whether a factor of a term calls a function."""
    return any(re.match(rf"{name}\s*\(", factor) for factor in term)


def as_python(expression: str, text: str) -> tuple[ast.Expression, dict[str, str]]:
    """Parse Python with ```quoted names``` replaced by placeholders; return both."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        key = f"quoted_{len(quoted)}_"
        quoted[key] = unmarked(match[1])
        return key

    source = re.sub(r"`([^`]+)`", placeholder, spelled(expression))
    try:
        return ast.parse(source, mode="eval"), quoted
    except SyntaxError:
        raise formula_error(text, f"cannot read '{expression}'", expression) from None


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave out the blanks around a part of the formula."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def split_outside(text: str, separator: str) -> list[str]:
    """Split at a separator outside parentheses and backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        if not quoted:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == separator and depth == 0 and not quoted:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in order."""
    return tuple(dict.fromkeys(names))
