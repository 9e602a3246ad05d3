"""Activations: one record each, and a line in ``ACTIVATIONS``.

A record has the function in PyTorch and as an ONNX graph, and its slope. Stan has both by the
number of the record's line, from 1: ``activate`` in ``stan/layers.stanfunctions``,
``activation_slope`` in ``stan/network_along.stanfunctions``; the C++ kernel has its own of those
that say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from semistan.model.arrays import Array
    from semistan.model.networks.architecture import Graph


@dataclass(frozen=True, slots=True)
class Activation:
    """A function that follows each hidden layer, elementwise.

    Attributes
    ----------
    name : str
        As the user writes it.
    torch : callable
        Maps a tensor to its values.
    onnx : callable
        Writes that down: graph and name of z to the name of the values.
    onnx_slope : callable
        Writes the slope down: graph and name of z to the name of the slopes.
    ends : callable, optional
        Maps values (array) to the slope there over the steepest one, of a function that is flat at
        its ends, where units saturate.
    dead_at_zero : bool
        Whether a unit that is 0 at all rows no longer answers.
    in_kernel : bool
        Whether the C++ kernel has it.
    """

    name: str
    torch: Callable[[Tensor], Tensor]
    onnx: Callable[[Graph, str], str]
    onnx_slope: Callable[[Graph, str], str]
    ends: Callable[[Array], Array] | None = None
    dead_at_zero: bool = False
    in_kernel: bool = True


def _one(graph: Graph) -> str:
    import numpy as np  # here, because the command line's help reads the names alone

    return graph.constant(np.array(1.0))


def _tanh_slope(graph: Graph, z: str) -> str:
    a = graph.apply("Tanh", z)
    return graph.apply("Sub", _one(graph), graph.apply("Mul", a, a))


def _sigmoid_slope(graph: Graph, z: str) -> str:
    a = graph.apply("Sigmoid", z)
    return graph.apply("Mul", a, graph.apply("Sub", _one(graph), a))


def _softplus(z: Tensor) -> Tensor:
    """Return log(1 + exp(z)); torch's own is linear above a threshold."""
    return torch.logaddexp(z, torch.zeros((), dtype=z.dtype, device=z.device))


def _onnx_softplus(graph: Graph, z: str) -> str:
    """Write max(z, 0) + log(1 + exp(-|z|)) down: onnxruntime has no float64 Softplus."""
    decay = graph.apply("Exp", graph.apply("Neg", graph.apply("Abs", z)))
    tail = graph.apply("Log", graph.apply("Add", decay, _one(graph)))
    return graph.apply("Add", graph.apply("Relu", z), tail)


TANH = Activation(
    "tanh",
    lambda z: torch.tanh(z),
    lambda graph, z: graph.apply("Tanh", z),
    _tanh_slope,
    ends=lambda a: 1 - a**2,
)
RELU = Activation(
    "relu",
    lambda z: torch.relu(z),
    lambda graph, z: graph.apply("Relu", z),
    lambda graph, z: graph.apply("Sign", graph.apply("Relu", z)),
    dead_at_zero=True,
)
SOFTPLUS = Activation(
    "softplus", _softplus, _onnx_softplus, lambda graph, z: graph.apply("Sigmoid", z)
)
SIGMOID = Activation(
    "sigmoid",
    lambda z: torch.sigmoid(z),
    lambda graph, z: graph.apply("Sigmoid", z),
    _sigmoid_slope,
    ends=lambda a: 4 * a * (1 - a),
)
IDENTITY = Activation("identity", lambda z: z, lambda _, z: z, lambda graph, _: _one(graph))

ACTIVATIONS = {
    record.name: record
    for record in (
        TANH,
        RELU,
        SOFTPLUS,
        SIGMOID,
        IDENTITY,
    )
}


def activation_code(name: str) -> int:
    """Return the number by which Stan and the kernel know an activation."""
    return 1 + list(ACTIVATIONS).index(name)


def activate(z: Tensor, name: str) -> Tensor:
    """Apply an activation elementwise."""
    return ACTIVATIONS[name].torch(z)


def onnx_activation(graph: Graph, z: str, name: str) -> str:
    """Write ``activate`` down."""
    return ACTIVATIONS[name].onnx(graph, z)


def onnx_slope(graph: Graph, z: str, name: str) -> str:
    """Write the slope of ``activate`` down."""
    return ACTIVATIONS[name].onnx_slope(graph, z)


def check_activation(name: str) -> None:
    """Refuse an activation that there is not.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    if name not in ACTIVATIONS:
        raise InputError(f"unknown activation '{name}'.{did_you_mean(name, ACTIVATIONS)}")
