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

from semistan.model.arrays import Array, Index
from semistan.model.formula.calls import TermCall
from semistan.model.stan_text import WIDTH, call
from semistan.model.terms.by_level import ByLevel, levels_from_plain, levels_of
from semistan.model.terms.penalised import Several
from semistan.model.terms.smooth import Smooth, learn_smooth, smooth_from_plain
from semistan.model.terms.term import Hyperparameter, Lines

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class SmoothByFactor(Several, ByLevel):
    """The learnt state of ``s(x, by=g)``."""

    one: Smooth

    @property
    def call(self) -> TermCall:
        """The term as it stands in the formula, without options."""
        return TermCall("s", self.one.expression, by=self.by)

    @property
    def called(self) -> str:
        """What a level has."""
        return "a smooth"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        knots = f"{self.one.spline.text} with {len(self.one.knots)} knots"
        return "Smooth", f"{self.text}, {knots} for each of {len(self.levels)} levels"

    @property
    def units(self) -> Array:
        """Standard deviation of what the coefficients multiply, which is 1."""
        return np.ones(self.n_levels)

    @property
    def which(self) -> Index:
        """The level of each coefficient."""
        return np.repeat(np.arange(self.n_levels), self.size)

    @property
    def spread_text(self) -> str:
        """The standard deviation of each level, once for each coefficient."""
        return f"rep_matrix([{', '.join(self.spread)}]', {self.one.basis_names[0]})"

    @property
    def spread_of_levels(self) -> tuple[str, ...]:
        """The name of the standard deviation of each level."""
        return self.spread

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations: ``sds_sxga_1``."""
        return tuple(
            Hyperparameter(f"sds_{name}_1", f"standard deviation of {text}", "sds")
            for name, text in zip(self.names_of_levels, self.texts_of_levels, strict=True)
        )

    def made_lines(self) -> Lines:
        """Declare the coefficients."""
        z, _, s = self.names
        first, *others = self.spread
        last = others.pop() if others else None
        sd = [f"[{first}", *others, f"{last}]'"] if last else [f"[{first}]'"]
        text = call("  = diag_pre_multiply", [*sd, z], ";", width=WIDTH - 2).rstrip()
        declared = f"matrix[{', '.join(self.z_sizes)}] {s}"
        return [(declared, f"penalised coefficients of {self.text}"), (text, "")]


def learn_by_factor(
    term: TermCall, x: Array, table: pd.DataFrame, name: str, key: str
) -> SmoothByFactor:
    """Learn the basis from all rows, and the levels.

    Raises
    ------
    InputError
        If there are fewer distinct values than knots, or fewer than two levels.
    """
    levels, ordered = levels_of(term, table)
    smooth = learn_smooth(replace(term, by=""), x, name, key)
    if ordered:
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
    return SmoothByFactor(smooth, *levels_from_plain(content))
