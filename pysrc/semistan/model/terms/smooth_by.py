"""Smooths by group, ``s(x, by=g)``: for each level of a factor a smooth of its own.

All levels have the knots and the basis of ``s(x)``, and each a standard deviation of its own,
``sds_sxga_1``. The lines are structured coefficients, one for each level. A smooth has no level of
its own, so that the factor is a term too: ``g + s(x, by=g)``, or ``(1 | g) + s(x, by=g)``. Of an
ordered factor the first level has none: ``g + s(x) + s(x, by=g)`` are then that level's smooth and
the differences from it, as in mgcv.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array, Index
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.names import unique_names
from semistan.model.parameter import STANDARD_NORMAL_MATRIX, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.stan_text import WIDTH, call
from semistan.model.streams import Streams
from semistan.model.table.rows import Block
from semistan.model.terms.group import level_labels
from semistan.model.terms.penalised import Several
from semistan.model.terms.smooth import STORED, Smooth, learn_smooth, smooth_from_plain
from semistan.model.terms.term import Hyperparameter, Lines, View

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SmoothByFactor(Several):
    """The learnt state of ``s(x, by=g)``.

    Attributes
    ----------
    smooth : Smooth
        The smooth of x, whose basis all levels have.
    by : str
        The factor.
    levels : tuple of str
        Its levels that have a smooth.
    reference : str
        The first level of an ordered factor, which has none; empty of another.
    """

    smooth: Smooth
    by: str
    levels: tuple[str, ...]
    reference: str = ""

    @property
    def key(self) -> str:
        """What its names in the program end in."""
        return self.smooth.key

    @property
    def stored(self) -> str:
        """The key under which a bundle has smooths."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return TermCall("s", self.smooth.expression, by=self.by).text

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        knots = f"{self.smooth.spline.text} with {len(self.smooth.knots)} knots"
        return "Smooth", f"{self.text}, {knots} for each of {len(self.levels)} levels"

    @property
    def size(self) -> int:
        """Penalised coefficients m of each level."""
        return self.smooth.size

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.levels)

    @property
    def units(self) -> Array:
        """Standard deviation of what the coefficients multiply, which is 1."""
        return np.ones(self.n_levels)

    @property
    def which(self) -> Index:
        """The level of each coefficient."""
        return np.repeat(np.arange(self.n_levels), self.size)

    @property
    def z_shape(self) -> Shape:
        """Levels times coefficients."""
        return (self.n_levels, self.size)

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of zs and s; there are no correlations."""
        return self.smooth.names

    @property
    def level_texts(self) -> tuple[str, ...]:
        """What the smooth of each level is called."""
        return tuple(f"s({self.smooth.expression}) where {self.by} is {x}" for x in self.levels)

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        own = {"by": self.by, "levels": list(self.levels), "reference": self.reference}
        return self.smooth.to_plain() | own

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis (N, m) and the level of each row; a reference has a basis of zeros.

        Raises
        ------
        InputError
            For levels that the model was not trained on.
        """
        known = {level: i for i, level in enumerate(self.levels)} | {self.reference: -1}
        labels = level_labels(table, variables(self.by))
        if unknown := sorted({str(label) for label in labels} - known.keys()):
            raise InputError(
                f"{self.text}: '{self.by}' has levels that the model was not trained on: "
                f"{', '.join(map(repr, unknown[:5]))}; a level has a smooth of its own"
            )
        level = np.array([known[str(label)] for label in labels], dtype=int)
        Z = self.smooth.block(table).Z * (level >= 0)[:, None]
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

    @property
    def z_sizes(self) -> tuple[str, ...]:
        """Levels times coefficients."""
        return (f"N_s{self.key}", f"m_{self.key}")

    @property
    def spread_text(self) -> str:
        """The standard deviation of each level, once for each coefficient."""
        return f"rep_matrix([{', '.join(self.spread)}]', m_{self.key})"

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations: ``sds_sxga_1``."""
        of_levels = unique_names(f"{self.smooth.name}{level}" for level in self.levels)
        return tuple(
            Hyperparameter(f"sds_{name}_1", f"standard deviation of {text}", "sds")
            for name, text in zip(of_levels, self.level_texts, strict=True)
        )

    def data_lines(self) -> Lines:
        """Declare the basis and the levels."""
        N, J = f"N_s{self.key}", f"J_s{self.key}"
        return [
            *self.smooth.data_lines(),
            (f"int<lower=1> {N};", f"levels of {self.by} with a smooth"),
            (f"array[N] int<lower=1, upper={N}> {J};", "level of each row"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return the basis and the levels of some rows."""
        levels = {f"N_s{self.key}": self.n_levels, f"J_s{self.key}": block.level + 1}
        return self.smooth.data(block) | levels

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        data = [f"data matrix Zs_{self.key}", f"data array[] int J_s{self.key}"]
        return data, [f"matrix s_{self.key}"]

    def made_lines(self) -> Lines:
        """Declare the coefficients."""
        z, _, s = self.names
        first, *others = self.spread
        last = others.pop() if others else None
        sd = [f"[{first}", *others, f"{last}]'"] if last else [f"[{first}]'"]
        text = call("  = diag_pre_multiply", [*sd, z], ";", width=WIDTH - 2).rstrip()
        declared = f"matrix[N_s{self.key}, m_{self.key}] {s}"
        return [(declared, f"penalised coefficients of {self.text}"), (text, "")]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        return f"rows_dot_product(Zs_{self.key}{rows}, s_{self.key}[J_s{self.key}{rows}])"

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shape of the coefficients."""
        return {self.names[2]: self.z_shape}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the coefficients s (levels, m)."""
        return {self.names[2]: self.coefficients(values)}

    def predicted(self, draws: Mapping[str, Array], block: Block, _: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N)."""
        s = draws[self.names[2]]
        total = np.zeros((len(s), len(block.Z)))
        for level in range(self.n_levels):
            rows = np.flatnonzero(block.level == level)
            total[:, rows] = s[:, level] @ block.Z[rows].T
        return total

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return the curve of each level."""
        (by,) = variables(self.by)
        found = dict(zip(map(str, level_labels(table, (by,))), table[by], strict=True))
        each = np.split(np.arange(self.n_levels * self.size), self.n_levels)
        return tuple(
            View(self.text, level, self.smooth.expression, (sd,), own, {by: found[level]}, {},
                 {by: found[level]})
            for level, sd, own in zip(self.levels, self.spread, each, strict=True)
        )  # fmt: skip


