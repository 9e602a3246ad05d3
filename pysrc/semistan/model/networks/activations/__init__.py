"""The activations: a new one is one file with its record, and a line in ``ACTIVATIONS``.

A program knows an activation by the number of its line, from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.model.networks.activations.activation import Activation
from semistan.model.networks.activations.identity import IDENTITY
from semistan.model.networks.activations.relu import RELU
from semistan.model.networks.activations.sigmoid import SIGMOID
from semistan.model.networks.activations.softplus import SOFTPLUS
from semistan.model.networks.activations.tanh import TANH

if TYPE_CHECKING:
    from torch import Tensor

    from semistan.model.networks.architecture import Graph

ACTIVATIONS: dict[str, Activation] = {
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
