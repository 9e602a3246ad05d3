"""Marginal effects, comparisons and importance as commands print them and the report shows them.

All ask here, so that a number has one value. All draws and rows are used, unless that would take
long: then draws are fewer, evenly spaced, and next rows, drawn by the seed, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.formula.formula import parse_formula
from semistan.posterior.effects.averages import explanatory
from semistan.posterior.effects.comparisons import average_comparisons
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.effects.row_comparisons import row_comparisons
from semistan.posterior.posterior import Posterior
from semistan.posterior.weighting import weighting
from semistan.words import part_of

if TYPE_CHECKING:
    import pandas as pd

MOST_WORK = 3e10  # draws times rows times versions of a row times weights of the networks
FEWEST_DRAWS, FEWEST_ROWS = 1000, 300
REPEATS, SEED = 5, 1  # defaults of the commands


@dataclass(frozen=True, slots=True, eq=False)
class EffectTable:
    """A table of estimates, and on what it rests.

    Attributes
    ----------
    frame : pandas.DataFrame
        The estimates.
    draws, rows : tuple of int
        How many were used, of how many there are.
    weights : str
        What is to be said of the rows' weights, if the formula has some.
    """

    frame: pd.DataFrame
    draws: tuple[int, int]
    rows: tuple[int, int]
    weights: str = ""

    @property
    def partial(self) -> bool:
        """Whether draws or rows are left out."""
        return self.draws[0] < self.draws[1] or self.rows[0] < self.rows[1]

    @property
    def facts(self) -> dict[str, Any]:
        """On what it rests, for scripts."""
        used = {"draws": self.draws[0], "rows_used": self.rows[0]}
        return {**used, "weights": self.weights} if self.weights else used

    @property
    def basis(self) -> str:
        """On what it rests, as ``1,000 of 4,000 draws, 442 rows, weighted by w``."""
        parts = [part_of(*self.draws, "draw"), part_of(*self.rows, "row")]
        if self.weights:
            parts.append(self.weights)
        return ", ".join(parts)


def marginal_answer(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: Sequence[str] | None = None,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = SEED,
) -> EffectTable:
    """Average marginal effects over a table's rows; arguments as of the command.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    names = explanatory(posterior) if variables is None else variables
    used, number = _affordable(posterior, len(table), rows, 2 * len(names))
    frame = average_marginal_effects(
        used, table, variables=variables, scale=scale, interval=interval, rows=number,
        generator=np.random.default_rng(seed),
    )  # fmt: skip
    counted = weighting(posterior.config, table.columns)
    return _answer(frame, posterior, used, table, number, counted)


def comparisons_answer(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: str | Sequence[str] | None = None,
    contrast: str | None = None,
    comparison: str = "difference",
    by: str | None = None,
    each: bool = False,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = SEED,
) -> EffectTable:
    """Compare predictions before and after a change, averaged over a table's rows or row by row.

    Arguments are as of the command. Row by row, all rows are compared, if with fewer draws.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    asked = [variables] if isinstance(variables, str) else variables
    names = explanatory(posterior) if asked is None else asked
    used, some = _affordable(posterior, len(table), rows, 2 * len(names))
    compare = row_comparisons if each else partial(average_comparisons, by=by)
    some = rows if each else some
    frame = compare(
        used, table,
        variables=variables, contrast=contrast, comparison=comparison, scale=scale,
        interval=interval, rows=some, generator=np.random.default_rng(seed),
    )  # fmt: skip
    counted = "" if each else weighting(posterior.config, table.columns)
    return _answer(frame, posterior, used, table, some, counted)


def importance_answer(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: Sequence[str] | None = None,
    repeats: int = REPEATS,
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = SEED,
) -> EffectTable:
    """Rank columns by what permuting them costs; arguments as of the command.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    names = parse_formula(posterior.design.formula).columns if variables is None else variables
    used, number = _affordable(posterior, len(table), rows, repeats * len(names))
    frame = permutation_importance(
        used, table, variables=variables, repeats=repeats, interval=interval, rows=number,
        generator=np.random.default_rng(seed),
    )  # fmt: skip
    counted = weighting(posterior.config, table.columns)
    return _answer(frame, posterior, used, table, number, counted)


def _answer(
    frame: pd.DataFrame,
    posterior: Posterior,
    used: Posterior,
    table: pd.DataFrame,
    rows: int | None,
    weights: str,
) -> EffectTable:
    number = len(table) if rows is None else min(rows, len(table))
    return EffectTable(frame, (used.size, posterior.size), (number, len(table)), weights)


def _affordable(
    posterior: Posterior, size: int, rows: int | None, versions: int
) -> tuple[Posterior, int | None]:
    """Return the draws and the number of rows to use, of a number that the user did not choose."""
    bundle = posterior.members[0].bundle
    each = max(1, versions) * (bundle.network.d + len(bundle.trained.w_frozen))
    number = size if rows is None else min(rows, size)
    draws = int(np.clip(MOST_WORK / (each * number), FEWEST_DRAWS, posterior.size))
    if rows is None and draws * number * each > MOST_WORK:
        affordable = max(FEWEST_ROWS, int(MOST_WORK / (each * draws)))
        rows = affordable if affordable < size else None
    return posterior if draws >= posterior.size else posterior.thin(draws), rows
