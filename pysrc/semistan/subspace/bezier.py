"""The Bézier construction: k + 1 free control points trained in one stage.

Algorithm 1 of Dold et al. (2024) minimises over the control points and theta

    L(theta, Lambda) = int_0^1 loss(b(t), theta) dt

by stochastic gradients at one t ~ U(0, 1) a step. The control points then span the subspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import SemistanError
from semistan.model.config import TrainConfig
from semistan.model.network import Array, initial_weights
from semistan.subspace.curve import arc_length, bernstein
from semistan.subspace.problem import Problem, Units, Weights
from semistan.subspace.subspace import Subspace, check_dimension, span

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

Progress = Callable[[int, float, float], None]  # epoch, training loss, validation loss

LOSS_NODES = 9  # fixed t at which the validation loss is averaged
CURVE_NODES = 101  # t at which the loss along the final curve is recorded
RECORDS = 200  # states looked at during training, at the most


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What training hands over: the subspace and everything outside it.

    Attributes
    ----------
    subspace : Subspace
        Where the Bayesian weights may move.
    singular_values : array, shape (k,)
        Spread of the control points along each direction.
    control_points : array, shape (k + 1, d)
        Of the trained curve.
    w_frozen : array, shape (d_frozen,)
        Weights of the frozen layers.
    theta : array, shape (P,)
        Structured coefficients in the user's units.
    dispersion : dict
        Dispersion parameters in the user's units.
    history : dict of arrays
        ``epoch``, ``loss``, ``validation_loss`` and ``arc_length`` during training.
    curve : dict of arrays
        ``t`` and the training ``loss`` along the final curve.
    arc_length : float
        Length of the final curve.
    """

    subspace: Subspace
    singular_values: Array
    control_points: Array
    w_frozen: Array
    theta: Array
    dispersion: dict[str, float]
    history: dict[str, Array]
    curve: dict[str, Array]
    arc_length: float


@dataclass(frozen=True, slots=True, eq=False)
class _Parameters:
    """The trained tensors: control points (k + 1, d), frozen weights, theta, log dispersion."""

    control_points: Tensor
    w_frozen: Tensor
    theta: Tensor
    log_dispersion: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.control_points, self.w_frozen, self.theta, self.log_dispersion]

    def at(self, weights: Tensor) -> Weights:
        """Return the state at Bernstein weights (..., k + 1)."""
        return Weights(
            weights @ self.control_points, self.w_frozen, self.theta, self.log_dispersion
        )

    def copy(self) -> _Parameters:
        return _Parameters(*(tensor.detach().clone() for tensor in self.tensors()))


