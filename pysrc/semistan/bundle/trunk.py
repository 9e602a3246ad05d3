"""Somebody else's network in ONNX, run over images: one float input, one embedding of each image.

The file is foreign. It is one file of standard operators, which can neither open others nor run
code; whatever onnxruntime says of it is an ``InputError`` that names it. A graph has

    images (N, C, H, W) or (N, H, W, C)  ->  ..., embedding (N, ...), ...
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.files import file_beside
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.trunks import Trunk
from semistan.model.table.trunk_file import TrunkFile

MOST_BYTES = 2**31 - 1  # of the file, which is protobuf's own limit
BATCH_BYTES = 2**24  # of the images that are run together, unless the graph says how many
STANDARD = ("", "ai.onnx", "ai.onnx.ml")  # domains of operators
FLOATS: dict[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
}
MOST_CHANNELS = 4  # of usual images; an axis of more, where the last one has 1 or 3, is a height
DIGITS = 12  # of a hash that a message shows

Dimension = int | None  # one that the graph leaves open is None


@dataclass(frozen=True, slots=True, eq=False)
class OpenTrunk:
    """A trunk that is ready to be run.

    Attributes
    ----------
    path : Path
        Its file.
    sha256 : str
        Of the file.
    output : str
        The output that is the embedding.
    size : int or None
        Numbers of an embedding, if the graph says so.
    shape : tuple of int or None
        Images that must be run together, channels, height and width, where the graph says so.
    dtype : type
        Of the pixels.
    session : onnxruntime.InferenceSession
        What runs it.
    channels_last : bool
        Whether the graph takes the channels behind height and width.
    """

    path: Path
    sha256: str
    output: str
    size: Dimension
    shape: tuple[Dimension, Dimension, Dimension, Dimension]
    dtype: type[np.floating[Any]]
    session: Any
    channels_last: bool = False

    def embeddings(self, images: Array) -> Array:
        """Return the embeddings (N, m) of images (N, C, H, W), in batches of bounded memory.

        Raises
        ------
        InputError
            If the trunk fails, or its output is not one row of numbers for each image.
        """
        each = np.dtype(self.dtype).itemsize * prod(images.shape[1:])
        n = self.shape[0] or max(1, BATCH_BYTES // each)
        found = [self._batch(images[i : i + n]) for i in range(0, len(images), n)]
        sizes = {part.shape[1] for part in found} | ({self.size} if self.size else set())
        if len(sizes) > 1:
            shown = ", ".join(map(str, sorted(sizes)))
            raise InputError(
                f"trunk '{self.path}': the size of output '{self.output}' differs between images "
                f"or from what the graph says ({shown}); an embedding has one size"
            )
        return np.concatenate(found)

    def _batch(self, images: Array) -> Array:
        """Run some images; a batch that is shorter than the graph's is filled with the last one."""
        lacking = max(0, (self.shape[0] or 0) - len(images))
        ordered = np.moveaxis(images, 1, -1) if self.channels_last else images
        batch = np.ascontiguousarray(ordered, self.dtype)
        batch = np.concatenate([batch, np.repeat(batch[-1:], lacking, axis=0)])
        (name,) = (item.name for item in self.session.get_inputs())
        (output,) = _attempt(self.path, "run", self.session.run, [self.output], {name: batch})
        found = np.asarray(output)
        if found.ndim < 2 or len(found) != len(batch) or found.size == 0:
            raise InputError(
                f"trunk '{self.path}': output '{self.output}' is {found.shape} for {len(batch)} "
                "images; expected a row of numbers for each of them"
            )
        return found.reshape(len(batch), -1)[: len(images)].astype(float)


def open_trunk(
    trunk: Trunk, folder: Path, known: TrunkFile | None = None, *, threads: int = 1
) -> OpenTrunk:
    """Read a trunk, and check all that is known before it is run.

    Parameters
    ----------
    trunk : Trunk
        What the formula says.
    folder : Path
        Where a relative path counts from first, and then from the working directory.
    known : TrunkFile, optional
        The file that it must be.
    threads : int, optional
        On how many it is run.

    Raises
    ------
    InputError
        If the file is missing, too large, another one, no ONNX of standard operators in one file,
        or not a network from images to an embedding.
    """
    path = trunk_path(trunk, folder)
    if path is None:
        raise InputError(
            f"trunk '{trunk.file}' does not exist or is no file; a relative path counts from "
            f"'{folder}' and from the working directory"
        )
    content = _content(path)
    sha256 = hashlib.sha256(content).hexdigest()
    if known and known.sha256 != sha256:
        raise InputError(_other_file(trunk, path, sha256, known))
    _check_standard(path, content)
    session = _attempt(path, "read", _session, content, threads)
    shape, dtype = _input(path, session)
    last = _channels_last(shape)
    shape = (shape[0], shape[3], *shape[1:3]) if last else shape
    output = _output(trunk, path, session)
    sizes = [item if isinstance(item, int) else None for item in (output.shape or [])[1:]]
    size = prod(item or 0 for item in sizes) if sizes and None not in sizes else None
    return OpenTrunk(path, sha256, output.name, size, shape, dtype, session, last)


