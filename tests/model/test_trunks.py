"""Trunks in formulas and designs: what may be written, and what is learnt of embeddings."""

import json

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.images import Image, with_images
from semistan.model.formula.trunks import Trunk
from semistan.model.networks.mlp import FullyConnected
from semistan.model.table.embeddings import with_trunks
from semistan.model.table.trunk_file import TrunkFile
from support.small import small_frame, small_prepared

FORMULA = "y ~ x + nn(image(p), trunk='t.onnx', output='e')"
FILE = TrunkFile("0f" * 32, "e", 3)


# ----------------------------------------------------------------------------- in formulas


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("image(p), trunk='t.onnx'", Trunk(Image("p"), "t.onnx")),
        ('image(p), trunk="a (b), c.onnx"', Trunk(Image("p"), "a (b), c.onnx")),
        ("image(p), output='e', trunk='t.onnx'", Trunk(Image("p"), "t.onnx", "e")),
        (
            "image(p, size=8, mean=[0.4, 0.5, 0.6], sd=0.25), trunk='t.onnx', hidden=[3]",
            Trunk(Image("p", (8, 8), None, None, (0.4, 0.5, 0.6), (0.25,)), "t.onnx"),
        ),
        ("image(p, mean=0, sd=1), trunk='t'", Trunk(Image("p", mean=(0.0,), sd=(1.0,)), "t")),
        ("image(p, mean=[-1, 2]), trunk='t'", Trunk(Image("p", mean=(-1.0, 2.0)), "t")),
    ],
)
def test_a_call_is_read_and_written_again(call, expected):
    formula = parse_formula(f"y ~ x + nn({call})")
    assert formula.trunks == (expected,)
    assert formula.images == (expected.image,)
    again = parse_formula(with_images(formula.text, {"p": expected.image}))
    assert again.trunks == (expected,)
    assert not formula.networks[0].of_images


def test_a_trunk_is_no_option_of_the_layers():
    text = "y ~ nn(u) + nn(image(p), trunk='t.onnx', hidden=[3]), sigma ~ nn(image(q))"
    formula = parse_formula(text)
    assert formula.trunks == (None, Trunk(Image("p"), "t.onnx"), None)
    assert [network.layers for network in formula.networks] == [{}, {"hidden": [3]}, {}]
    assert [network.of_images for network in formula.networks] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nn(image(p), trunk='t')", "nn(image(p, size=[2, 2], channels=1), trunk='t', output='e')"),
        (
            'nn(image(p),trunk = "a, (b)" ,hidden=[3])',
            "nn(image(p, size=[2, 2], channels=1),trunk = \"a, (b)\", output='e' ,hidden=[3])",
        ),
        (
            "nn(image(p), output='f', trunk='t')",
            "nn(image(p, size=[2, 2], channels=1), output='f', trunk='t')",
        ),
    ],
)
def test_the_output_is_written_into_a_formula(text, expected):
    known = {"p": Image("p", (2, 2), 1), "q": Image("q", (3, 3), 3)}
    rest = ", sigma ~ nn(image(q)) + nn(u)"
    written = with_images(f"y ~ x + {text}{rest}", known, {"p": "e"})
    assert written == f"y ~ x + {expected}{rest.replace('(q)', '(q, size=[3, 3], channels=3)')}"
    assert parse_formula(written).trunks[0].output in ("e", "f")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("y ~ nn(u, trunk='t')", "nn(u, trunk='t')", "a trunk takes images, as nn(image(path), tr"),
        ("y ~ nn(image(p), u, trunk='t')", "nn(image(p), u, trunk='t')", "of their own"),
        ("y ~ nn(image(p), output='e')", "nn(image(p), output='e')", "output= is that of a trunk"),
        ("y ~ nn(image(p), trunk=3)", "trunk=3", "for images trunk and output"),
        ("y ~ nn(image(p), trunk='')", "trunk=''", "for images trunk and output"),
        ("y ~ nn(image(p), trunk=t)", "trunk=t", "for images trunk and output"),
        ("y ~ s(x, trunk='t') + nn(u)", "trunk='t'", "is not allowed"),
        ("y ~ nn(image(p, mean=0.5))", "image(p, mean=0.5)", "without trunk='FILE.onnx' images"),
        ("y ~ nn(image(p, sd=0), trunk='t')", "image(p, sd=0)", "image() takes a column"),
        ("y ~ nn(image(p, sd=[]), trunk='t')", "image(p, sd=[])", "image() takes a column"),
        ("y ~ nn(image(p, mean='a'), trunk='t')", "image(p, mean='a')", "image() takes a column"),
        (
            "y ~ nn(image(p, mean=[1, 2], sd=[1, 2, 3]), trunk='t')",
            "image(p, mean=[1, 2], sd=[1, 2, 3])",
            "mean and sd have one number for each channel, or one for all",
        ),
        (
            "y ~ nn(image(p, channels=3, mean=[1, 2]), trunk='t')",
            "image(p, channels=3, mean=[1, 2])",
            "mean and sd have one number for each channel, or one for all",
        ),
    ],
)
def test_what_cannot_be_is_shown_where_it_is(text, place, message):
    with pytest.raises(InputError) as caught:
        parse_formula(text)
    assert message in str(caught.value)
    line, carets = str(caught.value).splitlines()[1:3]
    assert line[carets.index("^") :].startswith(place)


