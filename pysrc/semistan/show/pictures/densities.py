"""Marginal densities of theta, several fits overlaid (Figures 3 and 10 of Dold et al., 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.families.ordinal import intercept_names
from semistan.model.orthogonal import raw_columns, slope_columns
from semistan.posterior.posterior import Posterior
from semistan.show.pictures.kde import density
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import (
    INK,
    colour,
    finish,
    label,
    new_figure,
    panels,
    wrapped,
)
from semistan.show.pictures.words import interval_words, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_densities(material: Material) -> Figure:
    """Draw one panel for each coefficient, or for the intercept if there is none."""
    names = _shown(material)
    trained = _trained(material)
    columns = 2 if len(names) in (2, 4) else min(3, len(names))
    figure = new_figure((2.6 if len(names) == 1 else 1.9) * -(-len(names) // columns))
    for axes, name in zip(panels(figure, len(names), columns), names, strict=True):
        _densities(axes, name, material.several)
        if name in trained:
            axes.plot([trained[name]], [0], marker="|", markersize=22, markeredgewidth=2, color=INK)
        axes.set_xlabel(wrapped(name))
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.locator_params(axis="x", nbins=5)
        axes.spines["left"].set_visible(False)
    return finish(
        figure,
        f"{material.source} densities of the coefficients",
        handles=_handles(material, bool(trained)),
    )


def densities_alt(material: Material) -> str:
    """Say mean and interval of each coefficient in each fit."""
    parts = [
        f"{name}{f' of {fit}' if material.others else ''}: {interval_words(values[name])}"
        for name in _shown(material)
        for fit, values in ((name, fit.coefficients) for name, fit in material.several)
        if name in values
    ]
    return f"{material.source} densities. {listed(parts, 12)}."


def _names(material: Material) -> tuple[str, ...]:
    family, design = material.posterior.family, material.posterior.design
    slopes = tuple(slope_columns(material.posterior.config, design))
    return slopes or intercept_names(family.reported_categories, design.intercept)


def _shown(material: Material) -> tuple[str, ...]:
    """Return the coefficients of eta, and those of the other unordered categories."""
    others = material.posterior.design.of_categories
    return (*_names(material), *(name for item in others for name in item.coefficients))


def _trained(material: Material) -> dict[str, float]:
    """Return the values that training found; each subspace of a mixture has others."""
    if len(material.posterior.members) > 1:
        return {}
    bundle = material.posterior.members[0].bundle
    columns = raw_columns(bundle.config, bundle.design)
    found = {name: float(bundle.trained.theta[j]) for name, j in columns.items()}
    for item in bundle.design.others:
        found |= zip(item.coefficients, bundle.trained.linear[item.name].tolist(), strict=True)
    return found


def _densities(axes: Axes, name: str, several: tuple[tuple[str, Posterior], ...]) -> None:
    for j, (_, fit) in enumerate(several):
        if name in (values := fit.coefficients):
            grid, pdf = density(values[name])
            axes.plot(grid, pdf, color=colour(j))
            if len(several) == 1:
                axes.fill_between(grid, np.zeros_like(pdf), pdf, color=colour(j), alpha=0.15, lw=0)


def _handles(material: Material, trained: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    fits = [
        Line2D([], [], color=colour(j), label=label(name))
        for j, (name, _) in enumerate(material.several)
    ]
    tick = Line2D(
        [], [], color=INK, marker="|", markersize=10, markeredgewidth=2, linestyle="",
        label="trained value",
    )  # fmt: skip
    return [*(fits if material.others else []), *([tick] if trained else [])]


DENSITIES = PictureKind(
    name="densities",
    title="densities of the coefficients",
    draw=draw_densities,
    alt=densities_alt,
    place="coefficients",
)
