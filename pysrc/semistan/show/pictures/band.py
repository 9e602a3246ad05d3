"""Posterior predictive band over one input, observed points on top (Figure 1 of Dold et al., 2024).

The other columns are held as conditional effects hold them: numbers at their mean, factors at
their first level. The band holds new responses; for a binary response, which has no band, it
holds the mean instead, and that is the probability of one category of an unordered response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.design import apply_design
from semistan.model.formula.formula import parse_formula
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.categories import category_names, category_position, observed_shares
from semistan.posterior.effects.columns import (
    FEW_VALUES,
    Predictors,
    check_variables,
    held_at,
    predictors_of,
    typical_values,
)
from semistan.posterior.predictive import distribution, expected
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import MOST_DRAWS, Material, which_rows
from semistan.show.pictures.style import INK, colour, finish, label, new_figure
from semistan.show.pictures.words import held_words, mean_words, number, value_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Step = Literal["mid"] | None

GRID = 101  # points along the input
MOST_LEVELS = 6  # of the column that colours
MOST_POINTS = 2000
RESPONSES = 40_000  # new responses at a point of the grid
PROBABILITIES = (0.05, 0.25, 0.75, 0.95)


@dataclass(frozen=True, slots=True, eq=False)
class _Band:
    """Quantiles (4, G) of the response, and the mean of mu (G,), at one level."""

    quantiles: Array
    mean: Array


def draw_band(
    material: Material,
    *,
    variable: str | None = None,
    by: str | None = None,
    category: str | None = None,
) -> Figure:
    """Draw 50% and 90% bands and the mean over one numeric column.

    Parameters
    ----------
    material : Material
        The fit.
    variable : str, optional
        A numeric column that the formula uses; the network's first one by default.
    by : str, optional
        A factor, or a column with at most six values, that colours bands and points.
    category : str, optional
        Draw the probability of this category; of an unordered response that of the second one by
        default.

    Raises
    ------
    InputError
        For unknown columns or categories, a factor as variable, or too many levels.
    """
    category = _category(material, category)
    predictors, variable, levels = _columns(material, variable, by)
    held = {n: v for n, v in typical_values(predictors, {}).items() if n not in (variable, by)}
    values = predictors.frame[variable].to_numpy(dtype=float)
    grid = np.linspace(values.min(), values.max(), GRID)
    whole = material.posterior.family.integer and not _is_probability(material, category)
    figure = new_figure(3.9)
    axes = figure.add_subplot()
    for j, level in enumerate(levels):
        band = _band(material, {variable: grid, **held}, by, level, category)
        _ribbons(axes, grid, band, colour(j), "mid" if whole else None)
    shown = _points(material, axes, values, by, levels, category)
    axes.set_xlabel(variable)
    axes.set_ylabel(_response_label(material, category))
    return finish(
        figure,
        f"{material.source} predictive band over {variable}",
        caption=f"{which_rows(shown, len(values))}. {held_words(held)}",
        handles=_handles(material, by, levels, category),
    )


def band_alt(
    material: Material,
    *,
    variable: str | None = None,
    by: str | None = None,
    category: str | None = None,
) -> str:
    """Say how the mean changes from the smallest to the largest value of the input."""
    category = _category(material, category)
    predictors, variable, levels = _columns(material, variable, by)
    held = {n: v for n, v in typical_values(predictors, {}).items() if n not in (variable, by)}
    values = predictors.frame[variable].to_numpy(dtype=float)
    ends = np.array([values.min(), values.max()])
    parts = []
    for level in levels:
        mean = _band(material, {variable: ends, **held}, by, level, category).mean
        at = f" at {by} = {value_words(level)}" if by else ""
        parts.append(f"from {number(mean[0])} to {number(mean[1])}{at}")
    return (
        f"{material.source} predictive band of {material.response} over {variable}: "
        f"{mean_words(material, category)} goes {', '.join(parts)} as {variable} goes from "
        f"{number(ends[0])} to {number(ends[1])}."
    )


def _category(material: Material, category: str | None) -> str | None:
    """Return the category whose probability is drawn, if there is one."""
    if category is None and material.posterior.family.mean is not None:
        return None
    family, design = material.posterior.family, material.posterior.design
    return category_names(family, design)[category_position(family, design, category)]


def _columns(
    material: Material, variable: str | None, by: str | None
) -> tuple[Predictors, str, tuple[Any, ...]]:
    """Check both columns; return the predictors, the variable and the levels of ``by``."""
    predictors = predictors_of(material.posterior, material.table)
    if variable is None:
        variable = _first_input(material, predictors, by)
    check_variables(material.posterior.design, (variable, *((by,) if by else ())))
    if variable == by:
        raise InputError(f"column '{variable}' cannot be both variable and by")
    if variable in predictors.levels:
        raise InputError(
            f"a band needs a numeric column, and '{variable}' is a factor; colour by it (by=) or "
            "draw its effect"
        )
    return predictors, variable, _levels(predictors, by)


def _first_input(material: Material, predictors: Predictors, by: str | None) -> str:
    """Return the network's first numeric column, or else its first one; of images, none."""
    formula = parse_formula(material.posterior.design.formula)
    names = formula.network_variables or formula.mean.structured_variables
    if not names:
        raise InputError("a band needs a numeric column, and this model has none but images")
    numeric = (name for name in names if name != by and name not in predictors.levels)
    return next(numeric, names[0])


