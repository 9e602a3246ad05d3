"""What one or two columns do to the response: conditional effects and partial dependence.

With z the chosen columns and r all others, a conditional effect is mu(z, r0) at one set of
values r0, and the partial dependence (Friedman, 2001) is the average over n rows,

    PD(z) = (1/n) sum_i mu(z, r_i),

each for every posterior draw. The terms mu(z, r_i) are individual conditional expectations
(Goldstein et al., 2015): where their curves are not parallel, z interacts with other columns.
In place of mu, a response of categories has a probability of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.table.rows import Rows
from semistan.posterior.effects.columns import (
    check_at_least,
    check_variables,
    grid_of,
    held_at,
    predictors_of,
    rows_of,
    sample_positions,
    spared,
    typical_values,
)
from semistan.posterior.effects.estimates import (
    categories_on,
    check_scale,
    estimates_table,
    on_scale,
)
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import row_chunks
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

DESIGN_ROWS = 20_000  # rows to which the design is applied at a time


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """The effect of one or two columns, over a grid of G points.

    Attributes
    ----------
    kind : str
        ``conditional`` or ``partial dependence``.
    variables : tuple of str
        One or two columns of the user's table.
    scale : str
        ``response`` (mu) or ``linpred`` (eta).
    grid : pandas.DataFrame
        G rows and one column per variable, in the user's units and levels.
    draws : array, shape (S, G) or (S, G, K)
        Posterior draws of the effect.
    curves : array, shape (n, G) or (n, G, K), or None
        Posterior means of n individual rows, where asked for.
    reference : dict
        Values at which a conditional effect holds the other columns.
    categories : tuple of str
        Names of the categories on the last axis; none of other responses.
    """

    kind: str
    variables: tuple[str, ...]
    scale: str
    grid: pd.DataFrame
    draws: Array
    curves: Array | None
    reference: dict[str, Any]
    categories: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return table_text(self.table())

    def table(self, interval: float = 0.95) -> pd.DataFrame:
        """Return the grid with Estimate, Est.Error and a central interval.

        With categories, one such block for each, named in the column ``category``.

        Raises
        ------
        InputError
            If the interval's probability is not between 0 and 1.
        """
        return estimates_table(self.grid, self.draws, self.categories, interval)

    def of_category(self, category: str) -> Effect:
        """Return the effect on one category alone.

        Raises
        ------
        InputError
            If the effect has no such category.
        """
        if category not in self.categories:
            raise InputError(
                f"the effect is on no category '{category}'."
                f"{did_you_mean(category, self.categories) if self.categories else ''}"
            )
        j = [self.categories.index(category)]
        curves = None if self.curves is None else self.curves[..., j]
        return replace(self, draws=self.draws[..., j], curves=curves, categories=(category,))


def conditional_effect(
    posterior: Posterior,
    table: pd.DataFrame,
    variables: str | Sequence[str],
    *,
    scale: str = "response",
    at: Mapping[str, Any] | None = None,
    resolution: int = 50,
) -> Effect:
    """Vary one or two columns and hold all others, as brms's ``conditional_effects`` does.

    Numeric columns, whole numbers too, are held at their mean, factors and booleans at their
    first level.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The training rows, from which ranges and means are taken.
    variables : str or sequence of str
        The columns that vary.
    scale : str
        ``response`` or ``linpred``.
    at : mapping, optional
        Values at which other columns are held instead.
    resolution : int
        Points of a numeric column.

    Raises
    ------
    InputError
        For unknown or too many columns, a column both varied and held, unknown levels, an
        unknown scale or a resolution below 2.
    """
    check_scale(scale)
    names = _one_or_two(posterior.design, variables)
    held = at or {}
    for name in names:
        if name in held:
            raise InputError(f"column '{name}' varies; at= can hold only other columns")
    predictors = predictors_of(posterior, table)
    grid = grid_of(predictors, names, resolution)
    typical = typical_values(predictors, held)
    reference = {name: value for name, value in typical.items() if name not in names}
    table = grid.assign(**held_at(reference, len(grid)))
    values = on_scale(posterior, rows_of(posterior, table), scale)
    categories = categories_on(posterior, scale)
    return Effect("conditional", names, scale, grid, values, None, reference, categories)


def partial_dependence(
    posterior: Posterior,
    table: pd.DataFrame,
    variables: str | Sequence[str],
    *,
    scale: str = "response",
    resolution: int = 50,
    rows: int = 200,
    curves: int = 0,
    generator: np.random.Generator,
) -> Effect:
    """Vary one or two columns in every row, and average over the rows.

    The work is S times ``rows`` times the size of the grid, which two numeric columns square.
    Generators of the same seed draw the same rows, so that several effects can be compared.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The training rows.
    variables : str or sequence of str
        The columns that vary.
    scale : str
        ``response`` or ``linpred``.
    resolution : int
        Points of a numeric column.
    rows : int
        The average is over this many rows, drawn from the table, or over all if it has fewer.
    curves : int
        How many of these rows are kept as individual curves.
    generator : numpy.random.Generator
        Draws the rows.

    Raises
    ------
    InputError
        For unknown or too many columns, an unknown scale, or numbers that are too small.
    """
    check_scale(scale)
    check_at_least("curves", curves, 0)
    names = _one_or_two(posterior.design, variables)
    predictors = predictors_of(posterior, table)
    grid = grid_of(predictors, names, resolution)
    frame = predictors.frame
    sample = frame.iloc[sample_positions(len(frame), rows, generator)]
    chosen = sample_positions(len(sample), curves, generator) if curves else np.arange(0)
    totals, means = _over_rows(posterior, sample, grid, scale)
    values, kept = totals / len(sample), means[chosen] if curves else None
    categories = categories_on(posterior, scale)
    return Effect("partial dependence", names, scale, grid, values, kept, {}, categories)


def _one_or_two(design: Design, names: str | Sequence[str]) -> tuple[str, ...]:
    chosen = check_variables(design, [names] if isinstance(names, str) else names)
    if not 1 <= len(chosen) <= 2:
        raise InputError(
            f"an effect is of one or two different columns, got {len(chosen)}: {', '.join(chosen)}"
        )
    return chosen


def _rows_at_points(
    posterior: Posterior, sample: pd.DataFrame, grid: pd.DataFrame
) -> Iterator[Rows]:
    """Yield the sampled rows with the columns of each grid point in turn."""
    n, others = len(sample), sample.drop(columns=list(grid.columns))
    points = max(1, DESIGN_ROWS // n)
    for start in range(0, len(grid), points):
        block = grid.iloc[start : start + points]
        rows = rows_of(posterior, block.merge(others, how="cross"))
        for first in range(0, len(rows), n):
            yield rows.take(np.arange(first, first + n))


def _over_rows(
    posterior: Posterior, sample: pd.DataFrame, grid: pd.DataFrame, scale: str
) -> tuple[Array, Array]:
    """Return sums over rows of each draw (S, G), and means over draws of each row (n, G).

    With categories, both have these on a last axis.
    """
    total: Array | float = 0.0
    means = []
    for chunk in row_chunks(posterior, rows_of(posterior, sample)):
        assert chunk.frame is not None
        at_chunk = posterior.knowing(chunk, spared(posterior.design, grid.columns))
        points = _rows_at_points(posterior, chunk.frame, grid)
        values = (on_scale(at_chunk, point, scale) for point in points)
        both = [(each.sum(axis=1), each.mean(axis=0)) for each in values]
        by_draw, by_row = (np.stack(side, axis=1) for side in zip(*both, strict=True))
        total = total + by_draw
        means.append(by_row)
    return np.asarray(total), np.concatenate(means)
