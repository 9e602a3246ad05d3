"""Gradient descent for the points of a Bézier curve through weight space, or for one network.

The loss at a point of the curve is averaged over t ~ U(0, 1), eq. (3) of Dold et al. (2024): by one
random t in each step, by quadrature where states are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.features import NUMBERS
from semistan.density.pieces import pieces_of
from semistan.density.problem import MANY_ROWS, Problem, Weights
from semistan.errors import SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import TrainConfig
from semistan.model.networks.networks import initial
from semistan.model.table.rows import evenly_spaced
from semistan.subspace.checkpoint import Descent, begin
from semistan.subspace.curve import arc_length, bernstein, uniform_nodes

if TYPE_CHECKING:
    from torch import Generator, Tensor

Progress = Callable[[int, float, float], None]  # epoch, training loss, validation loss

LOSS_NODES = 9  # t at which a loss along the curve is looked at
RECORDED = ("epoch", "loss", "validation_loss", "validation_error", "arc_length")
RECORDS = 200  # states looked at during training, at the most


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The trained tensors: control points (m, d), theta, log dispersion.

    theta is one vector (P,) for the whole curve, or has control points of its own (m, P).
    """

    control_points: Tensor
    theta: Tensor
    log_dispersion: Tensor

    def tensors(self) -> list[Tensor]:
        """Return all of them in order."""
        return [self.control_points, self.theta, self.log_dispersion]

    @property
    def mean_theta(self) -> Tensor:
        """The one theta (P,), or the mean of the control points' own."""
        return self.theta.mean(dim=0) if self.theta.ndim > 1 else self.theta

    def at(self, weights: Tensor) -> Weights:
        """Return the state at Bernstein weights (..., k + 1)."""
        theta = weights @ self.theta if self.theta.ndim > 1 else self.theta
        points = self.control_points
        return Weights(weights.to(points.dtype) @ points, theta, self.log_dispersion)

    def copy(self) -> Parameters:
        """Return detached copies."""
        return Parameters(*(tensor.detach().clone() for tensor in self.tensors()))


def initial_parameters(problem: Problem, points: int, generator: Generator) -> Parameters:
    """Draw control points; theta and log dispersion are 0."""
    spec, device = problem.network, problem.y.device
    tensors = [
        torch.stack([initial(spec, generator) for _ in range(points)]),
        torch.zeros(problem.all_coefficients, dtype=torch.float64),
        torch.zeros(len(problem.family.dispersion), dtype=torch.float64),
    ]
    return Parameters(*(tensor.to(device).requires_grad_() for tensor in tensors))


def descend(
    problem: Problem,
    parameters: Parameters,
    options: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
    *,
    fixed: Sequence[int] = (),
    patience: int | None = None,
) -> tuple[Parameters, dict[str, Array]]:
    """Run Adam with a cosine-annealed rate; return the state of least validation loss.

    One control point is a single network. Convolutions, and the networks of large tables, are
    computed in single precision; their training loss is recorded of as many rows as are held out.

    Parameters
    ----------
    problem : Problem
        The training rows.
    parameters : Parameters
        Where to start; they are changed.
    options : TrainConfig
        Epochs, learning rate, batch size, validation share.
    generator : torch.Generator
        Source of t, of the batches and of the rows held out.
    progress : callable, optional
        Called with the epoch, the training loss and the validation loss.
    fixed : sequence of int
        Control points that stay where they are.
    patience : int, optional
        Epochs without a lower validation loss after which training stops early.

    Returns
    -------
    best : Parameters
        Detached.
    history : dict of arrays
        ``epoch``, ``loss``, ``validation_loss`` with its standard error, ``validation_error``, and
        ``arc_length`` during training.

    Raises
    ------
    SemistanError
        If the loss is not finite.
    """
    rows = split_rows(problem.for_training(), options.validation, generator)
    optimiser = torch.optim.Adam(parameters.tensors(), lr=options.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs)
    at = Descent(parameters.tensors(), optimiser, schedule, generator, parameters.copy().tensors())
    _go_down(at, rows, parameters, options, progress, fixed=fixed, patience=patience)
    if not np.isfinite(at.least):
        raise SemistanError(
            f"training diverged: the loss is {at.records[-1][1]:g} after {at.epoch} epochs; lower "
            f"learning_rate (now {options.rate:g})"
        )
    history = np.array(at.records, dtype=float).T
    return Parameters(*at.best), dict(zip(RECORDED, history, strict=True))


