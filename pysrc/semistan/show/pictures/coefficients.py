"""Forest plot of the coefficients: mean, 50% and 95% interval.

Coefficients are in different units: they share an axis only while the narrowest 95% interval is
wider than 1/30 of that axis; otherwise each has a panel of its own. Standardised coefficients
(theta times the column's standard deviation) always share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.ordinal import intercept_names
from semistan.model.orthogonal import INTERCEPT, slope_columns
from semistan.model.terms.term import Modelled
from semistan.posterior.posterior import Posterior
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import (
    FAINT,
    colour,
    finish,
    label,
    new_figure,
    wrapped,
)
from semistan.show.pictures.words import coefficient_words, interval_words, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NARROWEST = 1 / 30  # of the axis, the least width of a readable interval


def draw_coefficients(material: Material, *, standardise: bool = False) -> Figure:
    """Draw the coefficients of one or several fits, and their dispersion apart.

    Parameters
    ----------
    material : Material
        The fits.
    standardise : bool
        Multiply each coefficient with its column's standard deviation, for one common axis.
    """
    fits = [(name, _values(material, fit, standardise)) for name, fit in material.several]
    groups = _groups(fits, material, standardise)
    words = [_axis(material, group, standardise) for group in groups]
    heights = [0.38 + len(group) * (0.16 + 0.16 * len(fits)) for group in groups]
    figure = new_figure(sum(heights) + 0.24 * len(set(words)))
    grid = figure.add_gridspec(len(groups), 1, height_ratios=heights)
    for i, group in enumerate(groups):
        axes = figure.add_subplot(grid[i])
        _forest(axes, group, fits, material.posterior.design.respelled)
        if _slopes(material).intersection(group):
            axes.axvline(0, color=FAINT, linewidth=1, zorder=0)
        if words[i] not in words[i + 1 :]:
            axes.set_xlabel(words[i])
    return finish(
        figure,
        f"{material.source} of the coefficients",
        caption="Points: means; thick lines: 50% and thin lines: 95% intervals. "
        + _caption(groups, _coefficients(material), standardise),
        handles=_handles([name for name, _ in fits]) if len(fits) > 1 else (),
    )


def coefficients_alt(material: Material, *, standardise: bool = False) -> str:
    """Say mean and interval of each coefficient."""
    fits = [(name, _values(material, fit, standardise)) for name, fit in material.several]
    parts = [
        f"{name}{f' of {fit}' if material.others else ''}: {interval_words(values[name])}"
        for name in dict.fromkeys(name for _, values in fits for name in values)
        for fit, values in fits
        if name in values
    ]
    scale = "standardised " if standardise else ""
    return f"{material.source} of the {scale}coefficients. {listed(parts, 12)}."


def _coefficients(material: Material) -> set[str]:
    return {name for _, fit in material.several for name in fit.coefficients}


def _slopes(material: Material) -> set[str]:
    """Return the coefficients that could be zero; intercepts have no such point."""
    return _coefficients(material) - set(_all_intercepts(material))


def _values(material: Material, fit: Posterior, standardise: bool) -> dict[str, Array]:
    """Return the draws of each quantity by name, on the scale that is shown."""
    if not standardise:
        return fit.interpreted
    units, design = material.posterior.units, material.posterior.design
    columns = slope_columns(material.posterior.config, design)
    scales = {name: units.x_scale[j] for name, j in columns.items()}
    for item in material.posterior.design.of_categories:
        scales |= dict(zip(item.coefficients, units.columns[item.name][1], strict=True))
    return {
        name: values * scales[name] for name, values in fit.coefficients.items() if name in scales
    }


def _groups(
    fits: list[tuple[str, dict[str, Array]]], material: Material, standardise: bool
) -> list[list[str]]:
    """Split the names into those that share an axis."""
    names = list(dict.fromkeys(name for _, values in fits for name in values))
    varying = [name for item in material.posterior.design.of_dispersion for name in item.names]
    apart = (*_all_intercepts(material), *material.posterior.family.dispersion, *varying)
    slopes = _coefficients(material)
    theta = [name for name in names if name not in apart and name in slopes]
    own = _own_units(material)
    of_terms = [name for name in names if name not in (*apart, *slopes, *own)]
    groups = _sharing(theta, fits, shared=standardise) + _sharing(of_terms, fits)
    for column in dict.fromkeys(own.values()):
        groups += _sharing([name for name in names if own.get(name) == column], fits)
    return groups + [[name] for name in apart if name in names]


def _own_units(material: Material) -> dict[str, str]:
    """Return the columns in whose units quantities of terms are, by their names."""
    terms = (term for term in material.posterior.design.terms if isinstance(term, Modelled))
    return {name: column for term in terms for name, column in term.own_units.items()}


def _sharing(
    names: list[str], fits: list[tuple[str, dict[str, Array]]], *, shared: bool = False
) -> list[list[str]]:
    """Put names on one axis if they are readable there, or must be, else each on its own."""
    together = bool(names) and (shared or _readable(names, fits))
    return [names] if together else [[name] for name in names]


def _readable(names: list[str], fits: list[tuple[str, dict[str, Array]]]) -> bool:
    bounds = np.array(
        [np.quantile(values[n], (0.025, 0.975)) for _, values in fits for n in names if n in values]
    )
    if not len(bounds):
        return True
    span = max(bounds.max(), 0) - min(bounds.min(), 0)
    return bool(np.ptp(bounds, axis=1).min() >= NARROWEST * span)


def _forest(
    axes: Axes,
    names: list[str],
    fits: list[tuple[str, dict[str, Array]]],
    columns: Mapping[str, str],
) -> None:
    told = {name: f"{name}: {column}" for name, column in columns.items()}
    offsets = 0.3 * (np.arange(len(fits)) - (len(fits) - 1) / 2) / max(1, len(fits) - 1) * 1.6
    for j, (_, values) in enumerate(fits):
        for i, name in enumerate(names):
            if name in values:
                _interval(axes, i + (offsets[j] if len(fits) > 1 else 0), values[name], colour(j))
    axes.set_yticks(range(len(names)), [wrapped(told.get(name, name)) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _interval(axes: Axes, at: float, values: Array, shade: str) -> None:
    lowest, lower, upper, highest = np.quantile(values, (0.025, 0.25, 0.75, 0.975))
    axes.plot([lowest, highest], [at, at], color=shade, linewidth=1.4)
    axes.plot([lower, upper], [at, at], color=shade, linewidth=4)
    axes.plot(
        [values.mean()], [at], "o", color=shade, markeredgecolor="white", markeredgewidth=0.8,
        markersize=6,
    )  # fmt: skip


def _all_intercepts(material: Material) -> tuple[str, ...]:
    K, design = material.posterior.family.reported_categories, material.posterior.design
    own = (*intercept_names(K, design.intercept), *intercept_names(K, INTERCEPT))
    return (*own, *(item.intercept for item in design.of_categories))


def _axis(material: Material, group: list[str], standardise: bool) -> str:
    for item in material.posterior.family.parameters:
        if item.name == group[0]:
            return f"{item.name}, in units of {material.response}" if item.has_units else item.name
    for parameter in material.posterior.design.of_dispersion:
        if group[0] in parameter.names:
            return parameter.words
    if group[0] in _all_intercepts(material):
        return f"{coefficient_words(material)}, with structured columns at 0"
    if column := _own_units(material).get(group[0]):
        return f"in the units of {column}"
    if group[0] not in _coefficients(material):  # of terms: standard deviations, correlations
        return f"in the units of {coefficient_words(material)}"
    unit = "one standard deviation" if standardise else "one unit"
    return f"change of {coefficient_words(material)} for {unit} of the column"


def _caption(groups: list[list[str]], coefficients: set[str], standardise: bool) -> str:
    if standardise:
        return "Each coefficient is multiplied with the standard deviation of its column."
    apart = sum(group[0] in coefficients for group in groups) > 1
    return "Scales that differ much have axes of their own." if apart else ""


def _handles(names: list[str]) -> list[object]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour(j), marker="o", markeredgecolor="white", label=label(name))
        for j, name in enumerate(names)
    ]


COEFFICIENTS = PictureKind(
    name="coefficients",
    title="coefficients with intervals",
    draw=draw_coefficients,
    alt=coefficients_alt,
    place="coefficients",
)
