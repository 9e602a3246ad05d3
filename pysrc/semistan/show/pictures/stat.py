"""Predictive checks by statistics: histograms of T(y_rep), and T(y) as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.posterior.checks import Checks, StatisticCheck, predictive_checks
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material, evenly, which_rows
from semistan.show.pictures.style import FAINT, INK, finish, new_figure, panels, wrapped
from semistan.show.pictures.words import CENSORED, listed, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT = ("mean", "sd", "min", "max")
MOST_PANELS = 12
BINS = 31  # an odd number, so that a constant stands in the middle of one


def draw_stat(
    material: Material, *, stat: str | Sequence[str] = DEFAULT, by: str | None = None
) -> Figure:
    """Draw each statistic of replicated responses, in each group if there are some.

    Parameters
    ----------
    material : Material
        The fit.
    stat : str or sequence of str
        Names of statistics, as ``mean``, ``sd``, ``max`` and ``zeros``.
    by : str, optional
        A column of the training table, in each of whose values they are taken.

    Raises
    ------
    InputError
        For an unknown statistic or column.
    """
    checks = _checks(material, stat, by)
    shown = checks.several[:MOST_PANELS]
    columns = min(3 if len(shown) > 4 and by is None else 2, len(shown))
    figure = new_figure(1.75 * -(-len(shown) // columns) + 0.2)
    for axes, each in zip(panels(figure, len(shown), columns), shown, strict=True):
        _histogram(axes, each, by)
    left = len(checks.several) - len(shown)
    return finish(
        figure,
        f"{material.source} predictive check of {material.response} by statistics",
        caption=" ".join(filter(None, [
            f"{which_rows(len(evenly(material.rows)), len(material.rows))}. p is the share of "
            "replications whose statistic is at least the observed one.",
            checks.note,
            f"{left} more panels are left out." if left else "",
        ])),
        handles=_handles(),
    )  # fmt: skip


def stat_alt(
    material: Material, *, stat: str | Sequence[str] = DEFAULT, by: str | None = None
) -> str:
    """Say each statistic with its p."""
    parts = [
        f"{_name(each, by)} is {number(each.observed)}, replications "
        f"{number(float(each.replicated.mean()))} on average, p = {number(each.p)}"
        for each in _checks(material, stat, by).several
    ]
    return f"{material.source} predictive checks of {material.response}: {listed(parts)}."


def stat_refusal(material: Material) -> str:
    """Say why unordered categories and censored responses have no statistics."""
    if material.posterior.family.censored:
        return CENSORED
    named = material.posterior.family.mean is None
    return "unordered categories have no statistics of numbers" if named else ""


def _checks(material: Material, stat: str | Sequence[str], by: str | None) -> Checks:
    rows = evenly(material.rows)
    groups = None
    if by is not None:
        frame = material.table if len(rows) == len(material.rows) else rows.frame
        assert frame is not None
        if by not in frame.columns:
            raise InputError(
                f"the training table has no column '{by}'.{did_you_mean(by, frame.columns)}"
            )
        groups = frame[by].to_numpy()
    return predictive_checks(
        material.posterior, rows, stat, groups=groups, by=by, generator=material.generator()
    )


def _name(each: StatisticCheck, by: str | None) -> str:
    if by is None:
        return each.statistic
    group = f"{each.group:g}" if isinstance(each.group, float) else each.group
    return f"{each.statistic}, {by} = {group}"


def _histogram(axes: Axes, each: StatisticCheck, by: str | None) -> None:
    from matplotlib.ticker import MaxNLocator

    values = each.replicated
    ends = np.append(values, each.observed)
    pad = 0.05 * np.ptp(ends) or 0.5
    edges = np.linspace(ends.min() - pad, ends.max() + pad, BINS + 1)
    axes.hist(values, list(edges), color=FAINT, edgecolor="white", linewidth=0.4)
    axes.axvline(each.observed, color=INK)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(4, prune="both"))
    axes.spines["left"].set_visible(False)
    axes.set_title(f"{wrapped(_name(each, by), 26)}   p = {number(each.p)}", loc="left")


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [Line2D([], [], color=INK, label="observed"), Patch(color=FAINT, label="replicated")]


STAT = PictureKind(
    name="stat",
    title="predictive check by statistics",
    draw=draw_stat,
    alt=stat_alt,
    refusal=stat_refusal,
    reason="which statistic matters is the reader's question; `ppc` has all responses",
)
