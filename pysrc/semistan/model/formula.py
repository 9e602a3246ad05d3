"""Read ``y ~ x1 + C(g) + x2:x3 + nn(u1, u2)`` into its three parts.

formulaic parses the text. Only the functions listed here can be called, so that a formula
from a file cannot run arbitrary code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import numpy as np

from semistan.errors import InputError, did_you_mean

EXAMPLE = "y ~ x1 + C(g) + nn(u1, u2)"

# Stateless functions beside formulaic's own transforms.
MATH = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
}
TRANSFORMS = ("C", "I", "center", "scale", "poly", "bs", "cr", "cs", "cc")
CALLABLE = (*MATH, *TRANSFORMS)
CODINGS = tuple(f"contr.{name}" for name in ("treatment", "sum", "helmert", "diff", "poly", "SAS"))

_ALLOWED_NODES = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv, ast.USub, ast.UAdd,
    ast.keyword, ast.List, ast.Tuple,
)  # fmt: skip


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
    lhs, rhs = _parse(text)
    for expression in (factor for term in (*lhs, *rhs) for factor in term):
        _check_expression(expression, text)
    if len(lhs) != 1 or len(lhs[0]) != 1 or not variables(lhs[0][0]) or _calls_nn(lhs[0]):
        raise InputError(f"formula '{text}' needs one response left of '~', as in '{EXAMPLE}'")
    if ("1",) not in rhs:
        raise InputError(
            f"formula '{text}' removes the intercept, but the network's output bias is the "
            "intercept: leave out '0 +' or '- 1'"
        )
    structured = (":".join(term) for term in rhs if term != ("1",) and not _calls_nn(term))
    return Formula(text, lhs[0][0], tuple(structured), _network_terms(rhs, text))


def variables(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``log(x):C(g)`` uses, in order."""
    tree, quoted = _python("*".join(_split(expression, ":")), expression)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in functions | roots
    ]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return _unique(quoted.get(node.id, node.id) for node in names)


def _parse(text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return both sides as terms, each a tuple of factors that can be parsed again."""
    from formulaic import Formula as Formulaic
    from formulaic.errors import FormulaicError

    unquoted = re.sub(r"`[^`]*`", "", text)
    if unquoted.count("~") != 1:
        raise InputError(f"a formula looks like '{EXAMPLE}', got '{text}'")
    if re.search(r"(?<![\w.)])\.(?![\w.])", unquoted):
        raise InputError(f"formula '{text}': '.' is not understood; name the columns")
    if "|" in unquoted:
        raise InputError(f"formula '{text}': there are no group-level terms, '|' is not understood")
    try:
        parsed = Formulaic(text)
    except (FormulaicError, SyntaxError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot read formula '{text}': {reason}") from None
    sides = [list(getattr(parsed, side, ())) for side in ("lhs", "rhs")]
    if not all(hasattr(term, "factors") for side in sides for term in side):
        raise InputError(f"formula '{text}' has several parts; use one '~' and no '|'")
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


def _network_terms(terms: list[tuple[str, ...]], text: str) -> tuple[str, ...]:
    networks = [term for term in terms if _calls_nn(term)]
    if len(networks) != 1:
        raise InputError(
            f"formula '{text}' needs exactly one nn() term, got {len(networks)}; as in '{EXAMPLE}'"
        )
    if len(networks[0]) != 1:
        raise InputError(
            f"formula '{text}': nn() cannot take part in an interaction; put the other "
            "variable inside nn() instead"
        )
    tree, quoted = _python(networks[0][0], text)
    call = tree.body
    assert isinstance(call, ast.Call)
    arguments = tuple(_operand(node, quoted) for node in call.args)
    if not arguments or call.keywords or not all(variables(item) for item in arguments):
        raise InputError(
            f"formula '{text}': nn() takes at least one column and no options, as nn(u1, u2)"
        )
    return arguments


def _check_expression(expression: str, text: str) -> None:
    """Refuse anything but columns, arithmetic and the listed functions."""
    tree, _ = _python(expression, text)
    body = tree.body
    roots = body.args if isinstance(body, ast.Call) and _calls_nn((expression,)) else [body]
    for node in (node for root in roots for node in ast.walk(root)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "nn":
                raise InputError(f"formula '{text}': nn() must be a term of its own")
            if name == "C" and not (node.args and isinstance(node.args[0], ast.Name)):
                raise InputError(
                    f"formula '{text}': C() takes a column, got '{expression}'; make the "
                    "expression a column of its own"
                )
            if name not in (*CALLABLE, *CODINGS):
                raise InputError(
                    f"formula '{text}' calls '{name}', which is not available."
                    f"{did_you_mean(name, CALLABLE)}"
                )
        elif isinstance(node, ast.Attribute):
            if ast.unparse(node) not in CODINGS:
                raise InputError(f"formula '{text}': '{ast.unparse(node)}' is not allowed")
        elif not isinstance(node, _ALLOWED_NODES):
            raise InputError(f"formula '{text}': '{ast.unparse(node)}' is not allowed")


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
        raise InputError(f"cannot read '{expression}' in formula '{text}'") from None


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
