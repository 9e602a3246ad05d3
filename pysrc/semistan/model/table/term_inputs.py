"""Terms of numbers and factors as a network's inputs: a column for each level of a factor."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistan.model.arrays import Array
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import Network
from semistan.model.spelling import spelled
from semistan.model.table.columns import (
    Terms,
    apply_terms,
    learn_terms,
    may_be_factor,
    terms_from_plain,
    to_plain,
    with_option,
)
from semistan.model.table.inputs import InputKind, Vectors
from semistan.model.table.kinds import is_factor

if TYPE_CHECKING:
    import pandas as pd

ALL_LEVELS = "spans_intercept=False"  # the network needs no reference level: it has biases


@dataclass(frozen=True, slots=True)
class TermInputs(Vectors):
    """What is learnt of terms.

    Attributes
    ----------
    known : Terms
        Their state.
    """

    known: Terms

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The terms."""
        return self.known.terms

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.known.columns

    @property
    def levels(self) -> dict[str, list[Any]]:
        """Levels of each factor."""
        return self.known.levels

    @property
    def transforms(self) -> dict[str, Any]:
        """State of transformations."""
        return self.known.transforms

    @property
    def loc(self) -> tuple[float, ...]:  # type: ignore[override]
        """Mean of each column."""
        return self.known.loc

    @property
    def scale(self) -> tuple[float, ...]:
        """Standard deviation of each column."""
        return self.known.scale

    def numbers(self, table: pd.DataFrame) -> Array:
        """Evaluate the terms."""
        coded = {term: with_option(term, ALL_LEVELS) for term in self.terms}
        factors = {term: code for term, code in coded.items() if spelled(code) in self.levels}
        return apply_terms(self.known, table, factors)

    def to_plain(self) -> dict[str, Any]:
        """Return what is learnt as JSON-ready data."""
        plain: dict[str, Any] = to_plain(asdict(self.known))
        return plain


def _learn(network: Network, frame: pd.DataFrame) -> tuple[TermInputs, Array]:
    arguments = network.arguments
    coded = {
        term: with_option(term, ALL_LEVELS)
        for term in arguments
        if term.startswith("C(") or (may_be_factor(term) and is_factor(frame[variables(term)[0]]))
    }
    known, numbers = learn_terms(arguments, coded, frame)
    return TermInputs(known), numbers


KIND = InputKind(
    takes=lambda network: not network.call,
    learn=_learn,
    from_plain=lambda content, formula, _: TermInputs(terms_from_plain(content, formula)),
)