def trunk_path(trunk: Trunk, folder: Path) -> Path | None:
    """Return a trunk's file: in a folder, or from the working directory; None if in neither."""
    return file_beside(trunk.file, folder)


def _content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise InputError(
                f"trunk '{path}' has {size / 2**30:.3g} GiB; at most "
                f"{(MOST_BYTES + 1) / 2**30:.3g} GiB are read, in one file"
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"trunk '{path}' cannot be read: {error.strerror or error}") from None


def _other_file(trunk: Trunk, path: Path, sha256: str, known: TrunkFile) -> str:
    column = trunk.image.column
    if not known.sha256:
        return (
            f"the model was fitted to embeddings that its table had in column '{column}', and "
            f"trunk '{trunk.file}' was not there to be compared: give new rows' embeddings as "
            f"arrays of {known.size} numbers too, or fit the model to images"
        )
    return (
        f"trunk '{path}' is not the file that the model was fitted with: its sha256 begins with "
        f"{sha256[:DIGITS]}, expected {known.sha256[:DIGITS]}; put that file there, or give "
        f"arrays of its {known.size} numbers in column '{column}', or fit the model anew"
    )


def _check_standard(path: Path, content: bytes) -> None:
    """Refuse what is no ONNX graph, has data in other files, or operators of other libraries."""
    import onnx

    model = _attempt(path, "read", onnx.load_model_from_string, content)
    graphs = [model.graph, *model.functions]
    nodes = [node for graph in graphs for node in _nodes(graph.node)]
    if not nodes:
        raise InputError(f"trunk '{path}' is no ONNX file, or its graph is empty")
    external = onnx.TensorProto.EXTERNAL
    if any(tensor.data_location == external for tensor in _tensors(model.graph, nodes)):
        raise InputError(
            f"trunk '{path}' has its weights in other files, which are not read; save it as one "
            "file, as onnx.save(model, path, save_as_external_data=False)"
        )
    own = {(function.domain, function.name) for function in model.functions}
    others = {
        node.domain
        for node in nodes
        if node.domain not in STANDARD and (node.domain, node.op_type) not in own
    }
    if others:
        raise InputError(
            f"trunk '{path}' has operators of the domains {', '.join(sorted(others))}; export it "
            "with the standard operators of ONNX alone"
        )


def _nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield nodes and those of the graphs within them."""
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from _nodes(graph.node)


def _graphs(node: Any) -> list[Any]:
    return [g for a in node.attribute for g in ((a.g,) * a.HasField("g") + tuple(a.graphs))]


def _tensors(graph: Any, nodes: list[Any]) -> Iterator[Any]:
    """Yield all constants of a graph and of the graphs within its nodes."""
    for item in (graph, *(inner for node in nodes for inner in _graphs(node))):
        yield from item.initializer
        yield from (part for sparse in item.sparse_initializer
                    for part in (sparse.values, sparse.indices))  # fmt: skip
    for attribute in (a for node in nodes for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)


def _session(content: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is raised, too
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _attempt(path: Path, deed: str, action: Any, *arguments: Any) -> Any:
    """Do something with a foreign graph."""
    try:
        return action(*arguments)
    except Exception as error:  # those of onnxruntime and protobuf have no other base
        reason = " ".join((str(error) or type(error).__name__).split())
        raise InputError(f"trunk '{path}' cannot be {deed}: {reason[:300]}") from None


def _input(path: Path, session: Any) -> tuple[Any, type[np.floating[Any]]]:
    """Return the shape and type of the images that a graph takes."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(item.name for item in inputs) or "none"
        raise InputError(f"trunk '{path}' must have one input, of images, got {names}")
    (found,) = inputs
    shape = tuple(item if isinstance(item, int) and item > 0 else None for item in found.shape)
    if found.type not in FLOATS or len(shape) != 4:
        raise InputError(
            f"trunk '{path}' must take real numbers (images, channels, height, width), got "
            f"'{found.name}': {found.type} {found.shape}"
        )
    return shape, FLOATS[found.type]


def _channels_last(shape: tuple[Dimension, ...]) -> bool:
    """Say whether the last of four axes are the channels, as TensorFlow has them."""
    return shape[3] in (1, 3) and (shape[1] is None or shape[1] > MOST_CHANNELS)


def _output(trunk: Trunk, path: Path, session: Any) -> Any:
    """Return the output that the formula names, or the only one."""
    outputs = {item.name: item for item in session.get_outputs()}
    known = ", ".join(f"'{name}'" for name in outputs)
    if trunk.output is None and len(outputs) > 1:
        raise InputError(
            f"trunk '{path}' has the outputs {known}; say which one is the embedding, as "
            f"nn(..., trunk='{trunk.file}', output='{next(iter(outputs))}')"
        )
    name = next(iter(outputs)) if trunk.output is None else trunk.output
    if name not in outputs:
        raise InputError(f"trunk '{path}' has no output '{name}'; expected one of {known}")
    if outputs[name].type not in FLOATS:
        raise InputError(
            f"output '{name}' of trunk '{path}' must be real numbers, got {outputs[name].type}"
        )
    return outputs[name]
