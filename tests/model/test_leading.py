"""Constant leading layers: features, and the heads behind them, are the whole networks."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from semistan.bundle.onnx_graphs import network_graph, run_graph, save_checked
from semistan.errors import InputError
from semistan.model import model as models
from semistan.model.names import MU
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.leading import Leading
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, forward, output_and_jacobian, outputs
from semistan.model.units import Units
from support.by_hand import naive_features, naive_outputs
from support.small import small_bundle, small_prepared

DEEP = FullyConnected(2, (4, 3, 2), "softplus")
CASES = {
    "nothing": Leading(Networks((DEEP,)), (0,)),
    "one layer": Leading(Networks((DEEP,)), (1,)),
    "all but the output": Leading(Networks((DEEP,)), (3,)),
    "a linear network": Leading(Networks((FullyConnected(3, ()),)), (0,)),
    "nothing of several": Leading(Networks((DEEP, FullyConnected(1, (3,), "relu"))), (0, 0)),
    "different numbers": Leading(
        Networks((DEEP, FullyConnected(3, (5, 2)), FullyConnected(1, (3,), "relu"))), (2, 1, 0)
    ),
    "of several predictors": Leading(
        Networks((FullyConnected(1, ()), DEEP, FullyConnected(3, (3,))), (MU, "sigma", MU)),
        (0, 3, 1),
    ),
}
cases = pytest.mark.parametrize("leading", CASES.values(), ids=CASES)


def random_arrays(leading, rows=6, seed=0):
    generator, whole = np.random.default_rng(seed), leading.whole
    return generator.normal(size=whole.d), generator.normal(size=(rows, whole.n_inputs))


@cases
def test_heads_of_the_features_are_the_whole_networks(leading):
    w, u = random_arrays(leading)
    expected = np.array([naive_outputs(leading.whole, w, row) for row in u])
    w_frozen, own = leading.split(torch.tensor(w))
    h = leading.features(w_frozen, torch.tensor(u))
    found = outputs(leading.heads, own, h)
    assert np.allclose(found.numpy().T, expected, rtol=1e-12, atol=1e-13)
    for predictor in dict.fromkeys(leading.whole.predictors):
        whole = forward(leading.whole, torch.tensor(w), torch.tensor(u), predictor)
        assert torch.allclose(
            forward(leading.heads, own, h, predictor), whole, rtol=1e-12, atol=1e-13
        )


@cases
def test_features_are_a_naive_loop(leading):
    w, u = random_arrays(leading)
    w_frozen, _ = leading.split(torch.tensor(w))
    h = leading.features(w_frozen, torch.tensor(u)).numpy()
    assert h.shape == (6, leading.heads.n_inputs)
    expected = [naive_features(leading, w_frozen.numpy(), row) for row in u]
    assert np.allclose(h, expected, rtol=1e-12, atol=1e-13)


@cases
def test_every_weight_is_a_constant_or_of_a_head(leading):
    w, _ = random_arrays(leading)
    w_frozen, own = leading.split(torch.tensor(w))
    assert (len(w_frozen), len(own)) == (sum(leading.sizes), leading.heads.d)
    assert leading.any == bool(len(w_frozen))
    sizes = [[(m + 1) * n for m, n in pairwise(part.widths)] for part in leading.whole.parts]
    layers = np.split(w, np.cumsum([size for each in sizes for size in each])[:-1])
    constant = [depth < n for each, n in zip(sizes, leading.frozen, strict=True)
                for depth in range(len(each))]  # fmt: skip
    both = zip(constant, layers, strict=True)
    parts = {True: [np.zeros(0)], False: []}
    for is_constant, layer in both:
        parts[is_constant].append(layer)
    assert np.array_equal(w_frozen, np.concatenate(parts[True]))
    assert np.array_equal(own, np.concatenate(parts[False]))
    assert leading.heads.predictors == leading.whole.predictors
    depths = zip(leading.whole.parts, leading.heads.parts, leading.frozen, strict=True)
    assert all(part.widths[frozen:] == head.widths for part, head, frozen in depths)


@cases
def test_derivatives_by_the_heads_weights_are_those_of_the_whole_networks(leading):
    w, u = (torch.tensor(array) for array in random_arrays(leading))
    w_frozen, own = leading.split(w)
    _, J = output_and_jacobian(leading.heads, own, leading.features(w_frozen, u))
    _, whole = output_and_jacobian(leading.whole, w, u)
    expected = torch.stack([leading.split(row)[1] for row in whole])
    assert torch.allclose(J, expected, rtol=1e-12, atol=1e-13)


def test_without_constant_layers_nothing_changes():
    leading = CASES["nothing of several"]
    w, u = (torch.tensor(array) for array in random_arrays(leading))
    w_frozen, own = leading.split(w)
    assert leading.heads == leading.whole
    assert torch.equal(own, w)
    assert torch.equal(leading.features(w_frozen, u), u)
    assert (leading.sizes, leading.any) == ([0, 0], False)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("frozen", range(4))
def test_a_networks_features_take_all_its_weights_or_the_leading_ones(activation, frozen):
    part = FullyConnected(2, (4, 3, 2), activation)
    generator = torch.Generator().manual_seed(1)
    w, u = part.initial(generator), torch.randn((5, 2), generator=generator, dtype=torch.float64)
    few = part.features(w[: part.d - part.head(frozen).d], u, frozen)
    assert torch.equal(part.features(w, u, frozen), few)
    assert torch.equal(few, part.layer_inputs(w, u)[frozen])


def test_single_precision_stays_single():
    leading = CASES["different numbers"]
    w, u = (torch.tensor(array, dtype=torch.float32) for array in random_arrays(leading))
    w_frozen, own = leading.split(w)
    assert {w_frozen.dtype, own.dtype} == {torch.float32}
    assert leading.features(w_frozen, u).dtype == torch.float32


def test_the_words_say_how_many_layers_are_constants():
    assert CASES["nothing"].text == "2-4-3-2-1, softplus"
    assert CASES["one layer"].text == "2-4-3-2-1, softplus, 1 frozen"
    several = "2-4-3-2-1 + 3-5-2-1 + 1-3-1, softplus + tanh + relu, 2 + 1 + 0 frozen"
    assert CASES["different numbers"].text == several


@cases
def test_the_onnx_graph_has_the_whole_networks_of_the_mean(leading, tmp_path):
    w, u = random_arrays(leading)
    Q, (w_frozen, own) = leading.whole.n_inputs, leading.split(torch.tensor(w))
    units = Units({MU: (np.zeros(1), np.ones(1))}, np.arange(Q) - 1.0, 2.0 ** np.arange(Q), 0, 1)
    m = leading.heads.n_inputs * leading.any
    h_loc, h_scale = np.linspace(-1, 1, m), np.linspace(0.5, 2, m)
    trained = SimpleNamespace(
        w_frozen=w_frozen.numpy(), h_loc=h_loc, h_scale=h_scale,
        feature_units=lambda _: (h_loc, h_scale),
    )  # fmt: skip
    H = np.array([naive_features(leading, trained.w_frozen, row) for row in u])
    if leading.any:
        H = (H - trained.h_loc) / trained.h_scale
    each = np.array([naive_outputs(leading.heads, own.numpy(), row) for row in H])
    expected = each[:, [of == MU for of in leading.whole.predictors]].sum(axis=1)
    inputs = {"u": units.u_loc + units.u_scale * u, "w": own.numpy()}
    save_checked(network_graph(leading, units, trained), tmp_path / "f.onnx", inputs, expected)
    (f,) = run_graph(tmp_path / "f.onnx", inputs)
    assert np.allclose(f, expected, rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------------- of a model


def test_a_model_has_whole_networks_and_their_heads():
    formula = "y ~ x + nn(u, v, hidden=[4, 3, 2]) + nn(z, hidden=[5]), sigma ~ nn(v)"
    model = small_prepared(formula, network__hidden=[3, 2], network__frozen=1).model
    whole, heads = model.leading.whole, model.network
    assert [part.widths for part in whole.parts] == [(2, 4, 3, 2, 1), (1, 5, 1), (1, 3, 2, 1)]
    assert [part.widths for part in heads.parts] == [(4, 3, 2, 1), (5, 1), (3, 2, 1)]
    assert model.leading.frozen == (1, 1, 1)
    assert heads.predictors == whole.predictors == ("mu", "mu", "sigma")
    assert model.leading.text == "2-4-3-2-1 + 1-5-1 + 1-3-2-1, tanh, 1 frozen"


@pytest.mark.parametrize(
    ("formula", "hidden", "frozen"),
    [
        ("y ~ nn(u, v)", [3], 2),
        ("y ~ nn(u, v)", [], 1),
        ("y ~ nn(u, v) + nn(z, hidden=[2])", [3, 2], 2),
        ("y ~ nn(u, v), sigma ~ nn(z, hidden=[])", [3, 2], 1),
    ],
)
def test_the_output_layer_of_no_network_can_be_constant(formula, hidden, frozen):
    with pytest.raises(InputError, match=rf"between 0 and the number of hidden.*got {frozen}"):
        small_prepared(formula, network__hidden=hidden, network__frozen=frozen)


def test_the_weights_that_can_be_trained_are_those_of_all_layers(monkeypatch):
    settings = {"network__hidden": [3, 3], "network__frozen": 2}
    whole = small_prepared(**settings).model.leading.whole
    monkeypatch.setattr(models, "MOST_WEIGHTS", whole.d)
    assert small_prepared(**settings).model.network.d < whole.d
    monkeypatch.setattr(models, "MOST_WEIGHTS", whole.d - 1)
    with pytest.raises(InputError, match=f"has {whole.d} weights"):
        small_prepared(**settings)


def test_a_bundle_says_how_many_layers_are_constants():
    bundle, _ = small_bundle(network__hidden=[3, 2], network__frozen=2)
    assert "2-3-2-1, tanh, 2 frozen" in repr(bundle)
    assert bundle.network.text == "2-1"
