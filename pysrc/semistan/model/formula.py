"""Read ``y ~ x1 + C(g) + x2:x3 + nn(u1, u2)`` into its three parts.

formulaic parses the text; ``syntax.py`` says what may stand in it, so that a formula from a file
cannot run arbitrary code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from semistan.errors import InputError
from semistan.model.syntax import DAYS, EXAMPLE, check_expression, check_text, formula_error


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula's parts, each still text.

    Attributes
    ----------
    text : str
        The formula as written.
    response : str
        The expression left of ``~``.
    structured : tuple of str
        The terms whose coefficients are interpreted.
    network : tuple of str
        The arguments of ``nn()``.
    """

    text: str
    response: str
    structured: tuple[str, ...]
    network: tuple[str, ...]

    @property
    def structured_variables(self) -> tuple[str, ...]:
        """Columns that the structured terms use."""
        return _unique(v for term in self.structured for v in variables(term))

    @property
    def network_variables(self) -> tuple[str, ...]:
        """Columns that the network uses."""
        return _unique(v for term in self.network for v in variables(term))

    @property
    def dated(self) -> tuple[str, ...]:
        """Columns of dates that ``days()`` turns into numbers."""
        return _unique(d for term in (*self.structured, *self.network) for d in dated(term))

    @property
    def predictors(self) -> tuple[str, ...]:
        """All columns needed to predict."""
        return _unique((*self.structured_variables, *self.network_variables))


def parse_formula(text: str) -> Formula:
    """Parse a formula with exactly one ``nn()`` term.

    Raises
    ------
    InputError
        If the text is no formula, calls an unlisted function, has no response, removes the
        intercept, or has no ``nn()`` term or more than one.
    """
    try:
        return _checked_formula(text)
    except (RecursionError, MemoryError):  # the latter from Python's parser
        raise InputError(
            f"the formula '{text[:60]} ...' is too long or too deeply nested to be read"
        ) from None


def check_term(term: str, text: str) -> None:
    """Refuse a term that is anything but columns, arithmetic and the listed functions.

    Raises
    ------
    InputError
        With its place in the formula.
    """
    for factor in factors(term):
        check_expression(_python(factor, text)[0], text)


def variables(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``log(x):C(g)`` uses, in order."""
    tree, quoted = _python("*".join(factors(expression)), expression)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in functions | roots
    ]
    return _in_order(names, quoted)


def dated(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``days(d):C(g)`` counts in days, in order."""
    tree, quoted = _python("*".join(factors(expression)), expression)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == DAYS
    ]
    return _in_order([arg for call in calls for arg in call.args], quoted)


def factors(term: str) -> tuple[str, ...]:
    """Return the factors of a term: ``a`` and ``C(b)`` of ``a:C(b)``."""
    return tuple(_split(term, ":"))


def _in_order(nodes: Iterable[ast.expr], quoted: Mapping[str, str]) -> tuple[str, ...]:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return _unique(quoted.get(node.id, node.id) for node in names)


def _checked_formula(text: str) -> Formula:
    check_text(text)
    lhs, rhs = _parse(text)
    for expression in [factor for term in (*lhs, *rhs) for factor in term]:
        check_expression(_python(expression, text)[0], text)
    tilde = re.sub(r"`[^`]*`", lambda quoted: "_" * len(quoted[0]), text).index("~")
    left, right = _stripped(text, 0, tilde), _stripped(text, tilde + 1, len(text))
    if len(lhs) != 1 or len(lhs[0]) != 1 or not variables(lhs[0][0]) or _calls_nn(lhs[0]):
        raise formula_error(text, f"needs one response left of '~', as in '{EXAMPLE}'", left)
    if ("1",) not in rhs:
        zero = re.search(r"\b0\b|-\s*1\b", text[tilde:])
        raise formula_error(
            text,
            "this removes the intercept, but the network's output bias is the intercept: leave "
            "out '0 +' or '- 1'",
            (tilde + zero.start(), tilde + zero.end()) if zero else right,
        )
    structured = (":".join(term) for term in rhs if term != ("1",) and not _calls_nn(term))
    return Formula(text, lhs[0][0], tuple(structured), _network_terms(rhs, text, right))


def _parse(text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return both sides as terms, each a tuple of factors that can be parsed again."""
    from formulaic import Formula as Formulaic
    from formulaic.errors import FormulaicError

    try:
        parsed = Formulaic(text)
    except (FormulaicError, SyntaxError, TypeError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise formula_error(text, f"cannot read this: {reason}") from None
    sides = [list(getattr(parsed, side, ())) for side in ("lhs", "rhs")]
    if not all(hasattr(term, "factors") for side in sides for term in side):
        raise formula_error(text, "this has several parts; use one '~' and no '|'")
    lhs, rhs = (
        [tuple(_rewritten(factor, text) for factor in term.factors) for term in side]
        for side in sides
    )
    return lhs, rhs


def _rewritten(factor: Any, text: str) -> str:
    """Write a factor so that formulaic reads it again: ```odd name```, ``I(x + 1)``."""
    expression = str(factor.expr)
    if factor.eval_method.value == "lookup":
        return _name(expression)
    if factor.eval_method.value == "literal":
        return expression
    tree, quoted = _python(expression, text)
    return _operand(tree.body, quoted)


def _name(column: str) -> str:
    return column if column.isidentifier() and not iskeyword(column) else f"`{column}`"


def _operand(node: ast.expr, quoted: Mapping[str, str]) -> str:
    """Write a node of Python as a factor: arithmetic goes into ``I()``."""
    source = re.sub(r"quoted_\d+_", lambda match: f"`{quoted[match[0]]}`", ast.unparse(node))
    return source if isinstance(node, ast.Name | ast.Call) else f"I({source})"


def _calls_nn(term: Iterable[str]) -> bool:
    return any(re.match(r"nn\s*\(", factor) for factor in term)


def _network_terms(
    terms: list[tuple[str, ...]], text: str, right: tuple[int, int]
) -> tuple[str, ...]:
    networks = [term for term in terms if _calls_nn(term)]
    if len(networks) != 1:
        raise formula_error(
            text,
            f"needs exactly one nn() term, got {len(networks)}; as in '{EXAMPLE}'",
            networks[1][0] if networks else right,
        )
    if len(networks[0]) != 1:
        raise formula_error(
            text,
            "nn() cannot take part in an interaction; put the other variable inside nn() instead",
            ":".join(networks[0]),
        )
    tree, quoted = _python(networks[0][0], text)
    call = tree.body
    assert isinstance(call, ast.Call)
    arguments = tuple(_operand(node, quoted) for node in call.args)
    if not arguments or call.keywords or not all(variables(item) for item in arguments):
        raise formula_error(
            text, "nn() takes at least one column and no options, as nn(u1, u2)", networks[0][0]
        )
    return arguments


def _python(expression: str, text: str) -> tuple[ast.Expression, dict[str, str]]:
    """Parse Python with ```quoted names``` replaced by placeholders; return both."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        key = f"quoted_{len(quoted)}_"
        quoted[key] = match[1]
        return key

    source = re.sub(r"`([^`]+)`", placeholder, expression)
    try:
        return ast.parse(source, mode="eval"), quoted
    except SyntaxError:
        raise formula_error(text, f"cannot read '{expression}'", expression) from None


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave out the blanks around a part of the formula."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def _split(text: str, separator: str) -> list[str]:
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


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
