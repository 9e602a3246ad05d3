"""LOO-PIT: whether responses are calibrated by predictions made without their own row.

The difference of its empirical distribution function from the uniform one, with a simultaneous band
(Säilynoja, Bürkner and Vehtari, 2022, Statistics and Computing 32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.posterior.scoring.loo import in_subspace
from semistan.posterior.scoring.loo_pit import Band, loo_pit, pit_obstacle, uniform_band
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material, evenly, which_rows
from semistan.show.pictures.style import MUTED, colour, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROB = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """The band, the number of rows shown, and that of rows with a Pareto k above 0.7."""

    band: Band
    rows: int
    above: int


def draw_loo_pit(material: Material) -> Figure:
    """Draw the difference of the distribution function from the uniform one."""
    check = material.once(_check)
    band = check.band
    figure = new_figure(3.0)
    axes = figure.add_subplot()
    z = np.concatenate([[0.0], band.z, [1.0]])
    lower, upper, difference = (
        np.concatenate([[0.0], values - band.z, [0.0]])
        for values in (band.lower, band.upper, band.ecdf)
    )
    axes.fill_between(z, lower, upper, color=colour(0), alpha=0.18, linewidth=0)
    axes.axhline(0, color=MUTED, linestyle="--", linewidth=1)
    axes.plot(z, difference, color=colour(1))
    axes.set_xlim(0, 1)
    axes.set_xlabel("LOO probability integral transform")
    axes.set_ylabel("share of rows below, minus uniform")
    return finish(
        figure,
        f"LOO-PIT of {material.response}",
        caption=_caption(material, check),
        handles=_handles(),
    )


def loo_pit_alt(material: Material) -> str:
    """Say at how many points the line leaves the band."""
    check = material.once(_check)
    farthest = float(np.abs(check.band.ecdf - check.band.z).max())
    return (
        f"Difference of the LOO-PIT's distribution function from the uniform one over "
        f"{check.rows} rows: at {check.band.outside} of {len(check.band.z)} points it leaves the "
        f"95% band, and it is {farthest:.2f} from 0 at most."
    )


def loo_pit_refusal(material: Material) -> str:
    """Say why rows cannot be left out, or have no transform."""
    if material.prior_only:
        return "it draws from the prior"
    return pit_obstacle(material.posterior)


def _check(material: Material) -> _Check:
    rows, generator = evenly(material.rows), material.generator()
    values, above = loo_pit(material.posterior, rows, generator)
    return _Check(uniform_band(values, PROB, generator), len(rows), above)


def _caption(material: Material, check: _Check) -> str:
    shown = f"{which_rows(check.rows, len(material.rows))}, each predicted without it, by PSIS"
    parts = [
        f"{shown}. The line leaves the band at {check.band.outside} of {len(check.band.z)} points; "
        "of a calibrated model it stays inside, at all of them, with probability 0.95.",
        "Above 0 left and below 0 right: predictions are too narrow."
        if check.band.outside
        else "",
        f"Unreliable in {check.above} rows, whose Pareto k is above 0.7." if check.above else "",
        "Rows are unweighted." if "weights" in material.rows.given else "",
        "Optimistic: the subspace was trained on all rows." if in_subspace(material.posterior)
        else "",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color=colour(1), label="rows"),
        Patch(color=colour(0), alpha=0.18, linewidth=0, label="95% simultaneous band if uniform"),
    ]


LOO_PIT = PictureKind(
    name="loo_pit",
    title="calibration of predictions of rows left out",
    draw=draw_loo_pit,
    alt=loo_pit_alt,
    refusal=loo_pit_refusal,
    place="leave-one-out",
    hint="Responses are calibrated by predictions without their own row where the line stays "
    "in the band.",
    of_prior=False,
)
