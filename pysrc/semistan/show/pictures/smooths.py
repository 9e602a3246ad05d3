"""Smooths one by one, with their intervals: a panel for each, a curve for each level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.names import MU
from semistan.model.terms.penalised import Penalised
from semistan.posterior.effects.smooths import Curve, smooth_curves
from semistan.show.pictures.material import MOST_DRAWS, Material
from semistan.show.pictures.style import MUTED, colour, finish, label, new_figure, panels
from semistan.show.pictures.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROBABILITY = 0.95


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
    return finish(figure, title, caption=caption, handles=_handles(groups))


def smooths_alt(material: Material) -> str:
    """Say where each curve begins and ends, and how far it ranges."""
    parts = [
        f"{_name(curve)}: {_mean(curve)[0]:.3g} at {curve.x[0]:.4g}, {_mean(curve)[-1]:.3g} at "
        f"{curve.x[-1]:.4g}, from {_mean(curve).min():.3g} to {_mean(curve).max():.3g} between"
        for curves in _by_smooth(material)
        for curve in curves
    ]
    return f"Smooths. {listed(parts, 12)}."


def smooths_refusal(material: Material) -> str:
    """Say that the formula has no smooth of one column."""
    terms = material.posterior.design.terms
    found = any(isinstance(x, Penalised) and x.views(material.table) for x in terms)
    return "" if found else "its formula has no smooth, as s(x), t2(x, z) or gp(x)"


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
        axes.fill_between(curve.x, bottom, top, color=colour(j), alpha=0.18, lw=0)
        axes.plot(curve.x, _mean(curve), color=colour(j), ls=_style(j))
        # the ticks of several levels stand one above the other
        axes.plot(
            curve.at_rows, np.full(len(curve.at_rows), 0.012 + 0.03 * j), "|",
            transform=axes.get_xaxis_transform(), color=colour(j), alpha=0.4, markersize=4,
        )  # fmt: skip
    axes.set_xlabel(curves[0].view.expression)
    predictor = "" if curves[0].predictor == MU else f"{curves[0].predictor}: "
    axes.set_ylabel(f"{predictor}{curves[0].view.text}")
    axes.margins(x=0.01)


def _mean(curve: Curve) -> Array:
    return np.asarray(curve.values.mean(axis=0))


def _style(j: int) -> str:
    """Return the line of the j-th level, so that colours come again in another one."""
    return ("-", "--", ":", "-.")[j // 6 % 4]


def _name(curve: Curve) -> str:
    return f"{curve.view.text}{f' of {curve.view.level}' if curve.view.level else ''}"


def _levels(groups: list[list[Curve]]) -> list[str]:
    """Return the levels of the smooth that has most."""
    most = max(groups, key=len)
    return [curve.view.level for curve in most] if len(most) > 1 else []


def _handles(groups: list[list[Curve]]) -> list[Any]:
    """Name the levels, if all smooths by group have the same."""
    from matplotlib.lines import Line2D

    several = [[curve.view.level for curve in curves] for curves in groups if len(curves) > 1]
    if not several:
        return []
    longest = dict.fromkeys(level for levels in several for level in levels)
    if any(levels != list(longest) for levels in several):
        return []
    return [
        Line2D([], [], color=colour(j), ls=_style(j), label=label(level))
        for j, level in enumerate(longest)
    ]
