"""Two ONNX graphs that need neither PyTorch nor semistan, both float64.

    network.onnx    u (N, Q), w (d,)                               -> f (N,)
    predictor.onnx  u (N, Q), x (N, P), phi (S, k), theta (S, P)   -> eta (S, N)

Where the subspace is completed, predictor.onnx takes psi (S, K) too, and theta is completed.

Inputs are in the user's units; standardisation and frozen layers are inside the graphs. f is the
sum of all networks' outputs; eta is without offsets, smooths and group-level effects, which are
added to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from semistan.bundle.foreign import check_plain
from semistan.errors import InputError, SemistanError
from semistan.model.arrays import Array
from semistan.model.names import MU
from semistan.model.networks.leading import Leading
from semistan.model.networks.networks import Networks

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from semistan.model.completion import Completion
    from semistan.model.networks.architecture import Architecture
    from semistan.model.subspace import Subspace
    from semistan.model.trained import Trained
    from semistan.model.units import Units

OPSET = 17
EXPANDING = {
    "CenterCropPad",
    "ConstantOfShape",
    "Expand",
    "EyeLike",
    "If",
    "Loop",
    "OneHot",
    "Pad",
    "RandomNormal",
    "RandomUniform",
    "Range",
    "Resize",
    "Scan",
    "Tile",
    "Upsample",
}  # operators that make much of little, or run others; no architecture needs them
IR_VERSION = 8


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

    def transposed(self, value: str) -> str:
        # Not by Transpose: before a MatMul, versions of onnxruntime up to 1.25 or later fuse both
        # into an operator that they have for single precision only.
        return self.apply("Einsum", value, equation="...ij->...ji")

    def standardised(self, value: str, loc: Array, scale: Array) -> str:
        centred = self.apply("Sub", value, self.constant(loc))
        if len(scale) > 1:
            return self.apply("Mul", centred, self.constant(1 / scale))
        # A product of matrices, because onnxruntime fuses one with a number in float32.
        return self.apply("MatMul", centred, self.constant(np.diag(1 / scale)))

    def lifted(self, subspace: Subspace, phi: str) -> str:
        """Add the weights (S, d) at coordinates (S, k)."""
        a = len(subspace.axes)
        along, w = self.part(phi, slice(a, subspace.k)), self.constant(subspace.p_bar)
        if a < subspace.k:
            w = self.apply("Add", self.apply("MatMul", along, self.constant(subspace.Pi.T)), w)
        if not a:
            return w
        # Each weight takes its coordinate, or the zero that is appended to them.
        position = np.full(subspace.d, a)
        position[subspace.axes] = np.arange(a)
        zero = self.apply("Mul", self.part(phi, slice(0, 1)), self.constant(np.array(0.0)))
        moves = self.apply("Concat", self.part(phi, slice(0, a)), zero, axis=1)
        moved = self.apply("Gather", moves, self.constant(position), axis=1)
        return self.apply("Add", moved, w)

    def features(self, leading: Leading, trained: Trained, u: str) -> list[str]:
        """Add each network's constant layers for standardised inputs (N, Q) of all."""
        found, used, column, feature = [], 0, 0, 0
        loc, scale = trained.feature_units(leading.heads.n_inputs)
        for (part, frozen), size in zip(leading.parts, leading.sizes, strict=True):
            columns = slice(column, column + part.n_inputs)
            h = u if len(leading.frozen) == 1 else self.part(u, columns)
            if leading.any:
                own = slice(feature, feature + part.head(frozen).n_inputs)
                h = part.onnx_features(self, trained.w_frozen[used : used + size], h, frozen)
                h = self.standardised(h, loc[own], scale[own])
                feature = own.stop
            found.append(h)
            used, column = used + size, columns.stop
        return found

    def network(self, spec: Networks, w: str, features: list[str]) -> str:
        """Add the heads for weights (S, d) and sum the mean's outputs (S, N)."""
        return self._summed(spec, features, lambda part, h, start: part.onnx(self, w, h, start))

    def network_along(
        self, spec: Networks, completion: Completion, psi: str, features: list[str]
    ) -> str:
        """Add the change (S, N) of the mean's outputs along that of the weights, at psi (S, K)."""
        step, along = completion.weights[:, 0], completion.weights[:, 1:].T
        v = self.apply("Add", self.apply("MatMul", psi, self.constant(along)), self.constant(step))
        return self._summed(
            spec, features, lambda part, h, start: part.onnx_along(self, completion.at, v, h, start)
        )

    def _summed(
        self, spec: Networks, features: list[str], write: Callable[[Architecture, str, int], str]
    ) -> str:
        """Sum the mean's outputs (S, N) of what is written down of each part."""
        starts = accumulate(spec.sizes, initial=0)
        parts = zip(spec.parts, features, starts, spec.predictors_of_parts, strict=False)
        total, *others = [
            self.column(write(part, h, start), of.index(MU))
            for part, h, start, of in parts
            if MU in of
        ]
        for output in others:
            total = self.apply("Add", total, output)
        return total

    def column(self, value: str, number: int) -> str:
        """Take one output (S, N) of several (S, N, outputs)."""
        one = self.apply("Gather", value, self.constant(np.array([number])), axis=2)
        return self.apply("Squeeze", one, self.constant(np.array([2])))

    def part(self, value: str, part: slice) -> str:
        start, stop, axis = (self.constant(np.array([i])) for i in (part.start, part.stop, 1))
        return self.apply("Slice", value, start, stop, axis)

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


