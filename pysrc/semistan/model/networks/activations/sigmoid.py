"""The logistic function, 1 / (1 + exp(-z))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.networks.activations.activation import Activation, KernelText, one

if TYPE_CHECKING:
    from semistan.model.networks.architecture import Graph


def _slope(graph: Graph, z: str) -> str:
    a = graph.apply("Sigmoid", z)
    return graph.apply("Mul", a, graph.apply("Sub", one(graph), a))


SIGMOID = Activation(
    name="sigmoid",
    torch=lambda z: torch.sigmoid(z),
    onnx=lambda graph, z: graph.apply("Sigmoid", z),
    onnx_slope=_slope,
    stan="inv_logit(Z)",
    stan_slope="inv_logit(Z) .* (1 - inv_logit(Z))",
    kernel=KernelText("vsigmoid(z, a);", "d *= a * (1.0 - a);"),
    ends=lambda a: 4 * a * (1 - a),
)
