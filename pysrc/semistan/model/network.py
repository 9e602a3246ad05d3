"""The network ``f(u; w)`` as a pure function of one flat weight vector.

Weights are stored layer by layer, each layer's weight matrix (unit by unit, PyTorch's
order) and then its biases. The first ``frozen`` layers are constants outside the subspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from torch import Generator, Tensor

Array = npt.NDArray[np.float64]

# The order is the code of each activation in stan/network.stanfunctions, from 1.
ACTIVATIONS = ("tanh", "relu", "softplus", "sigmoid", "identity")


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A fully connected network with one output.

    Attributes
    ----------
    n_inputs : int
        Number of network inputs Q.
    hidden : tuple of int
        Units of each hidden layer; empty for a linear network.
    activation : str
        One of ``ACTIVATIONS``, applied after each hidden layer.
    frozen : int
        This many leading layers are constants, not part of ``w``.
    """

    n_inputs: int
    hidden: tuple[int, ...]
    activation: str = "tanh"
    frozen: int = 0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            hint = did_you_mean(self.activation, ACTIVATIONS)
            raise InputError(f"unknown activation '{self.activation}'.{hint}")
        if self.n_inputs < 1 or any(units < 1 for units in self.hidden):
            raise InputError(
                f"every layer needs at least one unit, got inputs {self.n_inputs} and "
                f"hidden {list(self.hidden)}"
            )
        if not 0 <= self.frozen <= len(self.hidden):
            raise InputError(
                f"frozen must be between 0 and the number of hidden layers "
                f"({len(self.hidden)}), got {self.frozen}: the output layer stays in the subspace"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers: inputs, hidden layers, one output."""
        return (self.n_inputs, *self.hidden, 1)

    @property
    def frozen_widths(self) -> tuple[int, ...]:
        """Widths of the frozen part, from the inputs to its last layer."""
        return self.widths[: self.frozen + 1]

    @property
    def free_widths(self) -> tuple[int, ...]:
        """Widths of the Bayesian part, from its inputs to the output."""
        return self.widths[self.frozen :]

    @property
    def d(self) -> int:
        """Number of Bayesian weights."""
        return n_weights(self.free_widths)

    @property
    def d_frozen(self) -> int:
        """Number of frozen weights."""
        return n_weights(self.frozen_widths)


def n_weights(widths: tuple[int, ...]) -> int:
    """Count the weights and biases of the layers between these widths."""
    return sum((m + 1) * n for m, n in pairwise(widths))


def layer_slices(widths: tuple[int, ...]) -> list[tuple[slice, slice, int, int]]:
    """Return, for each layer, the slices of its weights and biases and its shape (m, n)."""
    slices, start = [], 0
    for m, n in pairwise(widths):
        middle, end = start + m * n, start + (m + 1) * n
        slices.append((slice(start, middle), slice(middle, end), m, n))
        start = end
    return slices


def activate(z: Tensor, activation: str) -> Tensor:
    """Apply an activation elementwise."""
    import torch

    if activation == "identity":
        return z
    if activation == "softplus":  # torch's own is linear above a threshold
        return torch.logaddexp(z, torch.zeros((), dtype=z.dtype, device=z.device))
    functions = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
    return functions[activation](z)


def affine(h: Tensor, w: Tensor, weights: slice, biases: slice, m: int, n: int) -> Tensor:
    """Return ``h W' + b`` for one layer; ``w`` may carry leading batch axes."""
    matrix = w[..., weights].reshape(*w.shape[:-1], n, m)
    return h @ matrix.transpose(-1, -2) + w[..., biases].unsqueeze(-2)


def frozen_features(spec: NetworkSpec, w_frozen: Tensor, u: Tensor) -> Tensor:
    """Pass standardised inputs (N, Q) through the frozen layers; (N, Q) if there are none."""
    h = u
    for layer in layer_slices(spec.frozen_widths):
        h = activate(affine(h, w_frozen, *layer), spec.activation)
    return h


def forward(spec: NetworkSpec, w: Tensor, h: Tensor) -> Tensor:
    """Evaluate the Bayesian layers.

    Parameters
    ----------
    spec : NetworkSpec
        The architecture.
    w : torch.Tensor, shape (..., d)
        Flat weights; leading axes are a batch.
    h : torch.Tensor, shape (N, m)
        What ``frozen_features`` returns (standardised inputs when nothing is frozen).

    Returns
    -------
    torch.Tensor, shape (..., N)
        The network's output for each row.
    """
    *hidden, last = layer_slices(spec.free_widths)
    for layer in hidden:
        h = activate(affine(h, w, *layer), spec.activation)
    return affine(h, w, *last).squeeze(-1)


def output_and_jacobian(spec: NetworkSpec, w: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return f (n,) and its derivatives with respect to the Bayesian weights (n, d).

    The derivative of a row's output with respect to a layer's weights is the outer product of
    that with respect to the layer's sums and of the layer's inputs.
    """
    import torch

    inputs, sums = [h], []
    for layer in layer_slices(spec.free_widths):
        sums.append(affine(inputs[-1], w, *layer).requires_grad_())
        inputs.append(activate(sums[-1], spec.activation))
    f = sums[-1].squeeze(-1)
    parts = []
    for a, slope in zip(inputs[:-1], torch.autograd.grad(f.sum(), sums), strict=True):
        parts += [(slope[:, :, None] * a.detach()[:, None, :]).flatten(1), slope]
    return f.detach(), torch.cat(parts, dim=1)


def initial_weights(widths: tuple[int, ...], generator: Generator) -> Tensor:
    """Draw weights uniformly within ``1 / sqrt(m)`` (PyTorch's default), shape (d,)."""
    import torch

    parts = []
    for m, n in pairwise(widths):
        uniform = torch.rand((m + 1) * n, generator=generator, dtype=torch.float64)
        parts.append((2 * uniform - 1) / m**0.5)
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
