"""The kinds of terms that are written as a call; a new one is one file and a line here.

A formula is read before anything is learnt, so that a kind is named here as text: its record is
read from its file when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.formula.calls import TermCall
    from semistan.model.terms.term import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class TermKind:
    """How a kind of term is written, learnt and stored.

    Attributes
    ----------
    takes : str
        What the call takes, in words, for error messages.
    options : dict of callables
        Each option's name, and whether a literal can be its value.
    straight : callable
        Maps the call to the structured terms that belong to it, whose coefficients have no penalty.
    also : callable
        Maps the call and the training rows to further ones, which only the rows tell.
    arguments : pair of int
        The least and the largest number of arguments.
    has_by : bool
        Whether it may vary by a column, as ``s(x, by=g)``.
    varies : str
        What to write where it is to vary by a column, in words, for error messages.
    stored : str
        The key under which a bundle has the learnt terms of this kind.
    learn : callable
        Maps the call, the training rows, and the names in Stan of what the user sees and of what
        is internal to the learnt term.
    from_plain : callable
        Maps what ``to_plain`` returned and the internal name to the learnt term; raises ValueError
        for what does not fit.
    """

    takes: str
    stored: str
    learn: Callable[[TermCall, pd.DataFrame, str, str], Term]
    from_plain: Callable[[Mapping[str, Any], str], Term]
    options: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    straight: Callable[[TermCall], tuple[str, ...]] = lambda _: ()
    also: Callable[[TermCall, pd.DataFrame], tuple[str, ...]] = lambda *_: ()
    arguments: tuple[int, int] = (1, 1)
    has_by: bool = False
    varies: str = ""


def is_one_of(words: Container[str], value: object) -> bool:
    """Say whether an option is one of some words; text is blanked where a formula is first read."""
    return isinstance(value, str) and (value in words or set(value) == {"_"})


# A module whose KIND is the record, or the record itself.
KINDS: dict[str, str | TermKind] = {
    "s": "semistan.model.terms.smooths",
    "gp": "semistan.model.terms.processes",
    "mi": "semistan.model.terms.missing_values",
    "mo": "semistan.model.terms.monotonic",
    "t2": "semistan.model.terms.tensor",
}


def term_kind(name: str) -> TermKind:
    """Look up the record of a kind that there is."""
    found = KINDS[name]
    record = import_module(found).KIND if isinstance(found, str) else found
    assert isinstance(record, TermKind)
    return record


def how_to_vary(name: str) -> str:
    """Return the end of a message that a call cannot vary: what to write instead."""
    varies = term_kind(name).varies if name in KINDS else ""
    return f"; {varies}" if varies else ""
