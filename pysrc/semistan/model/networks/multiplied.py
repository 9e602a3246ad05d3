"""A network that multiplies a column: z g(u; w), so that the coefficient of z is a network.

The column, over its scale, is the last of the inputs. It passes by the layers, constant ones too,
and multiplies the output, so that the output bias is what of z's coefficient is the same for all
rows. Whatever computes networks by their outputs and derivatives needs to know no more; what asks
for their layers, as a Stan program does, takes ``network`` and multiplies by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, final

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.networks.architecture import Architecture, Graph, Layer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch import Generator, Tensor

    from semistan.model.networks.architecture import StanText


@final
@dataclass(frozen=True, slots=True)
class Multiplied:
    """A network times the last of its inputs, as ``Architecture`` says.

    Attributes
    ----------
    network : Architecture
        The network, of one output.
    """

    network: Architecture

    @property
    def n_inputs(self) -> int:
        """Inputs of the network, and the column."""
        return self.network.n_inputs + 1

    @property
    def d(self) -> int:
        """Number of weights."""
        return self.network.d

    @property
    def activation(self) -> str:
        """Of the network."""
        return self.network.activation

    @property
    def outputs(self) -> int:
        """One."""
        return self.network.outputs

    @property
    def widest(self) -> int:
        """Numbers of the largest layer for each row, inputs included."""
        return max(self.network.widest, self.n_inputs)

    @property
    def text(self) -> str:
        """The layers' sizes."""
        return self.network.text

    @property
    def in_stan(self) -> bool:
        """Whether Stan can compute the network."""
        return self.network.in_stan

    @property
    def also(self) -> tuple[type, ...]:
        """Other architectures that its Stan functions compute."""
        return self.network.also

    def layers(self, start: int = 0) -> list[Layer]:
        """Return the layers of the network."""
        return self.network.layers(start)

    def head(self, frozen: int) -> Multiplied:
        """Return what is behind so many leading layers, times the column."""
        return Multiplied(self.network.head(frozen))

    def features(self, w: Tensor, u: Tensor, frozen: int) -> Tensor:
        """Pass inputs through the first layers, and the column by."""
        return torch.cat([self.network.features(w, u[:, :-1], frozen), u[:, -1:]], dim=1)

    def initial(self, generator: Generator) -> Tensor:
        """Draw weights as the network does."""
        return self.network.initial(generator)

    def forward(self, w: Tensor, u: Tensor) -> Tensor:
        """Multiply the network's output."""
        return self.network.forward(w, u[:, :-1]) * u[:, -1:]

    def layer_inputs(self, w: Tensor, u: Tensor) -> list[Tensor]:
        """Return the inputs of each layer, which the column does not multiply."""
        return self.network.layer_inputs(w, u[:, :-1])

    def output_and_jacobian(self, w: Tensor, u: Tensor, output: int) -> tuple[Tensor, Tensor]:
        """Return the output and its derivatives, both times the column."""
        f, J = self.network.output_and_jacobian(w, u[:, :-1], output)
        return f * u[:, -1], J * u[:, -1:]

    def derivatives_along(self, w: Tensor, u: Tensor, output: int, V: Tensor) -> Tensor:
        """Return the derivatives along directions, times the column."""
        return self.network.derivatives_along(w, u[:, :-1], output, V) * u[:, -1:]

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:
        """Write ``features`` down."""
        inputs, column = self._split(graph, u)
        made = self.network.onnx_features(graph, w, inputs, frozen)
        return graph.apply("Concat", made, column, axis=1)

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:
        """Write ``forward`` down."""
        inputs, column = self._split(graph, u)
        return graph.apply("Mul", self.network.onnx(graph, w, inputs, start), column)

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:
        """Write down how the product changes along v."""
        inputs, column = self._split(graph, u)
        return graph.apply("Mul", self.network.onnx_along(graph, at, v, inputs, start), column)

    def _split(self, graph: Graph, u: str) -> tuple[str, str]:
        n = self.network.n_inputs
        return graph.part(u, slice(0, n)), graph.part(u, slice(n, n + 1))

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:
        """Not to be asked for: the text is that of the network's architecture."""
        raise NotImplementedError

    @staticmethod
    def stan_sizes(parts: Sequence[Any]) -> dict[str, Any]:
        """Not to be asked for, as ``stan_text``."""
        raise NotImplementedError


def unmultiplied(part: Architecture) -> Architecture:
    """Return the network itself, whether it multiplies a column or not."""
    return part.network if isinstance(part, Multiplied) else part


def multiplier_columns(parts: Iterable[Architecture]) -> dict[int, int]:
    """Return where the column that a network multiplies stands among the inputs of all.

    The keys are the numbers of the networks that multiply one, from 0.
    """
    listed = list(parts)
    ends = accumulate(part.n_inputs for part in listed)
    both = enumerate(zip(listed, ends, strict=True))
    return {number: end - 1 for number, (part, end) in both if isinstance(part, Multiplied)}
