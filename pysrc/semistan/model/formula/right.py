"""What stands right of ``~``: one predictor's terms, ``x + s(v) + (1 | g) + offset(z) + nn(u)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from semistan.model.formula.bars import Bars
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import (
    as_python,
    factors,
    is_call_of,
    operand,
    stripped,
    unique,
    variables,
)
from semistan.model.formula.group_terms import GroupTerm, group_term
from semistan.model.formula.syntax import (
    EXAMPLE,
    PARTS,
    SHARED,
    check_expression,
    closing,
    formula_error,
    masked,
    term_calls,
)
from semistan.model.names import MU
from semistan.model.terms.kinds import KINDS, how_to_vary, term_kind


@dataclass(frozen=True, slots=True)
class PredictorFormula:
    """The right-hand side of one predictor: ``x + s(v) + (1 | g) + offset(z) + nn(u)``.

    Attributes
    ----------
    name : str
        The parameter left of ``~``; ``mu`` of the response's mean.
    structured : tuple of str
        The terms whose coefficients are interpreted.
    networks : tuple of tuple of str
        The arguments of each ``nn()``.
    offsets : tuple of str
        What is added to the linear predictor as it is.
    calls : tuple of TermCall
        Terms that are written as a call; the straight parts of smooths are among the structured
        terms.
    groups : tuple of GroupTerm
        Group-level terms.
    layers : tuple of dict
        The options of each ``nn()``.
    times : tuple of str
        The term that each ``nn()`` multiplies, as ``z`` of ``z:nn(u)``; empty of one by itself.
    """

    name: str
    structured: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]
    offsets: tuple[str, ...] = ()
    calls: tuple[TermCall, ...] = ()
    groups: tuple[GroupTerm, ...] = ()
    layers: tuple[dict[str, Any], ...] = ()
    times: tuple[str, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """All terms but the levels of groups."""
        effects = (term for group in self.groups for term in group.expressions)
        called = (
            item
            for call in self.calls
            for item in (*call.arguments, call.by, *call.predicted_by)
            if item
        )
        inputs = (term for network in self.networks for term in network)
        multiplied = (term for term in self.times if term)
        return (*self.structured, *called, *inputs, *multiplied, *self.offsets, *effects)

    @property
    def networks_text(self) -> str:
        """The networks as they may be written, without options."""
        written = (f"nn({', '.join(arguments)})" for arguments in self.networks)
        both = zip(self.times, written, self.networks, strict=True)
        return " + ".join(
            f"{times}:{call}" if times else call
            for times, call, arguments in both
            if arguments != CONSTANT.arguments
        )

    @property
    def learnt_variables(self) -> tuple[str, ...]:
        """Columns that stand in anything but an offset or the weights of levels."""
        groups = tuple(replace(group, members=None) for group in self.groups)
        return replace(self, offsets=(), groups=groups).variables

    @property
    def known_variables(self) -> tuple[str, ...]:
        """Columns that stand in an offset or in the weights of levels."""
        weights = (text for group in self.groups if group.members for text in group.members.weights)
        return unique(name for text in (*self.offsets, *weights) for name in variables(text))

    @property
    def calls_of_nn(self) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
        """The arguments and options of each ``nn()``."""
        return zip(self.networks, self.layers, strict=True)

    @property
    def keys_of_nn(self) -> tuple[object, ...]:
        """What tells the network of each ``nn()`` from others: its name where it is shared."""
        return tuple(o.get(SHARED, (self.name, number)) for number, o in enumerate(self.layers))

    @property
    def structured_variables(self) -> tuple[str, ...]:
        """Columns that the structured terms use."""
        return unique(v for term in self.structured for v in variables(term))

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the predictor uses."""
        levels = (name for group in self.groups for name in group.levels_of)
        return unique((*(v for term in self.expressions for v in variables(term)), *levels))


