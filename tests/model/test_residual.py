"""Skip connections and layer normalisation: PyTorch's own modules, ONNX, Stan, a model's files."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.onnx_graphs import run_graph
from semistan.data.model_file import read_config
from semistan.density.features import at_features
from semistan.density.ggn import kronecker_ggn
from semistan.density.problem import make_problem
from semistan.errors import InputError, SemistanError
from semistan.model.config import config_toml, parse_config
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, forward
from semistan.model.networks.residual import Residual
from semistan.program.data import stan_data
from semistan.program.parts import has_kernel
from semistan.program.program import bundle_program
from semistan.subspace.descent import initial_parameters
from semistan.workflow.compiled import compile_model
from support.agreement import assert_agreement
from support.columns import assert_program
from support.programs import declared
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import random_bundle

MODULES = {
    "tanh": torch.nn.Tanh(),
    "relu": torch.nn.ReLU(),
    "softplus": torch.nn.Softplus(threshold=1e6),
    "sigmoid": torch.nn.Sigmoid(),
    "identity": torch.nn.Identity(),
}
HIDDEN = ((), (4,), (4, 4), (3, 4, 4, 2, 2), (5, 5, 5))
OPTIONS = tuple(product((False, True), repeat=2))
options = pytest.mark.parametrize(("skip", "norm"), OPTIONS)
every = pytest.mark.parametrize("hidden", HIDDEN, ids=str)


class Module(torch.nn.Module):
    """The network as one writes it in PyTorch."""

    def __init__(self, widths, activation, skip, norm):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(m, n) for m, n in pairwise(widths))
        self.norms = [
            torch.nn.LayerNorm(m, elementwise_affine=False) if norm and number else lambda h: h
            for number, m in enumerate(widths[:-1])
        ]
        self.activation, self.skip = MODULES[activation], skip

    def forward(self, h):
        *hidden, last = zip(self.layers, self.norms, strict=True)
        for number, (layer, norm) in enumerate(hidden):
            made = self.activation(layer(norm(h)))
            h = made + h if self.skip and number and made.shape == h.shape else made
        return last[0](last[1](h))[:, 0]


def module_of(spec, w):
    module = Module(spec.widths, spec.activation, spec.skip, spec.norm).double()
    assert sum(p.numel() for p in module.parameters()) == spec.d
    torch.nn.utils.vector_to_parameters(w, module.parameters())
    return module


def random_case(spec, rows=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(spec.d, generator=generator, dtype=torch.float64)
    return w, torch.randn(rows, spec.n_inputs, generator=generator, dtype=torch.float64)


def close(a, b, tolerance=1e-12):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


# ----------------------------------------------------------------------------- PyTorch


@every
@options
def test_it_is_pytorchs_network(hidden, skip, norm):
    spec = Residual(4, hidden, "tanh", skip, norm)
    w, u = random_case(spec)
    assert close(spec.forward(w, u)[..., 0], module_of(spec, w)(u).detach())


def test_predictors_share_a_residual_network(toolchain, tmp_path):
    shared = "nn(u1, u2, shared='f', hidden=[3, 3], skip=True, norm=True)"
    bundle, rows = random_bundle("gaussian", formula=f"y ~ x1 + {shared} + nn(v), sigma ~ {shared}")
    assert bundle.network.parts[0] == Residual(2, (3, 3), "tanh", True, True, outputs=2)
    assert_program(bundle, rows, toolchain, tmp_path, "stan")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_has_every_activation(activation):
    spec = Residual(3, (4, 4, 2), activation, True, True)
    w, u = random_case(spec)
    assert close(spec.forward(w, u)[..., 0], module_of(spec, w)(u).detach())


@every
def test_without_options_it_is_the_fully_connected_network(hidden):
    spec, plain = Residual(3, hidden, "relu"), FullyConnected(3, hidden, "relu")
    w, u = random_case(spec)
    assert torch.equal(spec.forward(w, u)[..., 0], plain.forward(w, u)[..., 0])
    assert all(map(torch.equal, spec.layer_inputs(w, u), plain.layer_inputs(w, u)))
    assert all(map(close, spec.output_and_jacobian(w, u, 0), plain.output_and_jacobian(w, u, 0)))
    assert (spec.d, spec.layers(5), spec.text) == (plain.d, plain.layers(5), plain.text)


def test_the_first_layer_is_plain_though_its_widths_agree():
    alone, plain = Residual(4, (4,), "tanh", True), FullyConnected(4, (4,))
    w, u = random_case(alone)
    assert torch.equal(alone.forward(w, u)[..., 0], plain.forward(w, u)[..., 0])
    with_norm = Residual(4, (), "tanh", False, True)
    w, u = random_case(with_norm)
    assert torch.equal(with_norm.forward(w, u)[..., 0], FullyConnected(4, ()).forward(w, u)[..., 0])


@options
def test_leading_axes_of_the_weights_are_a_batch(skip, norm):
    spec = Residual(2, (3, 3), "tanh", skip, norm)
    w, u = random_case(spec)
    W = torch.stack([w, -w, 0.3 * w, w.flip(0), 2 * w, 0 * w]).reshape(2, 3, -1)
    found = spec.forward(W, u)[..., 0]
    assert found.shape == (2, 3, len(u))
    expected = torch.stack([module_of(spec, one)(u).detach() for one in W.reshape(6, -1)])
    assert close(found.reshape(6, -1), expected)


@every
@options
def test_derivatives_are_those_of_autograd(hidden, skip, norm):
    spec = Residual(3, hidden, "softplus", skip, norm)
    w, u = random_case(spec)
    f, J = spec.output_and_jacobian(w, u, 0)
    module = module_of(spec, w)
    rows = [torch.autograd.grad(module(row[None])[0], list(module.parameters())) for row in u]
    expected = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    assert close(f, module(u).detach())
    assert close(J, expected, 1e-11)
    assert not (f.requires_grad or J.requires_grad)


@options
def test_second_derivatives_are_those_of_the_module(skip, norm):
    spec = Residual(2, (3, 3), "tanh", skip, norm)
    w, u = random_case(spec)
    module = module_of(spec, w)
    names = [name for name, _ in module.named_parameters()]
    sizes = [p.shape for p in module.parameters()]

    def by_module(at):
        pieces = torch.split(at, [size.numel() for size in sizes])
        values = [piece.reshape(size) for piece, size in zip(pieces, sizes, strict=True)]
        output = torch.func.functional_call(module, dict(zip(names, values, strict=True)), (u,))
        return output.square().sum()

    def ours(at):
        return spec.forward(at, u)[..., 0].square().sum()

    hessian = torch.autograd.functional.hessian
    assert close(hessian(ours, w), hessian(by_module, w), 1e-10)


def test_rows_of_equal_units_have_finite_derivatives():
    spec = Residual(2, (3, 3), "tanh", True, True)
    w, u = torch.zeros(spec.d, dtype=torch.float64), random_case(spec)[1]
    f, J = spec.output_and_jacobian(w, u, 0)
    assert f.isfinite().all()
    assert J.isfinite().all()


def test_layer_inputs_are_what_the_modules_take():
    spec = Residual(3, (4, 4, 2), "tanh", True, True)
    w, u = random_case(spec)
    module, taken = module_of(spec, w), []
    for layer in module.layers:
        layer.register_forward_pre_hook(lambda _, given: taken.append(given[0].detach()))
    module(u)
    assert all(map(close, spec.layer_inputs(w, u), taken))
    assert len(taken) == 4
    last = spec.layer_inputs(w, u)[-1]
    assert close(last.mean(dim=1), torch.zeros(6, dtype=torch.float64))


def test_the_kronecker_factors_are_those_of_its_layers_inputs():
    prepared = small_prepared(
        network__hidden=[3, 3], network__skip=True, network__norm=True, priors__phi=None
    )
    (part,) = prepared.model.network.parts
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    parameters = initial_parameters(problem, 1, torch.Generator().manual_seed(1)).copy()
    state = parameters.at(torch.ones(1, dtype=torch.float64))
    root = kronecker_ggn(problem, state).root(torch.eye(part.d, dtype=torch.float64))
    last, sigma = part.layers()[-1], problem.dispersion(state.log_dispersion)["sigma"]
    a = part.layer_inputs(state.w, problem.U)[-1]
    a = torch.cat([a, torch.ones_like(a[:, :1])], dim=1)
    # exact for the one unit of the output layer, on whose sum the output depends with slope 1
    H = (problem.eta_scale / sigma) ** 2 * a.T @ a
    H = H + problem.precision[last.weights].mean() * torch.eye(4, dtype=torch.float64)
    own = root[last.weights.start :, last.weights.start :]
    assert close(own @ own, torch.linalg.inv(H), 1e-9)


# ----------------------------------------------------------------------------- constant layers


@pytest.mark.parametrize("frozen", range(5))
@pytest.mark.parametrize("norm", [False, True])
def test_the_head_of_the_features_is_the_whole_network(norm, frozen):
    spec = Residual(2, (4, 3, 3, 5), "tanh", True, norm)
    w, u = random_case(spec)
    head = spec.head(frozen)
    used = spec.d - head.d
    h = spec.features(w[:used], u, frozen)
    assert h.shape == (6, head.n_inputs)
    if frozen == 2:  # behind which the whole network has its one connection
        assert not close(head.forward(w[used:], h)[..., 0], spec.forward(w, u)[..., 0])
        return
    assert close(head.forward(w[used:], h)[..., 0], spec.forward(w, u)[..., 0])


def test_a_model_behind_constant_layers_is_its_heads(tmp_path):
    bundle, rows = small_bundle(
        network__hidden=[3, 4, 4], network__skip=True, network__norm=True, network__frozen=1
    )
    assert bundle.network.parts == (Residual(3, (4, 4), "tanh", True, True),)
    write_bundle(bundle, tmp_path / "bundle")  # checks both graphs against torch
    w = bundle.subspace.lift(np.ones(bundle.subspace.k))
    (f,) = run_graph(tmp_path / "bundle" / "network.onnx", {"u": rows.U, "w": w})
    heads, behind = at_features(bundle, rows)
    h = torch.tensor((behind.U - heads.units.u_loc) / heads.units.u_scale)
    expected = module_of(heads.network.parts[0], torch.tensor(w))(h).detach().numpy()
    assert np.allclose(f, expected, rtol=1e-10, atol=1e-12)


def test_a_convolutional_network_has_options_behind_its_convolutions():
    plain = Convolutional((1, 6, 6), (2,), (4, 4))
    net = Convolutional((1, 6, 6), (2,), (4, 4), skip=True, norm=True)
    assert net.head(1) == Residual(8, (4, 4), "tanh", True, True)
    assert (net.d, net.text) == (plain.d, "1x6x6-conv2-4-4-1 (skip, norm)")
    w, u = random_case(net)
    used = net.d - net.top.d
    expected = module_of(net.top, w[used:])(plain.features(w, u, 1)).detach()
    assert close(net.forward(w, u)[..., 0], expected)


# ----------------------------------------------------------------------------- a model


FORMULA = "y ~ x + nn(u, v, hidden=[3, 3], skip=True, norm=True) + nn(z)"


def test_options_are_those_of_the_section_or_of_one_network():
    model = small_prepared(FORMULA).model
    residual, plain = Residual(2, (3, 3), "tanh", True, True), FullyConnected(1, (3,))
    assert model.network.parts == (residual, plain)
    assert model.network.text == "2-3-3-1 (skip, norm) + 1-3-1"
    formula = "y ~ x + nn(u, v, skip=False) + nn(z, norm=False)"
    model = small_prepared(formula, network__skip=True, network__norm=True,
                           network__hidden=[4, 4]).model  # fmt: skip
    assert model.network.parts == (
        Residual(2, (4, 4), "tanh", False, True), Residual(1, (4, 4), "tanh", True, False),
    )  # fmt: skip


def test_the_options_survive_the_files(tmp_path):
    network = {"hidden": [3, 3], "skip": True, "norm": True}
    config = parse_config({"formula": "y ~ nn(u)", "network": network}, "test")
    (tmp_path / "model.toml").write_text(config_toml(config))
    assert read_config(tmp_path / "model.toml").network == config.network
    bundle, rows = small_bundle(FORMULA)
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert (again.sha256, again.network) == (bundle.sha256, bundle.network)
    assert "2-3-3-1 (skip, norm) + 1-3-1, tanh" in repr(again)
    w = bundle.subspace.lift(np.ones(bundle.subspace.k))
    (f,) = run_graph(tmp_path / "bundle" / "network.onnx", {"u": rows.U, "w": w})
    u = torch.tensor((rows.U - bundle.units.u_loc) / bundle.units.u_scale)
    residual, plain = bundle.network.parts
    expected = module_of(residual, torch.tensor(w[: residual.d]))(u[:, :2]).detach()
    expected += plain.forward(torch.tensor(w[residual.d :]), u[:, 2:])[..., 0]
    assert np.allclose(f, expected.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "option", ["skip=1", "norm='yes'", "skip=None", "skips=True"]
)  # fmt: skip
def test_an_option_is_true_or_false(option):
    with pytest.raises(InputError, match=f"'{option}' is not allowed"):
        small_prepared(f"y ~ x + nn(u, v, {option})")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("hidden=[4, 3], skip=True", r"skip = true needs two hidden layers .* got hidden \[4, 3\]"),
        ("hidden=[4], skip=True", r"skip = true needs .* got hidden \[4\]"),
        ("hidden=[], norm=True", r"norm = true .* at least one such layer.* got hidden \[\]"),
        ("hidden=[4, 1], norm=True", r"norm = true .* 2 units in each, got hidden \[4, 1\]"),
    ],
)
def test_options_that_would_change_nothing_are_refused(own, message):
    with pytest.raises(InputError, match=message):
        small_prepared(f"y ~ x + nn(u, v, {own})")


# ----------------------------------------------------------------------------- Stan


def test_the_program_reads_the_options_of_each_network():
    bundle, rows = small_bundle(FORMULA)
    text, data = bundle_program(bundle), stan_data(bundle, rows)
    assert list(data) == list(declared(text))
    assert (data["skip"], data["layer_norm"]) == ([1, 0], [1, 0])
    assert data["widths"] == [[2, 3, 3, 1], [1, 3, 1, 0]]
    one, rows = small_bundle(network__hidden=[3, 3], network__skip=True)
    assert (stan_data(one, rows)["skip"], stan_data(one, rows)["layer_norm"]) == (1, 0)


def test_a_program_without_options_knows_nothing_of_them():
    bundle, rows = small_bundle("y ~ x + nn(u, v) + nn(z)")
    assert "skip" not in bundle_program(bundle)
    assert not {"skip", "layer_norm"} & set(stan_data(bundle, rows))


def test_the_kernel_has_no_options():
    bundle, _ = small_bundle(FORMULA)
    assert not has_kernel(bundle.model)
    assert bundle_program(bundle, "cpp") == bundle_program(bundle)
    assert has_kernel(small_bundle()[0].model)


def test_networks_that_stan_cannot_compute_have_no_kernel():
    images = list(np.random.default_rng(0).normal(size=(30, 6, 6)))
    settings = {"sample__method": "elliptical-slice", "network__channels": [2]}
    for frozen in (0, 1):
        prepared = small_prepared(
            "y ~ x + nn(image(p))", small_frame().assign(p=images), network__frozen=frozen,
            **settings,
        )  # fmt: skip
        assert has_kernel(prepared.model) == bool(frozen)


def test_networks_that_have_no_functions_in_common_are_named():
    networks = Networks((Convolutional((1, 6, 6), (2,), (4,)), FullyConnected(1, (3,))))
    with pytest.raises(SemistanError, match=r"1x6x6-conv2-4-1 \+ 1-3-1 have no Stan functions"):
        _ = networks.kind


@pytest.mark.parametrize(
    ("formula", "network"),
    [
        ("y ~ x1 + nn(u1, u2, u3)", {"hidden": [4, 4, 3], "skip": True, "norm": True}),
        ("y ~ x1 + nn(u1, u2, hidden=[2, 2], skip=True) + nn(u3)", {"norm": True, "hidden": [3]}),
    ],
    ids=["one network", "several"],
)
def test_torch_onnx_and_stan_agree(formula, network, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", formula=formula, network=network)
    assert all(isinstance(part, Residual) for part in bundle.network.parts)
    assert_agreement(bundle, rows, "stan", toolchain, tmp_path)


@pytest.mark.parametrize("kernel", ["auto", "cpp"])
def test_pure_stan_is_used_and_said(kernel, toolchain):
    bundle, _ = small_bundle(FORMULA, sample__kernel=kernel)
    said = []
    assert compile_model(bundle.model, toolchain, said.append) == "stan"
    assert said[0] == (
        "pure Stan is used, because the C++ kernel cannot compute 2-3-3-1 (skip, norm) + 1-3-1"
    )


def test_the_sum_of_a_residual_and_a_plain_network():
    residual, plain = Residual(2, (3, 3), "tanh", True, True), FullyConnected(1, (4,))
    networks = Networks((residual, plain))
    assert networks.kind is Residual
    (w, u), (v, z) = random_case(residual), random_case(plain, seed=1)
    found = forward(networks, torch.cat([w, v]), torch.cat([u, z], dim=1))
    assert close(found, module_of(residual, w)(u).detach() + plain.forward(v, z)[..., 0])
