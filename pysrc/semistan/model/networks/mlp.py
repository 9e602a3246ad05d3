"""The fully connected network.

Weights are stored layer by layer, each layer's weight matrix (unit by unit, PyTorch's order) and
then its biases.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.networks.activations import (
    ACTIVATIONS,
    activate,
    activation_code,
    check_activation,
    onnx_activation,
    onnx_slope,
)
from semistan.model.networks.architecture import Graph, Layer, StanText, needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Generator, Tensor


@dataclass(frozen=True, slots=True)
class Layered:
    """The layers of a fully connected network, of whatever options; of no use by itself.

    Attributes
    ----------
    n_inputs : int
        Number of network inputs Q; 0 of a constant, whose only weight is the output bias.
    hidden : tuple of int
        Units of each hidden layer; empty for a linear network.
    activation : str
        One of ``ACTIVATIONS``, applied after each hidden layer.
    outputs : int
        Units of the output layer.
    """

    n_inputs: int
    hidden: tuple[int, ...]
    activation: str = "tanh"
    outputs: int = field(default=1, kw_only=True)
    in_stan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)
        taken = self.n_inputs, *self.hidden
        if any(units < 1 for units in taken) and taken != (0,):
            raise InputError(
                f"every layer needs at least one unit, got inputs {self.n_inputs} and "
                f"hidden {list(self.hidden)}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers: inputs, hidden layers, outputs."""
        return (self.n_inputs, *self.hidden, self.outputs)

    @property
    def d(self) -> int:
        """Number of weights."""
        return n_weights(self.widths)

    @property
    def widest(self) -> int:
        """Units of the widest layer, inputs included."""
        return max(self.widths)

    @property
    def text(self) -> str:
        """The widths of all layers, as ``2-16-16-1``."""
        return "-".join(map(str, self.widths))

    def layers(self, start: int = 0) -> list[Layer]:
        """Return the layers."""
        return layer_slices(self.widths, start)

    def head(self, frozen: int) -> Self:
        """Return the layers behind the first ones."""
        if not 0 <= frozen <= len(self.hidden):
            raise InputError(
                f"frozen must be between 0 and the number of hidden layers "
                f"({len(self.hidden)}), got {frozen}: the output layer stays in the subspace"
            )
        return replace(self, n_inputs=self.widths[frozen], hidden=self.hidden[frozen:])

    def initial(self, generator: Generator) -> Tensor:
        """Draw weights as PyTorch does."""
        return initial_weights(self.widths, generator)

    def walk(self, w: Tensor, u: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the sums of each hidden layer, and what the layer behind it takes."""
        raise NotImplementedError

    def features(self, w: Tensor, u: Tensor, frozen: int) -> Tensor:
        """Pass inputs through the first layers, to what the one behind them takes."""
        a = u
        for _, a in islice(self.walk(w, u), frozen):  # noqa: B007 - the last is returned
            pass
        return a

    def forward(self, w: Tensor, u: Tensor) -> Tensor:
        """Evaluate the layers."""
        return affine(self.features(w, u, len(self.hidden)), w, *self.layers()[-1])

    def layer_inputs(self, w: Tensor, u: Tensor) -> list[Tensor]:
        """Return the inputs of each layer, as it takes them."""
        return [u, *(a for _, a in self.walk(w, u))]

    def output_and_jacobian(self, w: Tensor, u: Tensor, output: int) -> tuple[Tensor, Tensor]:
        """Return an output and its derivatives, by one backward pass for all rows.

        The derivative of a row's output with respect to a layer's weights is the outer product of
        that with respect to the layer's sums and of the layer's inputs.
        """
        f, inputs, slopes = self._differentiated(w, u, output)
        parts = []
        for a, slope in zip(inputs, slopes, strict=True):
            parts += [(slope[:, :, None] * a[:, None, :]).flatten(1), slope]
        return f, torch.cat(parts, dim=1)

    def derivatives_along(self, w: Tensor, u: Tensor, output: int, V: Tensor) -> Tensor:
        """Return an output's derivatives along directions, without those by each weight."""
        _, inputs, slopes = self._differentiated(w, u, output)
        total = V.new_zeros(V.shape[1], len(u))
        for a, slope, layer in zip(inputs, slopes, self.layers(), strict=True):
            total += (slope * affine(a, V.T, *layer)).sum(dim=-1)
        return total.T

    def _differentiated(
        self, w: Tensor, u: Tensor, output: int
    ) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
        """Return an output, the inputs of each layer, and its derivatives by each layer's sums."""
        w, inputs, sums = w.detach().requires_grad_(), [u], []
        for z, a in self.walk(w, u):
            sums.append(z)
            inputs.append(a)
        sums.append(affine(inputs[-1], w, *self.layers()[-1]))
        f = sums[-1][:, output]
        slopes = torch.autograd.grad(f.sum(), sums)
        return f.detach(), [a.detach() for a in inputs], slopes


@final
@dataclass(frozen=True, slots=True)
class FullyConnected(Layered):
    """A fully connected network, as ``Architecture`` says."""

    also: ClassVar[tuple[type, ...]] = ()

    def walk(self, w: Tensor, u: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the sums of each hidden layer, and what the layer behind it takes."""
        for layer in self.layers()[:-1]:
            z = affine(u, w, *layer)
            u = activate(z, self.activation)
            yield z, u

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:
        """Write the first layers down."""
        for layer in self.layers()[:frozen]:
            u = onnx_activation(graph, onnx_constant_affine(graph, w, u, layer), self.activation)
        return u

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:
        """Write the layers down."""
        *hidden, last = self.layers(start)
        for layer in hidden:
            u = onnx_activation(graph, onnx_affine(graph, w, u, layer), self.activation)
        return onnx_affine(graph, w, u, last)

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:
        """Write down how the outputs change along v, at constant weights."""
        h, moved = u, ""
        *hidden, last = self.layers(start)
        for layer in hidden:
            change = onnx_affine_along(graph, at, v, h, moved, layer)
            z = onnx_constant_affine(graph, at, h, layer)
            moved = graph.apply("Mul", onnx_slope(graph, z, self.activation), change)
            h = onnx_activation(graph, z, self.activation)
        return onnx_affine_along(graph, at, v, h, moved, last)

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:
        """Return the program's text for one network or several, of one predictor or of more.

        ``widths`` has a row for each of several networks, with 0 behind the last layer of one that
        has fewer layers than others.
        """
        size, of = ("n_networks, ", "of each: inputs, ") if several else ("", "Q, ")
        most = ", of the deepest" if several else ""
        least, each = (0, "array[n_networks] ") if several else (1, "")
        outputs, in_cpp = "outputs" if predictors else "1", "_in_cpp" if kernel else ""
        first, *_, last = ACTIVATIONS
        added = "networks" if predictors else "networks, whose outputs are added"
        return StanText(
            files=needed(
                ("activate.stanfunctions", not kernel),
                (f"layers{in_cpp}.stanfunctions", True),
                (f"network{'_outputs' if predictors else ''}{in_cpp}.stanfunctions", True),
                ("widths.stanfunctions", several),
                ("networks.stanfunctions", several and not predictors),
                ("n_outputs.stanfunctions", predictors),
                ("outputs.stanfunctions", predictors),
            ),
            data=(
                *needed((("int<lower=1> n_networks;", added), several)),
                ("int<lower=1> n_layers;", f"layers, the output layer included{most}"),
                (
                    f"array[{size}n_layers + 1] int<lower={least}> widths;",
                    f"{of}hidden units, {outputs}",
                ),
                (
                    f"{each}int<lower=1, upper={len(ACTIVATIONS)}> activation;",
                    f"1 {first} ... {len(ACTIVATIONS)} {last}",
                ),
            ),
            passed=(
                ("array[,] int" if several else "array[] int", "widths"),
                ("array[] int" if several else "int", "activation"),
            ),
            has_kernel=True,
            output_inputs=f"{'outputs' if several else 'output'}_inputs.stanfunctions",
            along=needed(
                ("activation_slope.stanfunctions", True),
                ("network_along.stanfunctions", True),
                ("n_outputs.stanfunctions", several and not predictors),
                ("outputs_along.stanfunctions", several),
            ),
        )

    @staticmethod
    def stan_sizes(parts: Sequence[Layered]) -> dict[str, Any]:
        """Return the values of what ``stan_text`` declares as data."""
        longest = max(len(part.widths) for part in parts)
        several = len(parts) > 1 or parts[0].outputs > 1
        widths = [[*part.widths, *([0] * (longest - len(part.widths)))] for part in parts]
        activation = [activation_code(part.activation) for part in parts]
        return {
            **({"n_networks": len(widths)} if several else {}),
            "n_layers": longest - 1,
            "widths": widths if several else widths[0],
            "activation": activation if several else activation[0],
        }


def n_weights(widths: tuple[int, ...]) -> int:
    """Count the weights and biases of the layers between these widths."""
    return sum((m + 1) * n for m, n in pairwise(widths))


def layer_slices(widths: tuple[int, ...], start: int = 0) -> list[Layer]:
    """Return the layers between these widths, their weights from a position on."""
    return slices_of(pairwise(widths), start)


def slices_of(sizes: Iterable[tuple[int, int]], start: int = 0) -> list[Layer]:
    """Return layers of m inputs and n units each, their weights from a position on."""
    slices = []
    for m, n in sizes:
        middle, end = start + m * n, start + (m + 1) * n
        slices.append(Layer(slice(start, middle), slice(middle, end), m, n))
        start = end
    return slices


def initial_weights(widths: tuple[int, ...], generator: Generator) -> Tensor:
    """Draw the weights (d,) of the layers between these widths, as ``drawn``."""
    return drawn(pairwise(widths), generator)


def drawn(sizes: Iterable[tuple[int, int]], generator: Generator) -> Tensor:
    """Draw weights uniformly within ``1 / sqrt(m)`` (PyTorch's default), layer by layer."""
    parts = []
    for m, n in sizes:
        uniform = torch.rand((m + 1) * n, generator=generator, dtype=torch.float64)
        parts.append((2 * uniform - 1) / max(m, 1) ** 0.5)
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def onnx_constant_affine(graph: Graph, w: Array, h: str, layer: Layer) -> str:
    """Write ``affine`` down, for constant weights (d,)."""
    matrix = graph.constant(w[layer.weights].reshape(layer.n, layer.m).T)
    return graph.apply("Add", graph.apply("MatMul", h, matrix), graph.constant(w[layer.biases]))


def onnx_affine_along(graph: Graph, w: Array, v: str, h: str, moved: str, layer: Layer) -> str:
    """Write the change of ``affine`` down, along v (S, d), where h changes by ``moved`` if it does.

    The weights w (d,) and h (N, m) are the same for all S.
    """
    change = onnx_affine(graph, v, h, layer)
    if not moved:
        return change
    matrix = graph.constant(w[layer.weights].reshape(layer.n, layer.m).T)
    return graph.apply("Add", change, graph.apply("MatMul", moved, matrix))


def affine(h: Tensor, w: Tensor, weights: slice, biases: slice, m: int, n: int) -> Tensor:
    """Return ``h W' + b`` for one layer; ``w`` may carry leading batch axes."""
    matrix = w[..., weights].reshape(*w.shape[:-1], n, m)
    return h.to(w.dtype) @ matrix.transpose(-1, -2) + w[..., biases].unsqueeze(-2)


def onnx_affine(graph: Graph, w: str, h: str, layer: Layer) -> str:
    """Write ``affine`` down, for weights (S, d)."""
    m, n = layer.m, layer.n
    bias = graph.apply("Reshape", graph.part(w, layer.biases), graph.constant(np.array([-1, 1, n])))
    if not m:  # the same in all rows
        return bias
    matrix = graph.apply(
        "Reshape", graph.part(w, layer.weights), graph.constant(np.array([-1, n, m]))
    )
    return graph.apply("Add", graph.apply("MatMul", h, graph.transposed(matrix)), bias)
