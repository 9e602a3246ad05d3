"""Importance of terms as horizontal bars with intervals, the largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.show.pictures.style import FAINT, colour, finish, look, new_figure, wrapped
from semistan.show.pictures.words import interval_columns, listed, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@look()
def draw_importance(table: pd.DataFrame, *, label: str, title: str = "Importance") -> Figure:
    """Draw one bar for each term.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns ``term`` and ``Estimate``, and the interval's bounds: columns that begin with
        ``l-`` and ``u-``.
    label : str
        What the bars measure.
    title : str
        Above the picture.

    Raises
    ------
    InputError
        If a column is missing.
    """
    ordered = table.iloc[np.argsort(-table["Estimate"].to_numpy(), kind="stable")]
    lower, upper = interval_columns(table)
    names = [wrapped(str(term)) for term in ordered["term"]]
    figure = new_figure(0.7 + 0.32 * len(names))
    axes = figure.add_subplot()
    at = np.arange(len(names))
    axes.barh(at, ordered["Estimate"], 0.62, color=colour(5))
    axes.hlines(at, ordered[lower], ordered[upper], color=colour(0), linewidth=2)
    axes.axvline(0, color=FAINT, linewidth=1, zorder=0)
    axes.set_yticks(at, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    interval = lower.removeprefix("l-").removesuffix(" CI")
    return finish(figure, title, caption=f"Bars are means, lines {interval} intervals.")


def importance_alt(table: pd.DataFrame, *, label: str) -> str:
    """Say the estimate and interval of each term, the largest first."""
    lower, upper = interval_columns(table)
    parts = [
        f"{row['term']} {number(row['Estimate'])} ({number(row[lower])} to {number(row[upper])})"
        for _, row in table.sort_values("Estimate", ascending=False, kind="stable").iterrows()
    ]
    return f"Importance by term, {label}: {listed(parts, 12)}."