def learn_by_factor(
    term: TermCall, x: Array, table: pd.DataFrame, name: str, key: str
) -> SmoothByFactor:
    """Learn the basis from all rows, and the levels.

    Raises
    ------
    InputError
        If there are fewer distinct values than knots, or fewer than two levels.
    """
    (column,) = variables(term.by)
    labels = set(level_labels(table, (column,)))
    categories = getattr(table[column], "cat", None)
    listed = sorted(map(str, labels)) if categories is None else map(str, categories.categories)
    levels = tuple(level for level in listed if level in labels)
    if len(levels) < 2:
        raise InputError(f"{term.text}: '{column}' has one level; a smooth by group needs several")
    smooth = learn_smooth(replace(term, by=""), x, name, key)
    if categories is not None and categories.ordered:
        return SmoothByFactor(smooth, term.by, levels[1:], levels[0])
    return SmoothByFactor(smooth, term.by, levels)


def by_factor_from_plain(content: Mapping[str, Any], key: str) -> SmoothByFactor:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    smooth = smooth_from_plain({k: v for k, v in content.items() if k != "by"}, key)
    levels = tuple(str(level) for level in content["levels"])
    if not levels or len(set(levels)) < len(levels):
        raise ValueError("a smooth's levels do not fit")
    return SmoothByFactor(smooth, str(content["by"]), levels, str(content["reference"]))
