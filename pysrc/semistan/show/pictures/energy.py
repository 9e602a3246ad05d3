"""Energy of the sampler: its marginal distribution, and its change in one transition.

If the changes are much narrower than the marginal distribution, a chain explores the energy
slowly; E-BFMI is the ratio of their variances (Betancourt, 2016, arXiv:1604.00695).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.diagnostics import EBFMI_LIMIT, ebfmi
from semistan.show.pictures.kde import density
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import colour, finish, new_figure, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def energy_refusal(material: Material) -> str:
    """Say why there is no energy: only NUTS has one."""
    if "energy" in material.posterior.sampler:
        return ""
    return f"draws of {material.posterior.method.text} have no energy"


def draw_energy(material: Material) -> Figure:
    """Draw one panel for each chain."""
    energy, ratios = material.posterior.sampler["energy"], _ratios(material)
    columns = min(4, len(energy))
    figure = new_figure(2.1 * -(-len(energy) // columns))
    shown = panels(figure, len(energy), columns)
    for j, axes in enumerate(shown):
        _chain(axes, energy[j])
        axes.set_title(f"chain {j + 1}: E-BFMI {ratios[j]:.2f}", loc="left", fontsize=9)
        axes.set_xlabel("energy")
    return finish(
        figure,
        "Energy by chain",
        caption=f"An E-BFMI below {EBFMI_LIMIT} says that the chain explores the energy slowly.",
        handles=_handles(),
    )


def energy_alt(material: Material) -> str:
    """Say the E-BFMI of each chain."""
    ratios = ", ".join(f"{ratio:.2f}" for ratio in _ratios(material))
    return f"Energy of the sampler: E-BFMI by chain {ratios} (limit {EBFMI_LIMIT})."


def _ratios(material: Material) -> Array:
    with np.errstate(invalid="ignore"):
        return ebfmi(material.posterior.sampler["energy"])


def _chain(axes: Axes, energy: Array) -> None:
    for j, values in enumerate((energy - energy.mean(), np.diff(energy))):
        grid, pdf = density(values)
        axes.plot(grid, pdf, color=colour(j))
        axes.fill_between(grid, np.zeros_like(pdf), pdf, color=colour(j), alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _handles() -> list[object]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour(0), label="energy less its mean"),
        Line2D([], [], color=colour(1), label="change in one transition"),
    ]


ENERGY = PictureKind(
    name="energy",
    title="energy of the sampler by chain",
    draw=draw_energy,
    alt=energy_alt,
    refusal=energy_refusal,
    place="chains",
)
