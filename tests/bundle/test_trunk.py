"""Foreign ONNX files: their embeddings in closed form, and every refusal."""

import hashlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from semistan.bundle import trunk as module
from semistan.bundle.trunk import open_trunk
from semistan.errors import InputError
from semistan.model.formula.images import Image
from semistan.model.formula.trunks import Trunk
from semistan.model.table.trunk_file import TrunkFile
from support.trunks import linear, mean_pooling, model_of

IMAGES = np.random.default_rng(0).normal(size=(11, 2, 3, 4))
MATRIX = np.random.default_rng(1).normal(size=(24, 5))
EXPECTED = IMAGES.reshape(11, 24) @ MATRIX
RELU = helper.make_node("Relu", ["images"], ["r"])


def opened(path, output=None, known=None):
    return open_trunk(Trunk(Image("p"), path.name, output), path.parent, known)


@pytest.fixture
def refused(tmp_path):
    """Return the message with which a model, or a file's content, is refused."""

    def call(content, output=None, images=None, known=None):
        path = tmp_path / "trunk.onnx"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            onnx.save(content, path)
        with pytest.raises(InputError) as caught:
            trunk = opened(path, output, known)
            trunk.embeddings(IMAGES if images is None else images)
        assert str(path) in str(caught.value)
        return str(caught.value)

    return call


def of_nodes(*nodes, inputs=None, outputs=None, **options):
    return model_of(
        list(nodes), inputs or {"images": ["N", 2, 3, 4]}, outputs or {"r": ["N", 2, 3, 4]},
        **options,
    )  # fmt: skip


# ----------------------------------------------------------------------------- embeddings


@pytest.mark.parametrize(("output", "sign"), [("embedding", 1), ("logits", -1)])
def test_an_embedding_is_the_graphs(tmp_path, output, sign):
    trunk = opened(linear(tmp_path / "t.onnx", MATRIX, (2, 3, 4)), output)
    assert (trunk.output, trunk.size, trunk.shape) == (output, 5, (None, 2, 3, 4))
    assert trunk.sha256 == hashlib.sha256((tmp_path / "t.onnx").read_bytes()).hexdigest()
    assert np.allclose(trunk.embeddings(IMAGES), sign * EXPECTED, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 1e-5), (np.float16, 2e-2)])
def test_other_floats_are_numbers_too(tmp_path, dtype, digits):
    trunk = opened(linear(tmp_path / "t.onnx", MATRIX, (2, 3, 4), dtype=dtype), "embedding")
    found = trunk.embeddings(IMAGES)
    assert found.dtype == float
    assert np.allclose(found, EXPECTED, rtol=digits, atol=digits)


def test_images_of_any_size_and_axes_after_the_first_are_flattened(tmp_path):
    trunk = opened(mean_pooling(tmp_path / "t.onnx", channels=2))
    assert (trunk.output, trunk.size, trunk.shape) == ("means", 2, (None, 2, None, None))
    for images in (IMAGES, IMAGES[:, :, 1:]):
        assert np.allclose(trunk.embeddings(images), images.mean(axis=(2, 3)), atol=1e-6)


def test_batches_are_as_one(tmp_path, monkeypatch):
    trunk = opened(linear(tmp_path / "t.onnx", MATRIX, (2, 3, 4)), "embedding")
    whole, sizes, run = trunk.embeddings(IMAGES), [], trunk.session.run

    class Watched:
        get_inputs = trunk.session.get_inputs

        def run(self, names, feeds):
            sizes.append(len(feeds["images"]))
            return run(names, feeds)

    monkeypatch.setattr(module, "BATCH_BYTES", 4 * 24 * 8)
    object.__setattr__(trunk, "session", Watched())
    assert np.allclose(trunk.embeddings(IMAGES), whole, rtol=1e-13)
    assert sizes == [4, 4, 3]


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_a_graph_may_say_how_many_images_it_takes(tmp_path, batch):
    trunk = opened(linear(tmp_path / "t.onnx", MATRIX, (2, 3, 4), batch=batch), "embedding")
    assert np.allclose(trunk.embeddings(IMAGES), EXPECTED, rtol=1e-12)


