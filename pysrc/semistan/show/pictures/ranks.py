"""Simulation-based calibration: ranks against uniform ones, and coverage of intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.posterior.scoring.ranks import by_quantity, coverage, uniformity
from semistan.show.pictures.style import MUTED, colour, finish, look, new_figure, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS, HEIGHT = 3, 1.75
LEVELS = np.arange(1, 20) / 20


@look()
def draw_ranks(records: pd.DataFrame) -> Figure:
    """Draw the difference of each quantity's ranks from uniform ones, with its band.

    Parameters
    ----------
    records : pandas.DataFrame
        ``replication``, ``quantity``, ``rank`` and ``draws``.
    """
    several = by_quantity(records)
    figure = new_figure(HEIGHT * -(-len(several) // COLUMNS))
    outside = 0
    for axes, (name, values) in zip(panels(figure, len(several), COLUMNS), several, strict=True):
        found = uniformity(values)
        outside += found.outside
        axes.fill_between(
            found.points, found.lower, found.upper, step="mid", color=colour(0), alpha=0.18,
            linewidth=0,
        )  # fmt: skip
        axes.axhline(0, color=MUTED, linestyle="--", linewidth=1)
        shade = colour(1) if found.outside else colour(0)
        axes.step(found.points, found.difference, where="mid", color=shade)
        axes.set_title(name)
        axes.set_xlim(0, 1)
    n = records["replication"].nunique()
    return finish(
        figure,
        f"Ranks of the truth in {n} replications",
        caption="Distribution function of the ranks less that of uniform ones. Shaded: where 95% "
        f"of calibrated quantities stay throughout; {outside} of {len(several)} leave it. Below "
        "zero: estimates are too low. Above it on the left and below on the right: intervals are "
        "too narrow.",
    )


@look()
def draw_coverage(records: pd.DataFrame) -> Figure:
    """Draw how often central intervals of each probability hold the truth.

    Parameters
    ----------
    records : pandas.DataFrame
        ``replication``, ``quantity``, ``rank`` and ``draws``.
    """
    several = by_quantity(records)
    figure = new_figure(HEIGHT * -(-len(several) // COLUMNS))
    n = records["replication"].nunique()
    error = 2 * np.sqrt(LEVELS * (1 - LEVELS) / n)
    for axes, (name, values) in zip(panels(figure, len(several), COLUMNS), several, strict=True):
        held = [coverage(values, level) for level in LEVELS]
        axes.fill_between(
            LEVELS, LEVELS - error, LEVELS + error, color=colour(0), alpha=0.18, linewidth=0
        )
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle="--", linewidth=1)
        axes.plot(LEVELS, held, color=colour(0))
        axes.set_title(name)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    return finish(
        figure,
        f"Coverage in {n} replications",
        caption="Across: probability of a central interval; up: share of replications in which it "
        "holds the truth. Shaded: two standard errors around calibrated ones, at each point.",
    )
