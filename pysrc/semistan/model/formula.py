"""Read ``y ~ x1 + C(g) + x2:x3 + nn(u1, u2)`` into its three parts.

formulaic parses the text. Only the functions listed here can be called, so that a formula
from a file cannot run arbitrary code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
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
CONTRASTS = ("treatment", "sum", "helmert", "diff", "poly", "SAS")
CALLABLE = (*MATH, *TRANSFORMS)

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
    if len(lhs) != 1:
        raise InputError(f"formula '{text}' needs one response left of '~', as in '{EXAMPLE}'")
    for expression in (_quoted(factor) for term in (*lhs, *rhs) for factor in term.factors):
        _check_expression(expression, text)
    terms = [":".join(_quoted(factor) for factor in term.factors) for term in rhs]
    if "1" not in terms:
        raise InputError(
            f"formula '{text}' removes the intercept, but the network's output bias is the "
            "intercept: leave out '0 +' or '- 1'"
        )
    structured = tuple(term for term in terms if term != "1" and not _calls_nn(term))
    return Formula(text, _quoted(lhs[0].factors[0]), structured, _network_terms(terms, text))


def variables(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``log(x):C(g)`` uses, in order."""
    tree, quoted = _python("*".join(_split(expression, ":")))
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in functions | roots
    ]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return _unique(quoted.get(node.id, node.id) for node in names)


def _parse(text: str) -> tuple[list[Any], list[Any]]:
    from formulaic import Formula as Formulaic
    from formulaic.errors import FormulaicError

    if text.count("~") != 1:
        raise InputError(f"a formula looks like '{EXAMPLE}', got '{text}'")
    try:
        parsed = Formulaic(text)
        return list(getattr(parsed, "lhs", ())), list(getattr(parsed, "rhs", ()))
    except (FormulaicError, SyntaxError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot read formula '{text}': {reason}") from None


def _quoted(factor: Any) -> str:
    """Return a factor as a formula can be parsed again: ```odd name```, ``I(x + 1)``."""
    expression = str(factor.expr)
    if factor.eval_method.value == "lookup":
        return expression if expression.isidentifier() else f"`{expression}`"
    if factor.eval_method.value == "python" and not expression.endswith(")"):
        return f"I({expression})"
    return expression


def _calls_nn(term: str) -> bool:
    return any(re.match(r"nn\s*\(", factor) for factor in _split(term, ":"))


def _network_terms(terms: list[str], text: str) -> tuple[str, ...]:
    networks = [term for term in terms if _calls_nn(term)]
    if len(networks) != 1:
        raise InputError(
            f"formula '{text}' needs exactly one nn() term, got {len(networks)}; as in '{EXAMPLE}'"
        )
    if len(_split(networks[0], ":")) != 1:
        raise InputError(
            f"formula '{text}': nn() cannot take part in an interaction; put the other "
            "variable inside nn() instead"
        )
    arguments = _split(networks[0][networks[0].index("(") + 1 : -1], ",")
    if not arguments:
        raise InputError(f"formula '{text}': nn() needs at least one column, as in nn(u1, u2)")
    return tuple(arguments)


def _check_expression(expression: str, text: str) -> None:
    """Refuse anything but columns, arithmetic and the listed functions."""
    tree, _ = _python(expression)
    nested = tree.body.args if re.match(r"nn\s*\(", expression) else [tree.body]  # type: ignore[attr-defined]
    for node in (node for root in nested for node in ast.walk(root)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "nn":
                raise InputError(f"formula '{text}': nn() must be a term of its own")
            if name not in CALLABLE:
                raise InputError(
                    f"formula '{text}' calls '{name}', which is not available."
                    f"{did_you_mean(name, CALLABLE)}"
                )
        elif isinstance(node, ast.Attribute):
            if ast.unparse(node) not in {f"contr.{name}" for name in CONTRASTS}:
                raise InputError(f"formula '{text}': '{ast.unparse(node)}' is not allowed")
        elif not isinstance(node, _ALLOWED_NODES):
            raise InputError(f"formula '{text}': '{ast.unparse(node)}' is not allowed")


def _python(expression: str) -> tuple[ast.Expression, dict[str, str]]:
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
        raise InputError(f"cannot read '{expression}' in the formula") from None


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside parentheses and backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == separator and depth == 0 and not quoted:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
