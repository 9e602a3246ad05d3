"""Pairs of parameters: which of them the data do not tell apart, and where the sampler diverged."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.table.rows import evenly_spaced
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import FAINT, SERIES, colour, finish, new_figure, wrapped
from semistan.show.pictures.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # parameters that are shown unless they are named
MOST_NAMED = 10
POINTS = 1000


def draw_pairs(material: Material, *, variable: str | None = None) -> Figure:
    """Draw histograms on the diagonal and draws of each pair below it.

    Parameters
    ----------
    material : Material
        The fit.
    variable : str, optional
        Names of the table, separated by commas; by default the first six that vary.

    Raises
    ------
    InputError
        For an unknown name, or fewer than two or more than ten.
    """
    values, left = _values(material, variable)
    names, n = list(values), len(values)
    figure = new_figure(min(7.0, 1.2 * n + 0.4))
    grid = figure.add_gridspec(n, n)
    diverging = _diverging(material)
    chosen = evenly_spaced(len(diverging), POINTS)
    for i, j in (pair for pair in product(range(n), repeat=2) if pair[0] >= pair[1]):
        axes = figure.add_subplot(grid[i, j])
        x, y = values[names[j]], values[names[i]]
        if i == j:
            axes.hist(x, 30, color=FAINT)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
        else:
            _points(axes, x, y, chosen, diverging)
        _label(axes, names, i, j)
    figure.align_ylabels()
    return finish(
        figure,
        f"Pairs of parameters ({material.source.lower()})",
        caption=_caption(len(chosen), len(diverging), int(diverging.sum()), left),
        handles=_handles(int(diverging.sum())),
    )


def pairs_alt(material: Material, *, variable: str | None = None) -> str:
    """Say the correlations that are farthest from 0, and how many transitions diverged."""
    values, _ = _values(material, variable)
    pairs = [(a, b, np.corrcoef(values[a], values[b])[0, 1]) for a, b in combinations(values, 2)]
    pairs.sort(key=lambda item: -abs(item[2]))
    told = listed([f"of {a} and {b} {r:.2f}" for a, b, r in pairs], 4)
    return (
        f"Draws of {len(values)} parameters in pairs. Correlations: {told}. Divergent transitions: "
        f"{int(_diverging(material).sum())}."
    )


def pairs_refusal(material: Material) -> str:
    """Say why one parameter has no pairs."""
    return "" if len(_varying(material)) > 1 else "it needs at least two parameters that vary"


def _varying(material: Material) -> dict[str, Array]:
    """Return the draws (S,) of what the table has and does vary, by name."""
    found = {name: x.ravel() for name, x in material.posterior.interpreted.items()}
    return {name: x for name, x in found.items() if np.ptp(x) > 0}


def _values(material: Material, variable: str | None) -> tuple[dict[str, Array], int]:
    """Return the draws that are shown, and how many more there are."""
    known = _varying(material)
    if variable is None:
        shown = dict(list(known.items())[:MOST])
        return shown, len(known) - len(shown)
    names = list(dict.fromkeys(name.strip() for name in variable.split(",")))
    for name in names:
        if name not in known:
            raise InputError(
                f"no parameter of the table that varies is called '{name}'."
                f"{did_you_mean(name, known)}"
            )
    if not 2 <= len(names) <= MOST_NAMED:
        raise InputError(
            f"pairs are of 2 to {MOST_NAMED} parameters, as b_x,sigma; got {len(names)}"
        )
    return {name: known[name] for name in names}, 0


def _diverging(material: Material) -> np.ndarray:
    """Return which of the pooled draws (S,) ended a divergent transition."""
    posterior = material.posterior
    members = [member.draws.sampler for member in posterior.counted]
    if any("diverging" not in sampler for sampler in members):
        return np.zeros(posterior.size, dtype=bool)
    return np.concatenate([sampler["diverging"].ravel() > 0 for sampler in members])


def _points(axes: Axes, x: Array, y: Array, chosen: np.ndarray, diverging: np.ndarray) -> None:
    axes.scatter(x[chosen], y[chosen], s=3, color=colour(0), alpha=0.35, linewidths=0,
                 rasterized=True)  # fmt: skip
    axes.scatter(x[diverging], y[diverging], s=9, color=SERIES[1], linewidths=0, zorder=3)


def _label(axes: Axes, names: list[str], i: int, j: int) -> None:
    """Write names below and to the left of the grid, and few ticks."""
    from matplotlib.ticker import MaxNLocator

    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    if i != j:
        axes.yaxis.set_major_locator(MaxNLocator(3))
    if i < len(names) - 1:
        axes.set_xticklabels([])
    else:
        axes.set_xlabel(wrapped(names[j], 14))
    if j > 0 and i != j:
        axes.set_yticklabels([])
    if j == 0:
        axes.set_ylabel(wrapped(names[i], 14))


def _caption(shown: int, draws: int, divergent: int, left: int) -> str:
    parts = [
        f"{shown:,} of {draws:,} draws." if shown < draws else f"{draws:,} draws.",
        f"{divergent} divergent transitions." if divergent else "",
        f"{left} more parameters: name those to be shown by --variable b_x,sigma." if left else "",
    ]
    return " ".join(filter(None, parts))


def _handles(divergent: int) -> list[Any]:
    from matplotlib.lines import Line2D

    if not divergent:
        return []
    kinds = {"draws": colour(0), "divergent transitions": SERIES[1]}
    return [
        Line2D([], [], color=shade, marker="o", markersize=4, linestyle="", label=name)
        for name, shade in kinds.items()
    ]


PAIRS = PictureKind(
    name="pairs",
    title="pairs of parameters",
    draw=draw_pairs,
    alt=pairs_alt,
    refusal=pairs_refusal,
    reason="of as many parameters as a model has, only a few fit; they are asked for",
)
