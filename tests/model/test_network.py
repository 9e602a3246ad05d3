import numpy as np
import pytest
import torch

from semistan.errors import InputError
from semistan.model.networks.activations import ACTIVATIONS, activate
from semistan.model.networks.mlp import FullyConnected, initial_weights, layer_slices, n_weights
from support.by_hand import FUNCTIONS, naive_network

HIDDEN = ((), (4,), (4, 3), (3, 2, 4, 2))


def evaluate(spec, w, u):
    return spec.forward(torch.tensor(w), torch.tensor(u))[..., 0].numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
def test_the_network_is_a_naive_loop_over_its_layers(activation, hidden):
    spec = FullyConnected(3, hidden, activation)
    generator = np.random.default_rng(len(hidden))
    w, u = generator.normal(size=(2, spec.d)), generator.normal(size=(5, 3))
    expected = [[naive_network(spec.widths, one, row, activation) for row in u] for one in w]
    # sums of at most 5 products a layer: rounding stays far below 1e-12 of these values
    assert np.allclose(evaluate(spec, w, u), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3), (2, 1, 2)])
def test_leading_axes_of_the_weights_are_a_batch(batch):
    spec = FullyConnected(2, (3, 2), "tanh")
    generator = np.random.default_rng(0)
    w, u = generator.normal(size=(*batch, spec.d)), generator.normal(size=(5, 2))
    f = evaluate(spec, w, u)
    assert f.shape == (*batch, 5)
    for index in np.ndindex(batch):
        assert np.allclose(f[index], evaluate(spec, w[index], u), rtol=1e-13, atol=1e-15)


def test_weights_lie_as_in_pytorch():
    spec = FullyConnected(3, (4, 2), "tanh")
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2), torch.nn.Tanh(),
        torch.nn.Linear(2, 1),
    ).double()  # fmt: skip
    flat = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    u = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
    expected = module(u)[:, 0].detach()
    assert len(flat) == spec.d
    assert np.allclose(evaluate(spec, flat.numpy(), u.numpy()), expected, rtol=1e-13)


def test_the_slices_cover_the_weights_once_and_in_order():
    slices = layer_slices((3, 4, 1))
    assert slices == [
        (slice(0, 12), slice(12, 16), 3, 4),
        (slice(16, 20), slice(20, 21), 4, 1),
    ]


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("frozen", range(-1, 6))
def test_a_head_is_what_is_behind_the_leading_layers(hidden, frozen):
    spec = FullyConnected(7, hidden, "relu")
    if not 0 <= frozen <= len(hidden):
        with pytest.raises(InputError, match=f"between 0 and .*{len(hidden)}.*got {frozen}"):
            spec.head(frozen)
        return
    widths = (7, *hidden, 1)
    sizes = [widths[i] * widths[i + 1] + widths[i + 1] for i in range(len(widths) - 1)]
    head = spec.head(frozen)
    assert head == FullyConnected(widths[frozen], hidden[frozen:], "relu")
    assert (head.widths, head.activation) == (widths[frozen:], "relu")
    assert (spec.d, head.d) == (sum(sizes), sum(sizes[frozen:]))
    assert n_weights(spec.widths) == sum(sizes)


@pytest.mark.parametrize("value", [-750.0, -30.0, -1e-9, 0.0, 1e-9, 30.0, 750.0])
@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus", "identity"])
def test_activations_are_exact_far_out_and_near_zero(activation, value):
    z = torch.tensor([value], dtype=torch.float64)
    assert activate(z, activation).item() == pytest.approx(
        FUNCTIONS[activation](value), rel=1e-14, abs=0
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_have_finite_gradients_everywhere(activation):
    z = torch.tensor([-750.0, 0.0, 750.0], dtype=torch.float64, requires_grad=True)
    activate(z, activation).sum().backward()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, (3,), "tanhh"), "unknown activation 'tanhh'. Did you mean 'tanh'?"),
        ((0, (3,), "tanh"), "at least one unit"),
        ((2, (3, 0), "tanh"), "at least one unit"),
    ],
)
def test_an_impossible_network_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        FullyConnected(*arguments)
    assert message in str(caught.value)


def test_initial_weights_lie_within_pytorchs_bounds_and_fill_them():
    w = initial_weights((100, 200, 1), torch.Generator().manual_seed(1)).numpy()
    first, last = w[: 101 * 200], w[101 * 200 :]
    for part, bound in ((first, 100**-0.5), (last, 200**-0.5)):
        assert np.abs(part).max() <= bound
        error = bound**2 * np.sqrt(4 / 45 / part.size)  # of the variance of a uniform sample
        assert abs(part.var() - bound**2 / 3) < 5 * error


def test_a_network_without_layers_has_no_initial_weights():
    assert initial_weights((3,), torch.Generator()).shape == (0,)
