"""The smooth positive part, log(1 + exp(z))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.networks.activations.activation import Activation, KernelText, one

if TYPE_CHECKING:
    from semistan.model.networks.architecture import Graph


def _onnx(graph: Graph, z: str) -> str:
    """Write max(z, 0) + log(1 + exp(-|z|)) down: onnxruntime has no float64 Softplus."""
    decay = graph.apply("Exp", graph.apply("Neg", graph.apply("Abs", z)))
    tail = graph.apply("Log", graph.apply("Add", decay, one(graph)))
    return graph.apply("Add", graph.apply("Relu", z), tail)


SOFTPLUS = Activation(
    name="softplus",
    # torch's own is linear above a threshold
    torch=lambda z: torch.logaddexp(z, torch.zeros((), dtype=z.dtype, device=z.device)),
    onnx=_onnx,
    onnx_slope=lambda graph, z: graph.apply("Sigmoid", z),
    stan="log1p_exp(Z)",
    stan_slope="inv_logit(Z)",
    # sigmoid(z) = 1 - exp(-softplus(z))
    kernel=KernelText("vsoftplus(z, a);", "Vec rest; vexpm1(-a, rest); d *= -rest;"),
)
