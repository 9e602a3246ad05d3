"""Pictures of effects: lines with ribbons, points with intervals, filled contours.

One numeric column gives a line with 50% and 95% ribbons, one factor points with intervals, two
numeric columns contours of the mean beside those of the standard deviation, and a second factor
colours. The probabilities of several categories are coloured in the same way. Numeric columns that
stand for factors are named in ``factors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.effects.effect import Effect
from semistan.show.pictures import style
from semistan.show.pictures.style import (
    INK,
    SERIES,
    colour,
    finish,
    label_levels,
    look,
    new_figure,
    panels,
)
from semistan.show.pictures.words import (
    held_words,
    interval_words,
    listed,
    of_category,
    value_words,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 1000  # rows in a rug
PROBABILITIES = (0.025, 0.25, 0.75, 0.975)
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """What one colour shows at n points along x.

    Its label, the points' positions (n,) in the grid, draws (S, n) and single rows (m, n), if any.
    """

    label: str
    index: np.ndarray
    draws: Array
    curves: Array | None


@look()
def draw_effect(
    effect: Effect,
    *,
    table: pd.DataFrame | None = None,
    label: str,
    factors: Sequence[str] = (),
    response: str = "y",
) -> Figure:
    """Draw an effect of one or two columns, or of one column on each of several categories.

    Parameters
    ----------
    effect : Effect
        The effect.
    table : pandas.DataFrame, optional
        The training table, of which a rug is drawn.
    label : str
        What the effect is on, as in ``mean of target``.
    factors : sequence of str
        Numeric columns to draw as factors.
    response : str
        Name of the response, whose categories the legend shows; empty if they are columns.

    Raises
    ------
    InputError
        For an effect of two columns on several categories.
    """
    effect = _checked(effect)
    numeric = [name for name in effect.variables if _is_numeric(effect, name, factors)]
    if len(numeric) == 2:
        figure = _surfaces(effect, table, label)
        handles: list[Any] = []
    else:
        figure = new_figure(3.5)
        axes = figure.add_subplot()
        axes.set_ylabel(label)
        handles = (
            _lines(axes, effect, numeric[0], table, response)
            if numeric
            else _dots(axes, effect, response)
        )
    return finish(figure, _title(effect, label), caption=_caption(effect, numeric), handles=handles)


def effect_alt(effect: Effect, *, label: str, response: str = "y") -> str:
    """Say mean and interval at the ends of a numeric column's grid, or at each level."""
    effect = _checked(effect)
    grid = effect.grid
    last = len(grid) - 1
    ends = (0, last) if len(effect.variables) == 1 and _is_numeric(effect, grid.columns[0]) else ()
    parts = [
        f"{f'{of_category(response, category)} ' if category else ''}"
        f"at {', '.join(f'{n} = {value_words(grid[n].iloc[i])}' for n in grid.columns)} "
        f"{interval_words(values[:, i])}"
        for category, values in _by_category(effect)
        for i in ends or evenly_spaced(len(grid), 6)
    ]
    return f"{_title(effect, label)}: {listed(parts)}."


def _by_category(effect: Effect) -> list[tuple[str, Array]]:
    """Return the draws (S, G) of each category, or all of them without a name."""
    if not effect.categories:
        return [("", effect.draws)]
    return [(name, effect.draws[..., j]) for j, name in enumerate(effect.categories)]


def _checked(effect: Effect) -> Effect:
    """Drop the axis of a single category; refuse several where the other column has the colours."""
    several = len(effect.categories) > 1
    if several and len(effect.variables) > 1:
        raise InputError(
            "a picture of two columns shows one category, this effect is on "
            f"{len(effect.categories)}: choose one, as effect.of_category('{effect.categories[1]}')"
        )
    if several or not effect.categories:
        return effect
    curves = None if effect.curves is None else effect.curves[..., 0]
    return replace(effect, draws=effect.draws[..., 0], curves=curves, categories=())


def _title(effect: Effect, label: str) -> str:
    columns = " and ".join(effect.variables)
    if effect.kind == "conditional":
        return f"Conditional effect of {columns} on {label}"
    return f"Partial dependence of {label} on {columns}"


def _caption(effect: Effect, numeric: list[str]) -> str:
    parts = []
    if len(numeric) < 2:
        marks = "Ribbons" if numeric else "Thick and thin lines"
        parts.append(f"{marks} are 50% and 95% intervals.")
    if effect.curves is not None and len(numeric) == len(effect.variables) == 1:
        parts.append("Thin lines are single rows.")
    if effect.reference:
        parts.append(held_words(effect.reference))
    return " ".join(parts)


def _is_numeric(effect: Effect, name: str, factors: Sequence[str] = ()) -> bool:
    """Say whether a column has an axis; 0 and 1 alone are two places."""
    values = effect.grid[name]
    if name in factors or values.dtype.kind not in "iuf":
        return False
    return len(effect.variables) > 1 or not np.array_equal(np.unique(values), (0, 1))


