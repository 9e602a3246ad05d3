"""A slice of the subspace: log density in one or two directions, and what lies near it.

With all other coordinates of the program at a centre q*, the log density is evaluated at

    q = q* + a e_i (+ b e_j),    q = (phi / phi_scale, theta / theta_scale, log dispersion, ...)

and shown over phi_i and phi_j. Control points, the trained curve and draws are projected onto it.
The centre is the mean of the draws; without draws it is the trained network, or the centre of a
trained curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.starts import start_state, trained_phi, trained_values
from semistan.density.target import (
    Target,
    evaluated,
    log_likelihood,
    log_prior,
    make_target,
)
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.priors.groups import PHI
from semistan.model.table.rows import Rows, evenly_spaced
from semistan.posterior.draws import Draws
from semistan.show.pictures.material import evenly
from semistan.show.pictures.style import INK, colour
from semistan.subspace.curve import curve_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

LEVELS = (-300.0, -100.0, -30.0, -10.0, -3.0, -1.0, 0.0)
SHADES = ("#f7fafc", "#e6eff6", "#d2e2ef", "#b9d2e6", "#9cbfdb", "#7fabcf", "#5f95c1")
LEAST_DRAWN = -30  # of the profile in one dimension
SIDE, LINE = 41, 201  # points along each side of a plane, and on a line
MOST_ROWS = 2000
MOST_POINTS = 500  # draws that are shown
ANGLES, REACHES = 24, np.geomspace(1e-3, 1e2, 51)  # where the mass is looked for without draws
NEAR = 10.0  # below the largest log density, what still is to be seen


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A log density over one or two directions.

    Attributes
    ----------
    axes : tuple of arrays, shape (n,)
        Values of phi in each direction.
    values : array, shape (n,) or (n, n)
        Log density relative to its maximum here; the second direction comes first.
    """

    axes: tuple[Array, ...]
    values: Array


@dataclass(frozen=True, eq=False)
class Plane:
    """Where to slice.

    Attributes
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows.
    draws : Draws or None
        Draws of it, if there are any.
    chosen : tuple of int
        One or two coordinates of phi, counted from 0.
    what : str
        ``posterior`` or ``likelihood``.
    prior_only : bool
        Whether the draws are from the prior, which then is what is evaluated.
    """

    bundle: Bundle
    rows: Rows
    draws: Draws | None
    chosen: tuple[int, ...]
    what: str = "posterior"
    prior_only: bool = False

    @property
    def words(self) -> str:
        """Name the density."""
        return f"log {'prior' if self.prior_only else self.what} density"

    @cached_property
    def centre(self) -> Array:
        """The slice's point q* in the program's coordinates."""
        bundle, draws = self.bundle, self.draws
        values = trained_values(bundle) | {PHI: trained_phi(bundle)}
        if draws is None:
            return start_state(bundle, values)
        q = start_state(bundle, values | mean_values(bundle, draws))
        for parameter in bundle.layout.parameters:
            if parameter.name in draws.interpreted:
                drawn = draws.interpreted[parameter.name] / parameter.unit
                q[bundle.layout.slices[parameter.name]] = parameter.kind.coordinates(drawn).mean()
        return q

    @cached_property
    def control_points(self) -> Array:
        """The control points' coordinates (m, k)."""
        points = self.bundle.trained.control_points
        return self.bundle.subspace.project(points.reshape(-1, self.bundle.subspace.d))

    def density(self, points: Array) -> Array:
        """Evaluate the log density with phi at given points (..., 1 or 2) of the slice.

        Of tables with more than 2000 rows, so many evenly spaced ones stand for all.
        """
        q = np.broadcast_to(self.centre, (*points.shape[:-1], len(self.centre))).copy()
        q[..., list(self.chosen)] = points / self.bundle.subspace.phi_scale[list(self.chosen)]
        rows = evenly(self.rows, MOST_ROWS)
        target = make_target(self.bundle, rows, prior_only=self.prior_only)
        function = self._function(target, len(self.rows) / len(rows))
        values = evaluated(function, q.reshape(-1, q.shape[-1]), target)
        return np.asarray(values.reshape(points.shape[:-1]))

    def _function(self, target: Target, weight: float) -> Callable[[Tensor], Tensor]:
        if self.prior_only:
            return lambda q: log_prior(target, q)
        if self.what == "likelihood":
            return lambda q: weight * log_likelihood(target, q)
        return lambda q: log_prior(target, q) + weight * log_likelihood(target, q)


def mean_values(bundle: Bundle, draws: Draws) -> dict[str, Any]:
    """Return the draws' means of phi and of each predictor's coefficients, by name."""
    both = {PHI: draws.phi, bundle.design.mean.theta: draws.theta}
    values: dict[str, Any] = {name: draws.flat(x).mean(axis=0) for name, x in both.items()}
    for item in bundle.design.others:
        names = (item.intercept, *item.coefficients)
        intercept, *others = (draws.coefficients[name].mean() for name in names)
        start, theta = bundle.units.location(bundle.family, item.name), np.array(others)
        values[item.tau] = intercept + theta @ bundle.units.columns[item.name][0] - start
        values[item.theta] = theta
    return values


def evaluate(plane: Plane) -> Slice:
    """Evaluate the log density on a grid: 41 x 41 points, or 201 on a line."""
    size = LINE if len(plane.chosen) == 1 else SIDE
    coordinates = [np.linspace(*limits, size) for limits in _limits(plane)]
    density = plane.density(np.stack(np.meshgrid(*coordinates), axis=-1))
    relative = np.nan_to_num(density - np.nanmax(density), nan=-np.inf)
    return Slice(tuple(coordinates), np.maximum(relative, -1e300))


