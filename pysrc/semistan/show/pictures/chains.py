"""Agreement of the chains: traces and rank histograms of what is interpreted.

If all chains sample one distribution, the ranks of each chain's draws among all draws are uniform
(Vehtari et al., 2021, Bayesian Analysis 16(2)). In a mixture,
a chain is ranked among the draws of its own member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.diagnostics import named_convergence
from semistan.posterior.posterior import Posterior
from semistan.show.pictures.kind import PictureKind
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
    members = material.posterior.members
    for axes, name in shown:
        chains = (values for each in members for values in each.draws.interpreted[name])
        for j, values in enumerate(chains):
            iteration = np.arange(1, len(values) + 1)
            axes.plot(iteration, values, color=colour(j), linewidth=0.5, alpha=0.75,
                      rasterized=True)  # fmt: skip
        axes.set_xlim(1, max(2, members[0].draws.lprior.shape[1]))
    return finish(figure, "Traces by chain", caption=caption, handles=_handles(material.posterior))


def trace_alt(material: Material) -> str:
    """Say the Rhat of each quantity."""
    chains = _number(material.posterior)
    return f"Traces of {chains} chain{'s' if chains > 1 else ''}. {_rhats(material.posterior)}."


def draw_rank(material: Material) -> Figure:
    """Draw the ranks of each chain's draws among all draws, those with the largest Rhat first."""
    figure, shown, caption = _grid(material, "rank among all draws")
    lower, upper = _band(material.posterior)
    for axes, name in shown:
        axes.axhspan(lower, upper, color=MUTED, alpha=0.15, linewidth=0)
        for j, heights in enumerate(_heights(material.posterior, name)):
            edges = np.linspace(0, 1, RANK_BINS + 1)
            axes.stairs(heights, edges, baseline=None, color=colour(j), linewidth=1.3)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    return finish(
        figure,
        "Ranks by chain",
        caption=f"1 is an even share of draws; shaded: 99% of independent draws. {caption}",
        handles=_handles(material.posterior),
    )


def rank_alt(material: Material) -> str:
    """Say how many bars leave the band, and the Rhats."""
    posterior = material.posterior
    lower, upper = _band(posterior)
    heights = np.array([_heights(posterior, name) for name in posterior.interpreted])
    outside = int(((heights < lower) | (heights > upper)).sum())
    return (
        f"Rank histograms of {_number(posterior)} chains: {outside} of {heights.size} bars leave "
        f"the 99% band of independent draws. {_rhats(posterior)}."
    )


def rank_refusal(material: Material) -> str:
    """Say why one chain has no such picture."""
    chains = material.posterior.members[0].chains
    return "" if chains > 1 else "ranks need at least two chains"


def worst_first(posterior: Posterior) -> list[tuple[str, float]]:
    """Return each interpreted quantity with its Rhat, the largest first and NaN last."""
    rhats = [(name, named_convergence(posterior, name).rhat) for name in posterior.interpreted]
    return sorted(rhats, key=lambda item: -np.nan_to_num(item[1], nan=-np.inf))


def _grid(material: Material, x_label: str) -> tuple[Figure, list[tuple[Axes, str]], str]:
    """Return a figure, its panels with the names in them, and a caption."""
    ordered = worst_first(material.posterior)
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


def _number(posterior: Posterior) -> int:
    """Return the number of chains of all members."""
    return sum(member.chains for member in posterior.members)


def _heights(posterior: Posterior, name: str) -> Array:
    """Return the share of each chain's draws (C, bins) in each bin of ranks, 1 if even."""
    members = posterior.members
    return np.concatenate([_shares(member.draws.interpreted[name]) for member in members])


def _shares(values: Array) -> Array:
    from scipy.stats import rankdata

    chains, size = values.shape
    ranks = (rankdata(values).reshape(chains, size) - 0.5) / values.size
    counts = [np.histogram(chain, RANK_BINS, range=(0, 1))[0] for chain in ranks]
    return np.asarray(np.array(counts) * RANK_BINS / size)


def _band(posterior: Posterior) -> Array:
    """Return the interval of heights of independent draws.

    A chain's draws in one bin are a draw without replacement from the bin's draws of all chains.
    """
    from scipy.stats import hypergeom

    draws = posterior.members[0].draws
    size = draws.lprior.shape[1]
    in_bin = round(draws.size / RANK_BINS)
    probabilities = ((1 - BAND) / 2, (1 + BAND) / 2)
    bounds = hypergeom.ppf(probabilities, draws.size, in_bin, size)
    return np.asarray(bounds * RANK_BINS / size)


def _rhats(posterior: Posterior) -> str:
    if posterior.members[0].chains == 1:
        return "Rhat needs at least two chains"
    figures = worst_first(posterior)
    return "Rhat " + listed([f"of {name} {rhat:.3f}" for name, rhat in figures])


def _handles(posterior: Posterior) -> list[Any]:
    from matplotlib.lines import Line2D

    chains = _number(posterior)
    shown = min(chains, len(SERIES))
    return [
        Line2D([], [], color=colour(j), label=", ".join(
            f"chain {c + 1}" for c in range(j, chains, len(SERIES))
        ))
        for j in range(shown)
    ]  # fmt: skip


TRACE = PictureKind(
    name="trace",
    title="traces by chain",
    draw=draw_trace,
    alt=trace_alt,
    place="chains",
    hint="The chains should look alike, without trends or jumps.",
)


RANK = PictureKind(
    name="rank",
    title="ranks by chain",
    draw=draw_rank,
    alt=rank_alt,
    refusal=rank_refusal,
    place="chains",
    hint="Bars of even height say that the chains agree.",
)
