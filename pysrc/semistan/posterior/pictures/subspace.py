"""The subspace: log posterior density on a slice, control points, trained curve and draws.

The slice goes through the posterior mean, along two columns of Pi; control points, curve and
draws are projected onto it. Compare Figure 2 of Dold et al. (2024) and Figure 1 of Izmailov et
al. (2020), Subspace Inference for Bayesian Deep Learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.posterior.draws import Array
from semistan.posterior.pictures.material import Material, evenly_spaced
from semistan.posterior.pictures.style import INK, colour, finish, new_figure
from semistan.posterior.pictures.words import number
from semistan.stan.priors import sampled_dispersion
from semistan.stan.target import make_target, negative_log_posterior
from semistan.subspace.curve import curve_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WHAT = ("posterior", "likelihood")
LEVELS = (-300.0, -100.0, -30.0, -10.0, -3.0, -1.0, 0.0)
SHADES = ("#f7fafc", "#e6eff6", "#d2e2ef", "#b9d2e6", "#9cbfdb", "#7fabcf", "#5f95c1")
LEAST_DRAWN = -30  # of the profile in one dimension
ROW_EVALUATIONS = 10_000_000  # rows times points of the grid
MOST_POINTS = 500


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A log density over one or two directions.

    Attributes
    ----------
    axes : tuple of arrays, shape (n,)
        Coordinates in each direction.
    values : array, shape (n,) or (n, n)
        Log density relative to its maximum here; the second direction comes first.
    """

    axes: tuple[Array, ...]
    values: Array


def draw_subspace(
    material: Material, *, directions: tuple[int, int] = (1, 2), what: str = "posterior"
) -> Figure:
    """Draw contours of the log density in two directions, or its profile if k = 1.

    Parameters
    ----------
    material : Material
        The fit.
    directions : tuple of int
        Two columns of Pi, counted from 1.
    what : str
        ``posterior`` or ``likelihood``.

    Raises
    ------
    InputError
        For directions that the subspace does not have, an unknown density, or the likelihood of
        a run that draws from the prior.
    """
    chosen = _directions(material, directions)
    density = _density_words(material, what)
    part = density_slice(material, chosen, what)
    figure = new_figure(3.6 if len(chosen) == 1 else 4.6)
    axes = figure.add_subplot()
    if len(chosen) == 1:
        _profile(axes, part, density)
    else:
        _contours(figure, axes, part, density, chosen)
    handles = _overlay(axes, material, chosen)
    axes.set_xlabel(f"phi[{chosen[0] + 1}]")
    return finish(
        figure, f"Subspace: {density}", caption=_caption(material, chosen), handles=handles
    )


def subspace_alt(
    material: Material, *, directions: tuple[int, int] = (1, 2), what: str = "posterior"
) -> str:
    """Say where the draws lie in the directions that are drawn."""
    chosen = _directions(material, directions)
    k, points = material.bundle.subspace.k, material.bundle.trained.control_points
    parts = [
        f"phi[{i + 1}] has mean {number(material.draws.phi[..., i].mean())} and standard deviation "
        f"{number(material.draws.phi[..., i].std())}"
        for i in chosen
    ]
    return (
        f"{_density_words(material, what).capitalize()} in a slice of the {k}-dimensional "
        f"subspace, with {len(points)} control points and draws: {'; '.join(parts)}."
    )


def _directions(material: Material, directions: tuple[int, int]) -> tuple[int, ...]:
    """Return the directions from 0; the only one there is if k = 1."""
    k = material.bundle.subspace.k
    if k == 1:
        return (0,)
    if len(set(directions)) != 2 or not all(1 <= i <= k for i in directions):
        raise InputError(f"directions are two different numbers from 1 to {k}, got {directions}")
    return tuple(i - 1 for i in directions)


def _density_words(material: Material, what: str) -> str:
    if what not in WHAT:
        raise InputError(f"unknown density '{what}'.{did_you_mean(what, WHAT)}")
    if material.prior_only and what == "likelihood":
        raise InputError("a run that draws from the prior has no likelihood to draw")
    return f"log {'prior' if material.prior_only else what} density"


