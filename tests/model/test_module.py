"""Modules of the user's against the architectures that there are, PyTorch itself and refusals."""

import copy
import pickle
from math import prod

import numpy as np
import pytest
import torch
from torch import nn

from semistan.errors import InputError, SemistanError
from semistan.model.modules import modules_from_plain, modules_to_plain
from semistan.model.networks.adopt import adopt, given_again
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.module import seeded
from semistan.model.networks.networks import (
    Networks,
    forward,
    output_and_jacobian,
    output_layers,
    prior_scales,
)
from support.small import small_prepared


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(a, b, tolerance=1e-12):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def mlp_module():
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1))


def conv_module():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten(),
        nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1),
    )  # fmt: skip


class Steps(nn.Module):
    """Control flow that depends on numbers, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = self.first(x)
        for _ in range(1 + int(self.first.weight.detach().abs().sum() > 0)):
            h = torch.tanh(h)
        return self.last(h)


class Mixed(nn.Module):
    """Weights of its own, a buffer, a constant parameter, a skip, and the output layer first."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)
        self.body = nn.Linear(2, 4)
        self.skip = nn.Parameter(torch.linspace(-1, 1, 8).reshape(4, 2))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.still = nn.Parameter(torch.tensor([0.7, 1.3]), requires_grad=False)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("shift", torch.tensor([0.1, -0.2]))

    def forward(self, x):
        x = self.still * x + self.shift
        h = self.scale * torch.relu(self.body(x)) + x @ self.skip.T
        return self.out(self.norm(h)).squeeze(-1)


class Shared(nn.Module):
    """Two layers with the same weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Attention(nn.Module):
    """Each input as a token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        h = self.embed(x[:, :, None])
        return self.out(self.attend(h, h, h, need_weights=False)[0].mean(dim=1))


CASES = {
    "fully connected": (mlp_module, (2,)),
    "convolutional": (conv_module, (2, 7, 6)),
    "control flow": (Steps, (2,)),
    "all kinds of parameters": (Mixed, (2,)),
    "shared parameters": (Shared, (2,)),
    "attention": (Attention, (3,)),
}
cases = pytest.mark.parametrize(("make", "shape"), CASES.values(), ids=CASES)


def adopted(make, shape, rows=6):
    torch.manual_seed(3)
    module = make()
    u = randn(rows, prod(shape))
    return adopt("f", module, shape, u), module, u


def with_weights(module, w):
    """Return PyTorch's own module in double precision, with other weights."""
    module = copy.deepcopy(module).double()
    trained = [p for p in module.parameters() if p.requires_grad]
    torch.nn.utils.vector_to_parameters(w, trained)
    return module


# ------------------------------------------------------------ the same as other architectures

PAIRS = {
    "mlp": (mlp_module, FullyConnected(2, (5, 3)), (2,)),
    "conv": (conv_module, Convolutional((2, 7, 6), (3,), (4,)), (2, 7, 6)),
}
pairs = pytest.mark.parametrize(("make", "same", "shape"), PAIRS.values(), ids=PAIRS)


@pairs
def test_it_computes_what_the_same_architecture_does(make, same, shape):
    network, _, u = adopted(make, shape)
    W = randn(2, 3, same.d)
    assert network.d == same.d
    assert network.n_inputs == same.n_inputs
    assert network.widest == same.widest
    assert close(network.forward(W, u), same.forward(W, u))
    (f, J), (g, K) = (one.output_and_jacobian(W[0, 1], u, 0) for one in (network, same))
    assert close(f, g)
    assert close(J, K)
    assert close(network.layer_inputs(W[0, 1], u)[-1], same.layer_inputs(W[0, 1], u)[-1])


@pairs
def test_its_layers_and_prior_are_those_of_the_same_architecture(make, same, shape):
    network, _, _ = adopted(make, shape)
    assert network.layers(7) == same.layers(7)
    one, other = Networks((network,)), Networks((same,))
    assert np.array_equal(prior_scales(one, 2.0, 2.5), prior_scales(other, 2.0, 2.5))
    assert np.array_equal(output_layers(one), output_layers(other))


def test_it_stands_beside_other_networks():
    network, module, u = adopted(mlp_module, (2,))
    beside = FullyConnected(3, (2,))
    spec = Networks((beside, network))
    w, own = randn(spec.d), randn(6, 3, seed=4)
    expected = beside.forward(w[: beside.d], own) + with_weights(module, w[beside.d :])(u)
    assert close(forward(spec, w, torch.cat([own, u], dim=1)), expected[:, 0])
    assert spec.activation == "tanh"
    assert spec.text == "3-2-1 + module 'f'"


# ----------------------------------------------------------------------------- any module