def network_graph(leading: Leading, units: Units, trained: Trained) -> ModelProto:
    """Write ``f(u; w)`` as a graph: inputs u (N, Q) and w (d,), output f (N,)."""
    graph, spec = _Graph(), leading.heads
    h = graph.features(leading, trained, graph.standardised("u", units.u_loc, units.u_scale))
    w = graph.apply("Unsqueeze", "w", graph.constant(np.array([0])))
    f = graph.apply("Squeeze", graph.network(spec, w, h), graph.constant(np.array([0])))
    return graph.model({"u": ("N", leading.whole.n_inputs), "w": (spec.d,)}, f, "f", ("N",))


def predictor_graph(leading: Leading, units: Units, trained: Trained) -> ModelProto:
    """Write the linear predictor: u (N, Q), x (N, P), phi (S, k), theta (S, P) to eta (S, N)."""
    graph, subspace = _Graph(), trained.subspace
    standardised = graph.standardised("u", units.u_loc, units.u_scale)
    h = graph.features(leading, trained, standardised)
    f = graph.network(leading.heads, graph.lifted(subspace, "phi"), h)
    if trained.completion:
        along = graph.network_along(leading.heads, trained.completion, "psi", h)
        f = graph.apply("Add", f, along)
    eta = graph.apply(
        "Add",
        graph.apply("Mul", f, graph.constant(np.array(units.eta_scale))),
        graph.constant(np.array(units.eta_loc)),
    )
    P = len(units.x_loc)
    centred = graph.apply("Sub", "x", graph.constant(units.x_loc))
    structured = graph.apply("MatMul", "theta", graph.transposed(centred))
    inputs = {
        "u": ("N", leading.whole.n_inputs),
        "x": ("N", P),
        "phi": ("S", subspace.k),
        "theta": ("S", P),
        **({"psi": ("S", trained.completion.K)} if trained.completion else {}),
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
    return open_graph(path, threads=1)(inputs)


def open_graph(path: Path, *, threads: int = 0) -> Callable[[Mapping[str, Array]], list[Array]]:
    """Return what computes a saved graph's outputs from its inputs.

    Parameters
    ----------
    path : Path
        The file, which somebody else may have made.
    threads : int
        Of onnxruntime; 0 for as many as there are cores.

    Raises
    ------
    InputError
        If it is no graph, has constants in other files, or operators that make much of little; and
        when it is run, if it does not take such inputs.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is raised, too
    content = _checked(path)
    session = _attempt(
        path, onnxruntime.InferenceSession, content, options, providers=["CPUExecutionProvider"]
    )

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        feeds = {name: np.ascontiguousarray(array, dtype=float) for name, array in inputs.items()}
        outputs: list[Array] = _attempt(path, session.run, None, feeds)
        return outputs

    return run


def _checked(path: Path) -> bytes:
    """Return a graph's file, once nothing in it takes more memory than its own size."""
    import onnx

    check_plain(path)
    content = path.read_bytes()
    graph = _attempt(path, onnx.load_model_from_string, content).graph
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute)]
    if any(t.data_location == onnx.TensorProto.EXTERNAL or t.external_data for t in tensors):
        _refuse(path, "it has constants in other files")
    nested = any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute)
    if nested or graph.sparse_initializer:
        _refuse(path, "it has graphs within graphs, or sparse constants")
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type in EXPANDING:
            _refuse(path, f"it has the operator {node.op_type!r}")
    if sum(abs(math.prod(t.dims)) for t in tensors) > len(content):
        _refuse(path, "it has constants that claim more numbers than it has bytes")
    return content


def _attempt(path: Path, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return action(*arguments, **options)
    except Exception as error:  # those of onnxruntime and protobuf have no other base
        reason = " ".join((str(error) or type(error).__name__).split())
        raise InputError(f"'{path}' is damaged: {reason[:300]}") from None


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InputError(f"'{path}' is damaged: {reason}, which semistan does not write")