def bezier(
    problem: Problem,
    units: Units,
    k: int,
    options: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a Bézier curve and span its subspace.

    Parameters
    ----------
    problem : Problem
        The training rows, standardised.
    units : Units
        The user's units, in which theta and dispersion are returned.
    k : int
        Dimension of the subspace, k >= 1 and smaller than d.
    options : TrainConfig
        Epochs, learning rate, batch size, validation share.
    generator : torch.Generator
        On the CPU; the source of all randomness.
    progress : callable, optional
        Called with the epoch, the training loss and the validation loss.

    Raises
    ------
    InputError
        If k >= d.
    SemistanError
        If training diverges, or the control points span fewer than k dimensions.

    Notes
    -----
    Dold, Rügamer, Sick and Dürr (2024), Bayesian Semi-structured Subspace Inference,
    AISTATS, section 3.1.
    """
    check_dimension(k, problem.network.d)
    parameters = _initial_parameters(problem, k, generator)
    best, history = _descend(problem, parameters, options, generator, progress)
    control_points = best.control_points.cpu().numpy()
    subspace, singular_values = span(control_points, k, "bezier")
    t = np.linspace(0, 1, CURVE_NODES)
    return Trained(
        subspace=subspace,
        singular_values=singular_values,
        control_points=control_points,
        w_frozen=best.w_frozen.cpu().numpy(),
        theta=best.theta.cpu().numpy() * units.theta_scale,
        dispersion={
            name: float(value) for name, value in problem.dispersion(best.log_dispersion).items()
        },
        history=history,
        curve={"t": t, "loss": _losses(problem, best, t)},
        arc_length=arc_length(control_points),
    )


def _initial_parameters(problem: Problem, k: int, generator: Generator) -> _Parameters:
    import torch

    spec, device = problem.network, problem.y.device
    tensors = [
        torch.stack([initial_weights(spec.free_widths, generator) for _ in range(k + 1)]),
        initial_weights(spec.frozen_widths, generator),
        torch.zeros(problem.Z.shape[1], dtype=torch.float64),
        torch.zeros(len(problem.family.dispersion), dtype=torch.float64),
    ]
    return _Parameters(*(tensor.to(device).requires_grad_() for tensor in tensors))


def _descend(
    problem: Problem,
    parameters: _Parameters,
    options: TrainConfig,
    generator: Generator,
    progress: Progress | None,
) -> tuple[_Parameters, dict[str, Array]]:
    """Run Adam with a cosine-annealed rate; return the state of least validation loss."""
    import torch

    training, validation = _split(problem, options.validation, generator)
    nodes = (np.polynomial.legendre.leggauss(LOSS_NODES)[0] + 1) / 2
    optimiser = torch.optim.Adam(parameters.tensors(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs)
    every = -(-options.epochs // RECORDS)
    best, least, records = parameters.copy(), np.inf, []
    for epoch in range(1, options.epochs + 1):
        for batch in _batches(training, options.batch_size, generator):
            _step(batch, parameters, optimiser, generator)
        schedule.step()
        if epoch % every and epoch != options.epochs:
            continue
        loss, held_out = (
            float(_losses(part, parameters, nodes).mean()) for part in (training, validation)
        )
        state = parameters.copy()
        records.append((epoch, loss, held_out, arc_length(state.control_points.cpu().numpy())))
        if held_out < least:
            best, least = state, held_out
        if progress is not None:
            progress(epoch, loss, held_out)
    if not np.isfinite(least):
        raise SemistanError(
            f"training diverged: the loss is {loss:g} after {options.epochs} epochs; lower "
            f"learning_rate (now {options.learning_rate:g})"
        )
    names = ("epoch", "loss", "validation_loss", "arc_length")
    return best, dict(zip(names, np.array(records, dtype=float).T, strict=True))


def _step(
    batch: Problem, parameters: _Parameters, optimiser: torch.optim.Optimizer, generator: Generator
) -> None:
    import torch

    t = float(torch.rand((), generator=generator, dtype=torch.float64))
    optimiser.zero_grad()
    weights = _on_device(bernstein(np.array(t), len(parameters.control_points) - 1), batch)
    batch.loss(parameters.at(weights)).backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _losses(problem: Problem, parameters: _Parameters, t: Array) -> Array:
    """Return the loss at each t, one t at a time to bound memory."""
    import torch

    weights = _on_device(bernstein(t, len(parameters.control_points) - 1), problem)
    with torch.no_grad():
        return np.array([float(problem.loss(parameters.at(row))) for row in weights])


def _on_device(array: Array, problem: Problem) -> Tensor:
    import torch

    return torch.as_tensor(array, dtype=torch.float64).to(problem.y.device)


def _split(problem: Problem, share: float, generator: Generator) -> tuple[Problem, Problem]:
    """Hold out a random share of the rows; without one, training rows are used for both."""
    import torch

    held_out = min(round(share * len(problem)), len(problem) - 1)
    if held_out == 0:
        return problem, problem
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    return problem.rows(order[held_out:]), problem.rows(order[:held_out])


def _batches(problem: Problem, size: int, generator: Generator) -> Iterator[Problem]:
    import torch

    size = size or (len(problem) if len(problem) <= 4096 else 1024)
    if size >= len(problem):
        yield problem
        return
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    for start in range(0, len(problem), size):
        yield problem.rows(order[start : start + size])