def slice_panel(figure: Figure, axes: Axes, plane: Plane, part: Slice) -> list[Any]:
    """Draw a slice with control points, curve and draws; return the legend's entries."""
    if len(plane.chosen) == 1:
        axes.plot(part.axes[0], part.values, color=colour(0))
        axes.set_ylim(LEAST_DRAWN, 2)
        axes.set_ylabel(f"{plane.words},\nrelative to its maximum")
    else:
        _contours(figure, axes, part, plane)
    axes.set_xlabel(f"phi[{plane.chosen[0] + 1}]")
    return _overlay(axes, plane)


def held_words(plane: Plane) -> str:
    """Say what a slice holds, as ``Other directions and dispersion are held``."""
    bundle = plane.bundle
    sampled = {parameter.name for parameter in bundle.layout.parameters if parameter.size}
    linear = {name for item in bundle.design.predictors for name in (item.tau, item.theta)}
    held = {
        "other directions": bundle.subspace.k > len(plane.chosen),
        "coefficients": bundle.model.joint is not None or not sampled.isdisjoint(linear),
        "smooths and groups": len(bundle.design.terms) > 0,
        "dispersion": not sampled.isdisjoint(bundle.model.scalars),
    }
    names = [name for name, is_held in held.items() if is_held]
    if not names:
        return ""
    words = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    verb = "is" if names == ["dispersion"] else "are"
    return f"{words.capitalize()} {verb} held"


def _limits(plane: Plane) -> list[tuple[float, float]]:
    """Cover the control points, and the draws or the mass around the centre."""
    if plane.draws is None:
        covered = _near(plane)
    else:
        phi = plane.draws.flat(plane.draws.phi)[:, list(plane.chosen)]
        covered = np.quantile(phi, (0.005, 0.995), axis=0)
    covered = np.vstack([covered, plane.control_points[:, list(plane.chosen)]])
    margins = np.array([0.12 * width or 1.0 for width in np.ptp(covered, axis=0)])
    low, high = covered.min(axis=0) - margins, covered.max(axis=0) + margins
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def _near(plane: Plane) -> Array:
    """Return points (n, 1 or 2) around the centre whose density is not much below the largest."""
    index = list(plane.chosen)
    scale = plane.bundle.subspace.phi_scale[index]
    if len(index) == 1:
        ways = np.array([[-1.0], [1.0]])
    else:
        angles = 2 * np.pi * np.arange(ANGLES) / ANGLES
        ways = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    steps = np.concatenate([[0.0], REACHES])[:, None, None] * ways
    points = (scale * (plane.centre[index] + steps)).reshape(-1, len(index))
    density = np.nan_to_num(plane.density(points), nan=-np.inf)
    return np.asarray(points[density >= density.max() - NEAR])


def _contours(figure: Figure, axes: Axes, part: Slice, plane: Plane) -> None:
    values = np.maximum(part.values, 2 * LEVELS[0])
    filled = axes.contourf(*part.axes, values, levels=LEVELS, colors=SHADES, extend="min")
    axes.contour(*part.axes, values, levels=LEVELS[:-1], colors="white", linewidths=0.7,
                 linestyles="solid")  # fmt: skip
    bar = figure.colorbar(filled, ax=axes, spacing="uniform", pad=0.02)
    bar.set_label(f"{plane.words},\nrelative to its maximum here")
    axes.set_ylabel(f"phi[{plane.chosen[1] + 1}]")
    axes.spines[["top", "right"]].set_visible(True)


def _overlay(axes: Axes, plane: Plane) -> list[Any]:
    """Draw draws, control points and curve; return the legend's entries."""
    bundle, handles = plane.bundle, []
    axes.autoscale(False)  # the draws beyond the grid are few
    if plane.draws is not None:
        phi = plane.draws.flat(plane.draws.phi)
        phi = phi[evenly_spaced(len(phi), MOST_POINTS)]
        source = "prior" if plane.prior_only else "posterior"
        handles += axes.plot(
            *_coordinates(axes, phi, plane), "o", color=INK, markersize=2.8, alpha=0.45,
            markeredgewidth=0, label=f"{source} draws",
        )  # fmt: skip
    points = plane.control_points
    if len(points) and bundle.trained.curve:
        curve = curve_points(bundle.trained.control_points, np.linspace(0, 1, 201))
        handles += axes.plot(
            *_coordinates(axes, bundle.subspace.project(curve), plane), color=colour(3),
            linewidth=2.4, label="trained curve",
        )  # fmt: skip
    if len(points):
        handles += axes.plot(
            *_coordinates(axes, points, plane), "D", color=colour(1), markersize=6.5,
            markeredgecolor="white", label=points_words(len(points)), clip_on=False,
        )  # fmt: skip
    return handles


def points_words(number: int) -> str:
    """Name the control points, of which a single network is one."""
    return "control points" if number > 1 else "trained network"


def _coordinates(axes: Axes, phi: Array, plane: Plane) -> tuple[Array, Array]:
    """Return what to draw for points (n, k): in one dimension they lie near the axis."""
    if len(plane.chosen) == 2:
        return phi[:, plane.chosen[0]], phi[:, plane.chosen[1]]
    return phi[:, 0], np.full(len(phi), axes.get_ylim()[0] + 1)
