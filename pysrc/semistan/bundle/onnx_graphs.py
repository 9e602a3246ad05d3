"""Two ONNX graphs that need neither PyTorch nor semistan, both float64.

    network.onnx    u (N, Q), w (d,)                               -> f (N,)
    predictor.onnx  u (N, Q), x (N, P), phi (S, k), theta (S, P)   -> eta (S, N)

Inputs are in the user's units; standardisation and frozen layers are inside the graphs. f is the
sum of all networks' outputs; eta is without offsets, smooths and group-level effects, which are
added to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import SemistanError
from semistan.model.networks.mlp import MU, Array, Layer, Network, layer_slices, layers

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from semistan.model.subspace import Subspace
    from semistan.model.trained import Trained
    from semistan.model.units import Units

OPSET = 17
IR_VERSION = 8
OPERATORS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}


@dataclass(slots=True)
class _Graph:
    """Nodes and constants collected while a graph is written down."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, array: Any) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def standardised(self, value: str, loc: Array, scale: Array) -> str:
        # A product, because onnxruntime fuses a division by one number in float32.
        centred = self.apply("Sub", value, self.constant(loc))
        return self.apply("MatMul", centred, self.constant(np.diag(1 / scale)))

    def activated(self, value: str, activation: str) -> str:
        if activation == "identity":
            return value
        if activation == "softplus":
            return self._softplus(value)
        return self.apply(OPERATORS[activation], value)

    def _softplus(self, z: str) -> str:
        """Add max(z, 0) + log(1 + exp(-|z|)): onnxruntime has no float64 Softplus."""
        decay = self.apply("Exp", self.apply("Neg", self.apply("Abs", z)))
        tail = self.apply("Log", self.apply("Add", decay, self.constant(np.array(1.0))))
        return self.apply("Add", self.apply("Relu", z), tail)

    def lifted(self, subspace: Subspace, phi: str) -> str:
        """Add the weights (S, d) at coordinates (S, k)."""
        a = len(subspace.axes)
        along, w = self._part(phi, slice(a, subspace.k)), self.constant(subspace.p_bar)
        if a < subspace.k:
            w = self.apply("Add", self.apply("MatMul", along, self.constant(subspace.Pi.T)), w)
        if not a:
            return w
        # Each weight takes its coordinate, or the zero that is appended to them.
        position = np.full(subspace.d, a)
        position[subspace.axes] = np.arange(a)
        zero = self.apply("Mul", self._part(phi, slice(0, 1)), self.constant(np.array(0.0)))
        moves = self.apply("Concat", self._part(phi, slice(0, a)), zero, axis=1)
        moved = self.apply("Gather", moves, self.constant(position), axis=1)
        return self.apply("Add", moved, w)

    def inputs(self, spec: Network, w_frozen: Array, u: str) -> list[str]:
        """Add each network's frozen layers for standardised inputs (N, Q) of all."""
        sizes = [part.d_frozen for part in spec.parts], [part.n_inputs for part in spec.parts]
        starts, found = np.cumsum([[0, *size] for size in sizes], axis=1), []
        for part, start, first in zip(spec.parts, *starts[:, :-1], strict=True):
            alone = len(spec.parts) == 1
            h = u if alone else self._part(u, slice(first, first + part.n_inputs))
            for layer in layer_slices(part.frozen_widths, start):
                h = self.activated(self._constant_layer(w_frozen, h, *layer), part.activation)
            found.append(h)
        return found

    def _constant_layer(
        self, w: Array, h: str, weights: slice, biases: slice, m: int, n: int
    ) -> str:
        product = self.apply("MatMul", h, self.constant(w[weights].reshape(n, m).T))
        return self.apply("Add", product, self.constant(w[biases]))

    def network(self, spec: Network, w: str, inputs: list[str]) -> str:
        """Add the Bayesian layers for weights (S, d) and sum the mean's outputs (S, N)."""
        found = [
            self._output(part, spec.parts[0].activation, w, h)
            for part, h, of in zip(layers(spec), inputs, spec.predictors, strict=True)
            if of == MU
        ]
        total, *others = found
        for output in others:
            total = self.apply("Add", total, output)
        return total

    def _output(self, part: list[Layer], activation: str, w: str, h: str) -> str:
        *hidden, last = part
        for layer in hidden:
            h = self.activated(self._layer(w, h, *layer), activation)
        return self.apply("Squeeze", self._layer(w, h, *last), self.constant(np.array([2])))

    def _layer(self, w: str, h: str, weights: slice, biases: slice, m: int, n: int) -> str:
        matrix = self.apply("Reshape", self._part(w, weights), self.constant(np.array([-1, n, m])))
        transposed = self.apply("Transpose", matrix, perm=[0, 2, 1])
        bias = self.apply("Reshape", self._part(w, biases), self.constant(np.array([-1, 1, n])))
        return self.apply("Add", self.apply("MatMul", h, transposed), bias)

    def _part(self, w: str, part: slice) -> str:
        start, stop, axis = (self.constant(np.array([i])) for i in (part.start, part.stop, 1))
        return self.apply("Slice", w, start, stop, axis)

    def model(self, inputs: Mapping[str, Sequence[Any]], result: str, name: str,
              shape: Sequence[Any]) -> ModelProto:  # fmt: skip
        from onnx import TensorProto, checker, helper

        def value(label: str, dims: Sequence[Any]) -> Any:
            return helper.make_tensor_value_info(label, TensorProto.DOUBLE, list(dims))

        self.nodes.append(helper.make_node("Identity", [result], [name]))
        graph = helper.make_graph(
            self.nodes, "semistan", [value(*item) for item in inputs.items()],
            [value(name, shape)], self.constants,
        )  # fmt: skip
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        checker.check_model(model)
        return model