def _levels(predictors: Predictors, by: str | None) -> tuple[Any, ...]:
    if by is None:
        return (None,)
    levels = predictors.levels.get(by) or tuple(sorted(predictors.frame[by].unique()))
    if len(levels) > MOST_LEVELS:
        raise InputError(
            f"by= needs a column with at most {MOST_LEVELS} values, and '{by}' has {len(levels)}"
        )
    return levels


def _band(
    material: Material, columns: dict[str, Any], by: str | None, level: Any, category: str | None
) -> _Band:
    import pandas as pd

    (variable, grid), *held = columns.items()
    values = held_at(dict(held), len(grid)) | ({by: level} if by else {})
    frame = pd.DataFrame({variable: grid, **values})
    posterior = material.posterior.thin(4 * MOST_DRAWS)
    family, design = posterior.family, posterior.design
    rows = apply_design(design, frame, response=False)
    eta, parameters = posterior.predictor(rows), distribution(posterior, rows)
    if category is not None:
        mu = expected(family, eta, parameters)[..., category_position(family, design, category)]
    else:
        assert family.mean is not None
        mu = family.mean(eta, parameters)
    if _is_probability(material, category):
        return _Band(np.quantile(mu, PROBABILITIES, axis=0), mu.mean(axis=0))
    return _Band(_predictive_quantiles(material, parameters, eta), mu.mean(axis=0))


def _is_probability(material: Material, category: str | None) -> bool:
    return category is not None or material.posterior.family.binary


