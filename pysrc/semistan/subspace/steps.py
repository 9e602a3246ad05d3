"""How a large table is trained: its epochs are many optimiser steps each, so they are fewer.

The more rows, the narrower the posterior, and the closer to its mode training has to come. With
20,000 steps of 100,000 rows the mode of all weights was 2.3 standard deviations from that in the
subspace, which is too far to take predictors for linear in between, and with 60,000 it was 1.1.
"""

from __future__ import annotations

from semistan.model.config import ModelConfig, with_overrides
from semistan.subspace.construction import construction
from semistan.subspace.descent import default_batch

BATCHED_RATE = 0.01  # with half of it, periodic functions are learnt too late
LEAST_STEPS, MOST_STEPS = 20_000, 60_000  # between which there are as many as rows


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


def within_steps(
    config: ModelConfig, rows: int, *, of_images: bool = False
) -> tuple[ModelConfig, str | None]:
    """Return a configuration whose training takes at most ``train.steps`` optimiser steps.

    Parameters
    ----------
    config : ModelConfig
        The model, whose epochs are reduced where they are too many.
    rows : int
        Rows of the table, some of which are held out.
    of_images : bool
        Whether some networks take images, whose steps are dear: ``auto`` is the least of them.

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
    most = LEAST_STEPS if of_images else min(max(LEAST_STEPS, rows), MOST_STEPS)
    steps = train.steps if train.steps != "auto" else most
    if each * epochs <= steps:
        return config, None
    fewer = max(1, train.epochs * steps // (each * epochs))
    said = (
        f"training takes {fewer:,} of {train.epochs:,} epochs: each is {each:,} optimiser steps, "
        f"and train.steps allows {steps:,} in all (--steps)"
    )
    return with_overrides(config, {"train.epochs": fewer}), said


def _trained(config: ModelConfig, rows: int) -> int:
    """Return how many rows are not held out."""
    return max(1, rows - round(config.train.validation * rows))
