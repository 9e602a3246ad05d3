"""The hyperbolic tangent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.networks.activations.activation import Activation, KernelText, one

if TYPE_CHECKING:
    from semistan.model.networks.architecture import Graph


def _slope(graph: Graph, z: str) -> str:
    a = graph.apply("Tanh", z)
    return graph.apply("Sub", one(graph), graph.apply("Mul", a, a))


TANH = Activation(
    name="tanh",
    torch=lambda z: torch.tanh(z),
    onnx=lambda graph, z: graph.apply("Tanh", z),
    onnx_slope=_slope,
    stan="tanh(Z)",
    stan_slope="1 - square(tanh(Z))",
    kernel=KernelText("vtanh(z, a);", "d *= 1.0 - a * a;"),
    ends=lambda a: 1 - a**2,
)
