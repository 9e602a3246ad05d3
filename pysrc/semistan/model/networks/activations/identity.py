"""No activation: the network is linear."""

from semistan.model.networks.activations.activation import Activation, KernelText, one

IDENTITY = Activation(
    name="identity",
    torch=lambda z: z,
    onnx=lambda _, z: z,
    onnx_slope=lambda graph, _: one(graph),
    stan="Z",
    stan_slope="rep_matrix(1, rows(Z), cols(Z))",
    kernel=KernelText("", ""),
)
