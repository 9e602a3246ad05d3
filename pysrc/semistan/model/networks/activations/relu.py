"""The positive part, max(z, 0)."""

from semistan.lazy import torch
from semistan.model.networks.activations.activation import Activation, KernelText

RELU = Activation(
    name="relu",
    torch=lambda z: torch.relu(z),
    onnx=lambda graph, z: graph.apply("Relu", z),
    onnx_slope=lambda graph, z: graph.apply("Sign", graph.apply("Relu", z)),
    stan="fmax(Z, 0)",
    stan_slope="ceil(fmin(fmax(Z, 0), 1))",  # 1 where Z is positive
    kernel=KernelText("a = z < 0.0 ? Vec{} : z;", "d = a > 0.0 ? d : Vec{};"),
    dead_at_zero=True,
)
