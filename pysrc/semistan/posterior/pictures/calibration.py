"""Calibration of the predictive distribution.

The probability integral transform of the responses is uniform under a calibrated model, up to
binomial noise in each bar; responses agree on average with their predicted means
(Gneiting, Balabdaoui and Raftery, 2007, JRSS B 69). Training rows flatter the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.rows import Rows
from semistan.posterior.pictures.material import MOST_ROWS, Material, which_rows
from semistan.posterior.pictures.style import FAINT, MUTED, colour, finish, new_figure, panels
from semistan.posterior.pictures.words import mean_words, number
from semistan.posterior.scoring.scores import Pointwise, reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 0.99


def draw_calibration(
    material: Material, *, rows: Rows | None = None, rows_label: str = "new rows"
) -> Figure:
    """Draw the histogram of the transform and the reliability curve.

    Parameters
    ----------
    material : Material
        The fit.
    rows : Rows, optional
        Rows with a known response; the training rows by default.
    rows_label : str
        What the caption calls them.
    """
    judged = _judged(material, rows)
    figure = new_figure(3.1)
    left, right = panels(figure, 2, 2)
    _histogram(left, judged)
    _reliability(right, material, judged)
    return finish(
        figure,
        f"Calibration on {'training rows' if rows is None else rows_label}",
        caption=f"{_rows_words(material, rows, rows_label)} Dashed line: calibrated; bars should "
        "end within the shaded 99% band. Error bars are two standard errors.",
        handles=_handles(),
    )


def calibration_alt(
    material: Material, *, rows: Rows | None = None, rows_label: str = "new rows"
) -> str:
    """Say how many bars leave the band and how many bins are off the diagonal."""
    judged = _judged(material, rows)
    heights, (lower, upper) = _bars(judged)
    outside = int(((heights < lower) | (heights > upper)).sum())
    table = reliability(judged)
    near = int((np.abs(table["observed"] - table["predicted"]) <= 2 * table["se"]).sum())
    return (
        f"Calibration on {'training rows' if rows is None else rows_label}: {outside} of "
        f"{len(heights)} bars of the PIT histogram leave the 99% band of a uniform distribution; "
        f"in {near} of {len(table)} bins the mean response is within two standard errors of its "
        f"prediction. Predicted means range from {number(judged.mean.min())} to "
        f"{number(judged.mean.max())}."
    )


def calibration_refusal(material: Material) -> str:
    """Say why draws from the prior have no such picture."""
    if not material.prior_only:
        return ""
    return "it draws from the prior, which was not fitted to the data; draw 'ppc' instead"


def _judged(material: Material, rows: Rows | None) -> Pointwise:
    return material.judged if rows is None else material.judge(rows)


def _rows_words(material: Material, rows: Rows | None, rows_label: str) -> str:
    if rows is not None:
        return f"{which_rows(min(len(rows), MOST_ROWS), len(rows), rows_label)}."
    count = which_rows(len(material.judged.y), len(material.rows))
    return f"{count}: rows that the model has seen flatter it."


def _bars(judged: Pointwise) -> tuple[Any, tuple[float, float]]:
    """Return the bars' heights, 1 if calibrated, and the band in which they should be."""
    from scipy.stats import binom

    n = len(judged.pit)
    bins = 20 if n >= 400 else 10
    counts = np.histogram(judged.pit, bins, range=(0, 1))[0]
    lower, upper = binom.ppf(((1 - BAND) / 2, (1 + BAND) / 2), n, 1 / bins)
    expected = n / bins
    return counts / expected, (lower / expected, upper / expected)


def _histogram(axes: Axes, judged: Pointwise) -> None:
    heights, (lower, upper) = _bars(judged)
    edges = np.linspace(0, 1, len(heights) + 1)
    axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=FAINT, edgecolor="white")
    axes.axhspan(lower, upper, color=colour(0), alpha=0.18, linewidth=0)
    axes.axhline(1, color=MUTED, linestyle="--", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(1.15 * upper, 1.05 * heights.max()))
    axes.set_xlabel("probability integral transform")
    axes.set_ylabel("density of rows")


def _reliability(axes: Axes, material: Material, judged: Pointwise) -> None:
    table = reliability(judged)
    ends = [table["predicted"].min(), table["predicted"].max()]
    axes.axline((ends[0], ends[0]), slope=1, color=MUTED, linestyle="--", linewidth=1)
    axes.errorbar(
        table["predicted"], table["observed"], yerr=2 * table["se"], fmt="o", color=colour(1),
        markersize=4.5, elinewidth=1.4,
    )  # fmt: skip
    binary = material.bundle.family.name == "bernoulli"
    axes.set_xlabel(f"predicted {mean_words(material)}")
    axes.set_ylabel(
        f"observed share of {material.response} = 1"
        if binary
        else f"observed mean of {material.response}"
    )


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=FAINT, label="rows"),
        Patch(color=colour(0), alpha=0.18, linewidth=0, label="99% band if uniform"),
        Line2D([], [], color=colour(1), marker="o", markersize=4.5, label="a tenth of the rows"),
    ]
