"""Agreement of the chains: traces and rank histograms of what is interpreted.

If all chains sample one distribution, the ranks of each chain's draws among all draws are
uniform (Vehtari et al., 2021, Bayesian Analysis 16(2)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.posterior.diagnostics import convergence
from semistan.posterior.draws import Array, Draws
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import (
    MUTED,
    SERIES,
    colour,
    finish,
    new_figure,
    panels,
    wrapped,
)
from semistan.show.pictures.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 8
RANK_BINS = 20
BAND = 0.99


def draw_trace(material: Material) -> Figure:
    """Draw the trace of each quantity by chain, those with the largest Rhat first."""
    figure, shown, caption = _grid(material, "iteration")
    for axes, name in shown:
        for j, values in enumerate(material.draws.interpreted[name]):
            iteration = np.arange(1, len(values) + 1)
            axes.plot(iteration, values, color=colour(j), linewidth=0.5, alpha=0.75,
                      rasterized=True)  # fmt: skip
        axes.set_xlim(1, max(2, material.draws.phi.shape[1]))
    return finish(figure, "Traces by chain", caption=caption, handles=_handles(material.draws))


def trace_alt(material: Material) -> str:
    """Say the Rhat of each quantity."""
    chains = material.draws.chains
    return f"Traces of {chains} chain{'s' if chains > 1 else ''}. {_rhats(material.draws)}."


def draw_rank(material: Material) -> Figure:
    """Draw the ranks of each chain's draws among all draws, those with the largest Rhat first."""
    figure, shown, caption = _grid(material, "rank among all draws")
    lower, upper = _band(material.draws)
    for axes, name in shown:
        axes.axhspan(lower, upper, color=MUTED, alpha=0.15, linewidth=0)
        for j, heights in enumerate(_heights(material.draws.interpreted[name])):
            edges = np.linspace(0, 1, RANK_BINS + 1)
            axes.stairs(heights, edges, baseline=None, color=colour(j), linewidth=1.3)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    return finish(
        figure,
        "Ranks by chain",
        caption=f"1 is an even share of draws; shaded: 99% of independent draws. {caption}",
        handles=_handles(material.draws),
    )


def rank_alt(material: Material) -> str:
    """Say how many bars leave the band, and the Rhats."""
    draws = material.draws
    lower, upper = _band(draws)
    heights = np.array([_heights(values) for values in draws.interpreted.values()])
    outside = int(((heights < lower) | (heights > upper)).sum())
    return (
        f"Rank histograms of {draws.chains} chains: {outside} of {heights.size} bars leave the 99% "
        f"band of independent draws. {_rhats(draws)}."
    )


def rank_refusal(material: Material) -> str:
    """Say why one chain has no such picture."""
    return "" if material.draws.chains > 1 else "ranks need at least two chains"


def worst_first(draws: Draws) -> list[tuple[str, float]]:
    """Return each interpreted quantity with its Rhat, the largest first and NaN last."""
    rhats = [(name, convergence(values).rhat) for name, values in draws.interpreted.items()]
    return sorted(rhats, key=lambda item: -np.nan_to_num(item[1], nan=-np.inf))


def _grid(material: Material, x_label: str) -> tuple[Figure, list[tuple[Axes, str]], str]:
    """Return a figure, its panels with the names in them, and a caption."""
    ordered = worst_first(material.draws)
    shown = ordered[:MOST_PANELS]
    columns = 1 if len(shown) == 1 else 2
    figure = new_figure(1.55 * -(-len(shown) // columns) + 0.25)
    axes = panels(figure, len(shown), columns)
    for panel, (name, rhat) in zip(axes, shown, strict=True):
        text = f"  Rhat {rhat:.3f}" if np.isfinite(rhat) else ""
        panel.set_title(f"{wrapped(name, 30)}{text}", loc="left")
    for panel in axes[-columns:]:
        panel.set_xlabel(x_label)
    left = len(ordered) - len(shown)
    caption = f"{left} more with smaller Rhat are left out." if left else ""
    return figure, [(panel, name) for panel, (name, _) in zip(axes, shown, strict=True)], caption


def _heights(values: Array) -> Array:
    """Return the share of each chain's draws (C, S) in each bin of ranks, 1 if even."""
    from scipy.stats import rankdata

    chains, size = values.shape
    ranks = (rankdata(values).reshape(chains, size) - 0.5) / values.size
    counts = [np.histogram(chain, RANK_BINS, range=(0, 1))[0] for chain in ranks]
    return np.asarray(np.array(counts) * RANK_BINS / size)


def _band(draws: Draws) -> Array:
    """Return the interval of heights of independent draws.

    A chain's draws in one bin are a draw without replacement from the bin's draws of all chains.
    """
    from scipy.stats import hypergeom

    size = draws.phi.shape[1]
    in_bin = round(draws.size / RANK_BINS)
    probabilities = ((1 - BAND) / 2, (1 + BAND) / 2)
    bounds = hypergeom.ppf(probabilities, draws.size, in_bin, size)
    return np.asarray(bounds * RANK_BINS / size)


def _rhats(draws: Draws) -> str:
    if draws.chains == 1:
        return "Rhat needs at least two chains"
    return "Rhat " + listed([f"of {name} {rhat:.3f}" for name, rhat in worst_first(draws)])


def _handles(draws: Draws) -> list[Any]:
    from matplotlib.lines import Line2D

    shown = min(draws.chains, len(SERIES))
    return [
        Line2D([], [], color=colour(j), label=", ".join(
            f"chain {c + 1}" for c in range(j, draws.chains, len(SERIES))
        ))
        for j in range(shown)
    ]  # fmt: skip
