"""How long a training may be: epochs over a large table are many optimiser steps each."""

from __future__ import annotations

from semistan.model.config import ModelConfig, with_overrides
from semistan.subspace.construction import construction
from semistan.subspace.descent import default_batch


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
    trained = max(1, rows - round(train.validation * rows))
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
