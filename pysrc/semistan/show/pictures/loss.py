"""The loss during training, and along the trained curve.

The loss is the mean negative log-likelihood of a row, averaged over the curve while it is trained.
A flat loss along the curve says that the subspace holds many good networks, not one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import finish, new_figure, panels
from semistan.show.pictures.training import (
    LOSS_WORDS,
    curve_panel,
    is_one_stage,
    kept_epoch,
    training_panel,
)
from semistan.show.pictures.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_loss(material: Material) -> Figure:
    """Draw both panels; the second only if training followed a curve."""
    trained = material.posterior.members[0].bundle.trained
    history, curve = trained.history, trained.curve
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
    trained = material.posterior.members[0].bundle.trained
    history, curve = trained.history, trained.curve
    kept = kept_epoch(history)
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
    if len(material.posterior.members) > 1:
        return "a mixture has a training for each of its subspaces: plot that of RUN/subspaces/1"
    history = material.posterior.members[0].bundle.trained.history
    return "" if history and len(history["epoch"]) else "its bundle has no history of the training"


LOSS = PictureKind(
    name="loss",
    title="loss during training and along the curve",
    draw=draw_loss,
    alt=loss_alt,
    refusal=loss_refusal,
    place="subspace",
)