def _predictive_quantiles(material: Material, parameters: dict[str, Array], eta: Array) -> Array:
    """Return quantiles (4, G) of new responses at eta (S, G).

    Every point of the grid has the same random numbers, so that the band is smooth in the input.
    """
    family = material.posterior.family
    repeated = np.tile(eta, (max(1, RESPONSES // len(eta)), 1))
    repeats = len(repeated) // len(eta)
    columns = {name: np.broadcast_to(value, eta.shape) for name, value in parameters.items()}
    at_point = [
        {name: np.tile(value[:, g], repeats) for name, value in columns.items()}
        for g in range(eta.shape[1])
    ]
    method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if family.integer else "linear"
    quantiles = [
        np.quantile(family.rng(column, given, material.generator()), PROBABILITIES,
                    method=method)
        for column, given in zip(repeated.T, at_point, strict=True)
    ]  # fmt: skip
    return np.stack(quantiles, axis=1)


def _ribbons(axes: Axes, grid: Array, band: _Band, shade: str, step: Step) -> None:
    lowest, lower, upper, highest = band.quantiles
    axes.fill_between(grid, lowest, highest, color=shade, alpha=0.15, linewidth=0, step=step)
    axes.fill_between(grid, lower, upper, color=shade, alpha=0.25, linewidth=0, step=step)
    axes.plot(grid, band.mean, color=shade, linewidth=2, zorder=4)


def _points(
    material: Material,
    axes: Axes,
    values: Array,
    by: str | None,
    levels: tuple[Any, ...],
    category: str | None,
) -> int:
    """Draw observed rows, at most ``MOST_POINTS``; return how many."""
    chosen = evenly_spaced(len(values), MOST_POINTS)
    assert material.rows.y is not None
    y = material.rows.y[chosen]
    if category is not None:
        family, design = material.posterior.family, material.posterior.design
        names = category_names(family, design)
        y = observed_shares(y, len(names))[:, category_position(family, design, category)]
    x, y = _jittered(material, values[chosen], y, category)
    group = material.table[by].to_numpy()[chosen] if by else None
    alpha = float(np.clip(150 / len(y), 0.2, 0.6))
    for j, level in enumerate(levels):
        here = np.full(len(y), True) if group is None else group == level
        axes.plot(
            x[here], y[here], "o", color=INK if by is None else colour(j), markersize=3.2,
            alpha=alpha, markeredgewidth=0, zorder=3, rasterized=len(y) > 500,
        )  # fmt: skip
    return len(y)


def _jittered(material: Material, x: Array, y: Array, category: str | None) -> tuple[Array, Array]:
    """Move points apart that would lie on each other."""
    generator = material.generator()
    distinct = np.unique(x)
    if distinct.size <= FEW_VALUES:
        x = x + 0.15 * np.diff(distinct).min() * generator.uniform(-1, 1, len(x))
    if material.posterior.family.integer:
        spread = 0.03 if _is_probability(material, category) else 0.25
        y = y + spread * generator.uniform(-1, 1, len(y))
    return x, y


def _response_label(material: Material, category: str | None) -> str:
    return (
        mean_words(material, category)
        if _is_probability(material, category)
        else (material.response)
    )


def _handles(
    material: Material, by: str | None, levels: tuple[Any, ...], category: str | None
) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    what = material.response
    if _is_probability(material, category):
        of = "mean share" if material.posterior.family.composed else "probability"
        what = "the mean" if category is None else f"the {of}"
    shade = colour(0) if by is None else "#777777"
    colours = [
        Line2D(
            [],
            [],
            color=colour(j),
            marker="o",
            markersize=4,
            label=label(f"{by} = {value_words(level)}"),
        )
        for j, level in enumerate(levels)
        if by
    ]
    return [
        *colours,
        Line2D([], [], color=shade, linewidth=2, label=mean_words(material, category)),
        Patch(color=shade, alpha=0.4, linewidth=0, label=f"50% of {what}"),
        Patch(color=shade, alpha=0.15, linewidth=0, label=f"90% of {what}"),
        *([_points_handle(material, by)] if _is_probability(material, category) else []),
    ]


def _points_handle(material: Material, by: str | None) -> Any:
    """Say where points lie: of a single observation at 0 or 1."""
    from matplotlib.lines import Line2D

    shade = INK if by is None else "#777777"
    shares = material.posterior.family.counted
    text = "rows: the observed share" if shares else "rows: 1 where it is so, else 0"
    return Line2D([], [], color=shade, marker="o", markersize=3.2, linestyle="", label=text)


BAND = PictureKind(
    name="band",
    title="predictive band over one input",
    draw=draw_band,
    alt=band_alt,
    reason="the page has the effects of every column",
)
