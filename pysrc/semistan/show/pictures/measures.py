"""A subspace at a glance: its spread, its losses, a slice of it, and what its directions keep.

Nothing has to be sampled: a bundle and its training rows are enough, and draws are shown where
there are some. Compare Figure 2 of Dold et al. (2024) and Figure 1 of Faller and Martin
(2025), arXiv:2502.02345.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.features import at_features
from semistan.density.problem import Problem, Weights, make_problem
from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.bundle import Bundle
from semistan.model.table.rows import Rows
from semistan.posterior.draws import Draws
from semistan.show.pictures.slice import (
    MOST_ROWS,
    Plane,
    evaluate,
    held_words,
    points_words,
    slice_panel,
)
from semistan.show.pictures.style import (
    FAINT,
    colour,
    finish,
    look,
    new_figure,
    panels,
    reserve,
)
from semistan.show.pictures.training import LOSS_WORDS, curve_panel, training_panel
from semistan.show.pictures.words import number
from semistan.subspace.measures import MOST, state_of
from semistan.subspace.nested_errors import NestedErrors, nested_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DECADE = 10.0  # ratio of values from which their axis is logarithmic
DOTS = 25  # values from which they are a line without dots


@dataclass(frozen=True, eq=False)
class Measured:
    """A trained model, its training rows, and draws if it was sampled.

    Attributes
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows.
    draws : Draws or None
        Draws of it, if there are any.
    prior_only : bool
        Whether they are from the prior.
    """

    bundle: Bundle
    rows: Rows
    draws: Draws | None = None
    prior_only: bool = False

    @cached_property
    def problem(self) -> Problem:
        """The rows, standardised."""
        bundle, rows = at_features(self.bundle, self.rows)
        return make_problem(bundle.model, rows, "cpu")

    @cached_property
    def state(self) -> Weights:
        """The trained state around which the network is linearised."""
        return state_of(self.problem, self.bundle.units, self.bundle.trained)

    @cached_property
    def plane(self) -> Plane:
        """The first two directions, or the only one."""
        chosen = tuple(range(min(2, self.bundle.subspace.k)))
        return Plane(self.bundle, self.rows, self.draws, chosen, prior_only=self.prior_only)

    @property
    def ordered(self) -> bool:
        """Whether directions are ordered by their spread: not where each weight moves by itself."""
        return self.bundle.model.moves != "all"

    @cached_property
    def nested(self) -> NestedErrors | None:
        """What each further direction adds; nothing for more than 3000 weights."""
        if self.bundle.subspace.d > MOST:
            return None
        return nested_errors(self.problem, self.state, self.bundle.subspace)

    @cached_property
    def point_losses(self) -> Array:
        """The loss at each control point, shape (m,), one at a time to bound memory."""
        return np.array([self._loss(w) for w in self.bundle.trained.control_points])

    def _loss(self, w: Array) -> float:
        subspace, theta = self.bundle.subspace, self.state.theta
        if subspace.holds_theta:
            moved = subspace.theta_bar + subspace.theta_Pi @ subspace.project(w)
            theta = torch.tensor(moved / self.bundle.units.theta_scale)
        at = Weights(torch.tensor(w), theta, self.state.log_dispersion)
        with torch.no_grad():
            return float(self.problem.loss(at))


@look()
def draw_measures(measured: Measured) -> Figure:
    """Draw up to four panels: spread, loss, slice, and the error of the first j directions.

    Panels are left out where there is nothing to show: the loss of a network whose training left
    no record, the error with more than 3000 weights, and of all weights both spread and error.
    """
    trained, nested = measured.bundle.trained, measured.nested if measured.ordered else None
    has_loss = bool(trained.curve) or len(trained.history.get("epoch", ())) > 0
    shown = 1 + measured.ordered + has_loss + (nested is not None)
    figure = new_figure(2.9 * -(-shown // 2))
    axes, handles = iter(panels(figure, shown, 2)), []
    if measured.ordered:
        handles += _spread_panel(next(axes), measured)
    if has_loss:
        handles += _loss_panel(next(axes), measured)
    handles += slice_panel(figure, next(axes), measured.plane, evaluate(measured.plane))
    if nested is not None:
        handles += _nested_panel(next(axes), nested)
    subspace = measured.bundle.subspace
    title = f"Subspace of {subspace.d} weights: {subspace.origin}, k = {subspace.k}"
    distinct = {handle.get_label(): handle for handle in reversed(handles)}
    finish(figure, title, caption=_caption(measured), handles=list(distinct.values())[::-1])
    return reserve(figure, measured.draws.reservations if measured.draws else ())


def measures_alt(measured: Measured) -> str:
    """Say how far the directions spread, how the loss varies, and what they keep."""
    subspace, trained = measured.bundle.subspace, measured.bundle.trained
    nested, spread = measured.nested if measured.ordered else None, trained.singular_values
    values = f"singular values from {number(spread.max())} to {number(spread.min())}"
    shown = values if measured.ordered else "each weight moves by itself"
    parts = [f"Subspace of {subspace.d} weights, {subspace.origin}, k = {subspace.k}: {shown}"]
    if trained.curve:
        low, high = trained.curve["loss"].min(), trained.curve["loss"].max()
        parts.append(f"loss along the curve between {number(low)} and {number(high)}")
    each = "directions" if measured.ordered else "weights"
    dimensions = f"the first two {each}" if subspace.k > 1 else "the only direction"
    parts.append(f"{measured.plane.words} along {dimensions}")
    if nested is not None:
        parts.append(f"relative error {number(nested.error[-1])} with all directions")
    return f"{'; '.join(parts)}."


def _spread_panel(axes: Axes, measured: Measured) -> list[Any]:
    """Draw the singular values by direction, and prior scales where they differ from 1."""
    shown = {"singular value": measured.bundle.trained.singular_values}
    if not np.all(measured.bundle.subspace.phi_scale == 1):
        shown["prior scale of phi"] = measured.bundle.subspace.phi_scale
    handles = []
    for i, (name, values) in enumerate(shown.items()):
        direction = np.arange(1, len(values) + 1)
        handles += axes.plot(
            direction, values, _dots(values), color=colour(2 * i), markersize=4, label=name
        )
    axes.set_xlabel("direction")
    axes.set_ylabel(" and ".join(shown))
    _whole_numbers(axes)
    both = np.concatenate(list(shown.values()))
    if both.min() > 0 and both.max() > DECADE * both.min():
        _logarithmic(axes)
    else:
        axes.set_ylim(0, 1.1 * both.max() or 1)
    return handles if len(shown) > 1 else []


def _loss_panel(axes: Axes, measured: Measured) -> list[Any]:
    """Draw the loss along the curve, or during the training of a single network."""
    trained = measured.bundle.trained
    if not trained.curve:
        return training_panel(axes, trained.history)
    curve_panel(axes, trained.curve)
    losses = measured.point_losses
    return axes.plot(
        np.linspace(0, 1, len(losses)), losses, "D", color=colour(1), markersize=6.5,
        markeredgecolor="white", label=points_words(len(losses)),
    )  # fmt: skip


def _nested_panel(axes: Axes, nested: NestedErrors) -> list[Any]:
    """Draw the relative error of the first j directions beside the least that j can have."""
    handles = axes.plot(
        nested.j, nested.best, _dots(nested.j), color=FAINT, linewidth=4, markersize=8,
        label="least error of any j directions",
    )  # fmt: skip
    axes.plot(nested.j, nested.error, _dots(nested.j), color=colour(0), markersize=4)
    axes.set_xlabel("the first j directions")
    axes.set_ylabel("relative error")
    axes.set_ylim(0, 1.03)
    _whole_numbers(axes)
    return list(handles)


def _dots(values: Array | Index) -> str:
    """Mark single values while they can be told apart."""
    return "o-" if len(values) < DOTS else "-"


def _logarithmic(axes: Axes) -> None:
    """Label ticks as plain numbers: the look does not read mathematics."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _caption(measured: Measured) -> str:
    """Explain the panels in a few words."""
    plane, trained = measured.plane, measured.bundle.trained
    parts = [LOSS_WORDS]
    if trained.curve:
        parts.append("Control points stand at even steps of t, each with its own loss.")
    held = held_words(plane)
    if held:
        where = "at their means" if measured.draws else "as trained"
        parts.append(f"Slice: {held[0].lower()}{held[1:]} {where}.")
    if len(measured.rows) > MOST_ROWS:
        parts.append(f"There {MOST_ROWS:,} rows stand for all.")
    if not measured.ordered:
        parts.append("Each weight moves by itself, and none comes before another.")
    elif measured.nested is None:
        parts.append(f"The relative error is not computed for more than {MOST:,} weights.")
    else:
        parts.append("The relative error is that of the predictive covariance of a linearised "
                     "Laplace approximation.")  # fmt: skip
    return " ".join(parts)