def _go_down(
    at: Descent,
    rows: tuple[Problem, Problem],
    parameters: Parameters,
    options: TrainConfig,
    progress: Progress | None,
    *,
    fixed: Sequence[int],
    patience: int | None,
) -> None:
    """Take a descent from where it was left to its end, and look at it from time to time."""
    training, validation = rows
    looked_at = training
    large = len(training) > MANY_ROWS or training.inputs.dtype == torch.float32
    if large and validation is not training:
        # Looks at all rows, or at all images, would outlast the steps.
        few = evenly_spaced(len(training), len(validation))
        looked_at = training.rows(torch.from_numpy(few))
    every = -(-options.epochs // RECORDS)
    note = begin(at)
    while not at.ended:
        at.epoch += 1
        for batch in batches(training, options.batch_size, at.generator):
            step(batch, parameters, at.optimiser, at.generator, fixed)
        at.schedule.step()
        if at.epoch % every and at.epoch != options.epochs:
            continue
        loss, held_out = _look(at, (looked_at, validation), parameters)
        if progress is not None:
            progress(at.epoch, loss, held_out)
        tired = patience is not None and at.epoch - at.kept > patience
        at.ended = tired or at.epoch == options.epochs
        note(at)


def _look(
    at: Descent, rows: tuple[Problem, Problem], parameters: Parameters
) -> tuple[float, float]:
    """Record the losses and the length of the curve, and keep the state if it is the best."""
    loss, held_out, error = recorded_losses(rows, parameters)
    state = parameters.copy()
    length = arc_length(state.control_points.cpu().numpy())
    at.records.append((at.epoch, loss, held_out, error, length))
    if held_out < at.least:
        at.best, at.least, at.kept = state.tensors(), held_out, at.epoch
    return loss, held_out


def step(
    batch: Problem,
    parameters: Parameters,
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    fixed: Sequence[int] = (),
) -> None:
    """Take one gradient step at a random point of the curve."""
    t = float(torch.rand((), generator=generator, dtype=torch.float64))
    optimiser.zero_grad()
    weights = _on_device(bernstein(np.array(t), len(parameters.control_points) - 1), batch)
    batch.objective(parameters.at(weights)).backward()  # type: ignore[no-untyped-call]
    if fixed:
        assert parameters.control_points.grad is not None
        parameters.control_points.grad[list(fixed)] = 0
    optimiser.step()
    if batch.bounds:
        with torch.no_grad():
            parameters.theta.clamp_(*batch.bounds)


def mean_loss(problem: Problem, parameters: Parameters) -> float:
    """Return the loss averaged over t ~ U(0, 1)."""
    t, shares = loss_nodes(len(parameters.control_points))
    return float(shares @ losses(problem, parameters, t))


def recorded_losses(
    rows: tuple[Problem, Problem], parameters: Parameters
) -> tuple[float, float, float]:
    """Return the loss of the training rows, that of those held out, and its standard error.

    Each row's loss is averaged over t ~ U(0, 1). The error is 0 of a single row, and where none is
    held out.
    """
    training, validation = rows
    loss = mean_loss(training, parameters)
    if validation is training:
        return loss, loss, 0.0
    t, shares = loss_nodes(len(parameters.control_points))
    weights = _on_device(bernstein(t, len(parameters.control_points) - 1), validation)
    n = len(validation)
    each = validation.y.new_zeros(n)
    with torch.no_grad():
        for share, row in zip(shares, weights, strict=True):
            each += share * row_losses(validation, parameters.at(row))
    return loss, float(each.mean()), float(each.std(correction=min(1, n - 1))) / np.sqrt(n)


def loss_nodes(points: int) -> tuple[Array, Array]:
    """Return the t at which a curve of so many control points is looked at, and their shares."""
    return uniform_nodes(LOSS_NODES if points > 1 else 1)


def losses(problem: Problem, parameters: Parameters, t: Array) -> Array:
    """Return the loss at each t, one t at a time to bound memory."""
    weights = _on_device(bernstein(t, len(parameters.control_points) - 1), problem)
    with torch.no_grad():
        return np.array([float(row_losses(problem, parameters.at(row)).mean()) for row in weights])


def row_losses(problem: Problem, state: Weights) -> Tensor:
    """Return each row's loss (N,), some rows at a time to bound memory."""
    parts = list(pieces_of(len(problem), problem.network.widest, NUMBERS))
    if len(parts) == 1:
        return problem.row_losses(state)
    return torch.cat([problem.rows(torch.arange(part.start, part.stop)).row_losses(state)
                      for part in parts])  # fmt: skip


def _on_device(array: Array, problem: Problem) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float64).to(problem.y.device)


def split_rows(problem: Problem, share: float, generator: Generator) -> tuple[Problem, Problem]:
    """Hold out a random share of the rows; without one, training rows are used for both.

    Rows that an earlier stage has held out are held out again.
    """
    chosen = problem.held_out
    if chosen is not None:
        others = torch.ones(len(problem), dtype=torch.bool, device=problem.y.device)
        others[chosen] = False
        return problem.rows(others.nonzero()[:, 0]), problem.rows(chosen)
    held_out = min(round(share * len(problem)), len(problem) - 1)
    if held_out == 0:
        return problem, problem
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    return problem.rows(order[held_out:]), problem.rows(order[:held_out])


def held_out_rows(problem: Problem, share: float, generator: Generator) -> Tensor | None:
    """Choose the rows that all stages are to hold out; None if no row is."""
    held_out = min(round(share * len(problem)), len(problem) - 1)
    if held_out == 0:
        return None
    return torch.randperm(len(problem), generator=generator)[:held_out].to(problem.y.device)


def default_batch(rows: int) -> int:
    """Return the rows in a batch where the user does not say."""
    return rows if rows <= MANY_ROWS else 1024


def batches(problem: Problem, size: int, generator: Generator) -> Iterator[Problem]:
    """Yield the rows in random batches; ``size = 0`` decides by itself."""
    size = size or default_batch(len(problem))
    if size >= len(problem):
        yield problem
        return
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    for start in range(0, len(problem), size):
        yield problem.rows(order[start : start + size])