def density_slice(material: Material, chosen: tuple[int, ...], what: str) -> Slice:
    """Evaluate a log density on a grid through the posterior mean.

    Parameters
    ----------
    material : Material
        The fit.
    chosen : tuple of int
        One or two columns of Pi, counted from 0.
    what : str
        ``posterior`` or ``likelihood``.
    """
    import torch

    rows = material.rows
    full = make_target(material.bundle, rows, prior_only=material.prior_only)
    prior = make_target(material.bundle, rows, prior_only=True)
    size = int(np.clip(np.sqrt(ROW_EVALUATIONS / len(rows)), 15, 61))
    coordinates = [_range(material, i, size if len(chosen) == 2 else 201) for i in chosen]
    q = torch.tensor(_centre(material))
    values = []
    mesh = np.stack(np.meshgrid(*coordinates), axis=-1)
    for point in mesh.reshape(-1, len(chosen)):
        q[list(chosen)] = torch.tensor(point)
        value = -negative_log_posterior(full, q)
        values.append(value + negative_log_posterior(prior, q) if what == "likelihood" else value)
    density = np.array(values).reshape(mesh.shape[:-1])
    relative = np.nan_to_num(density - np.nanmax(density), nan=-np.inf)
    return Slice(tuple(coordinates), np.maximum(relative, -1e300))


def _centre(material: Material) -> Array:
    """Return the posterior mean in the program's unconstrained coordinates."""
    bundle, draws = material.bundle, material.draws
    names = sampled_dispersion(bundle.config, bundle.family)
    return np.concatenate(
        [
            draws.flat(draws.phi).mean(axis=0),
            draws.flat(draws.theta).mean(axis=0) / bundle.units.theta_scale,
            [np.log(draws.dispersion[name]).mean() for name in names],
        ]
    )


def _range(material: Material, i: int, size: int) -> Array:
    """Cover the draws and the control points in one direction."""
    phi = material.draws.phi[..., i]
    covered = np.concatenate([np.quantile(phi, (0.005, 0.995)), _control_points(material)[:, i]])
    margin = 0.12 * np.ptp(covered) or 1.0
    return np.linspace(covered.min() - margin, covered.max() + margin, size)


def _control_points(material: Material) -> Array:
    points = material.bundle.trained.control_points
    return material.bundle.subspace.project(points.reshape(-1, material.bundle.subspace.d))


def _profile(axes: Axes, part: Slice, density: str) -> None:
    axes.plot(part.axes[0], part.values, color=colour(0))
    axes.set_ylim(LEAST_DRAWN, 2)
    axes.set_ylabel(f"{density}, relative to its maximum")


def _contours(
    figure: Figure, axes: Axes, part: Slice, density: str, chosen: tuple[int, ...]
) -> None:
    values = np.maximum(part.values, 2 * LEVELS[0])
    filled = axes.contourf(*part.axes, values, levels=LEVELS, colors=SHADES, extend="min")
    axes.contour(*part.axes, values, levels=LEVELS[:-1], colors="white", linewidths=0.7,
                 linestyles="solid")  # fmt: skip
    bar = figure.colorbar(filled, ax=axes, spacing="uniform", pad=0.02)
    bar.set_label(f"{density}, relative to its maximum here")
    axes.set_ylabel(f"phi[{chosen[1] + 1}]")
    axes.spines[["top", "right"]].set_visible(True)


def _overlay(axes: Axes, material: Material, chosen: tuple[int, ...]) -> list[Any]:
    """Draw draws, control points and curve; return the legend's entries."""
    phi = material.draws.flat(material.draws.phi)
    phi = phi[evenly_spaced(len(phi), MOST_POINTS)]
    axes.autoscale(False)  # the draws beyond the grid are few
    handles = axes.plot(
        *_coordinates(axes, phi, chosen), "o", color=INK, markersize=2.8, alpha=0.45,
        markeredgewidth=0, label=f"{material.source.lower()} draws",
    )  # fmt: skip
    points = _control_points(material)
    if len(points) and material.bundle.trained.curve:
        t = np.linspace(0, 1, 201)
        curve = curve_points(material.bundle.trained.control_points, t)
        projected = material.bundle.subspace.project(curve)
        handles += axes.plot(
            *_coordinates(axes, projected, chosen), color=colour(3), linewidth=2.4,
            label="trained curve",
        )  # fmt: skip
    if len(points):
        handles += axes.plot(
            *_coordinates(axes, points, chosen), "D", color=colour(1), markersize=6.5,
            markeredgecolor="white", label="control points", clip_on=False,
        )  # fmt: skip
    return list(handles)


def _coordinates(axes: Axes, phi: Array, chosen: tuple[int, ...]) -> tuple[Array, Array]:
    """Return what to draw for points (n, k): in one dimension they lie near the axis."""
    if len(chosen) == 2:
        return phi[:, chosen[0]], phi[:, chosen[1]]
    return phi[:, 0], np.full(len(phi), axes.get_ylim()[0] + 1)


def _caption(material: Material, chosen: tuple[int, ...]) -> str:
    rest = "Coefficients and dispersion are held"
    if material.bundle.subspace.k > len(chosen):
        rest = "Other directions, coefficients and dispersion are held"
    projected = ", control points and curve are projected" if len(chosen) == 2 else ""
    verb = f"; draws{projected} onto the plane" if projected else ""
    return f"{rest} at their means{verb}."