@pytest.mark.parametrize(
    "text",
    [
        "y ~ nn(image(p), trunk='a'), sigma ~ nn(image(p), trunk='b')",
        "y ~ nn(image(p), trunk='a'), sigma ~ nn(image(p))",
        "y ~ nn(image(p), trunk='a', output='e'), sigma ~ nn(image(p), trunk='a')",
        "y ~ nn(image(p), trunk='a'), sigma ~ nn(image(p, size=2), trunk='a')",
    ],
)
def test_a_column_has_one_trunk(text):
    with pytest.raises(InputError, match=r"image.. of one column with different options, or"):
        parse_formula(text)


def test_the_same_trunk_may_stand_in_several_predictors():
    call = "nn(image(p), trunk='a', output='e')"
    assert len(set(parse_formula(f"y ~ {call}, sigma ~ {call}").trunks)) == 1


# ----------------------------------------------------------------------------- designs


def table(rows=30, seed=3, file=FILE):
    """Return a table with embeddings, of which the second number is constant."""
    E = np.random.default_rng(seed).normal([5, 0, -40], [2, 0, 1e-5], (rows, 3))
    frame = small_frame().iloc[:rows].assign(p=list(E))
    if file:
        with_trunks(frame, {"p": file})
    return frame, E


def test_each_number_of_an_embedding_has_units_of_its_own():
    frame, E = table()
    design, rows = learn_design(parse_formula(FORMULA), frame)
    assert np.array_equal(rows.U, E)
    assert design.u.columns == ("p[0]", "p[1]", "p[2]")
    assert np.allclose(design.u.loc, E.mean(axis=0), rtol=1e-12)
    sd = E.std(axis=0, ddof=1)
    assert np.allclose(design.u.scale, [sd[0], 1, sd[2]], rtol=1e-12)
    assert design.trunks == {"p": FILE}
    other, F = table(4, seed=8)
    assert np.array_equal(apply_design(design, other, response=False).U, F)


def test_the_state_is_plain_data():
    design, _ = learn_design(parse_formula(FORMULA), table()[0])
    plain = json.loads(json.dumps(design_to_plain(design)))
    assert plain["networks"][0]["trunk"] == {"sha256": "0f" * 32, "output": "e", "size": 3}
    assert design_from_plain(plain) == design


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (("loc",), [0.0]), (("scale",), [1.0, float("nan"), 1.0]), (("image",), "image(q)"),
        (("trunk", "size"), 2), (("trunk", "sha256"), "../../x"), (("trunk",), "t.onnx"),
        (("trunk",), {}), (("trunk", "size"), "three"),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(change, value):
    design, _ = learn_design(parse_formula(FORMULA), table()[0])
    plain = json.loads(json.dumps(design_to_plain(design)))
    inner = plain["networks"][0]
    for key in change[:-1]:
        inner = inner[key]
    inner[change[-1]] = value
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


def test_an_embedding_of_another_size_or_that_is_none_is_refused():
    design, _ = learn_design(parse_formula(FORMULA), table()[0])
    frame, E = table(4)
    for wrong in (E[1, :2], 3.0, "images/1.png"):
        broken = frame.assign(p=[E[0], wrong, *E[2:]])
        with pytest.raises(InputError, match=r"needs embeddings of 3 numbers, got . in row 2"):
            apply_design(design, broken, response=False)
    E[2, 1] = np.inf
    with pytest.raises(InputError, match=r"the embedding of column 'p' in row 3 .* not finite"):
        apply_design(design, frame.assign(p=list(E)), response=False)


def test_the_network_behind_a_trunk_is_fully_connected():
    frame, _ = table()
    prepared = small_prepared(FORMULA, frame, network__hidden=[4, 2])
    assert prepared.model.network.parts == (FullyConnected(3, (4, 2)),)
    assert not prepared.model.leading.any
    with pytest.raises(InputError, match="network behind a trunk takes the numbers of its embed"):
        small_prepared(FORMULA, frame, network__kind="conv")