@cases
def test_it_is_the_module(make, shape):
    network, module, u = adopted(make, shape)
    W = randn(3, network.d)
    expected = torch.stack(
        [with_weights(module, w)(u.reshape(-1, *shape)).reshape(-1).detach() for w in W]
    )
    assert close(network.forward(W, u)[..., 0], expected)
    assert make is Attention or network.batches == (make is not Steps)


@cases
def test_its_derivatives_are_those_of_backward_passes(make, shape):
    network, module, u = adopted(make, shape)
    w = randn(network.d)
    one = with_weights(module, w)
    f, J = output_and_jacobian(Networks((network,)), w, u)
    for i, row in enumerate(u):
        output = one(row.reshape(1, *shape)).reshape(())
        slopes = torch.autograd.grad(output, [p for p in one.parameters() if p.requires_grad])
        assert close(f[i], output.detach())
        assert close(J[i], torch.cat([slope.reshape(-1) for slope in slopes]))


@cases
def test_its_output_layer_has_the_inputs_that_it_adds_up(make, shape):
    network, _, u = adopted(make, shape)
    w, last = randn(network.d), network.layers()[-1]
    (h,) = network.layer_inputs(w, u)
    assert h.shape == (len(u), last.m)
    assert close(h @ w[last.weights] + w[last.biases], network.forward(w, u)[:, 0])


def test_the_scales_of_other_parameters():
    network, _, _ = adopted(Mixed, (2,))
    names = [name for name, _ in network.parameters]
    # A module's own parameters come before those of its layers.
    assert names == [
        "skip", "scale", "out.weight", "out.bias", "body.weight", "body.bias",
        "norm.weight", "norm.bias",
    ]  # fmt: skip
    expected = {
        "skip": 2 / 2**0.5, "scale": 2, "out.weight": 2 / 4**0.5, "out.bias": 2.5,
        "body.weight": 2 / 2**0.5, "body.bias": 2, "norm.weight": 2, "norm.bias": 2,
    }  # fmt: skip
    scales = np.repeat([expected[name] for name in names], network.sizes)
    assert np.allclose(prior_scales(Networks((network,)), 2.0, 2.5), scales, rtol=1e-15)


def test_batch_norm_in_eval_mode_has_constant_statistics():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    module(torch.randn(50, 2, generator=torch.Generator().manual_seed(1)) + 4)
    network = adopt("f", module.eval(), (2,), randn(5, 2))
    w, u = randn(network.d), randn(5, 2, seed=2)
    assert close(network.forward(w, u)[:, 0], with_weights(module, w)(u)[:, 0].detach())


def test_dropout_in_eval_mode_does_nothing():
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.Tanh(), nn.Linear(3, 1)).eval()
    network = adopt("f", module, (2,), randn(5, 2))
    w, u = randn(network.d), randn(5, 2)
    plain = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    assert close(network.forward(w, u)[:, 0], with_weights(plain, w)(u)[:, 0].detach())


# ----------------------------------------------------------------------------- initial weights


def test_initial_weights_are_those_of_a_new_module():
    network, _, _ = adopted(mlp_module, (2,))
    found = network.initial(torch.Generator().manual_seed(5))
    seed = int(torch.randint(2**31, (1,), generator=torch.Generator().manual_seed(5)))
    with seeded(seed):
        new = copy.deepcopy(network.code)
        for layer in new[::2]:
            layer.reset_parameters()
    assert torch.equal(found, torch.nn.utils.parameters_to_vector(new.parameters()))


@cases
def test_initial_weights_follow_the_generator_alone(make, shape):
    network, _, _ = adopted(make, shape)
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    first, second = network.initial(generator), network.initial(generator)
    again = network.initial(torch.Generator().manual_seed(1))
    assert first.shape == (network.d,)
    assert torch.equal(first, again)
    assert (first != second).double().mean() > 0.6
    assert torch.equal(torch.get_rng_state(), before)


def test_parameters_that_no_layer_resets_are_drawn_around_their_values():
    network, module, _ = adopted(Mixed, (2,))
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([network.initial(generator) for _ in range(400)])
    own = module.skip.detach().double().reshape(-1)
    error = own.std(correction=0) / 400**0.5
    assert ((drawn[:, :8].mean(dim=0) - own).abs() < 4.5 * error).all()
    assert close(drawn[:, 8], torch.full((400,), 1.5, dtype=torch.float64))


# ----------------------------------------------------------------------------- the user's module


