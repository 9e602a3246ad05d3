"""Leading layers that are constants: trained with the rest of their network, before any subspace.

The whole network, one point in weight space, is trained by Adam and computed in single precision,
as networks of many layers are. Its leading layers are then constants, and constructions of
subspaces begin at the features that these make of the inputs. The same rows are held out from both.

A prior of so many weights would leave nothing of the features, so that they are kept from
overfitting by stopping early. At most as many steps are taken as training has epochs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semistan.density.features import HeadProblem, head_problem
from semistan.density.problem import Problem
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import TrainConfig
from semistan.model.networks.leading import Leading
from semistan.subspace.descent import (
    Parameters,
    Progress,
    default_batch,
    descend,
    held_out_rows,
    initial_parameters,
)

if TYPE_CHECKING:
    from torch import Generator

ACTIVATIONS = 1_000_000  # of the widest layer in a batch
FEWEST = 32  # rows in a batch
RATE = 0.2  # of the learning rate: 0.001, where Adam trains deep networks well
PATIENCE = 0.2  # of the epochs


def train_leading_layers(
    problem: Problem,
    leading: Leading,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> tuple[HeadProblem, dict[str, Array]]:
    """Train whole networks, and return the problem of their heads.

    Parameters
    ----------
    problem : Problem
        The training rows with standardised inputs of the whole networks.
    leading : Leading
        The networks, and how many layers of each are constants.
    train : TrainConfig
        As of ``descend``.
    generator : torch.Generator
        Source of all randomness.
    progress : callable, optional
        Called with the epoch, counted as if there were ``train.epochs``, and both losses.

    Returns
    -------
    Behind
        The problem of the heads, whose inputs are the features, and the constants.
    dict of arrays
        History, as ``descend`` returns it.

    Raises
    ------
    SemistanError
        If training diverges.
    """
    problem = replace(problem, held_out=held_out_rows(problem, train.validation, generator))
    inputs = problem.inputs.single()
    whole = replace(problem, network=leading.whole, prior_scale=None, inputs=inputs)
    options = batched(whole, train)
    w, *others = initial_parameters(whole, 1, generator).copy().tensors()
    start = (w.to(torch.float32), *others)
    single = Parameters(*(tensor.requires_grad_() for tensor in start))
    shown = None if progress is None else as_epochs(progress, options.epochs, train.epochs)
    patience = round(PATIENCE * options.epochs)
    best, history = descend(whole, single, options, generator, shown, patience=patience)
    w_frozen, _ = leading.split(best.control_points[0].to(torch.float64))
    return head_problem(problem, leading, w_frozen), history


def batched(whole: Problem, train: TrainConfig) -> TrainConfig:
    """Return the batch size, epochs of as many steps as ``train`` has epochs, and the rate."""
    rows = len(whole) - (0 if whole.held_out is None else len(whole.held_out))
    most = max(FEWEST, ACTIVATIONS // whole.network.widest)
    size = train.batch_size or min(default_batch(rows), most)
    steps = -(-rows // min(size, rows))
    own = {"epochs": -(-train.epochs // steps), "learning_rate": RATE * train.rate}
    return train.model_copy(update={"batch_size": size, **own})


def as_epochs(progress: Progress, epochs: int, shown: int) -> Progress:
    """Return a callback that counts some epochs as others."""
    return lambda epoch, loss, held_out: progress(epoch * shown // epochs, loss, held_out)
