"""What a network must bring: the protocol of every architecture, its arguments documented once.

A network f(u; w) is a pure function of flat weights, with one output or, where predictors share
its hidden layers, several. An architecture is one file that says the same in PyTorch, in ONNX and,
with a file of functions in ``stan/``, in Stan. Its leading layers may be constants
(``leading.py``): what they make of the inputs is what the network behind them, its head, takes as
inputs. The Stan functions of one may compute others too, which it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Generator, Tensor

Choice = TypeVar("Choice")
Lines = tuple[tuple[str, str], ...]  # declarations and their comments


class Layer(NamedTuple):
    """Where an affine map from m inputs to n units has its weights, unit by unit, and biases."""

    weights: slice
    biases: slice
    m: int
    n: int


class Graph(Protocol):
    """An ONNX graph while it is written down; values go by their names."""

    def constant(self, array: Any) -> str:
        """Add an array."""

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator and return its result."""

    def part(self, value: str, part: slice) -> str:
        """Take some columns of a matrix."""

    def transposed(self, value: str) -> str:
        """Swap the last two axes."""


def needed(*choices: tuple[Choice, bool]) -> tuple[Choice, ...]:
    """Return those of some things that a program needs, each said beside it."""
    return tuple(thing for thing, is_needed in choices if is_needed)


@dataclass(frozen=True, slots=True)
class StanText:
    """How one network, or several that are alike, stand in a program.

    The functions are ``network(H, w, ...)`` of one, ``networks(H, w, ...)`` of several whose
    outputs are added, and ``outputs(H, w, ...)`` where these are of several predictors, a column
    for each: H has the features of all side by side, standardised, w their weights.

    Attributes
    ----------
    files : tuple of str
        The functions, in ``stan/``.
    data : pairs
        Declarations of the data that say how large the networks are.
    passed : pairs
        What those functions take behind H and w: its type, and its name.
    has_kernel : bool
        Whether the C++ kernel computes these networks.
    output_inputs : str
        The file of ``output_inputs(H, w, ...)``, the inputs of the output layers side by side, each
        with a 1 for its bias; without it, output layers cannot be integrated out.
    along : tuple of str
        The files of ``network_outputs_along(H, w, v, ...)`` of one network, or of
        ``outputs_along(H, w, v, ...)`` of several: the derivatives of all outputs along a change v
        of the weights.
    """

    files: tuple[str, ...]
    data: Lines
    passed: Lines
    has_kernel: bool
    output_inputs: str = ""
    along: tuple[str, ...] = ()


class Architecture(Protocol):
    """A network.

    Attributes
    ----------
    n_inputs : int
        Number of inputs Q.
    d : int
        Number of weights.
    activation : str
        What follows each layer but the last.
    outputs : int
        Units of the output layer.
    widest : int
        Numbers of the largest layer for each row, inputs included.
    text : str
        The layers' sizes, as ``2-16-16-1``.
    in_stan : bool
        Whether Stan can compute it; otherwise PyTorch alone.
    also : tuple of type
        Other architectures that its Stan functions compute, beside which it may stand.
    """

    @property
    def n_inputs(self) -> int: ...  # noqa: D102
    @property
    def d(self) -> int: ...  # noqa: D102
    @property
    def activation(self) -> str: ...  # noqa: D102
    @property
    def outputs(self) -> int: ...  # noqa: D102
    @property
    def widest(self) -> int: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def in_stan(self) -> bool: ...  # noqa: D102
    @property
    def also(self) -> tuple[type, ...]: ...  # noqa: D102

    def layers(self, start: int = 0) -> list[Layer]:
        """Return the layers; their weights are w, from a position on, without gaps."""

    def head(self, frozen: int) -> Architecture:
        """Return what is behind so many leading layers.

        Raises
        ------
        InputError
            If so many cannot be constants.
        """

    def features(self, w: Tensor, u: Tensor, frozen: int) -> Tensor:
        """Pass inputs (N, Q) through so many leading layers, to the head's inputs (N, m)."""

    def initial(self, generator: Generator) -> Tensor:
        """Draw weights (d,) with which training starts."""

    def forward(self, w: Tensor, u: Tensor) -> Tensor:
        """Return the outputs (..., N, outputs) at weights (..., d), given standardised u (N, Q)."""

    def layer_inputs(self, w: Tensor, u: Tensor) -> list[Tensor]:
        """Return the inputs (N, m_i) of each layer at weights (d,)."""

    def output_and_jacobian(self, w: Tensor, u: Tensor, output: int) -> tuple[Tensor, Tensor]:
        """Return one output (N,) at weights (d,) and its derivatives by them (N, d)."""

    def derivatives_along(self, w: Tensor, u: Tensor, output: int, V: Tensor) -> Tensor:
        """Return the derivatives of one output at weights (d,) along the columns of V: (N, k)."""

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:
        """Write ``features`` down."""

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:
        """Write ``forward`` down, for weights (S, d) from a column of w on: (S, N, outputs)."""

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:
        """Write down how the outputs change along v (S, d) at constant weights (d,)."""

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:
        """Return the program's text for one or several, of one predictor or of more.

        With ``kernel``, the functions are those of the C++ kernel, if it has them.
        """

    @staticmethod
    def stan_sizes(parts: Sequence[Any]) -> dict[str, Any]:
        """Return the values of what the text declares as data, for networks that are alike."""
