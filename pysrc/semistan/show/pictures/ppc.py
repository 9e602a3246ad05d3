"""Posterior predictive check: whether data from the model look like the data.

Densities of the response and of replicated ones for a continuous response; for whole numbers
the rows at each value, or in each category, with the interval over replications (Gabry et al.,
2019, JRSS A 182).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.formula.formula import parse_formula
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.categories import category_names
from semistan.posterior.predictive import posterior_predict
from semistan.show.pictures.kde import density
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import (
    MOST_DRAWS,
    Material,
    evenly,
    which_rows,
)
from semistan.show.pictures.style import (
    FAINT,
    INK,
    colour,
    finish,
    label_levels,
    new_figure,
)
from semistan.show.pictures.words import CENSORED, interval_words, listed, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REPLICATIONS = 50  # densities that are overlaid
MOST_BARS = 40


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """Observed responses (N,), replicated ones (S, N), weights (N,), the number of all rows.

    Rows count by their weights where they are counted; densities are of rows that count alike.
    """

    y: Array
    replicated: Array
    weight: Array
    rows: int
    weights: str
    composed: bool

    @property
    def noun(self) -> str:
        """What is counted."""
        if self.composed:
            return f"mean share, by {self.weights}" if self.weights else "mean share"
        counted = "trials" if self.y.ndim == 2 else "rows"
        return f"sum of {self.weights}" if self.weights else counted


def ppc_refusal(material: Material) -> str:
    """Say why responses that may be censored have no such picture."""
    return CENSORED if material.posterior.family.censored else ""


def draw_ppc(material: Material) -> Figure:
    """Draw the check on the training rows; before the data are seen if the run is prior-only."""
    check = material.once(_check)
    figure = new_figure(3.4)
    axes = figure.add_subplot()
    counts = material.posterior.family.integer
    unweighted = bool(check.weights) and not counts
    if names := category_names(material.posterior.family, material.posterior.design):
        handles, counts = _category_bars(axes, check, names), False
    else:
        handles = (_bars if counts else _densities)(axes, check)
    axes.set_xlabel(material.response)
    return finish(
        figure,
        f"{material.source} predictive check of {material.response}",
        caption=f"{which_rows(len(check.y), check.rows)}{', unweighted' * unweighted}."
        f"{_beyond(check) if counts else ''}",
        handles=handles,
    )


def ppc_alt(material: Material) -> str:
    """Compare mean and spread of the response with those of replicated ones, or categories."""
    check = material.once(_check)
    if material.posterior.family.mean is None:
        names = category_names(material.posterior.family, material.posterior.design)
        observed, replicated = _counts(check, _around(names))
        parts = [
            f"{name} has {number(count)} {check.noun}, replications {interval_words(draws)}"
            if check.weights or check.composed
            else f"{name} has {count:.0f} {check.noun}, replications {interval_words(draws)}"
            for name, count, draws in zip(names, observed, replicated.T, strict=True)
        ]
        return f"{material.source} predictive check of {material.response}: {listed(parts)}."
    return (
        f"{material.source} predictive check of {material.response}: the observed mean is "
        f"{number(check.y.mean())}, replicated means have "
        f"{interval_words(check.replicated.mean(axis=1))}; the observed standard deviation is "
        f"{number(check.y.std(ddof=1))}, replicated ones have "
        f"{interval_words(check.replicated.std(axis=1, ddof=1))}."
    )


def _check(material: Material) -> _Check:
    rows = evenly(material.rows)
    posterior = material.posterior.thin(MOST_DRAWS)
    assert rows.y is not None
    y = posterior_predict(posterior, rows, material.generator())
    weight = rows.given.get("weights", np.ones(len(rows)))
    weights = parse_formula(material.posterior.config.formula).weights or ""
    composed = posterior.family.composed
    return _Check(rows.y, y, weight, len(material.rows), weights, composed)


def _densities(axes: Axes, check: _Check) -> list[Any]:
    chosen = check.replicated[evenly_spaced(len(check.replicated), REPLICATIONS)]
    for y in chosen:
        axes.plot(*density(y, bounded=False), color=colour(0), alpha=0.25, linewidth=0.8)
    axes.plot(*density(check.y, bounded=False), color=INK, linewidth=2)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.set_ylabel("density")
    axes.spines["left"].set_visible(False)
    return _density_handles(len(chosen))


def _density_handles(replications: int) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=INK, linewidth=2, label="observed"),
        Line2D([], [], color=colour(0), linewidth=0.8, label=f"{replications} replications"),
    ]


def _bars(axes: Axes, check: _Check) -> list[Any]:
    """Draw the rows at each value; values share bars if there are many."""
    top = _top(check)
    width = int(np.ceil((top + 1) / MOST_BARS))
    edges = np.arange(0, top + width + 1, width) - 0.5
    handles, centres = _counted(axes, check, edges), (edges[:-1] + edges[1:]) / 2
    axes.set_ylabel(check.noun if width == 1 else f"{check.noun} in {width} values")
    if len(centres) <= 12 and width == 1:
        axes.set_xticks(centres)
        axes.set_xlim(-0.8, max(centres[-1], 2) + (0.8 if len(centres) > 2 else -0.2))
    return handles


def _category_bars(axes: Axes, check: _Check, names: tuple[str, ...]) -> list[Any]:
    """Draw the rows in each category, above its name."""
    handles = _counted(axes, check, _around(names))
    axes.set_ylabel(check.noun)
    label_levels(axes, names, first=1)
    return handles


def _around(names: tuple[str, ...]) -> Array:
    """Return edges between the numbers of categories."""
    return np.arange(0.5, len(names) + 1)


def _counted(axes: Axes, check: _Check, edges: Array) -> list[Any]:
    """Draw the rows between edges, and mean and interval of their number over replications."""
    centres, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    rows, replicated = _counts(check, edges)
    lower, upper = np.quantile(replicated, (0.025, 0.975), axis=0, method="inverted_cdf")
    bars = axes.bar(centres, rows, 0.85 * width, color=FAINT, label="observed")
    axes.vlines(centres, lower, upper, color=colour(0), linewidth=2)
    axes.plot(centres, replicated.mean(axis=0), "o", color=colour(0), markersize=4.5)
    return [bars, _interval_handle()]


def _counts(check: _Check, edges: Array) -> tuple[Array, Array]:
    """Return the observed rows between edges, and those of each replication.

    Of counted categories these are the trials in each, of shares their means.
    """
    weight = check.weight / check.weight.sum() if check.composed else check.weight
    if check.y.ndim == 2:
        return weight @ check.y, np.einsum("n,snk->sk", weight, check.replicated)
    replicated = [np.histogram(y, edges, weights=weight)[0] for y in check.replicated]
    return np.histogram(check.y, edges, weights=weight)[0], np.array(replicated)


def _top(check: _Check) -> float:
    """Return the largest whole number that is shown, at most twice the largest response and 5."""
    likely = np.quantile(check.replicated, 0.999)
    return float(max(check.y.max(), min(likely, 2 * check.y.max() + 5)))


def _beyond(check: _Check) -> str:
    """Say which share of replicated whole numbers is larger than the largest that is shown."""
    share = float((check.replicated > _top(check)).mean())
    return f" {share:.1%} of replicated values are larger than shown." if share > 0.001 else ""


def _interval_handle() -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=colour(0), marker="o", markersize=4.5, linewidth=2,
        label="replicated: mean and 95% interval",
    )  # fmt: skip


PPC = PictureKind(
    name="ppc",
    title="predictive check",
    draw=draw_ppc,
    alt=ppc_alt,
    refusal=ppc_refusal,
    place="training rows",
    hint="Replicated responses should look like the observed ones.",
    of_prior=False,
)