def network_graph(spec: Network, units: Units, w_frozen: Array) -> ModelProto:
    """Write ``f(u; w)`` as a graph: inputs u (N, Q) and w (d,), output f (N,)."""
    graph = _Graph()
    h = graph.inputs(spec, w_frozen, graph.standardised("u", units.u_loc, units.u_scale))
    w = graph.apply("Unsqueeze", "w", graph.constant(np.array([0])))
    f = graph.apply("Squeeze", graph.network(spec, w, h), graph.constant(np.array([0])))
    return graph.model({"u": ("N", spec.n_inputs), "w": (spec.d,)}, f, "f", ("N",))


def predictor_graph(spec: Network, units: Units, trained: Trained) -> ModelProto:
    """Write the linear predictor: u (N, Q), x (N, P), phi (S, k), theta (S, P) to eta (S, N)."""
    graph, subspace = _Graph(), trained.subspace
    h = graph.inputs(spec, trained.w_frozen, graph.standardised("u", units.u_loc, units.u_scale))
    f = graph.network(spec, graph.lifted(subspace, "phi"), h)
    eta = graph.apply(
        "Add",
        graph.apply("Mul", f, graph.constant(np.array(units.eta_scale))),
        graph.constant(np.array(units.eta_loc)),
    )
    P = len(units.x_loc)
    centred = graph.apply("Sub", "x", graph.constant(units.x_loc))
    structured = graph.apply("MatMul", "theta", graph.apply("Transpose", centred, perm=[1, 0]))
    inputs = {
        "u": ("N", spec.n_inputs),
        "x": ("N", P),
        "phi": ("S", subspace.k),
        "theta": ("S", P),
    }
    return graph.model(inputs, graph.apply("Add", eta, structured), "eta", ("S", "N"))


def save_checked(model: ModelProto, path: Path, inputs: dict[str, Array], expected: Array) -> None:
    """Save a graph after onnxruntime has reproduced the expected output.

    Raises
    ------
    SemistanError
        If the output differs by more than 1e-9 of its largest value.
    """
    import onnx

    onnx.save(model, path)
    (output,) = run_graph(path, inputs)
    error = np.max(np.abs(output - expected)) / max(np.max(np.abs(expected)), 1e-300)
    if not error < 1e-9:
        raise SemistanError(
            f"{path.name} does not reproduce the network: relative error {error:.3g} in "
            "onnxruntime, expected below 1e-9"
        )


def run_graph(path: Path, inputs: dict[str, Array]) -> list[Array]:
    """Run a saved graph with onnxruntime on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {name: np.ascontiguousarray(array, dtype=float) for name, array in inputs.items()}
    outputs: list[Array] = session.run(None, feeds)
    return outputs
