"""How a large table is trained: its epochs are many optimiser steps each, so they are fewer."""

from __future__ import annotations

from semistan.model.config import ModelConfig, with_overrides
from semistan.subspace.construction import construction
from semistan.subspace.descent import default_batch

BATCHED_RATE = 0.01  # with half of it, periodic functions are learnt too late


def with_rate(config: ModelConfig, rows: int, *, of_images: bool) -> ModelConfig:
    """Return a configuration whose learning rate is a number.

    Parameters
    ----------
    config : ModelConfig
        The model.
    rows : int
        Rows of the table, some of which are held out.
    of_images : bool
        Whether some networks take images.
    """
    train = config.train
    if train.learning_rate != "auto":
        return config
    trained = _trained(config, rows)
    batched = (train.batch_size or default_batch(trained)) < trained and not of_images
    return with_overrides(config, {"train.learning_rate": BATCHED_RATE if batched else train.rate})


def within_steps(config: ModelConfig, rows: int) -> tuple[ModelConfig, str | None]:
    """Return a configuration whose training takes at most ``train.steps`` optimiser steps.

    Parameters
    ----------
    config : ModelConfig
        The model, whose epochs are reduced where they are too many.
    rows : int
        Rows of the table, some of which are held out.

    Returns
    -------
    ModelConfig
        With at least one epoch.
    str or None
        What was reduced, in words.
    """
    train = config.train
    trained = _trained(config, rows)
    each = -(-trained // (train.batch_size or default_batch(trained)))
    epochs = construction(config.subspace.construction).epochs(config.subspace, train)
    if each * epochs <= train.steps:
        return config, None
    fewer = max(1, train.epochs * train.steps // (each * epochs))
    said = (
        f"training takes {fewer:,} of {train.epochs:,} epochs: each is {each:,} optimiser steps, "
        f"and train.steps allows {train.steps:,} in all (--steps)"
    )
    return with_overrides(config, {"train.epochs": fewer}), said


def _trained(config: ModelConfig, rows: int) -> int:
    """Return how many rows are not held out."""
    return max(1, rows - round(config.train.validation * rows))
