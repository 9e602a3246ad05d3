"""The convolutional network against PyTorch's modules, naive loops and onnxruntime."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import onnxruntime
import pytest
import torch

from semistan.bundle.onnx_graphs import _Graph
from semistan.density.ggn import diagonal_ggn, full_ggn, kronecker_ggn
from semistan.density.inputs import Inputs
from semistan.errors import InputError, SemistanError
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.conv import Convolutional, maxima, patches
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along
from support.by_hand import naive_network
from support.random_problem import (
    naive_curvature,
    naive_ggn,
    naive_jacobian,
    random_problem,
)

MODULES = {
    "tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid,
    "softplus": lambda: torch.nn.Softplus(threshold=500), "identity": torch.nn.Identity,
}  # fmt: skip
CASES = {
    "one layer": Convolutional((1, 6, 6), (2,), (3,)),
    "several layers": Convolutional((3, 14, 12), (4, 5), (6,)),
    "no hidden layer": Convolutional((1, 8, 8), (3,), ()),
    "several hidden layers": Convolutional((2, 9, 7), (3,), (4, 2), activation="softplus"),
    "without pooling": Convolutional((2, 7, 5), (3, 2), (4,), pooling=1, activation="relu"),
    "a remainder is cut off": Convolutional((1, 9, 10), (2, 3), (3,), pooling=2, kernel=2),
    "pooling by three": Convolutional((3, 11, 13), (4,), (2,), pooling=3, activation="sigmoid"),
    "pooling of all": Convolutional((1, 5, 5), (2,), (3,), kernel=1, pooling=5),
    "kernels of one pixel": Convolutional((3, 5, 4), (2, 4), (2,), kernel=1, activation="identity"),
    "kernels as large as the image": Convolutional((2, 4, 4), (5,), (3,), kernel=4, pooling=1),
    "images of one row": Convolutional((2, 1, 6), (3, 2), (2,), kernel=1, pooling=1),
    "one pixel": Convolutional((1, 1, 1), (1,), (1,), kernel=1, pooling=1),
}  # fmt: skip
PAPER = Convolutional((3, 128, 128), (32, 32, 64, 64, 128), (128, 128), activation="relu")
cases = pytest.mark.parametrize("net", CASES.values(), ids=CASES)
EVERY_DEPTH = [
    pytest.param(net, frozen, id=f"{name}, {frozen} constant")
    for name, net in CASES.items()
    for frozen in range(len(net.channels) + len(net.hidden) + 1)
]
every_depth = pytest.mark.parametrize(("net", "frozen"), EVERY_DEPTH)


def module_of(net, *, pooled_first=False):
    """PyTorch's own network; the activation is before the maxima, as in the paper, or behind."""
    steps, shape = [], net.shape
    for m, n in pairwise((net.shape[0], *net.channels)):
        after = [torch.nn.MaxPool2d(net.pooling), MODULES[net.activation]()]
        steps += [torch.nn.Conv2d(m, n, net.kernel), *(after if pooled_first else after[::-1])]
        sides = [(side - net.kernel + 1) // net.pooling for side in shape[1:]]
        shape = (n, *sides)
    steps.append(torch.nn.Flatten())
    for m, n in pairwise((prod(shape), *net.hidden)):
        steps += [torch.nn.Linear(m, n), MODULES[net.activation]()]
    steps.append(torch.nn.Linear(net.hidden[-1] if net.hidden else prod(shape), 1))
    return torch.nn.Sequential(*steps).double()


def with_weights(net, w, **options):
    module = module_of(net, **options)
    assert sum(p.numel() for p in module.parameters()) == net.d
    torch.nn.utils.vector_to_parameters(w, module.parameters())
    return module


def random_case(net, rows=5, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    w = spread * torch.randn(net.d, generator=generator, dtype=torch.float64)
    return w, torch.randn(rows, net.n_inputs, generator=generator, dtype=torch.float64)


def by_module(net, w, u, **options):
    with torch.no_grad():
        return with_weights(net, w, **options)(u.reshape(-1, *net.shape))[:, 0]


def close(a, b, tolerance=1e-12):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


# ----------------------------------------------------------------------------- the output


@cases
@pytest.mark.parametrize("pooled_first", [False, True])
def test_it_is_pytorchs_network(net, pooled_first):
    w, u = random_case(net)
    assert close(net.forward(w, u)[..., 0], by_module(net, w, u, pooled_first=pooled_first))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_has_every_activation(activation):
    net = Convolutional((2, 11, 10), (3, 2), (4,), activation=activation)
    w, u = random_case(net)
    assert close(net.forward(w, u)[..., 0], by_module(net, w, u))


def naive_output(net, w, image):
    """One image through the network, pixel by pixel, in plain Python."""
    weights = w.tolist()
    h = image.reshape(net.shape).tolist()
    k, p = net.kernel, net.pooling
    for n in net.channels:
        m = len(h)
        kernels = [[[[weights.pop(0) for _ in range(k)] for _ in range(k)] for _ in range(m)]
                   for _ in range(n)]  # fmt: skip
        biases = [weights.pop(0) for _ in range(n)]
        height, width = len(h[0]) - k + 1, len(h[0][0]) - k + 1
        z = [[[biases[c] + sum(kernels[c][b][i][j] * h[b][y + i][x + j]
                               for b in range(m) for i in range(k) for j in range(k))
               for x in range(width)] for y in range(height)] for c in range(n)]  # fmt: skip
        h = [[[max(np.tanh(z[c][p * y + i][p * x + j]) for i in range(p) for j in range(p))
               for x in range(width // p)] for y in range(height // p)]
             for c in range(n)]  # fmt: skip
    flat = [value for channel in h for row in channel for value in row]
    return naive_network((len(flat), *net.hidden, 1), weights, flat, net.activation)


@pytest.mark.parametrize(
    "name", ["one layer", "several layers", "a remainder is cut off", "pooling of all", "one pixel"]
)
def test_it_is_a_naive_loop(name):
    net = CASES[name]
    w, u = random_case(net, rows=2)
    expected = torch.tensor([naive_output(net, w, image) for image in u], dtype=torch.float64)
    assert close(net.forward(w, u)[..., 0], expected)


@cases
def test_several_weight_vectors_are_computed_one_by_one(net):
    w, u = random_case(net)
    W = torch.stack([w, 0.3 * w, w.flip(0), -w, 2 * w, 0 * w]).reshape(2, 3, -1)
    found = net.forward(W, u)[..., 0]
    assert found.shape == (2, 3, len(u))
    expected = torch.stack([by_module(net, one, u) for one in W.reshape(6, -1)])
    assert close(found.reshape(6, -1), expected)


def test_single_precision_stays_single():
    net = CASES["several layers"]
    w, u = (tensor.to(torch.float32) for tensor in random_case(net, spread=0.3))
    single = net.forward(w, u)[..., 0]
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), net.forward(w.double(), u.double())[..., 0], atol=1e-4)
    assert net.features(w, u, 2).dtype == torch.float32


@cases
def test_images_in_single_precision_are_convolved_in_it_and_what_is_behind_is_not(net):
    w, u = random_case(net, spread=0.3)
    W, single = torch.stack([w, -w]), u.to(torch.float32)
    found, depth = net.forward(W, single), len(net.channels)
    assert found.dtype == torch.float64
    assert torch.allclose(found, net.forward(W, u), atol=1e-5)
    features, convolved = net.features(w, single, depth), net.features(w.float(), single, depth)
    assert torch.equal(features, convolved.double())
    assert torch.equal(net.forward(w, single), net.top.forward(w[net.d - net.top.d :], features))
    assert torch.equal(net.layer_inputs(w, single)[depth], features)
    f, J = net.output_and_jacobian(w, u, 0)
    rounded, derivatives = net.output_and_jacobian(w, single, 0)
    assert torch.allclose(rounded, f, atol=1e-5)
    assert torch.allclose(derivatives, J, atol=1e-5)


def test_gradients_reach_every_weight():
    net = CASES["several layers"]
    w, u = random_case(net, spread=0.3)
    w.requires_grad_()
    net.forward(w, u).square().sum().backward()
    module = with_weights(net, w.detach())
    module(u.reshape(-1, *net.shape)).square().sum().backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])
    assert close(w.grad, expected, 1e-11)
    assert (w.grad != 0).all()


# ----------------------------------------------------------------------------- layers


@cases
def test_layers_are_the_modules_parameters_without_gaps(net):
    layers = net.layers(7)
    parameters = list(module_of(net).parameters())
    assert [end for layer in layers for end in (layer.weights.stop, layer.biases.stop)] == list(
        np.cumsum([p.numel() for p in parameters]) + 7
    )
    starts = [start for layer in layers for start in (layer.weights.start, layer.biases.start)]
    assert starts == [7, *(end for layer in layers for end in
                           (layer.weights.stop, layer.biases.stop))][:-1]  # fmt: skip
    assert net.d == layers[-1].biases.stop - 7 == sum(p.numel() for p in parameters)
    fan_ins = [prod(p.shape[1:]) for p in parameters[::2]]
    assert [(layer.m, layer.n) for layer in layers] == [
        (m, len(bias)) for m, bias in zip(fan_ins, parameters[1::2], strict=True)
    ]


@cases
def test_it_starts_as_pytorchs_modules_do(net):
    w = net.initial(torch.Generator().manual_seed(3))
    assert torch.equal(w, net.initial(torch.Generator().manual_seed(3)))
    assert (w.shape, w.dtype) == ((net.d,), torch.float64)
    for layer in net.layers():
        bound = layer.m**-0.5  # of torch.nn.Conv2d and torch.nn.Linear
        own = torch.cat([w[layer.weights], w[layer.biases]])
        assert own.abs().max() <= bound
        assert len(own) < 30 or own.abs().max() > 0.9 * bound
    assert abs(PAPER.initial(torch.Generator().manual_seed(1)).mean()) < 1e-3


def naive_mean_patches(net, h):
    """The mean patch of each image (N, C, H, W), window by window."""
    k, (height, width) = net.kernel, h.shape[2:]
    corners = [(y, x) for y in range(height - k + 1) for x in range(width - k + 1)]
    windows = [h[:, :, y : y + k, x : x + k].flatten(1) for y, x in corners]
    return sum(windows) / len(windows)


@cases
def test_layer_inputs_are_those_of_the_modules_or_mean_patches(net):
    w, u = random_case(net)
    inputs, h = [], u.reshape(-1, *net.shape)
    for step in with_weights(net, w):
        if isinstance(step, torch.nn.Conv2d):
            inputs.append(naive_mean_patches(net, h))
        if isinstance(step, torch.nn.Linear):
            inputs.append(h)
        with torch.no_grad():
            h = step(h)
    found = net.layer_inputs(w, u)
    assert [a.shape for a in found] == [(len(u), layer.m) for layer in net.layers()]
    assert all(close(a, b) for a, b in zip(found, inputs, strict=True))


@cases
def test_derivatives_are_those_of_autograd(net):
    w, u = random_case(net)
    f, J = net.output_and_jacobian(w, u, 0)
    module = with_weights(net, w)
    rows = []
    for image in u.reshape(-1, 1, *net.shape):
        gradients = torch.autograd.grad(module(image)[0, 0], list(module.parameters()))
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    assert close(f, by_module(net, w, u))
    assert close(J, torch.stack(rows), 1e-11)
    assert not (f.requires_grad or J.requires_grad)


# ----------------------------------------------------------------------------- curvature


def problem_of(net, u, spread=0.4):
    """A problem of images and a state, with responses that do not matter."""
    problem, state = random_problem(n=len(u))
    problem = replace(problem, network=Networks((net,)), inputs=Inputs(u))
    return problem, replace(state, w=random_case(net, spread=spread)[0])


@cases
def test_the_curvature_is_that_of_a_loop(net):
    problem, state = problem_of(net, random_case(net)[1])
    H = naive_ggn(problem, state)
    assert np.allclose(full_ggn(problem, state), H, rtol=1e-11, atol=1e-13)
    assert np.allclose(diagonal_ggn(problem, state).values, np.diag(H), rtol=1e-11)


@cases
def test_the_kronecker_factors_are_those_of_k_fac_reduce(net):
    """Of the derivatives by all sums of a channel, and of the mean patch, as in their article."""
    problem, state = problem_of(net, random_case(net)[1])
    root = kronecker_ggn(problem, state).root(torch.eye(net.d, dtype=torch.float64)).numpy()
    H = np.linalg.inv(root @ root)
    J, h = naive_jacobian(problem, state), naive_curvature(problem, state)
    inputs = net.layer_inputs(state.w, problem.U)  # tested above
    expected = np.eye(net.d)
    for (weights, biases, m, n), own in zip(net.layers(), inputs, strict=True):
        a, g = np.column_stack([own.numpy(), np.ones(len(J))]), J[:, biases]
        block = np.kron((g.T * h) @ g / len(J), a.T @ a)
        place = np.column_stack(
            [np.arange(weights.start, weights.stop).reshape(n, m), np.arange(net.d)[biases]]
        ).ravel()
        expected[np.ix_(place, place)] += block
    assert np.allclose(H, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_the_kronecker_blocks_of_one_constant_image_are_exact():
    """All its patches are equal, so that their mean is each of them."""
    net = Convolutional((2, 9, 8), (3, 2), (4,), pooling=1)
    u = torch.tensor([0.7, -1.2], dtype=torch.float64).repeat_interleave(72)[None]
    problem, state = problem_of(net, u)
    root = kronecker_ggn(problem, state).root(torch.eye(net.d, dtype=torch.float64)).numpy()
    found, H = np.linalg.inv(root @ root), naive_ggn(problem, state)
    for layer in net.layers():
        block = slice(layer.weights.start, layer.biases.stop)
        assert np.allclose(found[block, block], H[block, block], rtol=1e-8, atol=1e-9)


# ----------------------------------------------------------------------------- constant layers


@every_depth
def test_the_head_of_the_features_is_the_whole_network(net, frozen):
    w, u = random_case(net)
    head = net.head(frozen)
    used = net.d - head.d
    h = net.features(w[:used], u, frozen)
    assert h.shape == (len(u), head.n_inputs)
    assert close(head.forward(w[used:], h)[..., 0], by_module(net, w, u))
    assert torch.equal(net.features(w, u, frozen), h)  # of all weights, the first ones are taken


@every_depth
def test_features_are_what_the_module_has_there(net, frozen):
    w, u = random_case(net)
    h, layers = u.reshape(-1, *net.shape), 0
    for step in with_weights(net, w):
        layers += isinstance(step, torch.nn.Conv2d | torch.nn.Linear)
        if layers > frozen:
            break
        with torch.no_grad():
            h = step(h)
    assert close(net.features(w, u, frozen), h.flatten(1))


@every_depth
def test_a_head_is_a_network_of_the_layers_that_are_left(net, frozen):
    head = net.head(frozen)
    layers = [(layer.m, layer.n) for layer in net.layers()]
    assert [(layer.m, layer.n) for layer in head.layers()] == layers[frozen:]
    assert isinstance(head, FullyConnected) == (frozen >= len(net.channels))
    assert head.activation == net.activation
    if isinstance(head, FullyConnected):
        assert (head.in_stan, net.in_stan) == (True, False)
    else:
        assert (head.kernel, head.pooling) == (net.kernel, net.pooling)
        assert head.head(1) == net.head(frozen + 1)


def test_the_papers_architecture_has_512_features():
    """Appendix C.3 of Dold et al. (2024)."""
    sides = [size.after[1:] for size in PAPER.sizes]
    assert sides == [(63, 63), (30, 30), (14, 14), (6, 6), (2, 2)]
    assert PAPER.head(5) == FullyConnected(512, (128, 128), "relu")
    assert PAPER.text == "3x128x128-conv32-conv32-conv64-conv64-conv128-128-128-1"
    assert PAPER.d == sum(p.numel() for p in module_of(PAPER).parameters()) == 221_729
    assert PAPER.widest == 32 * 126 * 126


def test_coordinates_of_many_weights_need_no_square_matrix():
    """There are 82,305 weights behind the paper's convolutions: their square takes 54 GB."""
    generator, d = np.random.default_rng(0), 3_000
    subspace = along(generator.normal(size=d), generator.normal(size=(d, 2)), "by hand")
    phi = generator.normal(size=(4, 2))
    tracemalloc.start()
    found = subspace.project(subspace.lift(phi))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.allclose(found, phi)
    assert peak < 100 * 8 * d
    assert PAPER.head(5).d == 82_305


@pytest.mark.parametrize(
    ("net", "text"),
    [
        (CASES["one layer"], "1x6x6-conv2-3-1"),
        (CASES["several layers"], "3x14x12-conv4-conv5-6-1"),
        (CASES["no hidden layer"], "1x8x8-conv3-1"),
        (CASES["several layers"].head(1), "4x6x5-conv5-6-1"),
        (CASES["several layers"].head(2), "10-6-1"),
        (CASES["several layers"].head(3), "6-1"),
    ],
)
def test_its_text(net, text):
    assert net.text == text


@cases
def test_the_widest_layer_is_the_largest_that_the_module_holds(net):
    h, most = torch.zeros(1, *net.shape, dtype=torch.float64), net.n_inputs
    for step in module_of(net):
        h = step(h)
        most = max(most, h.numel())
    assert net.widest == most


# ----------------------------------------------------------------------------- ONNX


def run(graph, result, net, arrays):
    shapes = {"u": ("N", net.n_inputs), "w": ("S", None)}
    inputs = {name: shapes[name] for name in arrays}
    model = graph.model(inputs, result, "result", (None, None))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {name: array.numpy() for name, array in arrays.items()})[0]


@cases
@pytest.mark.parametrize("start", [0, 3])
def test_the_onnx_graph_has_the_whole_network(net, start):
    w, u = random_case(net)
    W, graph = torch.stack([w, -0.4 * w]), _Graph()
    before = torch.full((2, start), torch.nan, dtype=torch.float64)  # weights of other networks
    arrays = {"u": u, "w": torch.cat([before, W], dim=1)}
    f = run(graph, graph.column(net.onnx(graph, "w", "u", start), 0), net, arrays)
    expected = torch.stack([by_module(net, one, u) for one in W]).numpy()
    assert f.shape == (2, len(u))
    assert np.allclose(f, expected, rtol=1e-12, atol=1e-12)


@every_depth
def test_the_onnx_graph_has_the_features(net, frozen):
    w, u = random_case(net)
    used, graph = net.d - net.head(frozen).d, _Graph()
    h = run(graph, net.onnx_features(graph, w.numpy()[:used], "u", frozen), net, {"u": u})
    assert np.allclose(h, net.features(w, u, frozen).numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_onnx_graph_has_every_activation(activation):
    net = Convolutional((1, 8, 7), (2, 2), (3,), kernel=2, activation=activation)
    w, u = random_case(net)
    graph = _Graph()
    f = run(graph, graph.column(net.onnx(graph, "w", "u", 0), 0), net, {"u": u, "w": w[None]})
    assert np.allclose(f[0], net.forward(w, u)[..., 0].numpy(), rtol=1e-12, atol=1e-12)


def test_patches_and_squares_are_torchs():
    net = CASES["a remainder is cut off"]
    size = net.sizes[0]
    image = torch.arange(prod(size.before), dtype=torch.float64).reshape(1, *size.before)
    expected = torch.nn.functional.unfold(image, net.kernel)[0].T
    assert np.array_equal(patches(size.before, net.kernel), expected.numpy())
    flat = torch.randperm(prod(size.convolved)).double().reshape(1, *size.convolved)
    most = flat.numpy().ravel()[maxima(size, net.pooling)].max(axis=1)
    pooled = torch.nn.functional.max_pool2d(flat, net.pooling)
    assert np.array_equal(most, pooled.numpy().ravel())


# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "layer", "pixels"),
    [
        (((1, 2, 2), (3,), (4,)), 1, "2 x 2"),
        (((1, 8, 8), (3, 3), (4,)), 2, "3 x 3"),
        (((1, 32, 3), (3, 3), (4,)), 1, "32 x 3"),
        (((3, 128, 128), (1,) * 6, (4,)), 6, "2 x 2"),
        (((1, 4, 4), (3, 3, 3), (4,), 4, 1), 2, "1 x 1"),
        (((1, 8, 8), (3,), (4,), 3, 7), 1, "8 x 8"),
    ],
)
def test_images_that_are_too_small_for_the_layers_are_refused(arguments, layer, pixels):
    message = f"convolutional layer {layer} gets images of {pixels} pixels, of which a kernel of"
    with pytest.raises(InputError, match=message):
        Convolutional(*arguments)


@pytest.mark.parametrize(
    "changed",
    [{"kernel": 0}, {"kernel": -3}, {"pooling": 0}, {"channels": ()}, {"channels": (4, 0)},
     {"hidden": (3, 0)}, {"shape": (0, 8, 8)}, {"shape": (1, 8, 0)}],
)  # fmt: skip
def test_sizes_below_one_are_refused(changed):
    arguments = {"shape": (1, 8, 8), "channels": (2,), "hidden": (3,)} | changed
    with pytest.raises(InputError, match="needs at least one layer, and channels, units, kernel"):
        Convolutional(**arguments)


def test_an_unknown_activation_is_refused():
    with pytest.raises(InputError, match=r"unknown activation 'rleu'\. Did you mean 'relu'"):
        Convolutional((1, 8, 8), (2,), (3,), activation="rleu")


@pytest.mark.parametrize(("hidden", "frozen"), [((3, 2), 4), ((), 2), ((3, 2), -1)])
def test_constant_layers_that_there_are_not_are_refused(hidden, frozen):
    net = Convolutional((1, 8, 8), (2,), hidden)
    message = rf"the number of convolutional and hidden layers \({1 + len(hidden)}\), got {frozen}"
    with pytest.raises(InputError, match=message):
        net.head(frozen)


def test_stan_has_none():
    with pytest.raises(SemistanError, match="no Stan program"):
        Convolutional.stan_text(several=False, predictors=False, kernel=False)
    with pytest.raises(SemistanError, match="no Stan program"):
        Convolutional.stan_sizes([])