def _series(effect: Effect, along: str, response: str) -> list[_Series]:
    """Return the categories, the levels of the other column, or the only line, along x."""
    others = [name for name in effect.variables if name != along]
    order = np.argsort(effect.grid[along].to_numpy(), kind="stable")
    if effect.categories:
        return [
            _Series(
                of_category(response, category), order, effect.draws[:, order, j],
                None if effect.curves is None else effect.curves[:, order, j],
            )
            for j, category in enumerate(effect.categories)
        ]  # fmt: skip
    if not others:
        curves = None if effect.curves is None else effect.curves[:, order]
        return [_Series("", order, effect.draws[:, order], curves)]
    other = effect.grid[others[0]].to_numpy()
    found = []
    for level in dict.fromkeys(other):
        index = order[other[order] == level]
        name = f"{others[0]} = {value_words(level)}"
        found.append(_Series(name, index, effect.draws[:, index], None))
    return found


def _lines(
    axes: Axes, effect: Effect, along: str, table: pd.DataFrame | None, response: str
) -> list[Any]:
    several = _series(effect, along, response)
    for j, series in enumerate(several):
        x = effect.grid[along].to_numpy(dtype=float)[series.index]
        if series.curves is not None:
            shade = "#888888" if len(several) == 1 else colour(j)
            axes.plot(x, series.curves.T, color=shade, linewidth=0.5, alpha=0.4)
        _ribbon(axes, x, series.draws, j, inner=len(several) == 1)
    if table is not None:
        _rug(axes, table[along].to_numpy(dtype=float))
    axes.set_xlabel(along)
    return _handles(several)


def _ribbon(axes: Axes, x: Array, draws: Array, j: int, *, inner: bool) -> None:
    lowest, lower, upper, highest = np.quantile(draws, PROBABILITIES, axis=0)
    axes.fill_between(x, lowest, highest, color=colour(j), alpha=0.18, linewidth=0)
    axes.fill_between(x, lower, upper, color=colour(j), alpha=0.3 if inner else 0.2, linewidth=0)
    axes.plot(x, draws.mean(axis=0), color=colour(j), linestyle=_style(j), linewidth=2)


def _rug(axes: Axes, values: Array) -> None:
    shown = values[evenly_spaced(len(values), MOST_POINTS)]
    axes.plot(
        shown, np.full(len(shown), 0.012), "|", color=INK, alpha=0.35, markersize=7,
        transform=axes.get_xaxis_transform(), gid="rug",
    )  # fmt: skip


def _dots(axes: Axes, effect: Effect, response: str) -> list[Any]:
    along = effect.variables[0]
    levels = list(dict.fromkeys(effect.grid[along]))
    several = _series(effect, along, response)
    width = 0.6 / len(several)
    for j, series in enumerate(several):
        offset = (j - (len(several) - 1) / 2) * width
        for i, values in zip(series.index, series.draws.T, strict=True):
            at = levels.index(effect.grid[along].iloc[i]) + offset
            _dot(axes, at, values, colour(j))
    label_levels(axes, [_whole(level) for level in levels])
    axes.set_xlabel(along)
    return _handles(several)


def _whole(level: Any) -> Any:
    """Write 1.0 as 1."""
    return int(level) if isinstance(level, float) and level.is_integer() else level


def _dot(axes: Axes, at: float, draws: Array, shade: str) -> None:
    lowest, lower, upper, highest = np.quantile(draws, PROBABILITIES)
    axes.plot([at, at], [lowest, highest], color=shade, linewidth=1.4)
    axes.plot([at, at], [lower, upper], color=shade, linewidth=4)
    axes.plot([at], [draws.mean()], "o", color=shade, markeredgecolor="white", markersize=7)


def _surfaces(effect: Effect, table: pd.DataFrame | None, label: str) -> Figure:
    """Draw contours of the mean and of the standard deviation."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(3.3)
    first, second = effect.variables
    x, y = (np.unique(effect.grid[name].to_numpy(dtype=float)) for name in (first, second))
    order = np.lexsort((effect.grid[first], effect.grid[second]))
    parts = ((effect.draws.mean(axis=0), "mean"), (effect.draws.std(axis=0, ddof=1), "sd"))
    for axes, (values, what) in zip(panels(figure, 2, 2), parts, strict=True):
        surface = values[order].reshape(len(y), len(x))
        filled = axes.contourf(x, y, surface, levels=10, cmap="viridis")
        bar = figure.colorbar(filled, ax=axes, location="top", aspect=30, ticks=MaxNLocator(5))
        bar.set_label(label if what == "mean" else "posterior standard deviation")
        if table is not None:
            some = table.iloc[evenly_spaced(len(table), MOST_POINTS)]
            axes.plot(some[first].to_numpy(), some[second].to_numpy(), "o", color="white",
                      markersize=2.2, alpha=0.55, markeredgewidth=0)  # fmt: skip
        axes.set_xlim(x[0], x[-1])
        axes.set_ylim(y[0], y[-1])
        axes.set_xlabel(first)
        axes.set_ylabel(second)
    return figure


def _style(j: int) -> str:
    return STYLES[j // len(SERIES) % len(STYLES)]


def _handles(several: list[_Series]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour(j), linewidth=2, linestyle=_style(j),
               label=style.label(series.label))
        for j, series in enumerate(several)
        if series.label
    ]  # fmt: skip
