"""Smooths one by one, with their intervals: a panel for each, a curve for each level.

Effects of levels, ``s(g, bs="re")``, and of the categories of ``mo()`` are points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.names import MU
from semistan.model.terms.term import Shown
from semistan.posterior.effects.smooths import Curve, smooth_curves
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import MOST_DRAWS, Material
from semistan.show.pictures.style import (
    MUTED,
    colour,
    finish,
    label,
    label_levels,
    new_figure,
    panels,
)
from semistan.show.pictures.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROBABILITY = 0.95
MOST_NAMED = 12  # levels whose names have room below a panel


def draw_smooths(material: Material) -> Figure:
    """Draw a panel for each smooth: its curves with pointwise intervals, and where the rows are."""
    groups = _by_smooth(material)
    columns = 1 if len(groups) == 1 else 2
    figure = new_figure((3.2 if columns == 1 else 2.6) * -(-len(groups) // columns))
    for axes, curves in zip(panels(figure, len(groups), columns), groups, strict=True):
        _panel(axes, curves)
    title = "Smooth by group" if _levels(groups) and len(groups) == 1 else "Smooths"
    caption = (
        f"Lines: {material.source.lower()} means; bands: pointwise {PROBABILITY:.0%} intervals, "
        "with the straight part. Each curve is 0 on average over its training rows (the ticks); a "
        "smooth by a number is the change for one unit of it. In units of the predictor."
    )
    handles = _handles(groups)
    for axes, curves in zip(figure.axes, groups, strict=True):
        if len(curves) > 1 and not handles:
            axes.legend(handles=_named(curves), fontsize="small")
    return finish(figure, title, caption=caption, handles=handles)


def smooths_alt(material: Material) -> str:
    """Say where each curve begins and ends, and how far it ranges."""
    parts = [
        f"{_name(curve)}: {_mean(curve)[0]:.3g} at {_place(curve, 0)}, {_mean(curve)[-1]:.3g} at "
        f"{_place(curve, -1)}, from {_mean(curve).min():.3g} to {_mean(curve).max():.3g} between"
        for curves in _by_smooth(material)
        for curve in curves
    ]
    return f"Smooths. {listed(parts, 12)}."


def smooths_refusal(material: Material) -> str:
    """Say that the formula has no smooth of one column."""
    terms = material.posterior.design.terms
    found = any(isinstance(x, Shown) and x.views(material.table) for x in terms)
    return "" if found else "its formula has no smooth, as s(x), t2(x, z), gp(x) or mo(x)"


def _by_smooth(material: Material) -> list[list[Curve]]:
    found: dict[tuple[str, str], list[Curve]] = {}
    for curve in smooth_curves(material.posterior.thin(MOST_DRAWS), material.rows):
        found.setdefault((curve.predictor, curve.view.text), []).append(curve)
    return list(found.values())


def _panel(axes: Axes, curves: list[Curve]) -> None:
    low, high = (1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2
    axes.axhline(0, color=MUTED, lw=0.7, zorder=0)
    for j, curve in enumerate(curves):
        bottom, top = np.quantile(curve.values, [low, high], axis=0)
        if curve.view.places:
            _points(axes, curve, bottom, top)
            continue
        axes.fill_between(curve.x, bottom, top, color=colour(j), alpha=0.18, lw=0)
        axes.plot(curve.x, _mean(curve), color=colour(j), ls=_style(j))
        # the ticks of several levels stand one above the other
        axes.plot(
            curve.at_rows, np.full(len(curve.at_rows), 0.012 + 0.03 * j), "|",
            transform=axes.get_xaxis_transform(), color=colour(j), alpha=0.4, markersize=4,
        )  # fmt: skip
    if not curves[0].view.places:
        axes.set_xlabel(curves[0].view.expression)
        axes.margins(x=0.01)
    predictor = "" if curves[0].predictor == MU else f"{curves[0].predictor}: "
    axes.set_ylabel(f"{predictor}{curves[0].view.text}")


def _points(axes: Axes, curve: Curve, bottom: Array, top: Array) -> None:
    """Draw an estimate with its interval at each place; of many, in the order of the estimates."""
    mean, places = _mean(curve), curve.view.places
    many = len(places) > MOST_NAMED
    order = np.argsort(mean) if many else np.arange(len(mean))
    axes.vlines(curve.x, bottom[order], top[order], color=colour(0), lw=1.2)
    axes.plot(curve.x, mean[order], "o", color=colour(0), markersize=3.5)
    name = curve.view.expression
    if many:
        axes.set_xticks([])
        axes.set_xlabel(f"{name}: {len(places)} levels, by their estimates")
    else:
        label_levels(axes, places)
        axes.set_xlabel(name)


def _mean(curve: Curve) -> Array:
    return np.asarray(curve.values.mean(axis=0))


def _style(j: int) -> str:
    """Return the line of the j-th level, so that colours come again in another one."""
    return ("-", "--", ":", "-.")[j // 6 % 4]


def _place(curve: Curve, i: int) -> str:
    """Name the i-th place of a curve."""
    return str(curve.view.places[i]) if curve.view.places else f"{curve.x[i]:.4g}"


def _name(curve: Curve) -> str:
    return f"{curve.view.text}{f' of {curve.view.level}' if curve.view.level else ''}"


def _levels(groups: list[list[Curve]]) -> list[str]:
    """Return the levels of the smooth that has most."""
    most = max(groups, key=len)
    return [curve.view.level for curve in most] if len(most) > 1 else []


def _handles(groups: list[list[Curve]]) -> list[Any]:
    """Name the levels above all panels, if all smooths by group have the same."""
    several = [curves for curves in groups if len(curves) > 1]
    names = {tuple(curve.view.level for curve in curves) for curves in several}
    return _named(several[0]) if len(names) == 1 else []


def _named(curves: list[Curve]) -> list[Any]:
    """Return the legend of a panel's curves."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour(j), ls=_style(j), label=label(curve.view.level))
        for j, curve in enumerate(curves)
    ]


SMOOTHS = PictureKind(
    name="smooths",
    title="smooths with intervals",
    draw=draw_smooths,
    alt=smooths_alt,
    refusal=smooths_refusal,
    place="smooths",
)