@cases
def test_the_users_module_is_not_changed(make, shape):
    torch.manual_seed(3)
    module = make()
    state, modes = copy.deepcopy(module.state_dict()), [m.training for m in module.modules()]
    before = torch.get_rng_state()
    network = adopt("f", module, shape, randn(6, prod(shape)))
    network.forward(randn(2, network.d), randn(4, network.n_inputs))
    network.initial(torch.Generator())
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in state.items())
    assert all(value.dtype == torch.float32 for value in module.parameters())
    assert [m.training for m in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)


def test_a_task_carries_it_to_another_process():
    network, _, u = adopted(mlp_module, (2,))
    w = randn(network.d)
    other = pickle.loads(pickle.dumps(network))
    assert other == network
    assert torch.equal(other.forward(w, u), network.forward(w, u))


# ----------------------------------------------------------------------------- refusals


class Returns(nn.Module):
    """A linear network whose output something is made of."""

    def __init__(self, made, **options):
        super().__init__()
        self.linear, self.made = nn.Linear(2, 1, **options), made

    def forward(self, x):
        return self.made(self.linear(x))


class Uncopied(Returns):
    def __init__(self):
        super().__init__(torch.tanh)
        self.kept = 2 * self.linear.weight


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.z = nn.Parameter(torch.ones(2, dtype=torch.complex64))


def linear(*layers):
    return nn.Sequential(nn.Linear(2, 3), *layers, nn.Linear(3, 1))


