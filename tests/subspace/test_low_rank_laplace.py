import resource

import numpy as np
import pytest
import torch

from semistan.density.ggn import diagonal_ggn, kronecker_ggn
from semistan.errors import InputError, SemistanError
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.subspace import along
from semistan.subspace import leading
from semistan.subspace import low_rank_laplace as module
from semistan.subspace.construction import construction
from semistan.subspace.leading import directions_of
from semistan.subspace.measures import relative_error, state_of
from support.random_problem import (
    naive_ggn,
    naive_jacobian,
    network_output,
    random_problem,
    units_for,
)

CURVATURES = {"diagonal": diagonal_ggn, "kronecker": kronecker_ggn}


def constructed(problem, k, name="low_rank_laplace", epochs=30, progress=None, **settings):
    config = SubspaceConfig(construction=name, k=k, **settings)
    options = TrainConfig(epochs=epochs, learning_rate=0.05, validation=0.0, device="cpu")
    generator = torch.Generator().manual_seed(3)
    return construction(name)(problem, units_for(problem), config, options, generator, progress)


def error_of(problem, state, subspace):
    return relative_error(problem, problem, state, subspace)[0]


def directions(Pi):
    return along(np.zeros(len(Pi)), Pi, "test")


def best_error(problem, state, k):
    """The error of the nearest covariance of rank k (Eckart and Young)."""
    J = naive_jacobian(problem, state)
    values = np.linalg.svd(J @ np.linalg.inv(naive_ggn(problem, state)) @ J.T)[1]
    return np.linalg.norm(values[k:]) / np.linalg.norm(values)


class Exact:
    """The whole H, by its eigenvectors."""

    def __init__(self, H):
        values, vectors = np.linalg.eigh(H)
        self.inverse_root = torch.tensor(vectors / np.sqrt(values) @ vectors.T)

    def root(self, rows):
        return rows @ self.inverse_root


@pytest.mark.parametrize("rank", [1, 3])
def test_as_many_directions_as_the_rank_reproduce_a_linear_networks_covariance(rank):
    problem, _ = random_problem(hidden=(), Q=6, rank=rank)
    trained = constructed(problem, rank + 1, curvature="kronecker")
    state = state_of(problem, units_for(problem), trained)
    assert np.linalg.matrix_rank(naive_jacobian(problem, state)) == rank + 1
    assert error_of(problem, state, trained.subspace) < 1e-8


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.lengthy
def test_no_subspace_of_a_linear_network_has_a_smaller_error(k):
    problem, _ = random_problem(hidden=(), Q=6, rank=3)
    trained = constructed(problem, k, curvature="kronecker")
    state = state_of(problem, units_for(problem), trained)
    least = error_of(problem, state, trained.subspace)
    assert least == pytest.approx(best_error(problem, state, k), rel=1e-10)
    generator = np.random.default_rng(0)
    for _ in range(50):
        other = generator.normal(size=(problem.network.d, k))
        assert error_of(problem, state, directions(other)) > least
        near = trained.subspace.Pi + 0.02 * other
        assert error_of(problem, state, directions(near)) > least
    for name in ("bezier", "pca", "random", "subnetwork"):
        assert error_of(problem, state, constructed(problem, k, name).subspace) > least, name


@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_with_the_exact_curvature_the_error_is_the_least_of_its_rank(name, k):
    problem, state = random_problem(name, hidden=(4, 3))
    J = torch.tensor(naive_jacobian(problem, state))
    Pi, _ = directions_of(J, Exact(naive_ggn(problem, state)), k)
    least = error_of(problem, state, directions(Pi))
    assert least == pytest.approx(best_error(problem, state, k), rel=1e-8)
    noise = np.random.default_rng(0).normal(size=(20, *Pi.shape))
    assert all(error_of(problem, state, directions(Pi + 0.02 * step)) > least for step in noise)


