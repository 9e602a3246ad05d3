"""The network ``f(u; w)`` as a pure function of one flat weight vector.

Weights are stored layer by layer, each layer's weight matrix (unit by unit, PyTorch's
order) and then its biases. The first ``frozen`` layers are constants outside the subspace.

Several networks are added, f = f_1(u_1; w_1) + f_2(u_2; w_2) + ...: their inputs, their weights
and their frozen weights stand side by side, network by network. Each is of one predictor, that of
the mean (``mu``) or of a dispersion parameter, and only those of the same predictor are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError, did_you_mean
from semistan.model.names import MU

if TYPE_CHECKING:
    from torch import Generator, Tensor

Array = npt.NDArray[np.float64]
Layer = tuple[slice, slice, int, int]  # weights, biases, m inputs, n units

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

    @property
    def parts(self) -> tuple[NetworkSpec, ...]:
        """The network itself, as the only term of a sum."""
        return (self,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of Bayesian weights, as that of each part."""
        return (self.d,)

    @property
    def predictors(self) -> tuple[str, ...]:
        """The predictor that the network is of."""
        return (MU,)


@dataclass(frozen=True, slots=True)
class Networks:
    """One network, or several whose outputs are added.

    Attributes
    ----------
    parts : tuple of NetworkSpec
        At least one; they have the same layers, but for the inputs.
    of : tuple of str
        The predictor of each, if there is another one than ``mu``.
    """

    parts: tuple[NetworkSpec, ...]
    of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        layers = {(part.hidden, part.activation, part.frozen) for part in self.parts}
        if len(layers) != 1:
            raise ValueError(f"expected networks of the same layers, got {sorted(layers)}")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return self.parts[0].hidden

    @property
    def activation(self) -> str:
        """What follows each hidden layer."""
        return self.parts[0].activation

    @property
    def frozen(self) -> int:
        """Number of leading layers that are constants."""
        return self.parts[0].frozen

    @property
    def n_inputs(self) -> int:
        """Number of network inputs Q of all parts."""
        return sum(part.n_inputs for part in self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of Bayesian weights of each part."""
        return tuple(part.d for part in self.parts)

    @property
    def d(self) -> int:
        """Number of Bayesian weights of all parts."""
        return sum(self.sizes)

    @property
    def d_frozen(self) -> int:
        """Number of frozen weights of all parts."""
        return sum(part.d_frozen for part in self.parts)

    @property
    def predictors(self) -> tuple[str, ...]:
        """The predictor that each part is of."""
        return self.of or (MU,) * len(self.parts)

    @property
    def widest(self) -> int:
        """Units of the widest layer, inputs included."""
        return max(max(part.widths) for part in self.parts)

    @property
    def text(self) -> str:
        """The widths of all layers, as ``2-16-16-1 + 1-16-16-1``."""
        return " + ".join("-".join(map(str, part.widths)) for part in self.parts)


Network = NetworkSpec | Networks


def n_weights(widths: tuple[int, ...]) -> int:
    """Count the weights and biases of the layers between these widths."""
    return sum((m + 1) * n for m, n in pairwise(widths))


def layer_slices(widths: tuple[int, ...], start: int = 0) -> list[Layer]:
    """Return, for each layer, the slices of its weights and biases and its shape (m, n)."""
    slices = []
    for m, n in pairwise(widths):
        middle, end = start + m * n, start + (m + 1) * n
        slices.append((slice(start, middle), slice(middle, end), m, n))
        start = end
    return slices


def layers(spec: Network) -> list[list[Layer]]:
    """Return the Bayesian layers of each part, as ``layer_slices``, in the weights of all."""
    starts = accumulate(spec.sizes, initial=0)
    return [
        layer_slices(part.free_widths, start)
        for part, start in zip(spec.parts, starts, strict=False)
    ]


def output_layers(spec: Network, predictor: str | None = None) -> list[slice]:
    """Return where the weights and biases of the output layers are, of all parts or of some."""
    return [
        slice(part[-1][0].start, part[-1][1].stop)
        for part, of in zip(layers(spec), spec.predictors, strict=True)
        if predictor in (None, of)
    ]


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


def frozen_features(spec: Network, w_frozen: Tensor, u: Tensor) -> Tensor:
    """Pass standardised inputs (N, Q) through the frozen layers; (N, Q) if there are none."""
    import torch

    if not len(w_frozen):
        return u
    sizes = [part.d_frozen for part in spec.parts], [part.n_inputs for part in spec.parts]
    features = []
    weights, inputs = torch.split(w_frozen, sizes[0]), torch.split(u, sizes[1], dim=1)
    for part, w, h in zip(spec.parts, weights, inputs, strict=True):
        for layer in layer_slices(part.frozen_widths):
            h = activate(affine(h, w, *layer), part.activation)
        features.append(h)
    return torch.cat(features, dim=1)


def forward(spec: Network, w: Tensor, h: Tensor, predictor: str = MU) -> Tensor:
    """Evaluate the Bayesian layers of one predictor's networks.

    Parameters
    ----------
    spec : NetworkSpec or Networks
        The architecture.
    w : torch.Tensor, shape (..., d)
        Flat weights; leading axes are a batch.
    h : torch.Tensor, shape (N, m)
        What ``frozen_features`` returns (standardised inputs when nothing is frozen).
    predictor : str
        Whose networks are added.

    Returns
    -------
    torch.Tensor, shape (..., N)
        The network's output for each row; the sum of several parts' outputs, 0 of none.
    """
    if predictor not in spec.predictors:
        return h.new_zeros(*w.shape[:-1], len(h))
    total, *others = _each_output(spec, w, h, predictor)
    for output in others:
        total = total + output
    return total


def outputs(spec: Network, w: Tensor, h: Tensor) -> Tensor:
    """Return the output of each part, shape (..., parts, N); parameters as ``forward``."""
    import torch

    return torch.stack(list(_each_output(spec, w, h)), dim=-2)


def layer_inputs(
    spec: Network, w: Tensor, h: Tensor, predictor: str | None = None
) -> Iterator[list[Tensor]]:
    """Yield the inputs (n, m) of the Bayesian layers at weights (d,), of all parts or of some."""
    for part, own, inputs in _parts(spec, w, h, predictor):
        found = [inputs]
        for layer in layer_slices(part.free_widths)[:-1]:
            found.append(activate(affine(found[-1], own, *layer), part.activation))
        yield found


def output_and_jacobian(
    spec: Network, w: Tensor, h: Tensor, predictor: str = MU
) -> tuple[Tensor, Tensor]:
    """Return f (n,) and its derivatives with respect to the Bayesian weights (n, d).

    The derivatives with respect to the weights of other predictors' networks are 0.

    The derivative of a row's output with respect to a layer's weights is the outer product of
    that with respect to the layer's sums and of the layer's inputs.
    """
    import torch

    if predictor not in spec.predictors:
        return h.new_zeros(len(h)), h.new_zeros(len(h), spec.d)
    found = zip(spec.predictors, _parts(spec, w, h), strict=True)
    every = [
        _with_jacobian(*part) if of == predictor else (None, h.new_zeros(len(h), part[0].d))
        for of, part in found
    ]
    f, *others = (output for output, _ in every if output is not None)
    for output in others:
        f = f + output
    return f, torch.cat([own for _, own in every], dim=1)


def _parts(
    spec: Network, w: Tensor, h: Tensor, predictor: str | None = None
) -> Iterator[tuple[NetworkSpec, Tensor, Tensor]]:
    """Yield each part, or a predictor's, with its weights (..., d_i) and its inputs (N, m_i)."""
    import torch

    columns = [part.free_widths[0] for part in spec.parts]
    weights, inputs = torch.split(w, list(spec.sizes), dim=-1), torch.split(h, columns, dim=1)
    parts = zip(spec.parts, weights, inputs, strict=True)
    for of, part in zip(spec.predictors, parts, strict=True):
        if predictor in (None, of):
            yield part


def _each_output(
    spec: Network, w: Tensor, h: Tensor, predictor: str | None = None
) -> Iterator[Tensor]:
    for part, own, inputs in _parts(spec, w, h, predictor):
        *hidden, last = layer_slices(part.free_widths)
        for layer in hidden:
            inputs = activate(affine(inputs, own, *layer), part.activation)
        yield affine(inputs, own, *last).squeeze(-1)


def _with_jacobian(spec: NetworkSpec, w: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
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
