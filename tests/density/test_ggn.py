from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.density import ggn
from semistan.density.ggn import (
    diagonal_ggn,
    full_ggn,
    kronecker_ggn,
    likelihood_curvature,
    linearise,
    onto,
)
from semistan.density.problem import Weights
from semistan.model.families.families import FAMILIES
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.mlp import layer_slices
from semistan.model.subspace import Subspace
from support.random_problem import (
    naive_curvature,
    naive_ggn,
    naive_jacobian,
    network_output,
    random_problem,
    with_precision,
)

NAMES = ("gaussian", "poisson", "bernoulli")
NETWORKS = [
    {"hidden": ()},
    {"hidden": (4,)},
    {"hidden": (4, 3)},
]


def dense(precision, d):
    """H (d, d) from the inverse's root."""
    root = precision.root(torch.eye(d, dtype=torch.float64)).numpy()
    return np.linalg.inv(root @ root)


def naive_kronecker(problem, state, prior_precision):
    """Each layer's block as a loop over pairs of weights."""
    J, h = naive_jacobian(problem, state), naive_curvature(problem, state)
    H = prior_precision * np.eye(len(state.w))
    for number, (weights, biases, m, n) in enumerate(problem.network.parts[0].layers()):
        g, a = J[:, biases], layer_inputs(problem, state, number)
        G, A = (g.T * h) @ g / len(problem), a.T @ a
        position = np.column_stack(
            [np.arange(weights.start, weights.stop).reshape(n, m), np.arange(len(J[0]))[biases]]
        )
        for u, v in np.ndindex(n, n):
            for i, j in np.ndindex(m + 1, m + 1):
                H[position[u, i], position[v, j]] += G[u, v] * A[i, j]
    return H


def layer_inputs(problem, state, layer):
    """Inputs of a layer and 1, (N, m + 1), for tanh networks, by NumPy."""
    h = problem.U.numpy()
    for weights, biases, m, n in layer_slices(problem.network.parts[0].widths)[:layer]:
        h = np.tanh(h @ state.w[weights].numpy().reshape(n, m).T + state.w[biases].numpy())
    return np.column_stack([h, np.ones(len(h))])


@pytest.mark.parametrize("name", NAMES)
def test_the_curvature_of_the_likelihood_has_its_closed_form(name):
    problem, state = random_problem(name)
    h = likelihood_curvature(problem, state, network_output(problem, state))
    assert np.allclose(h, naive_curvature(problem, state), rtol=1e-12)


@pytest.mark.parametrize("record", FAMILIES, ids=lambda record: record.name)
def test_the_curvature_of_every_family_is_the_second_difference_of_its_log_likelihood(record):
    problem, state = random_problem(record.name)
    f = network_output(problem, state)
    eta, step = problem.eta(state.theta, f), 1e-3
    dispersion = problem.dispersion(state.log_dispersion) | problem.given
    below, at, above = (
        record.log_lik(problem.y, eta + shift, dispersion) for shift in (-step, 0, step)
    )
    expected = (-(below - 2 * at + above) / step**2).clamp(min=0)
    assert np.allclose(likelihood_curvature(problem, state, f), expected, rtol=1e-4, atol=1e-6)