@pytest.mark.parametrize("curvature", CURVATURES)
def test_the_directions_are_those_of_theorem_1_with_the_approximate_curvature(curvature):
    problem, _ = random_problem("poisson", hidden=(4, 3))
    trained = constructed(problem, 5, curvature=curvature)
    state, Pi = state_of(problem, units_for(problem), trained), trained.subspace.Pi
    root = CURVATURES[curvature](problem, state).root(torch.eye(len(Pi), dtype=torch.float64))
    Psi, J = (root @ root).numpy(), naive_jacobian(problem, state)
    values, vectors = np.linalg.eigh(J @ Psi @ J.T)
    expected = Psi @ J.T @ vectors[:, ::-1][:, :5]
    assert np.allclose(trained.singular_values**2, values[::-1][:5], rtol=1e-8)
    for j in range(1, 6):
        left = expected[:, j - 1] - Pi[:, :j] @ (Pi[:, :j].T @ expected[:, j - 1])
        assert np.linalg.norm(left) < 1e-8 * np.linalg.norm(expected[:, j - 1]), j


@pytest.mark.parametrize("curvature", CURVATURES)
def test_the_directions_are_orthonormal_and_nested_and_their_signs_are_fixed(curvature):
    problem, _ = random_problem(hidden=(4, 3))
    few, many = (constructed(problem, k, curvature=curvature).subspace.Pi for k in (3, 7))
    assert np.allclose(many.T @ many, np.eye(7), atol=1e-13)
    assert np.allclose(many[:, :3], few, atol=1e-10)
    assert (many[np.abs(many).argmax(axis=0), np.arange(7)] > 0).all()


def test_the_curvatures_give_different_subspaces():
    problem, _ = random_problem(hidden=(4, 3))
    one, two = (
        constructed(problem, 3, curvature=curvature).subspace.Pi for curvature in CURVATURES
    )
    assert np.linalg.svd(one.T @ two)[1].min() < 0.99


def test_the_subspace_goes_through_the_trained_network(monkeypatch):
    monkeypatch.setattr(module, "settle", lambda _, best: best)
    problem, _ = random_problem()
    trained = constructed(problem, 3)
    assert trained.subspace.origin == "low_rank_laplace"
    assert trained.control_points.shape == (1, problem.network.d)
    assert np.array_equal(trained.subspace.p_bar, trained.control_points[0])
    state = state_of(problem, units_for(problem), trained)
    eta = problem.eta(state.theta, network_output(problem, state))
    log_lik = problem.family.log_lik(problem.y, eta, problem.dispersion(state.log_dispersion))
    assert -float(log_lik.mean()) == pytest.approx(trained.history["loss"].min(), rel=1e-12)


def test_the_predictions_of_a_long_table_are_those_of_some_random_rows(monkeypatch):
    problem, _ = random_problem(n=60)
    whole, seen = constructed(problem, 3).subspace.Pi, []
    monkeypatch.setattr(leading, "ROWS", 20)
    monkeypatch.setattr(
        leading, "directions_of", lambda J, *rest: seen.append(J) or directions_of(J, *rest)
    )
    first, again = constructed(problem, 3), constructed(problem, 3)
    constructed(problem, 13)
    assert [len(J) for J in seen] == [20, 20, 26]
    assert first.subspace.Pi.tobytes() == again.subspace.Pi.tobytes()
    assert not np.allclose(first.subspace.Pi, whole)
    rows = naive_jacobian(problem, state_of(problem, units_for(problem), first))
    nearest = np.abs(rows[:, None] - seen[0].numpy()).max(axis=2).argmin(axis=0)
    assert np.allclose(rows[nearest], seen[0], rtol=1e-12)
    assert len(set(nearest)) == 20
    assert (np.diff(nearest) < 0).any(), "not the first rows in their order"


def test_more_directions_than_rows_are_refused_before_training():
    problem, _ = random_problem(n=4)
    seen = []
    with pytest.raises(InputError, match=r"predictions of 4 rows, got k = 5; choose k <= 4"):
        constructed(problem, 5, progress=lambda *record: seen.append(record))
    assert not seen


def test_more_directions_than_the_predictions_have_are_an_error():
    problem, _ = random_problem(hidden=(), Q=6, rank=3)
    with pytest.raises(SemistanError, match=r"vary in 4 dimensions .* k = 5; choose k <= 4"):
        constructed(problem, 5)


@pytest.mark.lengthy
@pytest.mark.parametrize("curvature", CURVATURES)
def test_many_weights_take_no_square_matrix(curvature):
    problem, _ = random_problem(hidden=(316, 315), n=100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trained = constructed(problem, 50, epochs=1, curvature=curvature)
    assert (trained.subspace.d, trained.subspace.k) == (101_435, 50)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kilobytes < 1_500_000, "a square matrix has 82 GB"
