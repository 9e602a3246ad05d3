"""Averages over rows of the predictions before and after a change of a column.

Comparisons and marginal effects differ in the changes, and in what they make of both averages.
Rows count by their weights, as in marginaleffects's ``avg_slopes(..., wts=)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.formula import parse_formula
from semistan.posterior.effects.columns import (
    Predictors,
    check_no_images,
    check_variables,
    rows_of,
    spared,
)
from semistan.posterior.effects.estimates import on_scale
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import row_chunks

if TYPE_CHECKING:
    import pandas as pd


INPUTS = 10  # whose derivatives take the memory of one prediction


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A column's values before and after: one for all rows, or one for each (n,).

    Attributes
    ----------
    term : str
        The column.
    name : str
        What the table calls the change.
    low, high : Any or array, shape (n,)
        The values before and after.
    is_slope : bool
        Whether they are so near that the networks are straight between them.
    """

    term: str
    name: str
    low: Any
    high: Any
    is_slope: bool = False


def changing(
    posterior: Posterior, predictors: Predictors, asked: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Return the columns that change: those asked for, else all that explain the response.

    Raises
    ------
    InputError
        For unknown columns and images, and if nothing is left.
    """
    names = [asked] if isinstance(asked, str) else asked
    if names is None:
        names = explanatory(posterior)
        if not names:
            raise InputError(
                f"formula '{posterior.design.formula}' has only images, offsets and columns that "
                "name groups; name a column of groups to have its levels compared"
            )
    chosen = check_variables(posterior.design, names)
    check_no_images(predictors, chosen)
    return chosen


def explanatory(posterior: Posterior) -> tuple[str, ...]:
    """Return the columns of which an effect is learnt.

    These are neither images nor bounds or standard errors of the response, do not only name groups
    or predict missing values, and do not stand in offsets or the weights of levels alone, which are
    known.
    """
    formula = parse_formula(posterior.design.formula)
    left_out = {*formula.grouping, *formula.bounding, *formula.not_learnt, *formula.own_columns}
    return tuple(name for name in formula.columns if name not in left_out | {*formula.imputing})


def averages(
    posterior: Posterior,
    sample: pd.DataFrame,
    changes: Sequence[Change],
    shares: Sequence[Array],
    scale: str,
) -> list[tuple[Array, Array]]:
    """Return for each change the averages after and before it, (S, G) or (S, G, K).

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    sample : pandas.DataFrame
        n rows.
    changes : sequence of Change
        What changes in them.
    shares : sequence of array, shape (n, G)
        For each change, what each row adds to each of G averages.
    scale : str
        ``response`` or ``linpred``.
    """
    sums: list[Any] = [0.0 for _ in changes]
    for j, piece, both in by_rows(posterior, sample, changes, scale):
        sums[j] = sums[j] + np.stack([_weighted(values, shares[j][piece]) for values in both])
    return [(after, before) for after, before in sums]


def by_rows(
    posterior: Posterior, sample: pd.DataFrame, changes: Sequence[Change], scale: str
) -> Iterator[tuple[int, slice, tuple[Array, Array]]]:
    """Yield the predictions after and before each change, some rows at a time.

    Yields
    ------
    tuple
        The change's number, the rows, and two arrays (S, n) or (S, n, K).
    """
    rows = rows_of(posterior, sample)
    every = spared(posterior.design, ())
    slopes = {change.term for change in changes if change.is_slope}
    moved = any(spared(posterior.design, [term]) != every for term in slopes)
    start, numbers = 0, 1 + rows.U.shape[1] // INPUTS if moved else 1
    for chunk in row_chunks(posterior, rows, numbers):
        piece = slice(start, start + len(chunk))
        near = posterior.near(chunk, every) if moved else posterior
        others = [change.term for change in changes if near is posterior or not change.is_slope]
        once = {name for term in others for name in spared(posterior.design, [term])}
        at_chunk = posterior.knowing(chunk, once)
        for j, change in enumerate(changes):
            at = near if change.is_slope and near is not posterior else at_chunk
            after, before = (
                _predicted(at, sample[piece], change.term, values, piece, scale)
                for values in (change.high, change.low)
            )
            yield j, piece, (after, before)
        start += len(chunk)


def _predicted(
    posterior: Posterior, frame: pd.DataFrame, term: str, values: Any, piece: slice, scale: str
) -> Array:
    """Return the predictions of some rows with another value of a column."""
    own = values[piece] if isinstance(values, np.ndarray) else values
    return on_scale(posterior, rows_of(posterior, frame.assign(**{term: own})), scale)


def _weighted(values: Array, shares: Array) -> Array:
    """Return weighted sums (S, G) or (S, G, K) over rows."""
    return np.moveaxis(np.tensordot(values, shares, axes=(1, 0)), -1, 1)
