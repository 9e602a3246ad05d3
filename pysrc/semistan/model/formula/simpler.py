"""A formula whose networks are replaced by something simpler: lines, or smooths of each input.

A line is written as a network without hidden layers, ``nn(u, v)`` with ``hidden = []``: its weights
are slopes, and a formula always has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from semistan.errors import InputError
from semistan.model.formula.formula import parse_formula, spans_of
from semistan.model.formula.imputation import imputation_at
from semistan.model.formula.right import PredictorFormula
from semistan.model.formula.syntax import masked

_NETWORK = re.compile(r"(?<![\w.])nn\s*\(")
_OPTION = re.compile(r"\s*\w+\s*=(?!=)")


def linear_formula(text: str) -> str:
    """Return a formula whose networks have their inputs alone, and no layers of their own.

    Raises
    ------
    InputError
        If a network's inputs are images or it is a module of the user's.
    """
    _check(text)
    return _replaced(text, lambda inputs: f"nn({', '.join(inputs)})")


def smooth_formula(text: str, bends: Callable[[str], bool]) -> str:
    """Return a formula with a smooth of each input that can bend, and a line of every other one.

    Parameters
    ----------
    text : str
        The formula.
    bends : callable
        Says of an input, as ``log(u)``, whether it has values enough for a smooth.

    Raises
    ------
    InputError
        If a network's inputs are images or it is a module of the user's.
    """
    _check(text)
    predictors = iter(parse_formula(text).predictors)
    return ",".join(
        text[slice(*span)]
        if imputation_at(text, span)
        else _with_smooths(text[slice(*span)], next(predictors), bends)
        for span in spans_of(text)
    )


def _with_smooths(part: str, predictor: PredictorFormula, bends: Callable[[str], bool]) -> str:
    """Replace the networks of one predictor; no column gets two smooths, or one beside its line."""
    taken = {*predictor.structured, *(call.expression for call in predictor.calls)}

    def smooths(inputs: list[str]) -> str:
        chosen = [item for item in inputs if item not in taken and bends(item)]
        taken.update(chosen)
        straight = [item for item in inputs if item not in chosen] or inputs[:1]
        return " + ".join([*(f"s({item})" for item in chosen), f"nn({', '.join(straight)})"])

    return _replaced(part, smooths)


def _check(text: str) -> None:
    formula = parse_formula(text)
    trunks = any(network.trunk for network in formula.networks)
    modules = any("module" in network.options for network in formula.networks)
    if formula.images or trunks or modules:
        what = "a module of your own" if modules else "images"
        raise InputError(f"a network of {what} has no linear version to compare it with")


def _replaced(text: str, write: Callable[[list[str]], str]) -> str:
    pieces, end = [], 0
    for start, stop, inputs in _calls(text):
        pieces += [text[end:start], write(inputs)]
        end = stop
    return "".join([*pieces, text[end:]])


def _calls(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield where each ``nn()`` begins and ends, and its inputs without options."""
    source = masked(text)
    for match in _NETWORK.finditer(source):
        depth, start, parts = 1, match.end(), []
        for position in range(match.end(), len(source)):
            character = source[position]
            depth += (character in "([{") - (character in ")]}")
            if depth == 0 or (depth == 1 and character == ","):
                parts.append(text[start:position].strip())
                start = position + 1
            if depth == 0:
                inputs = [part for part in parts if part and not _OPTION.match(part)]
                yield match.start(), position + 1, inputs
                break
