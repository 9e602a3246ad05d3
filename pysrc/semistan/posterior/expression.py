"""Expressions of parameters, as ``b_x - 2 * b_z`` or ``exp(b_x) / sigma``, without eval.

    sum      =  product (("+" | "-") product)*
    product  =  factor (("*" | "/") factor)*
    factor   =  ("+" | "-") factor | power
    power    =  atom [("^" | "**") factor]
    atom     =  number | name | function "(" sum ")" | "(" sum ")"

A name is that of the table, as ``b_Intercept[1]``; one of other characters stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs,
}  # fmt: skip
DEEPEST = 50  # parentheses, signs and powers within each other
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>`[^`]+`|[^\W\d][\w.]*(?:\[[^\]]*\])?)"
    r"|(?P<operator>\*\*|[-+*/^()]))"
)


def evaluate_expression(text: str, values: Mapping[str, Array]) -> Array:
    """Evaluate an expression of parameters in every draw.

    Parameters
    ----------
    text : str
        The expression.
    values : mapping of arrays, shape (...)
        Draws of the parameters by name, all of one shape.

    Returns
    -------
    array, shape (...)

    Raises
    ------
    InputError
        If it cannot be read, names an unknown parameter or none, or is not finite in every draw.
    """
    reader = _Reader(text, values)
    found = reader.whole()
    shape = next(iter(values.values())).shape
    if not reader.used:
        raise InputError(
            f"'{text}' has no parameter in it; write one of: {', '.join(list(values)[:12])}"
        )
    result = np.broadcast_to(found, shape)
    bad = int(np.count_nonzero(~np.isfinite(result)))
    if bad:
        raise InputError(
            f"'{text}' is not a finite number in {bad} of {result.size} draws: a division by 0, "
            "or a logarithm or root of a negative number?"
        )
    return np.asarray(result, dtype=float)


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, text: str, values: Mapping[str, Array]) -> None:
        self.text, self.values = text, values
        self.tokens, self.at, self.depth = _tokens(text), 0, 0
        self.used: set[str] = set()

    def whole(self) -> Array:
        """Read all of it."""
        with np.errstate(all="ignore"):
            value = self._sum()
        if self.at < len(self.tokens):
            raise self._unexpected()
        return value

    @property
    def _next(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _take(self, *wanted: str) -> str:
        """Return the next operator, if it is one of these, and go beyond it."""
        kind = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        if kind != "operator" or self._next not in wanted:
            return ""
        self.at += 1
        return self.tokens[self.at - 1][1]

    def _sum(self) -> Array:
        value = self._product()
        while operator := self._take("+", "-"):
            other = self._product()
            value = value + other if operator == "+" else value - other
        return value

    def _product(self) -> Array:
        value = self._factor()
        while operator := self._take("*", "/"):
            other = self._factor()
            value = value * other if operator == "*" else value / other
        return value

    def _factor(self) -> Array:
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"'{self.text[:60]}...' is nested more than {DEEPEST} deep")
        sign = self._take("+", "-")
        value = self._factor() if sign else self._power()
        self.depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Array:
        value = self._atom()
        return np.power(value, self._factor()) if self._take("^", "**") else value

    def _atom(self) -> Array:
        if self._take("("):
            return self._closed()
        if self.at == len(self.tokens):
            raise InputError(f"'{self.text}' ends where a parameter or a number should stand")
        kind, token = self.tokens[self.at]
        if kind == "operator":
            raise self._unexpected()
        self.at += 1
        if kind == "number":
            return np.asarray(float(token))
        if token in FUNCTIONS and self._take("("):
            return np.asarray(FUNCTIONS[token](self._closed()))
        return self._parameter(token.strip("`"))

    def _closed(self) -> Array:
        value = self._sum()
        if not self._take(")"):
            raise InputError(f"'{self.text}' lacks a closing parenthesis")
        return value

    def _parameter(self, name: str) -> Array:
        if name not in self.values:
            raise InputError(
                f"'{name}' in '{self.text}' is no parameter of this fit."
                f"{did_you_mean(name, list(self.values))} Functions: {', '.join(FUNCTIONS)}"
            )
        self.used.add(name)
        return self.values[name]

    def _unexpected(self) -> InputError:
        return InputError(
            f"'{self._next}' in '{self.text}' is not expected there; an expression has parameters "
            "and numbers with + - * / ^ between them, and parentheses"
        )


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise InputError(
                f"'{text}' cannot be read at '{text[at:].strip()[:20]}'; an expression has "
                "parameters and numbers with + - * / ^ between them, and parentheses"
            )
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found
