"""Panels of the loss: by epoch of the training, and along the trained curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.show.pictures.style import INK, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSS_WORDS = "The loss is the mean negative log-likelihood of a row."
MOST_DROP = 20  # the first losses are cut off above this many times the range of the later ones


def training_panel(axes: Axes, history: dict[str, Array]) -> list[Any]:
    """Draw the loss by epoch, and the state that is kept; return the legend's entries."""
    epoch, kept = history["epoch"], kept_epoch(history)
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


def kept_epoch(history: dict[str, Array]) -> int:
    """Return the position of the epoch with the least validation loss."""
    return int(np.nanargmin(history["validation_loss"]))


def _held_out(history: dict[str, Array]) -> bool:
    return not np.array_equal(history["loss"], history["validation_loss"])
