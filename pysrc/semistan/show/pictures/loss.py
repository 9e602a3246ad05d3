"""The loss during training, and along the trained curve.

The loss is the mean negative log-likelihood of a row, averaged over the curve while it is trained.
A flat loss along the curve says that the subspace holds many good networks, not one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.posterior.draws import Array
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import INK, colour, finish, new_figure, panels
from semistan.show.pictures.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS_WORDS = "The loss is the mean negative log-likelihood of a row."
MOST_DROP = 20  # the first losses are cut off above this many times the range of the later ones


def draw_loss(material: Material) -> Figure:
    """Draw both panels; the second only if training followed a curve."""
    history, curve = material.bundle.trained.history, material.bundle.trained.curve
    figure = new_figure(2.9)
    first, *second = panels(figure, 2 if curve else 1, 2)
    handles = training_panel(first, history)
    for axes in second:
        curve_panel(axes, curve)
    return finish(
        figure,
        "Loss during training" + (" and along the curve" if curve else ""),
        caption=LOSS_WORDS
        + (" The state of least validation loss is kept." if is_one_stage(history) else ""),
        handles=handles,
    )


def loss_alt(material: Material) -> str:
    """Say where the loss ended, and how flat the curve is."""
    history, curve = material.bundle.trained.history, material.bundle.trained.curve
    kept = _kept(history)
    text = (
        f"Training loss fell from {number(history['loss'][0])} to {number(history['loss'][kept])} "
        f"at epoch {history['epoch'][kept]:.0f}, where the validation loss was least "
        f"({number(history['validation_loss'][kept])})"
    )
    if curve:
        low, high = number(curve["loss"].min()), number(curve["loss"].max())
        text += f"; along the curve it lies between {low} and {high}"
    return text + "."


def loss_refusal(material: Material) -> str:
    """Say why a subspace that was not trained has no such picture."""
    history = material.bundle.trained.history
    return "" if history and len(history["epoch"]) else "its bundle has no history of the training"


def training_panel(axes: Axes, history: dict[str, Array]) -> list[Any]:
    """Draw the loss by epoch, and the state that is kept; return the legend's entries."""
    epoch, kept = history["epoch"], _kept(history)
    handles = axes.plot(epoch, history["loss"], color=colour(0), label="training rows")
    if _held_out(history):
        handles += axes.plot(
            epoch, history["validation_loss"], color=colour(1), label="validation rows"
        )
    if is_one_stage(history):
        handles += axes.plot(
            [epoch[kept]], [history["validation_loss"][kept]], "o", color=INK, markersize=5,
            label="kept",
        )  # fmt: skip
    both = np.concatenate([history["loss"], history["validation_loss"]])
    low, usual = np.nanmin(both), np.nanquantile(both, 0.9)
    top = low + MOST_DROP * (usual - low)
    if np.nanmax(both) > top > low:
        axes.set_ylim(low - 0.05 * (top - low), top)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    return list(handles)


def curve_panel(axes: Axes, curve: dict[str, Array]) -> None:
    """Draw the loss along the trained curve."""
    axes.plot(curve["t"], curve["loss"], color=colour(0))
    axes.set_xlabel("position t on the trained curve")
    axes.set_ylabel("loss on all training rows")


def is_one_stage(history: dict[str, Array]) -> bool:
    """Say whether training had one stage, whose best state is kept."""
    return "stage" not in history


def _kept(history: dict[str, Array]) -> int:
    return int(np.nanargmin(history["validation_loss"]))


def _held_out(history: dict[str, Array]) -> bool:
    return not np.array_equal(history["loss"], history["validation_loss"])