def test_a_negative_curvature_counts_as_none():
    problem, state = random_problem()
    cauchy = replace(problem.family, log_lik=lambda y, eta, _: -((y - eta) ** 2).log1p())
    problem = replace(problem, family=cauchy, y=problem.y * torch.linspace(0, 9, len(problem)))
    f = network_output(problem, state)
    square = (problem.y - problem.eta(state.theta, f)).square()
    closed = 2 * (1 - square) / (1 + square) ** 2
    assert (closed < 0).any()
    assert np.allclose(likelihood_curvature(problem, state, f), closed.clamp(min=0), atol=1e-14)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_derivatives_are_those_of_a_loop(network, activation):
    problem, state = random_problem(activation=activation, **network)
    part = linearise(problem, state)
    assert np.allclose(part.J, naive_jacobian(problem, state), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("prior_precision", [1.0, 0.04])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_and_its_diagonal_are_those_of_a_loop(name, network, prior_precision):
    problem, state = random_problem(name, **network)
    H = naive_ggn(problem, state, prior_precision)
    problem = with_precision(problem, prior_precision)
    assert np.allclose(full_ggn(problem, state), H, rtol=1e-11, atol=1e-13)
    diagonal = diagonal_ggn(problem, state)
    assert np.allclose(diagonal.values, np.diag(H), rtol=1e-11)
    assert np.allclose(dense(diagonal, len(H)), np.diag(np.diag(H)), rtol=1e-11)


@pytest.mark.parametrize("prior_precision", [1.0, 0.04])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_the_kronecker_factors_are_those_of_a_loop(name, network, prior_precision):
    problem, state = random_problem(name, **network)
    H = naive_kronecker(problem, state, prior_precision)
    found = dense(kronecker_ggn(with_precision(problem, prior_precision), state), len(H))
    assert np.allclose(found, H, rtol=1e-8, atol=1e-8 * np.abs(H).max())


def test_the_kronecker_factors_of_a_linear_gaussian_network_are_exact():
    problem, state = random_problem(hidden=())
    H = naive_ggn(problem, state)
    assert np.allclose(dense(kronecker_ggn(problem, state), len(H)), H, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_kronecker_blocks_of_one_row_are_exact(name):
    problem, state = random_problem(name, hidden=(4, 3), n=1)
    H, found = naive_ggn(problem, state), dense(kronecker_ggn(problem, state), len(state.w))
    for weights, biases, *_ in problem.network.parts[0].layers():
        block = slice(weights.start, biases.stop)
        assert np.allclose(found[block, block], H[block, block], rtol=1e-8, atol=1e-9)
        H[block, block] = found[block, block] = 0
    assert np.abs(H).max() > 1e-3, "layers do depend on each other"
    assert np.abs(found).max() < 1e-12


@pytest.mark.parametrize("curvature", [diagonal_ggn, kronecker_ggn])
def test_the_root_is_symmetric(curvature):
    problem, state = random_problem(hidden=(4, 3))
    root = curvature(problem, state).root(torch.eye(len(state.w), dtype=torch.float64))
    assert np.allclose(root, root.T, atol=1e-14)


@pytest.mark.parametrize("curvature", [diagonal_ggn, kronecker_ggn, full_ggn])
def test_chunks_of_rows_change_nothing(curvature, monkeypatch):
    problem, state = random_problem("poisson", n=23)

    def value():
        H = curvature(problem, state)
        return np.asarray(H) if curvature is full_ggn else dense(H, len(state.w))

    whole = value()
    monkeypatch.setattr(ggn, "CHUNK", 7 * problem.network.d)
    assert [len(part.J) for part in ggn.linearised_chunks(problem, state)] == [7, 7, 7, 2]
    assert np.allclose(value(), whole, rtol=1e-10, atol=1e-12)


def test_the_state_is_not_changed_and_carries_no_gradients():
    problem, state = random_problem()
    w = state.w.clone()
    part = linearise(problem, Weights(w, state.theta, state.log_dispersion))
    assert torch.equal(w, state.w)
    assert not any(tensor.requires_grad for tensor in (w, part.J, part.h, part.inputs))


def test_derivatives_in_the_subspace_are_the_product_with_its_directions():
    problem, state = random_problem()
    generator = np.random.default_rng(1)
    d = problem.network.d
    subspace = Subspace(np.zeros(d), generator.normal(size=(d, 2)), "test", np.ones(5),
                        np.array([7, 0, 3]))  # fmt: skip
    J = naive_jacobian(problem, state)
    assert np.allclose(onto(subspace, torch.tensor(J)), J @ subspace.matrix, rtol=1e-13)
