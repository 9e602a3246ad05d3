"""What stands left of ``~``: the response, and ``| weights(w) + cens(c)`` beside it."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from semistan.model.formula.arguments import argument, truth
from semistan.model.formula.bars import Bars, split_at
from semistan.model.formula.expression import (
    as_python,
    is_call_of,
    listed_levels,
    stripped,
    variables,
)
from semistan.model.formula.syntax import (
    COUNTED,
    EXAMPLE,
    check_expression,
    formula_error,
    masked,
    term_calls,
)
from semistan.model.spelling import in_formula, unmarked


class Left(NamedTuple):
    """The response and what stands beside it, under the names that ``Formula`` has for them."""

    response: str
    weights: str
    trials: str
    se: str
    se_and_sigma: bool
    cens: tuple[str, ...]
    lb: str
    ub: str
    levels: tuple[str, ...]
    counted: tuple[str, ...]


def read_left(lhs: list[tuple[str, ...]], bars: Bars, text: str) -> Left:
    """Read the left side of the mean's predictor.

    Parameters
    ----------
    lhs : list of tuple of str
        Its terms, each a tuple of factors.
    bars : Bars
        What stands beside the bar.
    text : str
        The formula.

    Raises
    ------
    InputError
        If there is not one response, or what stands beside it cannot be read.
    """
    counted = _counted(lhs, text)
    for expression in [factor for term in lhs for factor in term] if not counted else []:
        check_expression(as_python(expression, text)[0], text)
    left = stripped(bars.plain, 0, masked(text).index("~"))
    called = any(is_call_of(lhs[0], name) for name in term_calls()) if lhs else False
    if len(lhs) != 1 or len(lhs[0]) != 1 or not variables(lhs[0][0]) or called:
        raise formula_error(text, f"needs one response left of '~', as in '{EXAMPLE}'", left)
    if isinstance(as_python(text[slice(*left)], text)[0].body, ast.BinOp):
        raise formula_error(text, "arithmetic left of '~' goes into I(), as I(y^2)", left)
    response, levels = _response(lhs[0][0], text, left)
    weights, trials = ("".join(_addition(name, 1, bars, text)) for name in ("weights", "trials"))
    cens = _addition("cens", 2, bars, text)
    lb, ub = _truncation(bars, text)
    return Left(response, weights, trials, *_errors(bars, text), cens, lb, ub, levels, counted)


def _counted(lhs: list[tuple[str, ...]], text: str) -> tuple[str, ...]:
    """Return the columns of ``cbind(a, b, c)``, if that is the response."""
    factor = lhs[0][0] if len(lhs) == 1 and len(lhs[0]) == 1 else ""
    if not factor.startswith(f"{COUNTED}("):
        return ()
    tree, quoted = as_python(factor, text)
    call = tree.body
    arguments = call.args if isinstance(call, ast.Call) and not call.keywords else []
    names = [quoted.get(a.id, unmarked(a.id)) for a in arguments if isinstance(a, ast.Name)]
    if len(names) < 2 or len({*names}) < len(arguments):
        message = f"{COUNTED}() takes two or more columns, as {COUNTED}(a, b, c)"
        raise formula_error(text, message, f"{COUNTED}(")
    return tuple(names)


def _response(factor: str, text: str, left: tuple[int, int]) -> tuple[str, tuple[str, ...]]:
    """Return the response and its levels, which ``C(y, levels=['No', 'Yes'])`` gives."""
    if not factor.startswith("C("):
        return factor, ()
    levels = listed_levels(factor)
    words = [str(level) for level in levels] if isinstance(levels, list) else []
    if len(words) < 2 or len({*words}) < len(words):
        message = "C() left of '~' gives the values in order, as C(y, levels=['low', 'high'])"
        raise formula_error(text, message, left)
    return in_formula(variables(factor)[0]), tuple(words)


def _addition(name: str, most: int, bars: Bars, text: str) -> tuple[str, ...]:
    """Return the arguments of ``weights()``, ``trials()`` or ``cens()``, checked; none without."""
    if name not in bars.additions:
        return ()
    whole = bars.additions[name]
    spans, takes = [whole], f"{name}() takes one expression, as {name}(n)"
    if most > 1:
        spans = split_at(masked(text), *whole, ",")
        takes = f"{name}() takes one or two expressions, as {name}(c) or {name}(c, y2)"
    if len(spans) > most:
        raise formula_error(text, takes, whole)
    return tuple(argument(span, takes, text) for span in spans)


def _errors(bars: Bars, text: str) -> tuple[str, bool]:
    """Return the argument of ``se(s, sigma=TRUE)``, and whether there is a sigma too."""
    if "se" not in bars.additions:
        return "", False
    takes = "se() takes one expression, and whether there is a sigma too, as se(s, sigma=TRUE)"
    whole = bars.additions["se"]
    first, *options = split_at(masked(text), *whole, ",")
    chosen = [truth("sigma", text[slice(*span)]) for span in options]
    if len(chosen) > 1 or None in chosen:
        raise formula_error(text, takes, whole)
    return argument(first, takes, text), bool(chosen and chosen[0])


def _truncation(bars: Bars, text: str) -> tuple[str, str]:
    """Return the arguments of ``trunc(lb, ub)``, of which one may be missing, or have its name."""
    if "trunc" not in bars.additions:
        return "", ""
    takes = "trunc() takes a lower bound, an upper one or both, as trunc(lb=0, ub=10)"
    source, found = masked(text), {"lb": "", "ub": ""}
    for place, (start, end) in enumerate(split_at(source, *bars.additions["trunc"], ",")):
        named = re.match(r"(\w+)\s*=(?!=)\s*", source[start:end])
        name = named[1] if named else ("lb", "ub", "")[min(place, 2)]
        if found.get(name, "given"):
            raise formula_error(text, takes, (start, max(end, start + 1)))
        bound = argument((start + (named.end() if named else 0), end), takes, text)
        found[name] = bound if variables(bound) else bound.removeprefix("I(").removesuffix(")")
    return found["lb"], found["ub"]