REFUSED = {
    "no module": (lambda: 3, r"networks\['f'\] must be a torch.nn.Module, .* got int"),
    "no parameters": (nn.Tanh, "has no parameters that require gradients"),
    "constants alone": (lambda: linear().requires_grad_(False), "nothing to train"),
    "complex": (Complex, "must be real floating-point numbers, got torch.complex64 of 'z'"),
    "no copy": (lambda: Uncopied(), "module 'f' cannot be copied: Only Tensors created"),
    "lazy": (lambda: nn.LazyLinear(1), "lazy parameter 'weight'.* evaluate the module once"),
    "batch norm": (
        lambda: linear(nn.BatchNorm1d(3)),
        "changes its buffer '1.running_mean'.*LayerNorm or GroupNorm, or give module.eval",
    ),
    "batch statistics": (
        lambda: linear(nn.BatchNorm1d(3, track_running_stats=False)).eval(),
        "(mixes rows|cannot be evaluated)",
    ),
    "dropout": (lambda: linear(nn.Dropout()), "is random: two evaluations .* give module.eval"),
    "two outputs": (lambda: nn.Linear(2, 2), r"of shape \(N,\) or \(N, 1\).*returned \(9, 2\)"),
    "a pair": (lambda: Returns(lambda f: (f, f)), "it returned tuple"),
    "one number": (lambda: Returns(torch.sum), r"it returned \(\)"),
    "mixes rows": (lambda: Returns(lambda f: f - f.mean(0)), "mixes rows: its output of a row"),
    "not finite": (lambda: Returns(lambda f: f / 0 * 0), "returns nan at weights drawn"),
    "other inputs": (lambda: nn.Linear(3, 1), r"at inputs of shape \(N, 2\): RuntimeError: mat1"),
    "single precision": (
        lambda: Returns(lambda f: f.float() @ torch.eye(1, dtype=torch.float64)),
        "cannot be evaluated in double precision",
    ),
    "no bias": (lambda: Returns(lambda f: f, bias=False), r"end the module in torch.nn.Linear\(m"),
    "softplus": (lambda: Returns(nn.functional.softplus), "must be that of a linear layer"),
    "relu": (lambda: Returns(torch.relu), "must be that of a linear layer"),
    "a summand": (lambda: Returns(lambda f: f + 1), "nothing behind it or beside it"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_network_is_refused(make, message):
    torch.manual_seed(1)
    with pytest.raises(InputError, match=message):
        adopt("f", make(), (2,), randn(9, 2))


@pytest.mark.parametrize("sign", [1, -1])
def test_an_output_that_is_linear_at_some_weights_alone_is_refused(sign):
    cut = Returns(lambda f: sign * torch.relu(sign * f))
    with pytest.raises(InputError, match="must be that of a linear layer"):
        adopt("f", cut, (2,), 1e-3 * randn(9, 2))  # the bias decides, for all rows


def test_what_needs_to_know_layers_is_refused():
    network, _, _ = adopted(mlp_module, (2,))
    assert network.head(0) is network
    with pytest.raises(InputError, match=r"frozen must be 0 for module 'f'.*requires_grad_\(False"):
        network.head(1)
    with pytest.raises(SemistanError, match="module 'f' has no ONNX graph"):
        network.onnx(None, "w", "u", 0)
    with pytest.raises(SemistanError, match="has no Stan program"):
        network.stan_text(several=False, predictors=False, kernel=False)


# ----------------------------------------------------------------------------- formula and options

FORMULA = "y ~ x + nn(u, v, module='f')"
IN_TORCH = {"sample__method": "elliptical-slice"}


def prepared(formula=FORMULA, networks=None, **settings):
    given = {"f": linear(nn.Tanh())} if networks is None else networks
    return small_prepared(formula, networks=given, **(IN_TORCH | settings))


def test_the_model_has_the_module_among_its_networks():
    found = prepared("y ~ x + nn(u, v, module='f') + nn(v, hidden=[2])").model
    assert found.network.text == "module 'f' + 1-2-1"
    assert found.network.d == 13 + 7
    assert found.leading.text == "module 'f' + 1-2-1, tanh"


def test_two_networks_may_be_copies_of_one_module():
    found = prepared("y ~ x + nn(u, v, module='f'), sigma ~ nn(v, x, module='f')").model
    assert found.network.sizes == (13, 13)
    with pytest.raises(InputError, match=r"two nn\(\) whose inputs have the shapes \(2,\) and"):
        prepared("y ~ x + nn(u, v, module='f') + nn(v, module='f')")


OPTIONS = {
    "no module": (FORMULA, {}, {}, "no module 'f' is given. Modules are given in Python alone"),
    "a module too many": (
        FORMULA, {"f": linear(), "g": linear()}, {}, "'g' that the formula does not name",
    ),
    "no dict": (FORMULA, linear(), {}, "networks must be a dict .* got Sequential"),
    "no name": ("y ~ x + nn(u)", {"f": linear()}, {}, "'f' that the formula does not name"),
    "layers": (
        "y ~ nn(u, v, module='f', hidden=[3])", None, {}, "takes no option 'hidden': the module",
    ),
    "no text": ("y ~ nn(u, module=3)", None, {}, r"'module ?= ?3' is not allowed: nn\(\) takes"),
    "constant layers": (
        "y ~ nn(u, v, module='f', frozen=1)", None, {}, "frozen must be 0 for module 'f'",
    ),
    "in Stan": (
        FORMULA, None, {"sample__method": "pathfinder"},
        "Stan cannot compute the network module 'f', as method 'pathfinder' needs; choose a method",
    ),
    "kronecker": (
        FORMULA, None, {"subspace__curvature": "kronecker"}, "choose curvature = 'diagonal'",
    ),
    "scales": (
        FORMULA, None, {"priors": {"sd_w": "lognormal(0, 1)"}}, "prior 'sd_w' .* leave it out",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "networks", "settings", "message"), OPTIONS.values(), ids=OPTIONS
)
def test_what_a_module_cannot_have_is_refused(formula, networks, settings, message):
    with pytest.raises(InputError, match=message):
        prepared(formula, networks, **settings)


# ----------------------------------------------------------------------------- files


def plain_and_design():
    found = prepared()
    return modules_to_plain(found.modules), found.design


def test_files_say_enough_to_know_the_module_again():
    torch.manual_seed(1)
    module = linear(nn.Tanh())
    found = prepared(networks={"f": module})
    plain = modules_to_plain(found.modules)
    (absent,) = modules_from_plain(plain, found.design, None).values()
    assert absent == found.modules["f"]
    assert absent.layers() == found.modules["f"].layers()
    with pytest.raises(InputError, match=r"read_fit\(path, networks=\{'f': module\}\)"):
        absent.forward(randn(13), randn(2, 2))
    (known,) = modules_from_plain(plain, found.design, {"f": module}).values()
    w, u = randn(13), randn(4, 2)
    assert torch.equal(known.forward(w, u), found.modules["f"].forward(w, u))


def test_another_module_is_refused():
    plain, design = plain_and_design()
    (absent,) = modules_from_plain(plain, design, None).values()
    assert given_again(absent, linear(nn.Tanh())) == absent
    with pytest.raises(InputError, match=r"whose parameters are 0.weight \(3, 2\), .*; got"):
        given_again(absent, mlp_module())
    with pytest.raises(InputError, match=r"computes something else, .*; expected the same layers"):
        given_again(absent, linear(nn.GELU()))
    with pytest.raises(InputError, match="no module 'f' is given"):
        modules_from_plain(plain, design, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.pop("f"),
        lambda plain: plain["f"].pop("output"),
        lambda plain: plain["f"].update(output="1"),
        lambda plain: plain["f"].update(parameters=[["0.weight"]]),
        lambda plain: plain["f"].update(parameters=3),
    ],
)
def test_damaged_files_are_refused(change):
    plain, design = plain_and_design()
    change(plain)
    with pytest.raises(InputError, match="what the bundle says of its modules is damaged"):
        modules_from_plain(plain, design, None)
