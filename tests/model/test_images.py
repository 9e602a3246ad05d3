"""Images in formulas and designs: ``nn(image(path))``, what is learnt of them, their networks."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.config import NetworkConfig
from semistan.model.design import (
    apply_design,
    design_from_plain,
    design_to_plain,
    learn_design,
)
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.images import Image, image_of, with_images
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.mlp import FullyConnected
from support.small import small_config, small_frame, small_prepared

SIZED = "y ~ x + nn(image(p, size=[2, 4], channels=3))"
OF_IMAGES = {"network__hidden": [4, 3], "network__channels": [2, 5], "network__kernel": 2}


def images_of(text):
    return parse_formula(text).images


# ----------------------------------------------------------------------------- in formulas


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("image(p)", Image("p")),
        ("image( p )", Image("p")),
        ("image(p, size=32)", Image("p", (32, 32))),
        ("image(p, size = [32, 48])", Image("p", (32, 48))),
        ("image(p, channels=3)", Image("p", channels=3)),
        ("image(p, size=1, channels=1)", Image("p", (1, 1), 1)),
        ("image(p, array='images.npy')", Image("p", array="images.npy")),
        ('image(p, array="it\'s, (mine).npy")', Image("p", array="it's, (mine).npy")),
        ("image(`my path`, size=4)", Image("my path", (4, 4))),
        ("image(`a)b`)", Image("a)b")),
        ("image(`size=3`, channels=1)", Image("size=3", channels=1)),
        ("image(class)", Image("class")),
        ("image(`m²`)", Image("m²")),
        ("image(größe)", Image("größe")),
        ("image(image)", Image("image")),
        ("image(p, array='a`b`.npy')", Image("p", array="a`b`.npy")),
    ],
)
def test_a_call_is_read_and_written_again(call, expected):
    for text in (f"y ~ x + nn({call})", f"y ~ x + nn({call}, hidden=[3], channels=[2, 4])"):
        assert images_of(text) == (expected,)
    assert image_of(expected.text) == expected
    assert images_of(f"y ~ nn({expected.text})") == (expected,)


def test_the_text_of_a_call():
    image = Image("my path", (3, 4), 1, "a b.npy")
    assert image.text == "image(`my path`, size=[3, 4], channels=1, array='a b.npy')"
    assert image.shape == (1, 3, 4)
    assert Image("p", array="a.npy").of(3, 5, 6) == Image("p", (5, 6), 3, "a.npy")


def test_a_formula_has_images_beside_everything_else():
    formula = parse_formula(
        "y ~ x + log(z) + (1 | g) + nn(image(p, size=8), hidden=[3]) + nn(u, log(v)), "
        "sigma ~ nn(image(q)) + nn(w)"
    )
    assert formula.images == (Image("p", (8, 8)), Image("q"))
    assert formula.network_variables == ("u", "v", "w")
    assert set(formula.columns) == {"x", "z", "g", "p", "u", "v", "q", "w"}
    assert [network.arguments for network in formula.networks] == [
        ("image(p, size=8)",), ("u", "log(v)"), ("image(q)",), ("w",),
    ]  # fmt: skip
    assert formula.networks[0].options == {"hidden": [3]}


def test_columns_that_are_called_image_are_columns():
    formula = parse_formula("y ~ image + nn(u, image)")
    assert (formula.images, formula.columns) == ((), ("image", "u"))
    assert not formula.networks[0].of_images
    for text in ("y ~ `image(p)` + nn(u)", "y ~ C(g, levels=['image(p)']) + nn(u)"):
        assert images_of(text) == ()
        assert not parse_formula(text).networks[0].of_images
    for text in ("y ~ nn(image(p))", "y ~ nn(image (p))"):
        assert parse_formula(text).networks[0].of_images


TAKES = "image() takes a column of files or rows, and as options size, channels and array"
ALONE = "images are inputs of a network of their own; write the other inputs as another one"
OUTSIDE = "image() stands in nn(), as nn(image(path, size=32))"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("y ~ x + image(p) + nn(u)", "image(p)", OUTSIDE),
        ("y ~ x + log(image(p)) + nn(u)", "image(p)", OUTSIDE),
        ("y ~ x + nn(log(image(p)))", "image(p)", OUTSIDE),
        ("y ~ x + nn(u, log(image(p)))", "image(p)", OUTSIDE),
        ("y ~ s(image(p)) + nn(u)", "image(p)", OUTSIDE),
        ("y ~ offset(image(p)) + nn(u)", "image(p)", OUTSIDE),
        ("y | weights(image(p)) ~ nn(u)", "image(p)", OUTSIDE),
        ("image(p) ~ nn(u)", "image(p)", OUTSIDE),
        ("y ~ nn(u), sigma ~ x + image(p)", "image(p)", OUTSIDE),
        ("y ~ x + nn(image(p), u)", "nn(image(p), u)", ALONE),
        ("y ~ x + nn(u, image(p))", "nn(u, image(p))", ALONE),
        ("y ~ x + nn(image(p), image(q))", "nn(image(p), image(q))", ALONE),
        ("y ~ x + nn(image())", "image()", TAKES),
        ("y ~ x + nn(image(p, 8))", "image(p, 8)", TAKES),
        ("y ~ x + nn(image(log(p)))", "image(log(p))", TAKES),
        ("y ~ x + nn(image(p + q))", "image(p + q)", TAKES),
        ("y ~ x + nn(image('a.png'))", "image('a.png')", TAKES),
        ("y ~ x + nn(image(3))", "image(3)", TAKES),
        ("y ~ x + nn(image(*p))", "image(*p)", TAKES),
        ("y ~ x + nn(image(p, **q))", "image(p, **q)", TAKES),
        ("y ~ x + nn(image(p, colour=1))", "image(p, colour=1)", TAKES),
        ("y ~ x + nn(image(p, hidden=[3]))", "image(p, hidden=[3])", TAKES),
        ("y ~ x + nn(image(p, size='32'))", "image(p, size='32')", TAKES),
        ("y ~ x + nn(image(p, size=32.0))", "image(p, size=32.0)", TAKES),
        ("y ~ x + nn(image(p, size=True))", "image(p, size=True)", TAKES),
        ("y ~ x + nn(image(p, size=[32]))", "image(p, size=[32])", TAKES),
        ("y ~ x + nn(image(p, size=[]))", "image(p, size=[])", TAKES),
        ("y ~ x + nn(image(p, size=[8, 8, 3]))", "image(p, size=[8, 8, 3])", TAKES),
        ("y ~ x + nn(image(p, size=n))", "image(p, size=n)", TAKES),
        ("y ~ x + nn(image(p, size=None))", "image(p, size=None)", TAKES),
        ("y ~ x + nn(image(p, channels=0))", "image(p, channels=0)", TAKES),
        ("y ~ x + nn(image(p, channels=True))", "image(p, channels=True)", TAKES),
        ("y ~ x + nn(image(p, channels=[3]))", "image(p, channels=[3])", TAKES),
        ("y ~ x + nn(image(p, array=3))", "image(p, array=3)", TAKES),
        ("y ~ x + nn(image(p, size=0))", "image(p, size=0)", "at least 1 x 1 pixels, got size=0"),
        ("y ~ x + nn(image(p, size=-2))", "image(p, size=-2)", "1 x 1 pixels, got size=-2"),
        ("y ~ x + nn(image(p, size=[4, 0]))", "image(p, size=[4, 0])", "got size=[4, 0]"),
        ("y ~ x + nn(`ü, x`, image(`a b`))", "nn(`ü, x`, image(`a b`))", ALONE),
        ("y ~ x + nn(image(`a b`, siz=3))", "image(`a b`, siz=3)", TAKES),
    ],
)
def test_what_is_no_image_is_refused_at_its_place(text, place, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_formula(text)
    _, formula, carets, *_ = str(caught.value).split("\n")
    assert formula.strip() == text
    assert formula[carets.index("^") : carets.rindex("^") + 1] == place


@pytest.mark.parametrize(
    "option",
    ["kind=conv", "channels=3", "channels=[1.5]", "kernel=[3]", "kernel='3'", "pooling=2.0",
     "frozen=None", "frozen=True", "padding=1"],
)  # fmt: skip
def test_options_of_a_network_that_are_none_are_refused_at_their_place(option):
    with pytest.raises(InputError, match="is not allowed: nn\\(\\) takes at least one") as caught:
        parse_formula(f"y ~ x + nn(image(p), {option})")
    _, formula, carets, *_ = str(caught.value).split("\n")
    assert formula[carets.index("^") : carets.rindex("^") + 1] == option


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y ~ x + nn(u)", "y ~ x + nn(u)"),
        ("y ~ nn(image(p))", "y ~ nn(image(p, size=[8, 9], channels=3))"),
        (
            "y ~ nn( image( p , size = 4 ), hidden=[3]) + `image(p)`",
            "y ~ nn( image(p, size=[8, 9], channels=3), hidden=[3]) + `image(p)`",
        ),
        (
            "y ~ image + nn(image(`a )b`, array='image(p)')), sigma ~ nn(image(p))",
            "y ~ image + nn(image(`a )b`, size=[2, 2], channels=1, array='image(p)')), "
            "sigma ~ nn(image(p, size=[8, 9], channels=3))",
        ),
    ],
)
def test_calls_are_replaced_and_nothing_else(text, expected):
    known = {"p": Image("p", (8, 9), 3), "a )b": Image("a )b", (2, 2), 1, "image(p)")}
    assert with_images(text, known) == expected
    assert with_images(expected, known) == expected
    assert images_of(expected) == tuple(known[image.column] for image in images_of(text))


# ----------------------------------------------------------------------------- in designs


def image_frame(n=8, shape=(3, 2, 4), seed=0):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"y": generator.normal(size=n), "x": generator.normal(size=n)})
    channel = np.arange(shape[0]).reshape(-1, 1, 1)
    arrays = 10.0 * channel + (channel + 1) * generator.normal(size=(n, *shape))
    return frame.assign(p=[array.ravel() for array in arrays]), arrays


def learnt(text=SIZED, **shape):
    frame, arrays = image_frame(**shape)
    design, rows = learn_design(parse_formula(text), frame)
    return design, rows, frame, arrays


def test_a_mean_and_an_sd_of_each_channel_are_learnt():
    design, rows, _, arrays = learnt()
    assert np.array_equal(rows.U, arrays.reshape(8, 24))
    (pictures,) = design.networks
    assert pictures.means == pytest.approx([arrays[:, c].mean() for c in range(3)], rel=1e-13)
    assert pictures.sds == pytest.approx([arrays[:, c].std(ddof=1) for c in range(3)], rel=1e-13)
    standard = (rows.U - design.u.loc) / design.u.scale
    by_channel = standard.reshape(8, 3, 8)
    assert np.allclose(by_channel.mean(axis=(0, 2)), 0, atol=1e-13)
    assert np.allclose(by_channel.std(axis=(0, 2), ddof=1), 1, rtol=1e-13)
    assert design.u.columns == tuple(f"p[{i}]" for i in range(24))
    assert (pictures.levels, pictures.transforms) == ({}, {})


def test_pixels_that_are_constant_are_no_matter():
    frame, arrays = image_frame()
    arrays[:, :, 0] = 7.0  # the margin
    frame = frame.assign(p=[array.ravel() for array in arrays])
    design, _ = learn_design(parse_formula(SIZED), frame)
    assert min(design.u.scale) > 0


def test_images_stand_beside_other_inputs():
    frame, arrays = image_frame()
    frame = frame.assign(u=np.arange(8.0), g=list("abababab"), q=frame["p"])
    text = f"{SIZED} + nn(u, g) + nn(image(q, size=[2, 4], channels=3))"
    design, rows = learn_design(parse_formula(text), frame)
    flat = arrays.reshape(8, 24)
    assert np.array_equal(rows.U[:, :24], flat)
    assert np.array_equal(rows.U[:, 24], frame["u"])
    assert np.array_equal(rows.U[:, 27:], flat)
    assert design.u.columns[23:28] == ("p[23]", "u", "g[a]", "g[b]", "q[0]")
    again = apply_design(design, frame[3:5], response=False)
    assert np.array_equal(again.U, rows.U[3:5])


def test_arrays_may_be_of_whole_numbers_lists_and_any_shape():
    frame, arrays = image_frame()
    whole = arrays.astype(np.int16)
    (flat,), (nested,) = (
        [learn_design(parse_formula(SIZED), frame.assign(p=values))[1].U]
        for values in (list(whole), whole.reshape(8, 24).tolist())
    )
    assert np.array_equal(flat, whole.reshape(8, 24))
    assert np.array_equal(nested, flat)


@pytest.mark.parametrize("value", [7.0, 0.0, 1e9])
def test_a_channel_that_is_constant_is_refused(value):
    frame, arrays = image_frame()
    arrays[:, 1] = value
    frame = frame.assign(p=[array.ravel() for array in arrays])
    with pytest.raises(InputError, match="images of column 'p' have a channel that is constant"):
        learn_design(parse_formula(SIZED), frame)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pixels_that_are_not_finite_are_refused(value):
    design, _, frame, arrays = learnt()
    arrays[5, 2, 1, 0] = value
    frame = frame.assign(p=[array.ravel() for array in arrays])
    with pytest.raises(InputError, match="column 'p' in row 6 has values that are not finite"):
        apply_design(design, frame, response=False)
    with pytest.raises(InputError, match="finite"):
        learn_design(parse_formula(SIZED), frame)


@pytest.mark.parametrize(
    ("value", "size"),
    [(np.zeros(23), 23), (np.zeros((3, 2, 5)), 30), (np.zeros(0), 0), (1.0, 1), ("a.png", 1),
     (None, 1)],
)  # fmt: skip
def test_arrays_of_another_size_are_refused_with_their_row(value, size):
    design, _, frame, _ = learnt()
    frame = frame.assign(p=[*frame["p"][:6], value, *frame["p"][7:]])
    message = f"column 'p' needs images of 3 x 2 x 4 numbers, got {size} in row 7"
    with pytest.raises(InputError, match=message):
        apply_design(design, frame, response=False)
    with pytest.raises(InputError, match=message):
        learn_design(parse_formula(SIZED), frame)


def test_a_missing_column_is_named():
    frame, _ = image_frame()
    design, _ = learn_design(parse_formula("y ~ nn(image(p, size=[2, 4], channels=3))"), frame)
    with pytest.raises(InputError, match="names column 'p', which the data do not have"):
        apply_design(design, frame[["y", "x"]], response=False)


def plain_of(design):
    return json.loads(json.dumps(design_to_plain(design)))


def test_a_design_is_written_and_read_again():
    frame, _ = image_frame()
    frame = frame.assign(u=np.arange(8.0), g=list("abababab"))
    text = "y ~ x + nn(u, C(g)) + nn(image(p, size=[2, 4], channels=3)), sigma ~ nn(x)"
    design, rows = learn_design(parse_formula(text), frame)
    again = design_from_plain(plain_of(design))
    assert again == design
    assert np.array_equal(apply_design(again, frame, response=True).U, rows.U)
    assert len(json.dumps(plain_of(design)["networks"][1])) < 200  # nothing for each pixel


@pytest.mark.parametrize(
    "change",
    [
        {"image": "image(p, size=[4, 2], channels=3)"},
        {"image": "image(x, size=[2, 4], channels=3)"},
        {"image": "__import__('os')"},
        {"image": None},
        {"means": [0.0]},
        {"means": [0.0, 0.0, float("nan")]},
        {"means": [0.0, 0.0, "one"]},
        {"means": None},
        {"sds": [1.0, 1.0, 1.0, 1.0]},
        {"sds": [1.0, 1.0, float("inf")]},
        {"sds": 1.0},
    ],
    ids=str,
)
def test_damaged_designs_are_refused(change):
    plain = plain_of(learnt()[0])
    plain["networks"][0] |= change
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize("key", ["image", "means", "sds"])
def test_designs_that_lack_a_part_are_refused(key):
    plain = plain_of(learnt()[0])
    del plain["networks"][0][key]
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


def test_a_design_whose_formula_says_no_size_is_refused():
    text = json.dumps(plain_of(learnt()[0])).replace(", size=[2, 4], channels=3", "")
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(json.loads(text))


# ----------------------------------------------------------------------------- networks of images


def pictures(n=30, shape=(8, 9), seed=4):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for _ in range(n)]


def prepared_of(formula="y ~ x + nn(image(p))", shape=(8, 9), **settings):
    frame = small_frame().assign(p=pictures(shape=shape), q=pictures(seed=5))
    return small_prepared(formula, frame, **(OF_IMAGES | settings))


def test_images_are_inputs_of_a_convolutional_network():
    prepared = prepared_of()
    assert prepared.config.formula == "y ~ x + nn(image(p, size=[8, 9], channels=1))"
    expected = Convolutional((1, 8, 9), (2, 5), (4, 3), kernel=2)
    assert prepared.model.leading.whole.parts == (expected,)
    assert prepared.model.leading.frozen == (2,)
    assert prepared.model.network.parts == (expected.head(2),)
    assert prepared.model.leading.text == "1x8x9-conv2-conv5-4-3-1, tanh, 2 frozen"


@pytest.mark.parametrize("kind", ["auto", "conv"])
def test_the_settings_are_the_networks(kind):
    settings = {
        "network__channels": [3], "network__kernel": 3, "network__pooling": 1,
        "network__activation": "relu", "network__kind": kind,
    }  # fmt: skip
    (part,) = prepared_of(**settings).model.leading.whole.parts
    assert part == Convolutional((1, 8, 9), (3,), (4, 3), 3, 1, "relu")


def test_options_of_one_network_stand_in_its_call():
    formula = (
        "y ~ nn(image(p), channels=[6], kernel=3, pooling=3, hidden=[2], activation='relu') + "
        "nn(image(q), frozen=3) + nn(u, frozen=1), sigma ~ nn(image(p)) + nn(image(q), kind='mlp')"
    )
    leading = prepared_of(formula).model.leading
    default = {"channels": (2, 5), "hidden": (4, 3), "kernel": 2}
    assert leading.whole.parts == (
        Convolutional((1, 8, 9), (6,), (2,), 3, 3, "relu"),
        Convolutional((1, 8, 9), **default),
        FullyConnected(1, (4, 3)),
        Convolutional((1, 8, 9), **default),
        FullyConnected(72, (4, 3)),
    )
    assert leading.frozen == (1, 3, 1, 2, 0)
    assert leading.whole.predictors == ("mu", "mu", "mu", "sigma", "sigma")


@pytest.mark.parametrize(
    ("formula", "settings", "frozen"),
    [
        ("y ~ nn(image(p))", {}, (2,)),
        ("y ~ nn(image(p)) + nn(u)", {}, (2, 0)),
        ("y ~ nn(u) + nn(image(p), channels=[3]), sigma ~ nn(image(q))", {}, (0, 1, 2)),
        ("y ~ nn(image(p))", {"network__frozen": 4}, (4,)),
        ("y ~ nn(image(p)) + nn(u)", {"network__frozen": 2}, (2, 2)),
        ("y ~ nn(image(p), frozen=3) + nn(u)", {}, (3, 0)),
        ("y ~ nn(image(p), frozen=2) + nn(u)", {"network__frozen": 1}, (2, 1)),
        ("y ~ nn(image(p), kind='mlp')", {}, (0,)),
        ("y ~ nn(u, v)", {}, (0,)),
        ("y ~ nn(image(p), frozen='auto') + nn(u)", {"network__frozen": 1}, (2, 1)),
    ],
)
def test_all_convolutional_layers_and_no_others_are_constants_by_default(formula, settings, frozen):
    assert prepared_of(formula, **settings).model.leading.frozen == frozen


def test_images_may_be_inputs_of_a_fully_connected_network():
    prepared = prepared_of(network__kind="mlp")
    assert prepared.model.network.parts == (FullyConnected(72, (4, 3)),)
    assert not prepared.model.leading.any
    assert prepared.rows.U.shape == (30, 72)


@pytest.mark.parametrize(
    ("formula", "settings"),
    [
        ("y ~ nn(u, log(z))", {"network__kind": "conv"}),
        ("y ~ nn(image(p)) + nn(u, log(z))", {"network__kind": "conv"}),
        ("y ~ nn(image(p)) + nn(u, log(z), kind='conv')", {}),
    ],
)
def test_a_convolutional_network_of_anything_else_is_refused(formula, settings):
    message = r"'conv', but the inputs of nn\(u, log\(z\)\) are no images; write nn\(image\(path\)"
    with pytest.raises(InputError, match=message):
        prepared_of(formula, **settings)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("kernel=9", "layer 1 gets images of 8 x 9 pixels"),
        ("pooling=5", "layer 2 gets images of 1 x 1 pixels"),
        ("channels=[2, 2, 2, 2]", "layer 4 gets images of 0 x 0|layer 3 gets images of 1 x 1"),
        ("kernel=0", "kernel and pooling of at least 1"),
        ("channels=[]", "needs at least one layer"),
        ("activation='tan'", "unknown activation 'tan'"),
        ("frozen=5", r"convolutional and hidden layers \(4\), got 5"),
        ("frozen=-1", "frozen"),
        ("kind='cnn'", "kind"),
        ("hidden=[0]", r"hidden\.0: input should be greater than or equal to 1, got 0"),
    ],
)
def test_options_that_are_impossible_are_refused(option, message):
    with pytest.raises(InputError, match=message):
        prepared_of(f"y ~ nn(image(p), {option})")


@pytest.mark.parametrize(
    ("key", "value"),
    [("frozen", -1), ("frozen", "all"), ("kind", "cnn"), ("kernel", 2.5), ("channels", "three"),
     ("padding", 1)],
)  # fmt: skip
def test_keys_that_are_impossible_are_refused(key, value):
    with pytest.raises(InputError, match=rf"network\.?.*{key}"):
        small_config(**{f"network__{key}": value})


def test_the_options_of_a_call_are_those_of_the_section():
    from semistan.model.formula.syntax import LAYERS

    assert set(LAYERS) == set(NetworkConfig.model_fields)


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("method", ["fullrank", "pathfinder", "meanfield"])
def test_methods_of_stan_need_all_convolutional_layers_to_be_constants(method, frozen):
    message = f"Stan cannot compute the convolutional layers .* as method '{method}' needs; let"
    with pytest.raises(InputError, match=message):
        prepared_of(network__frozen=frozen, sample__method=method)
    assert prepared_of(network__frozen=2, sample__method=method).model.network.in_stan


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize(
    ("method", "text"), [("nuts", "NUTS"), ("mclmc", "microcanonical Langevin Monte Carlo")]
)
def test_a_method_is_that_of_pytorch_where_stan_cannot_compute(method, text, frozen):
    prepared = prepared_of(network__frozen=frozen, sample__method=method)
    assert prepared.config.sample.method == f"{method}-torch"
    assert any(f"{text} runs in PyTorch" in note for note in prepared.notes)
    assert prepared_of(network__frozen=2, sample__method=method).config.sample.method == method


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize(
    "method", ["laplace", "elliptical-slice", "mclmc-torch", "flow", "nuts-torch"]
)
def test_methods_of_pytorch_do_not(method, frozen):
    prepared = prepared_of(network__frozen=frozen, sample__method=method)
    assert isinstance(prepared.model.network.parts[0], Convolutional)


@pytest.mark.parametrize("other", ["p", "(1 | p)", "x:p", "s(p)", "nn(p)", "offset(p)"])
def test_a_column_of_images_is_nothing_else(other):
    with pytest.raises(InputError, match="'p'"):
        prepared_of(f"y ~ {other} + nn(image(p))")
