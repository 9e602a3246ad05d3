"""What the network found: main effects and the largest interactions, with bands.

An interaction of u and v is lines over u at three values of v, or at its levels, each as far as the
rows reach whose v is nearest to that value. Main effects share one axis, so that their sizes can be
compared, and interactions another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array, Index
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.effects.decomposition import Decomposition, Input
from semistan.show.pictures.style import (
    MUTED,
    colour,
    finish,
    label,
    label_levels,
    look,
    new_figure,
    panels,
)
from semistan.show.pictures.words import listed, value_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SINGLES, MOST_PAIRS, MOST_LEVELS = 6, 4, 6
POINTS = 60
PROBABILITY = 0.95
BETWEEN = (0.05, 0.95)  # quantiles of the inputs between which interactions are drawn
AT = (0.1, 0.5, 0.9)  # quantiles of the second input
MOST_TICKS = 300  # rows in a rug


@look()
def draw_decomposition(found: Decomposition, *, label: str) -> Figure:
    """Draw the largest main effects and interactions.

    Parameters
    ----------
    found : Decomposition
        From ``decompose``.
    label : str
        What the predictor is.
    """
    singles, pairs = _shown(found)
    columns = min(2, len(singles))
    figure = new_figure(2.3 * (-(-len(singles) // columns) + -(-len(pairs) // columns)))
    axes = panels(figure, len(singles) + (len(singles) % columns) + len(pairs), columns)
    if len(singles) % columns:
        axes.pop(len(singles)).remove()
    for at, number in zip(axes, singles, strict=False):
        _main_effect(at, found, number)
    for at, number in zip(axes[len(singles) :], pairs, strict=True):
        _interaction(at, found, number)
    for some in (axes[: len(singles)], axes[len(singles) :]):
        _one_scale(some)
    left = len(found.components) - len(singles) - len(pairs)
    caption = (
        f"Lines: posterior means; bands: pointwise {PROBABILITY:.0%} intervals. Panels name the "
        "mean share of the variance of what the network adds to the predictor. Main effects have "
        "one scale, interactions another, and what stands in one is in no other."
    )
    caption += f" {left} smaller components are not shown." if left else ""
    return finish(figure, f"What the network adds to {label}", caption=caption)


def decomposition_alt(found: Decomposition, *, label: str) -> str:
    """Say the share of each component that is drawn."""
    share = found.shares.mean(axis=0)
    singles, pairs = _shown(found)
    parts = [f"{found.components[i]} {share[i]:.1%}" for i in [*singles, *pairs]]
    return f"Shares of the variance of what the network adds to {label}: {listed(parts, 10)}."


def _shown(found: Decomposition) -> tuple[list[int], list[int]]:
    """Return the components that are drawn: the largest main effects, then interactions."""
    Q = len(found.inputs)
    singles, pairs = found.order[:Q], found.order[Q:]
    return singles[:MOST_SINGLES], pairs[:MOST_PAIRS]


def _main_effect(axes: Axes, found: Decomposition, number: int) -> None:
    of = found.inputs[number]
    x = _grid(of, (0.0, 1.0))
    _curve(axes, of, x, found.analysis.component(number, [x]), 0, 0.0)
    if not of.levels:
        ticks = of.values[evenly_spaced(len(of.values), MOST_TICKS)]
        axes.plot(
            ticks, np.full(len(ticks), 0.02), "|",
            transform=axes.get_xaxis_transform(), color=colour(0), alpha=0.4, markersize=4,
        )  # fmt: skip
    _finish(axes, found, number, of)


def _interaction(axes: Axes, found: Decomposition, number: int) -> None:
    j, k = found.space.pairs[number - len(found.inputs)]
    over, by = found.inputs[j], found.inputs[k]
    if over.levels and not by.levels:
        over, by = by, over
    places = (
        _grid(by, BETWEEN)[:MOST_LEVELS] if by.levels else np.unique(np.quantile(by.values, AT))
    )
    nearest = np.abs(by.values[:, None] - places).argmin(axis=1)
    for i, place in enumerate(places):
        x = _grid(over, BETWEEN, nearest == i)
        values = [x, np.full(len(x), place)]
        draws = found.analysis.component(
            number, values if over is found.inputs[j] else values[::-1]
        )
        apart = 0.12 * (i - (len(places) - 1) / 2)
        _curve(axes, over, x, draws, i, apart, f"{by.name} = {_named(by, place)}")
    axes.legend(fontsize="small", loc="best")
    _finish(axes, found, number, over)


def _curve(
    axes: Axes, of: Input, x: Array, draws: Array, i: int, apart: float, text: str = ""
) -> None:
    low, high = (1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2
    bottom, top = np.quantile(draws, [low, high], axis=0)
    style: dict[str, Any] = {"color": colour(i), "label": label(text) if text else None}
    if of.levels:
        axes.vlines(x + apart, bottom, top, color=colour(i), lw=1.2)
        axes.plot(x + apart, draws.mean(axis=0), "o", markersize=3.5, **style)
        return
    axes.fill_between(x, bottom, top, color=colour(i), alpha=0.18, lw=0)
    axes.plot(x, draws.mean(axis=0), **style)


def _finish(axes: Axes, found: Decomposition, number: int, of: Input) -> None:
    axes.axhline(0, color=MUTED, lw=0.7, zorder=0)
    axes.set_xlabel(of.name)
    axes.set_title(f"{found.components[number]}: {found.shares[:, number].mean():.1%}", loc="left")
    if of.levels:
        label_levels(axes, of.levels)
    else:
        axes.margins(x=0.01)


def _one_scale(some: list[Axes]) -> None:
    """Give panels the same vertical axis."""
    if some:
        limits = np.array([axes.get_ylim() for axes in some])
        for axes in some:
            axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def _grid(of: Input, between: tuple[float, float], rows: Index | None = None) -> Array:
    """Return the values at which an input is drawn, as far as some rows reach."""
    if of.levels:
        return np.arange(len(of.levels), dtype=float)
    values = of.values if rows is None or not rows.any() else of.values[rows]
    distinct = np.unique(values)
    if len(distinct) <= POINTS // 4:
        return distinct
    low, high = np.quantile(values, between)
    return np.linspace(low, high, POINTS)


def _named(of: Input, place: float) -> str:
    return str(of.levels[int(place)]) if of.levels else value_words(float(place))