def read_predictor(
    name: str, rhs: list[tuple[str, ...]], bars: Bars, text: str
) -> PredictorFormula:
    """Sort the terms right of '~' by what they are; only the mean needs a network.

    Parameters
    ----------
    name : str
        What the predictor is of: ``mu`` of the response's mean.
    rhs : list of tuple of str
        Its terms, each a tuple of factors.
    bars : Bars
        The group-level terms.
    text : str
        The formula, for errors.

    Raises
    ------
    InputError
        If a term is not allowed, or the intercept is removed.
    """
    for expression in [factor for term in rhs for factor in term]:
        check_expression(as_python(expression, text)[0], text)
    _check_intercept(rhs, bars.plain, text)
    right = stripped(text, masked(text).index("~") + 1, len(text))
    calls = tuple(_term_call(kind, term, text)
                  for kind in KINDS for term in _calls_of(rhs, kind, text))  # fmt: skip
    plain = (term for term in rhs if not any(is_call_of(term, call) for call in term_calls()))
    has_networks = name == MU or any(is_call_of(term, "nn") for term in rhs)
    networks = _network_terms(rhs, text, right) if has_networks else ()
    if name == MU and all(network.times for network in networks):
        networks = (CONSTANT, *networks)
    # The output bias of a network that multiplies a term is its coefficient.
    held = {frozenset(factors(network.times)) for network in networks}
    structured = (":".join(term) for term in plain if term != ("1",) and {*term} not in held)
    straight = (item for call in calls for item in term_kind(call.kind).straight(call))
    return PredictorFormula(
        name,
        unique((*structured, *straight)),
        tuple(network.arguments for network in networks),
        tuple(_argument(term, text) for term in _calls_of(rhs, "offset", text)),
        calls,
        tuple(group_term(group, text) for group in bars.groups),
        tuple(network.options for network in networks),
        tuple(network.times for network in networks),
    )


def _check_intercept(rhs: list[tuple[str, ...]], plain: str, text: str) -> None:
    """Refuse a formula that removes the intercept."""
    if ("1",) in rhs:
        return
    tilde = masked(text).index("~")
    zero = re.search(r"\b0\b|-\s*1\b", plain[tilde:])
    raise formula_error(
        text,
        "this removes the intercept, but the network's output bias is the intercept: leave out "
        "'0 +' or '- 1', as 'y ~ nn(u)' for 'y ~ 0 + nn(u)'; coefficients of a factor are then "
        "differences from its first level",
        (tilde + zero.start(), tilde + zero.end())
        if zero
        else stripped(text, tilde + 1, len(text)),
    )


def _calls_of(terms: list[tuple[str, ...]], name: str, text: str) -> list[str]:
    """Return the calls of a function, each a term of its own."""
    found = [term for term in terms if is_call_of(term, name)]
    for term in found:
        if len(term) != 1:
            message = f"{name}() cannot take part in an interaction{how_to_vary(name)}"
            raise formula_error(text, message, ":".join(term))
    return [term[0] for term in found]


def _argument(call: str, text: str) -> str:
    """Return the first argument of a call, as a factor."""
    tree, quoted = as_python(call, text)
    assert isinstance(tree.body, ast.Call)
    expression = operand(tree.body.args[0], quoted)
    if not variables(expression):
        raise formula_error(text, f"'{call}' needs a column", call)
    return expression


def _term_call(kind: str, call: str, text: str) -> TermCall:
    """Read ``s(x, k=10)``."""
    tree, quoted = as_python(call, text)
    assert isinstance(tree.body, ast.Call)
    written = {str(item.arg): item.value for item in tree.body.keywords}
    by = operand(written.pop("by"), quoted) if "by" in written else ""
    options = tuple((name, ast.literal_eval(value)) for name, value in written.items())
    others = tuple(operand(node, quoted) for node in tree.body.args[1:])
    for other in others:
        if not variables(other):
            raise formula_error(text, f"'{other}' needs a column", call)
    return TermCall(kind, _argument(call, text), options, others, by)


