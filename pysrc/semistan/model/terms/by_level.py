"""Terms of which each level of a factor has one of its own, as ``s(x, by=g)`` and ``gp(x, by=g)``.

All levels have the basis Z of x, and coefficients r (levels, m) and standard deviations of their
own: row n has Z[n] . r[level[n]].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.names import unique_names
from semistan.model.parameter import STANDARD_NORMAL_MATRIX, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.streams import Streams
from semistan.model.table.rows import Block
from semistan.model.terms.group import level_labels
from semistan.model.terms.penalised import Penalised
from semistan.model.terms.term import Lines, Term, View

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


class OfAllRows(Term, Protocol):
    """A term whose coefficients all rows have in common."""

    @property
    def name(self) -> str:
        """The term's part in Stan names: ``sx``."""

    @property
    def size(self) -> int:
        """Number of coefficients m."""

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of z, of L and of the coefficients."""

    @property
    def basis_names(self) -> tuple[str, str]:
        """The names in the program of m and of the basis (N, m)."""


@dataclass(frozen=True, slots=True, eq=False)
class ByLevel(Penalised):
    """The learnt state of such a term.

    Attributes
    ----------
    one : OfAllRows
        The term of x, whose basis all levels have.
    by : str
        The factor.
    levels : tuple of str
        Its levels that have one.
    reference : str
        The level that has none, if there is one.
    """

    one: OfAllRows
    by: str
    levels: tuple[str, ...]
    reference: str = ""

    @property
    @abstractmethod
    def call(self) -> TermCall:
        """The term as it stands in the formula, without options."""

    @property
    @abstractmethod
    def called(self) -> str:
        """What a level has, for messages and comments: ``a smooth``."""

    @property
    @abstractmethod
    def spread_of_levels(self) -> tuple[str, ...]:
        """The name of the standard deviation of each level."""

    @property
    def text(self) -> str:
        """The term as users write it."""
        return self.call.text

    @property
    def key(self) -> str:
        """What its names in the program end in."""
        return self.one.key

    @property
    def stored(self) -> str:
        """The key under which a bundle has terms of its kind."""
        return self.one.stored

    @property
    def size(self) -> int:
        """Coefficients m of each level."""
        return self.one.size

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.levels)

    @property
    def z_shape(self) -> Shape:
        """Levels times coefficients."""
        return (self.n_levels, self.size)

    @property
    def z_sizes(self) -> tuple[str, ...]:
        """Levels times coefficients."""
        return (self.level_names[0], self.one.basis_names[0])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of z and of the coefficients; there are no correlations."""
        return self.one.names

    @property
    def level_names(self) -> tuple[str, str]:
        """The names in the program of the number of levels and of that of each row."""
        name = f"{self.call.kind}{self.key}"
        return f"N_{name}", f"J_{name}"

    @property
    def names_of_levels(self) -> tuple[str, ...]:
        """What the term of each level is called in Stan: ``sxga``."""
        return unique_names(f"{self.one.name}{level}" for level in self.levels)

    @property
    def texts_of_levels(self) -> list[str]:
        """The same as users read it."""
        return [f"{self.one.text} where {self.by} is {level}" for level in self.levels]

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        own = {"by": self.by, "levels": list(self.levels), "reference": self.reference}
        return self.one.to_plain() | own

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis (N, m) and the level of each row; a reference has a basis of zeros.

        Raises
        ------
        InputError
            For levels that the model was not trained on.
        """
        known = {level: i for i, level in enumerate(self.levels)}
        known |= {self.reference: -1} if self.reference else {}
        labels = level_labels(table, variables(self.by))
        if unknown := sorted({str(label) for label in labels} - known.keys()):
            raise InputError(
                f"{self.text}: '{self.by}' has levels that the model was not trained on: "
                f"{', '.join(map(repr, unknown[:5]))}; a level has {self.called} of its own"
            )
        level = np.array([known[str(label)] for label in labels], dtype=int)
        Z = self.one.block(table).Z * (level >= 0)[:, None]
        return Block(Z, np.maximum(level, 0))

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:  # noqa: ARG002
        """Return the standardised coefficients."""
        text = f"{self.text}, standardised"
        return (
            Parameter(
                self.names[0], text, self.z_shape, self.z_sizes,
                prior=STANDARD_NORMAL_MATRIX, centring=self.centring(),
            ),
        )  # fmt: skip

    def data_lines(self) -> Lines:
        """Declare the basis and the levels."""
        N, J = self.level_names
        return [
            *self.one.data_lines(),
            (f"int<lower=1> {N};", f"levels of {self.by} with {self.called}"),
            (f"array[N] int<lower=1, upper={N}> {J};", "level of each row"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return the basis and the levels of some rows."""
        N, J = self.level_names
        return self.one.data(block) | {N: self.n_levels, J: block.level + 1}

    @property
    def columns_text(self) -> str:
        """The basis, at the place of each row's level."""
        N, J = self.level_names
        return f"columns_by_level({self.one.basis_names[1]}, {J}, {N})"

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        Z, J = self.one.basis_names[1], self.level_names[1]
        return [f"data matrix {Z}", f"data array[] int {J}"], [f"matrix {self.names[2]}"]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        Z, J, r = self.one.basis_names[1], self.level_names[1], self.names[2]
        return f"rows_dot_product({Z}{rows}, {r}[{J}{rows}])"

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shape of the coefficients."""
        return {self.names[2]: self.z_shape}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the coefficients (levels, m)."""
        return {self.names[2]: self.coefficients(values)}

    def predicted(self, draws: Mapping[str, Array], block: Block, _: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N)."""
        r = draws[self.names[2]]
        total = np.zeros((len(r), len(block.Z)))
        for level in range(self.n_levels):
            rows = np.flatnonzero(block.level == level)
            total[:, rows] = r[:, level] @ block.Z[rows].T
        return total

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return the curve of each level."""
        (by,) = variables(self.by)
        found = dict(zip(map(str, level_labels(table, (by,))), table[by], strict=True))
        each = np.split(np.arange(self.n_levels * self.size), self.n_levels)
        return tuple(
            View(self.text, level, self.call.expression, (sd,), own, {by: found[level]}, {},
                 {by: found[level]})
            for level, sd, own in zip(self.levels, self.spread_of_levels, each, strict=True)
        )  # fmt: skip


def levels_of(term: TermCall, table: pd.DataFrame) -> tuple[tuple[str, ...], bool]:
    """Return the levels of ``by`` in the training rows, in its order, and whether it is ordered.

    Raises
    ------
    InputError
        If there are fewer than two.
    """
    (column,) = variables(term.by)
    labels = set(level_labels(table, (column,)))
    categories = getattr(table[column], "cat", None)
    listed = sorted(map(str, labels)) if categories is None else map(str, categories.categories)
    levels = tuple(level for level in listed if level in labels)
    if len(levels) < 2:
        raise InputError(f"{term.text}: '{column}' has one level; by= needs several")
    return levels, categories is not None and bool(categories.ordered)


def levels_from_plain(content: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
    """Return the factor, its levels and the reference of a state that went through JSON.

    Raises
    ------
    ValueError
        If they are none.
    """
    levels = tuple(str(level) for level in content["levels"])
    if not levels or len(set(levels)) < len(levels):
        raise ValueError("a term's levels do not fit")
    return str(content["by"]), levels, str(content["reference"])
