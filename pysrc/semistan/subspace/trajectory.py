"""The path of stochastic gradient descent around a trained network, and its averages.

After training, the steps go on at a constant rate and wander around the solution, held back by
the Gaussian prior of the weights that the Laplace approximations have too (``ggn.py``). Over the
weights w_1, ..., w_T at the ends of the epochs,

    w_SWA = mean of w_i,    variance = mean of (w_i - w_SWA)^2,    A = (w_j - w_SWA) for M of them,

the first two as they come, so that only the M snapshots in A are kept. The steps are Adam's,
as in training: the constant rate at which plain gradient descent is stable depends on the
problem, and falls with the residual variance.

References: Izmailov et al. (2018), Averaging Weights Leads to Wider Optima and Better
Generalization, UAI; Maddox et al. (2019), A Simple Baseline for Bayesian Uncertainty in Deep
Learning, NeurIPS; Algorithm 2 of Izmailov et al. (2019), Subspace Inference for Bayesian Deep
Learning, UAI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.ggn import PRIOR_PRECISION
from semistan.density.problem import Problem
from semistan.errors import SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.subspace.coefficients import settle
from semistan.subspace.descent import (
    RECORDED,
    Parameters,
    Progress,
    batches,
    descend,
    initial_parameters,
    recorded_losses,
    split_rows,
    step,
)

if TYPE_CHECKING:
    from torch import Generator, Tensor

RATE = 0.1  # of the learning rate at which training starts
SHARE = 10  # a tenth of training's epochs, each in ten batches: as many steps as full batches took


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """What is left of the path.

    Attributes
    ----------
    parameters : Parameters
        Averages of all that is trained; one control point, ``w_SWA``. ``train_and_average``
        solves for theta given the others.
    deviations : array, shape (M, d)
        Snapshots of w minus ``w_SWA``, in order and at equal distances.
    variance : array, shape (d,)
        Of each weight along the path.
    history : dict of arrays
        As ``descend`` returns it; ``train_and_average`` puts the training before it, as
        ``stage`` 1.
    """

    parameters: Parameters
    deviations: Array
    variance: Array
    history: dict[str, Array]

    @property
    def w(self) -> Array:
        """The average weights ``w_SWA``, shape (d,)."""
        return np.asarray(self.parameters.control_points[0].cpu().numpy())


def train_and_average(
    problem: Problem,
    snapshots: int,
    options: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trajectory:
    """Train one network, then go on at a constant rate and average.

    Parameters
    ----------
    problem : Problem
        The training rows; those held out from training are held out from the path.
    snapshots : int
        How many weight vectors to keep, M.
    options : TrainConfig
        As for ``descend``; the constant rate is a tenth of the ``learning_rate`` at which
        training starts. At the full rate the path runs into overfitting on small tables.
    generator : torch.Generator
        Source of all randomness.
    progress : callable, optional
        Called with the epoch, the training loss and the validation loss.

    Raises
    ------
    SemistanError
        If training diverges, or the path after it.
    """
    start, same = initial_parameters(problem, 1, generator), replica(generator)
    best, history = descend(problem, start, options, generator, progress)
    rows = split_rows(problem.for_training(), options.validation, same)
    path = continue_training(
        rows, best, snapshots, options, generator, after(progress, options.epochs)
    )
    average = settle(problem, path.parameters)
    return Trajectory(average, path.deviations, path.variance, joined(history, path.history))


def continue_training(
    rows: tuple[Problem, Problem],
    start: Parameters,
    snapshots: int,
    options: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trajectory:
    """Follow a trained network at a constant rate.

    Parameters
    ----------
    rows : pair of Problem
        The rows to train on, and those on which the validation loss is recorded.
    start : Parameters
        The trained network, one control point; it is not changed.
    snapshots, options, generator, progress
        As for ``train_and_average``.

    Raises
    ------
    SemistanError
        If the loss or the average weights are not finite.
    """
    parameters = Parameters(*(tensor.requires_grad_() for tensor in start.copy().tensors()))
    weights, *others = parameters.tensors()
    decay = PRIOR_PRECISION / len(rows[0]) if rows[0].prior_scale is None else 0.0
    prior: dict[str, Any] = {"params": [weights], "weight_decay": decay}
    optimiser = torch.optim.Adam([prior, {"params": others}], lr=RATE * options.rate)
    size = path_batch_size(len(rows[0]), options.batch_size)
    every = path_spacing(snapshots, options.epochs)
    mean = [torch.zeros_like(tensor) for tensor in start.tensors()]
    squares, kept, records = torch.zeros_like(mean[0]), [], []
    for epoch in range(1, snapshots * every + 1):
        for batch in batches(rows[0], size, generator):
            step(batch, parameters, optimiser, generator)
        state = parameters.copy().tensors()
        mean, squares = _averaged(mean, squares, state, epoch)
        if epoch % every:
            continue
        kept.append(state[0][0].cpu().numpy())
        loss, held_out, error = recorded_losses(rows, parameters)
        records.append((epoch, loss, held_out, error, 0.0))
        if progress is not None:
            progress(epoch, loss, held_out)
    average = Parameters(*mean)
    _check(records, average, options.rate)
    return Trajectory(
        average,
        np.array(kept) - average.control_points[0].cpu().numpy(),
        squares[0].cpu().numpy() / (snapshots * every),
        dict(zip(RECORDED, np.array(records).T, strict=True)),
    )


def path_batch_size(n: int, size: int) -> int:
    """Return the rows in a batch of the path: few enough that the steps stay noisy."""
    return min(size or 1024, -(-n // SHARE))


def path_spacing(snapshots: int, epochs: int) -> int:
    """Return the epochs between two snapshots."""
    return max(1, epochs // (SHARE * snapshots))


def path_epochs(subspace: SubspaceConfig, train: TrainConfig) -> int:
    """Return the epochs of training and of the path that follows."""
    return train.epochs + subspace.snapshots * path_spacing(subspace.snapshots, train.epochs)


def replica(generator: Generator) -> Generator:
    """Return a generator that will draw the same: with it, the same rows are held out."""
    return torch.Generator().set_state(generator.get_state())


def after(progress: Progress | None, epochs: int) -> Progress | None:
    """Return the callback of a stage that follows so many epochs."""
    if progress is None:
        return None
    return lambda epoch, loss, held_out: progress(epochs + epoch, loss, held_out)


def joined(*histories: dict[str, Array]) -> dict[str, Array]:
    """Return the history of stages 1, 2, ... that follow each other, their epochs counted on.

    A history may have several stages itself.
    """
    stages, start, before = [], 0.0, 0.0
    for history in histories:
        epoch, own = start + history["epoch"], history.get("stage", np.ones(len(history["epoch"])))
        stages.append(history | {"epoch": epoch, "stage": before + own})
        start, before = epoch[-1], before + own[-1]
    return {name: np.concatenate([history[name] for history in stages]) for name in stages[0]}


def _averaged(
    mean: list[Tensor], squares: Tensor, state: list[Tensor], n: int
) -> tuple[list[Tensor], Tensor]:
    """Update the means and the sum of squared deviations of w with the n-th state (Welford)."""
    updated = [old + (new - old) / n for old, new in zip(mean, state, strict=True)]
    return updated, squares + (state[0] - mean[0]) * (state[0] - updated[0])


def _check(records: Sequence[tuple[float, ...]], average: Parameters, rate: float) -> None:
    finite = all(bool(tensor.isfinite().all()) for tensor in average.tensors())
    losses = [(loss, held_out) for _, loss, held_out, *_ in records]
    if not (finite and np.isfinite(losses).all()):
        raise SemistanError(
            f"training diverged at a constant rate after it had converged: the loss is "
            f"{records[-1][1]:g}; lower learning_rate (now {rate:g})"
        )
