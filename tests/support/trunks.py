"""Small trunks in ONNX, whose embeddings are known in closed form."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT,
         np.float64: TensorProto.DOUBLE}  # fmt: skip


def model_of(nodes, inputs, outputs, constants=None, *, domains=(), kind=TensorProto.FLOAT):
    """Return an ONNX model; inputs and outputs are shapes, by name."""

    def values(items):
        return [helper.make_tensor_value_info(name, kind, shape) for name, shape in items.items()]

    arrays = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "trunk", values(inputs), values(outputs), arrays)
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def linear(path, matrix, shape, *, batch="N", dtype=np.float64, bias=None):
    """Write a trunk whose output ``embedding`` is the flat image times a matrix (C*H*W, m).

    Another output, ``logits``, is the same with the opposite sign.
    """
    bias = np.zeros(matrix.shape[1]) if bias is None else bias
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "M"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["embedding"]),
        helper.make_node("Neg", ["embedding"], ["logits"]),
    ]
    m = matrix.shape[1]
    outputs = {"embedding": [batch, m], "logits": [batch, m]}
    constants = {"M": matrix.astype(dtype), "b": np.asarray(bias, dtype=dtype)}
    images = {"images": [batch, *shape]}
    onnx.save(model_of(nodes, images, outputs, constants, kind=TYPES[dtype]), path)
    return path


def mean_pooling(path, *, channels=3, trailing=("C", 1, 1)):
    """Write a trunk with one output: the mean of each channel, of images of any size."""
    node = helper.make_node("GlobalAveragePool", ["images"], ["means"])
    images = {"images": ["N", channels, "H", "W"]}
    onnx.save(model_of([node], images, {"means": ["N", *trailing]}), path)
    return path
