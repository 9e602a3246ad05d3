"""Survival curves of the rows, or of groups of them, over Kaplan and Meier's estimate.

A curve is the mean over a group's rows of P(Y > t), with its interval over the draws. The estimate
of Kaplan and Meier (1958, JASA 53) knows no model. Of rows that entered late both are conditional
on that: a row is at risk from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.posterior.survival import kaplan_meier, survival, survival_at_risk
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import MOST_DRAWS, Material
from semistan.show.pictures.style import colour, finish, label, new_figure
from semistan.show.pictures.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMES = 60
MOST_LEVELS = 6
INTERVAL = (0.025, 0.975)
NO_STEPS = (
    "Some rows are censored to the left or in an interval, or have an upper bound: no estimate of "
    "Kaplan and Meier."
)
LATE = "Rows are at risk between entry and exit, in the curve as in the steps."


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """One group's times (T,), mean and interval (T,), rows, and Kaplan and Meier's steps."""

    level: str
    times: Array
    mean: Array
    lower: Array
    upper: Array
    rows: int
    steps: tuple[Array, Array] | None


def draw_survival(material: Material, *, by: str | None = None) -> Figure:
    """Draw the share that survives each time, with 95% intervals.

    Parameters
    ----------
    material : Material
        The fit.
    by : str, optional
        A column with at most six values, for each of which there is a curve.

    Raises
    ------
    InputError
        For an unknown column, or one with too many values.
    """
    curves = material.once(_curves, by)
    figure = new_figure(3.6)
    axes = figure.add_subplot()
    for j, curve in enumerate(curves):
        _draw(axes, curve, j)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.set_xlabel(material.response)
    axes.set_ylabel(f"P({material.response} > t)")
    steps = any(curve.steps for curve in curves)
    estimate = "Steps: Kaplan and Meier's estimate." if steps else NO_STEPS
    late = "lb" in material.rows.given
    rows = "the rows of each group" if by else "all rows"
    return finish(
        figure,
        f"{material.source} survival curves",
        caption=f"Mean over {rows} with 95% intervals. {estimate}{f' {LATE}' if late else ''}",
        handles=_handles(curves, by) if by else (),
    )


def survival_alt(material: Material, *, by: str | None = None) -> str:
    """Say at which time half of each group survives."""
    parts = []
    for curve in material.once(_curves, by):
        of = f" of {by} = {curve.level}" if by else ""
        below = np.flatnonzero(curve.mean < 0.5)
        when = f"until {number(curve.times[below[0]])}" if below.size else "to the last time"
        parts.append(f"half{of} survive {when}")
    return f"{material.source} survival curves of {material.response}: {'; '.join(parts)}."


def survival_refusal(material: Material) -> str:
    """Say why some responses have no such picture."""
    family = material.posterior.family
    if family.tails is None:
        return f"the survival function of family {family.name} is not known"
    if family.integer:
        return "its responses are counts; they are no times"
    if not family.censored and family.support(np.array([-1.0]))[0]:
        return "its responses may be negative, and none is censored; they are no times"
    return ""


def _curves(material: Material, by: str | None) -> list[_Curve]:
    rows, posterior = material.rows, material.posterior.thin(MOST_DRAWS)
    assert rows.y is not None
    code = rows.given.get("cens", np.zeros(len(rows)))
    weight = rows.given.get("weights", np.ones(len(rows)))
    entry = rows.given.get("lb", np.zeros(len(rows)))
    times = np.linspace(0, rows.y.max(), TIMES + 1)[1:]
    expected = survival_at_risk if "lb" in rows.given else survival
    found = []
    for level, chosen in _groups(material, by):
        draws = expected(posterior, rows.take(np.flatnonzero(chosen)), times)
        lower, upper = np.quantile(draws, INTERVAL, axis=0)
        simple = set(code[chosen]) <= {0.0, 1.0} and "ub" not in rows.given
        seen = (rows.y[chosen], code[chosen] == 0, weight[chosen], entry[chosen])
        steps = kaplan_meier(*seen) if simple else None
        mean = draws.mean(axis=0)
        found.append(_Curve(level, times, mean, lower, upper, int(chosen.sum()), steps))
    return found


def _groups(material: Material, by: str | None) -> list[tuple[str, Any]]:
    """Return each value of a column with which rows have it, or all rows."""
    if by is None:
        return [("", np.ones(len(material.rows), dtype=bool))]
    table = material.table
    if by not in table:
        raise InputError(f"no column '{by}' is in the formula.{did_you_mean(by, list(table))}")
    values = table[by].to_numpy()
    levels = sorted(set(values.tolist()), key=lambda value: (isinstance(value, str), value))
    if len(levels) > MOST_LEVELS:
        raise InputError(
            f"column '{by}' has {len(levels)} values, and at most {MOST_LEVELS} can be told apart; "
            "name a factor"
        )
    return [(str(level), values == level) for level in levels]


def _draw(axes: Axes, curve: _Curve, j: int) -> None:
    times = np.r_[0, curve.times]
    axes.fill_between(
        times, np.r_[1, curve.lower], np.r_[1, curve.upper], color=colour(j), alpha=0.25, lw=0
    )
    axes.plot(times, np.r_[1, curve.mean], color=colour(j))
    if curve.steps:
        at, share = curve.steps
        axes.step(np.r_[0, at], np.r_[1, share], where="post", color=colour(j), lw=0.9)


def _handles(curves: list[_Curve], by: str) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour(j), label=label(f"{by} = {curve.level} ({curve.rows} rows)"))
        for j, curve in enumerate(curves)
    ]


SURVIVAL = PictureKind(
    name="survival",
    title="survival curves",
    draw=draw_survival,
    alt=survival_alt,
    refusal=survival_refusal,
    place="training rows",
    hint="Survival curves should follow the steps of Kaplan and Meier's estimate.",
    of_prior=False,
)
