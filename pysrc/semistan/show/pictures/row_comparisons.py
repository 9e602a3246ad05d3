"""Comparisons of each row: points with intervals, by their size or over a column.

Rows in the order of their estimates show how far the effects of a treatment lie apart, and of how
many of them the interval leaves out 0; over a column they show with what the effects go along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.table.rows import evenly_spaced
from semistan.show.pictures.style import (
    INK,
    MUTED,
    colour,
    finish,
    label_levels,
    look,
    new_figure,
    panels,
)
from semistan.show.pictures.words import interval_columns, listed, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 6
MOST_ROWS = 600  # in a panel
JITTER = 0.3  # of the distance of two levels


@look()
def draw_row_comparisons(
    table: pd.DataFrame, *, label: str, against: pd.Series | None = None
) -> Figure:
    """Draw a panel for each change, and for each category.

    Parameters
    ----------
    table : pandas.DataFrame
        From ``row_comparisons``.
    label : str
        What is compared.
    against : pandas.Series, optional
        A column of the rows, by their number from 1; by default rows stand by their estimates.
    """
    several = _panels(table)
    shown = several[:MOST_PANELS]
    columns = min(2, len(shown))
    figure = new_figure(2.9 * -(-len(shown) // columns))
    for axes, (name, part) in zip(panels(figure, len(shown), columns), shown, strict=True):
        _panel(axes, part, against)
        axes.set_title(name, loc="left")
        axes.set_ylabel(label)
    lower, _ = interval_columns(table)
    rows = len(several[0][1])
    caption = (
        f"Points: means of {min(rows, MOST_ROWS):,} of {rows:,} rows; lines: "
        f"{lower.removeprefix('l-').removesuffix(' CI')} intervals of each row; dashed: the mean "
        "over all rows."
    )
    left = len(several) - len(shown)
    caption += f" {left} more changes are not shown." if left else ""
    what = f", over {against.name}" if against is not None else ", the smallest first"
    return finish(figure, f"Effects by row{what}", caption=caption)


def row_comparisons_alt(table: pd.DataFrame, *, label: str) -> str:
    """Say how far the effects lie apart, and of how many rows the interval leaves out 0."""
    lower, upper = interval_columns(table)
    parts = []
    for name, part in _panels(table):
        apart = ((part[lower] > 0) | (part[upper] < 0)).mean()
        low, middle, high = np.quantile(part["Estimate"], (0, 0.5, 1))
        parts.append(
            f"{name} from {number(low)} to {number(high)}, median {number(middle)}, "
            f"{apart:.0%} of the intervals leave out 0"
        )
    return f"Effects of each row, {label}: {listed(parts, MOST_PANELS)}."


def _panels(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each change and category, by its name."""
    names = [name for name in ("term", "contrast", "category") if name in table]
    return [
        (f"{key[0]}: {', '.join(map(str, key[1:]))}", part)
        for key, part in table.groupby(names, sort=False, observed=True)
    ]


def _panel(axes: Axes, part: pd.DataFrame, against: pd.Series | None) -> None:
    lower, upper = interval_columns(part)
    ordered = part.sort_values("Estimate", kind="stable")
    some = ordered.iloc[evenly_spaced(len(ordered), MOST_ROWS)]
    x = _places(axes, some, against)
    axes.vlines(x, some[lower], some[upper], color=colour(0), lw=0.8, alpha=0.35)
    axes.plot(x, some["Estimate"], "o", color=colour(0), markersize=2.5)
    axes.axhline(0, color=MUTED, lw=0.7, zorder=0)
    axes.axhline(part["Estimate"].mean(), color=INK, lw=1, ls="--")


def _places(axes: Axes, part: pd.DataFrame, against: pd.Series | None) -> Array:
    """Return where rows stand, and label the axis."""
    if against is None:
        axes.set_xlabel("share of rows")
        return (np.arange(len(part)) + 0.5) / len(part)
    axes.set_xlabel(str(against.name))
    values = against.loc[part["row"]]
    if values.dtype.kind in "iuf":
        return np.asarray(values, dtype=float)
    levels = list(dict.fromkeys(sorted(against, key=str)))
    label_levels(axes, levels)
    among = values.groupby(values.to_numpy(), sort=False)
    share = np.asarray((among.cumcount() + 0.5) / among.transform("size"))
    return np.array([levels.index(v) for v in values]) + JITTER * (2 * share - 1)