class _Network(NamedTuple):
    """The arguments and options of an ``nn()``, and the term that it multiplies."""

    arguments: tuple[str, ...]
    options: dict[str, Any]
    times: str = ""


# The mean's intercept is the output bias of a network that multiplies nothing: of one without
# inputs, which is a single weight, where all others multiply a term.
CONSTANT = _Network(("1",), {"hidden": [], "frozen": 0, "skip": False, "norm": False})


def _network_terms(
    terms: list[tuple[str, ...]], text: str, right: tuple[int, int]
) -> tuple[_Network, ...]:
    calls = [term for term in terms if is_call_of(term, "nn")]
    if not calls:
        raise formula_error(text, f"needs an nn() term, as in '{EXAMPLE}'", right)
    networks = tuple(_network(term, text) for term in calls)
    _check_distinct(text, right)
    _check_multiplied(networks, text, right)
    return networks


def _check_distinct(text: str, right: tuple[int, int]) -> None:
    """Refuse a network that is written twice, which formulaic merges."""
    source, seen = masked(text), set()
    for match in re.finditer(r"\bnn\s*\(", source[: right[1]]):
        end = closing(source, match.end())
        before, after = source[: match.start()].rstrip(), source[end:].lstrip()
        if before[-1:] in "@*" or after[:1] in ("@", "*"):  # which multiplies a term
            continue
        arguments = frozenset(_network((text[match.start() : end],), text).arguments)
        if arguments in seen:
            message = "another nn() has the same arguments; networks are added, so one is enough"
            raise formula_error(text, message, (match.start(), end))
        seen.add(arguments)


def _check_multiplied(networks: tuple[_Network, ...], text: str, right: tuple[int, int]) -> None:
    """Refuse two networks of one term, of whose outputs only the sum has a meaning."""
    times = [frozenset(factors(network.times)) for network in networks if network.times]
    if len({*times}) < len(times):
        twice = next(item for item in times if times.count(item) > 1)
        raise formula_error(
            text,
            f"two networks multiply '{':'.join(sorted(twice))}'; write one of all their inputs, as "
            "z:nn(u, v)",
            right,
        )


def _network(term: tuple[str, ...], text: str) -> _Network:
    """Read ``nn(u1, u2, hidden=[32, 32])`` or ``z:nn(u)``, whose options are checked already."""
    own = [factor for factor in term if is_call_of((factor,), "nn")]
    times = tuple(factor for factor in term if factor not in own)
    if len(own) > 1:
        message = "two networks cannot be multiplied; write one of both"
        raise formula_error(text, message, ":".join(term))
    tree, quoted = as_python(own[0], text)
    call = tree.body
    assert isinstance(call, ast.Call)
    arguments = tuple(operand(node, quoted) for node in call.args)
    if not arguments or not all(variables(item) for item in arguments):
        raise formula_error(text, f"nn() takes {PARTS['nn']}", own[0])
    options = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    found = _Network(arguments, options, ":".join(times))
    if problem := _problem_of(found, times):
        raise formula_error(text, problem, ":".join(term))
    return found


def _problem_of(network: _Network, times: tuple[str, ...]) -> str:
    """Say what is wrong with a network that multiplies these factors; nothing if all is right."""
    if called := next((name for name in term_calls() if is_call_of(times, name)), None):
        return f"a network multiplies a column, not {called}()"
    if not all(map(variables, times)):
        return "a network multiplies a column, as z:nn(u)"
    seen = {name for item in network.arguments for name in variables(item)}
    if both := seen.intersection(*map(variables, times)) if times else ():
        name = min(both)
        return (
            f"'{name}' times a network of '{name}' is a network of it: write "
            f"nn({', '.join(network.arguments)})"
        )
    if times and SHARED in network.options:
        return f"a network that multiplies a term cannot be shared; leave out {SHARED}="
    return ""