def test_a_path_counts_from_the_folder_then_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    trunk = Trunk(Image("p"), "t.onnx", "embedding")
    with pytest.raises(InputError, match=r"'t.onnx' does not exist.*counts from '.*' and from the"):
        open_trunk(trunk, tmp_path)
    linear(tmp_path / "here" / "t.onnx", MATRIX, (2, 3, 4))
    assert np.allclose(open_trunk(trunk, tmp_path).embeddings(IMAGES), EXPECTED)
    linear(tmp_path / "t.onnx", -MATRIX, (2, 3, 4))
    assert np.allclose(open_trunk(trunk, tmp_path).embeddings(IMAGES), -EXPECTED)


# ----------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("content", [b"", b"PK\3\4 no graph at all", b"\x08\x08" * 40])
def test_a_file_that_is_no_graph(refused, content):
    assert re.search("cannot be read|no ONNX file", refused(content))


def test_half_a_file(tmp_path, refused):
    content = linear(tmp_path / "whole.onnx", MATRIX, (2, 3, 4)).read_bytes()
    assert "cannot be read" in refused(content[: len(content) // 2])


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "t.onnx").mkdir()
    with pytest.raises(InputError, match="does not exist or is no file"):
        opened(tmp_path / "t.onnx")


def test_a_file_that_is_too_large(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 2**9 - 1)
    content = linear(tmp_path / "whole.onnx", MATRIX, (2, 3, 4)).read_bytes()
    assert "at most" in refused(content)


def test_weights_in_other_files(tmp_path, refused, monkeypatch):
    """They may be any file of the user's, wherever in the graph they are named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(np.ones(24, dtype=np.float32).tobytes())
    outside = numpy_helper.from_array(np.ones((2, 3, 4), dtype=np.float32), "c")
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    entry = outside.external_data.add()
    entry.key, entry.value = "location", "secret"
    add = helper.make_node("Add", ["images", "c"], ["r"])
    as_initializer = of_nodes(add)
    as_initializer.graph.initializer.append(outside)
    as_attribute = of_nodes(helper.make_node("Constant", [], ["c"], value=outside), add)
    branch = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["x"])], "branch", [],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])], [outside],
    )  # fmt: skip
    choice = helper.make_node("If", ["yes"], ["k"], then_branch=branch, else_branch=branch)
    inside = of_nodes(choice, helper.make_node("Add", ["images", "k"], ["r"]))
    inside.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    for model in (as_initializer, as_attribute, inside):
        assert "has its weights in other files" in refused(model.SerializeToString())


def test_operators_of_other_libraries(refused):
    node = helper.make_node("Gelu", ["images"], ["r"], domain="com.microsoft")
    message = refused(of_nodes(node, domains=["com.microsoft"]))
    assert "operators of the domains com.microsoft" in message


def test_operators_of_other_libraries_within_others(refused):
    """In a branch of a branch."""
    output = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 3, 4])
    foreign = helper.make_node("Gelu", ["images"], ["x"], domain="com.microsoft")
    inner = helper.make_graph([foreign], "inner", [], [output])
    choice = helper.make_node("If", ["yes"], ["x"], then_branch=inner, else_branch=inner)
    outer = helper.make_graph([choice], "outer", [], [output])
    node = helper.make_node("If", ["yes"], ["r"], then_branch=outer, else_branch=outer)
    model = of_nodes(node, constants={"yes": np.array(True)}, domains=["com.microsoft"])
    assert "operators of the domains com.microsoft" in refused(model)


def test_functions_within_the_file_are_its_own(tmp_path):
    model = of_nodes(helper.make_node("Mine", ["images"], ["r"], domain="own"), domains=["own"])
    node = helper.make_node("Relu", ["a"], ["b"])
    function = helper.make_function(
        "own", "Mine", ["a"], ["b"], [node], [helper.make_opsetid("", 17)]
    )
    model.functions.append(function)
    onnx.save(model, tmp_path / "t.onnx")
    found = opened(tmp_path / "t.onnx").embeddings(IMAGES)
    assert np.allclose(found, np.maximum(IMAGES, 0).reshape(11, 24), rtol=1e-6)
    model.graph.node[0].op_type = "Other"
    onnx.save(model, tmp_path / "t.onnx")
    with pytest.raises(InputError, match="operators of the domains own"):
        opened(tmp_path / "t.onnx")


@pytest.mark.parametrize("sides", [[5, 8], ["H", "W"]])
def test_channels_may_be_last(sides, tmp_path):
    images = np.random.default_rng(3).normal(size=(4, 3, 5, 8))
    inputs, outputs = {"images": ["N", *sides, 3]}, {"r": ["N", *sides, 3]}
    onnx.save(of_nodes(RELU, inputs=inputs, outputs=outputs), tmp_path / "t.onnx")
    trunk = opened(tmp_path / "t.onnx")
    assert trunk.shape[1] == 3
    expected = np.maximum(np.moveaxis(images, 1, -1), 0).reshape(4, -1)
    assert np.allclose(trunk.embeddings(images), expected, rtol=1e-6)
    with pytest.raises(InputError, match="cannot be run"):
        trunk.embeddings(images[:, :2])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"images": ["N", 2, 3, 4], "more": ["N", 2, 3, 4]}, "one input, of images, got images, m"),
        ({"images": ["N", 24]}, r"(images, channels, height, width), got 'images': tensor(float)"),
    ],
)
def test_other_inputs(refused, inputs, message):
    node = helper.make_node("Sum", list(inputs), ["r"])
    outputs = {"r": next(iter(inputs.values()))}
    assert message in refused(of_nodes(node, inputs=inputs, outputs=outputs))


def test_inputs_that_are_no_real_numbers(refused):
    node = helper.make_node("Identity", ["images"], ["r"])
    message = refused(of_nodes(node, kind=TensorProto.UINT8))
    assert "must take real numbers" in message
    assert "tensor(uint8)" in message


def test_outputs_that_are_no_real_numbers(refused):
    model = of_nodes(helper.make_node("Cast", ["images"], ["r"], to=TensorProto.INT64))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert "must be real numbers, got tensor(int64)" in refused(model)


def test_an_output_must_be_named_among_several(tmp_path, refused):
    content = linear(tmp_path / "whole.onnx", MATRIX, (2, 3, 4)).read_bytes()
    message = refused(content)
    assert "has the outputs 'embedding', 'logits'; say which one is the embedding" in message
    assert "no output 'embeding'; expected one of 'embedding'" in refused(content, "embeding")


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("ReduceSum", ["images", "axes"], ["r"], keepdims=0),
        helper.make_node("Transpose", ["images"], ["r"], perm=[1, 0, 2, 3]),
    ],
    ids=["of no axis but the first", "images second"],
)
def test_an_output_without_a_row_for_each_image(refused, node):
    model = of_nodes(node, outputs={"r": None}, constants={"axes": np.array([1, 2, 3])})
    assert "expected a row of numbers for each of them" in refused(model)


def test_an_embedding_whose_size_depends_on_the_images(refused, monkeypatch):
    """One number of each image in a batch: batches of other sizes have other embeddings."""
    monkeypatch.setattr(module, "BATCH_BYTES", 4 * 24 * 4)
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["flat", "t"], ["r"]),
    ]
    message = refused(of_nodes(*nodes, outputs={"r": ["N", "M"]}))
    assert "differs between images or from what the graph says (3, 4)" in message


def test_what_onnxruntime_refuses_names_the_file(refused):
    no_such = of_nodes(helper.make_node("NoSuchOperator", ["images"], ["r"]))
    assert "cannot be read: " in refused(no_such)
    message = refused(of_nodes(RELU), images=IMAGES[:, :1])
    assert "cannot be run: " in message


def test_another_file_than_the_models(tmp_path, refused):
    content = linear(tmp_path / "whole.onnx", MATRIX, (2, 3, 4)).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    known = TrunkFile("ab" * 32, "embedding", 5)
    message = refused(content, "embedding", known=known)
    assert f"its sha256 begins with {sha256[:12]}, expected abababababab; put" in message
    same = opened(tmp_path / "trunk.onnx", "embedding", TrunkFile(sha256, "embedding", 5))
    assert same.sha256 == sha256
