"""Comparisons by row: what a change of a column changes in the mean of each row.

For a treatment these are the conditional average effects, E(y | treated, x) - E(y | untreated, x),
of rows with the columns x. Comparisons, contrasts and names are those of the averages over rows;
of R's marginaleffects, ``comparisons`` where those are its ``avg_comparisons``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.effects.averages import Change, by_rows
from semistan.posterior.effects.columns import predictors_of, sample_positions
from semistan.posterior.effects.comparisons import (
    COMPARISONS,
    changes_of,
    check_finite,
    check_options,
)
from semistan.posterior.effects.estimates import categories_on, estimates_table
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd


def row_comparisons(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: str | Sequence[str] | None = None,
    contrast: str | None = None,
    comparison: str = "difference",
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    generator: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Compare the predictions of each row before and after changes of columns.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The rows.
    variables, contrast, comparison, scale, interval
        As of ``average_comparisons``.
    rows : int, optional
        Compare this many rows, drawn from the table; all by default.
    generator : numpy.random.Generator, optional
        Draws them.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``contrast``, with categories ``category``, ``row`` (the row's number in the
        table, from 1), ``Estimate``, ``Est.Error`` and the interval: one line for each change,
        category and row.

    Raises
    ------
    InputError
        As ``average_comparisons`` does.
    """
    import pandas as pd

    check_options(comparison, scale, interval)
    predictors = predictors_of(posterior, table)
    positions = sample_positions(len(table), rows, generator)
    changes = changes_of(posterior, predictors, variables, contrast, positions)
    names = categories_on(posterior, scale)
    found: dict[tuple[int, int], list[pd.DataFrame]] = {
        (j, k): [] for j in range(len(changes)) for k in range(max(len(names), 1))
    }
    sample = predictors.frame.iloc[positions]
    for j, piece, (after, before) in by_rows(posterior, sample, changes, scale):
        with np.errstate(divide="ignore", invalid="ignore"):
            values = COMPARISONS[comparison](after, before)
        check_finite(values, comparison)
        tables = _tables_by_category(changes[j], names, positions[piece] + 1, values, interval)
        for k, one in enumerate(tables):
            found[j, k].append(one)
    return pd.concat([part for parts in found.values() for part in parts], ignore_index=True)


def _tables_by_category(
    change: Change, names: Sequence[str], numbers: np.ndarray, values: Array, interval: float
) -> Iterator[pd.DataFrame]:
    """Yield the estimates of a change in some rows: a table for each category, or a single one."""
    import pandas as pd

    of, row = {"term": change.term, "contrast": change.name}, {"row": numbers}
    if not names:
        yield estimates_table(pd.DataFrame(of | row), values, (), interval)
    for k, name in enumerate(names):
        labels = pd.DataFrame(of | {"category": name} | row)
        yield estimates_table(labels, values[..., k], (), interval)
