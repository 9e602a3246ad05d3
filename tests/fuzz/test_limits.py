"""What is too large is refused before any work: without its limit, each of these hangs or swaps."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from semistan.bundle.onnx_graphs import open_graph
from semistan.data.model_file import read_config
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.config import MOST_SUBSPACES, parse_config
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula
from support.small import small_frame, small_prepared

FORMULA = "y ~ x + nn(u, v)"


def many(term, n, between=" + "):
    return between.join(term.format(i) for i in range(n))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ " + "x + " * 1_000_000 + "nn(u)", "at most 100000 characters, got"),
        (f"y ~ {many('(1 | g{})', 9000)} + nn(u)", "characters"),
        (f"y ~ {many('(1|g{})', 500)} + nn(u)", "at most 200 bars, got 500"),
        (f"y ~ {many('nn(u{})', 1500)}", r"at most 200 nn\(\), got 1500"),
        (f"y ~ {many('s(v{})', 300)} + nn(u)", r"at most 200 s\(\), got 300"),
        (f"y ~ nn(u), {many('s{} ~ z', 3000, ', ')}", "at most 200 '~', got 3001"),
        (f"y ~ nn({many('a{}', 12000, ', ')})", "at most 5000 inputs, got 12000"),
        (f"y ~ {many('I(x + {})', 12, ' * ')} + nn(u)", "more than 1000 terms"),
        ("y ~ (a + b + c + d + e + f + g + h)^6 + nn(u)", "more than 1000 terms"),
        ("y ~ nn(u\udcff)", "half a character"),
        ("y ~ " + "(" * 40_000 + "x" + ")" * 40_000, "cannot read this|too deeply nested"),
        ("y ~ nn(" + "-" * 50_000 + "u)", "too long or too deeply nested"),
    ],
    ids=range(12),
)
def test_a_formula_has_limits(text, message):
    with pytest.raises(InputError, match=message):
        parse_formula(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.seed", 2**64), ("sample.seed", 2**33), ("sample.draws", 10**30),
        ("sample.chains", 10**8), ("sample.warmup", 10**18), ("sample.threads", 10**9),
        ("sample.temperature", math.inf), ("sample.temperature", math.nan),
        ("sample.budget", math.inf), ("train.learning_rate", math.inf), ("train.epochs", 10**30),
        ("sample.max_treedepth", 10**9), ("subspace.subspaces", 10**9),
        ("subspace.snapshots", 10**12), ("network.hidden", [1] * 10**6), ("network.hidden", [0]),
        ("network.channels", [1] * 10**6), ("family", "cumulative(1000000)"),
        ("family", f"cumulative({'9' * 5000})"), ("family", "categorical(" + "a, " * 500 + "b)"),
    ],
    ids=range(20),
)  # fmt: skip
def test_options_out_of_range_are_refused_with_the_model(key, value):
    *section, name = key.split(".")
    content = {"formula": FORMULA, **({section[0]: {name: value}} if section else {name: value})}
    with pytest.raises(InputError) as refused:
        parse_config(content, "model.toml")
    assert len(str(refused.value)) < 600


def test_every_subspace_has_a_seed_that_cmdstan_takes():
    largest = {"subspaces": MOST_SUBSPACES}
    config = parse_config({"formula": FORMULA, "subspace": largest}, "test")
    fields = type(config.sample).model_fields["seed"].metadata
    (most,) = (item.le for item in fields if hasattr(item, "le"))
    assert most + MOST_SUBSPACES - 1 == 2**32 - 1


@pytest.mark.parametrize("hidden", [[10**9], [10**30], [10**5, 10**5]])
def test_a_network_of_very_many_weights_is_refused_before_it_is_made(hidden):
    with pytest.raises(InputError, match="weights, and at most"):
        small_prepared(FORMULA, network__hidden=hidden)


def test_categories_are_counted_before_any_is_made():
    frame = small_frame().assign(rating=[10**9, *range(1, 30)])
    with pytest.raises(InputError, match="at most 1000 categories, got 1e"):
        small_prepared("rating ~ x + nn(u)", frame, family="cumulative")
    assert family("cumulative(1000)").categories == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "recursion"),
        ("a = " + "{a = " * 5_000, "recursion"),
        ("formula = " + "9" * 5_000, "digits"),
        (".".join(["a"] * 20_000) + " = 1", "more than 16 parts"),
        (".".join(['"a"'] * 20_000) + " = 1", "more than 16 parts"),
        ("[" + ".".join(["a"] * 20_000) + "]", "more than 16 parts"),
        ('formula = "' + "y" * 1_000_000 + '"', "at most 1,000,000"),
        (f'formula = "{FORMULA}"\ndata = "a\\u0000b"', "is no name of a file"),
        (f'formula = "{FORMULA}"\ndata = {{a = 1}}', "data: "),
    ],
    ids=range(9),
)
def test_a_model_file_has_limits(text, message, tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_config(path)


def test_dots_in_a_formula_are_no_deep_key(tmp_path):
    path = tmp_path / "model.toml"
    names = " + ".join(f"`a.{i}`" for i in range(50))
    path.write_text(f'formula = "y ~ {names} + nn(u)"\npriors.b = "normal(0, 1.5)"\n')
    assert read_config(path).priors.b == "normal(0, 1.5)"


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9/a.csv", "s3://a/b.csv", "file:///etc/passwd", "/dev/zero",
              "ftp://a/b.parquet", "memory://a.csv.gz", "a" * 5000, "a\0.csv"]
)  # fmt: skip
def test_a_table_is_a_file_of_this_machine(place):
    with pytest.raises(InputError):
        read_table(place)


def model_of(*nodes, constants=()):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes), "g", [value("u", TensorProto.DOUBLE, ["N", 2])],
        [value("f", TensorProto.DOUBLE, ["N", 2])], list(constants),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def external():
    tensor = helper.make_tensor("c", TensorProto.DOUBLE, [2], [1.0, 2.0])
    del tensor.double_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../etc/passwd")
    return model_of(helper.make_node("Add", ["u", "c"], ["f"]), constants=[tensor])


def claims():
    tensor = helper.make_tensor("c", TensorProto.DOUBLE, [2], [1.0, 2.0])
    tensor.dims[0] = 10**15
    return model_of(helper.make_node("Add", ["u", "c"], ["f"]), constants=[tensor])


def expands():
    size = helper.make_tensor("n", TensorProto.INT64, [1], [10**13])
    nodes = (
        helper.make_node("ConstantOfShape", ["n"], ["c"]),
        helper.make_node("Add", ["u", "c"], ["f"]),
    )
    return model_of(*nodes, constants=[size])


def foreign_operator():
    return model_of(helper.make_node("Evil", ["u"], ["f"], domain="com.evil"))


@pytest.mark.parametrize(
    ("make", "message"),
    [(external, "other files"), (claims, "claim more"), (expands, "ConstantOfShape"),
     (foreign_operator, "Evil")],
)  # fmt: skip
def test_a_graph_that_semistan_does_not_write_is_refused(make, message, tmp_path):
    onnx.save(make(), tmp_path / "a.onnx")
    with pytest.raises(InputError, match=message):
        open_graph(tmp_path / "a.onnx")


@pytest.mark.parametrize("content", [b"", b"no graph", b"\x08\x08", bytes(100), b"\xff" * 100])
def test_what_is_no_graph_is_refused(content, tmp_path):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        open_graph(tmp_path / "a.onnx")


def test_a_graph_is_run_or_refuses_its_inputs(tmp_path):
    one = helper.make_tensor("c", TensorProto.DOUBLE, [2], [1.0, 2.0])
    onnx.save(model_of(helper.make_node("Add", ["u", "c"], ["f"]), constants=[one]), tmp_path / "a")
    run = open_graph(tmp_path / "a", threads=1)
    np.testing.assert_array_equal(run({"u": np.zeros((1, 2))})[0], [[1.0, 2.0]])
    for wrong in ({}, {"u": np.zeros((1, 3))}, {"w": np.zeros((1, 2))}):
        with pytest.raises(InputError, match="is damaged"):
            run(wrong)
