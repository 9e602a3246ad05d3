import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.subspace import Subspace, along, along_axes
from semistan.subspace import measures
from semistan.subspace.construction import construction
from semistan.subspace.descent import Parameters
from semistan.subspace.measures import measure, relative_error, state_of, trace_criterion
from semistan.subspace.result import trained_result
from support.random_problem import (
    naive_ggn,
    naive_jacobian,
    random_problem,
    units_for,
    with_precision,
)

CASES = [
    ("gaussian", {"hidden": (4,)}),
    ("poisson", {"hidden": (3, 3)}),
    ("bernoulli", {"hidden": (3, 2)}),
]


def hand(problem, state, subspace):
    """What a construction would hand over around the given state."""
    best = Parameters(state.w[None], state.theta, state.log_dispersion)
    return trained_result(problem, units_for(problem), best, {}, subspace, np.ones(subspace.k))


def mixed_subspace(d, seed=0):
    """Two axes and two directions of any length."""
    generator = np.random.default_rng(seed)
    Pi = 3 * generator.normal(size=(d, 2))
    return Subspace(generator.normal(size=d), Pi, "test", np.ones(4), np.array([d - 1, 0]))


def naive_covariances(problem, rows, state, P, prior_precision):
    """Sigma and Sigma_P (n, n) by their definitions."""
    H, J = naive_ggn(problem, state, prior_precision), naive_jacobian(rows, state)
    return J @ np.linalg.inv(H) @ J.T, J @ P @ np.linalg.inv(P.T @ H @ P) @ P.T @ J.T


def constructed(problem, name, k, **settings):
    config = SubspaceConfig(construction=name, k=k, **settings)
    options = TrainConfig(epochs=30, learning_rate=0.05, validation=0.0, device="cpu")
    generator = torch.Generator().manual_seed(3)
    return construction(name)(problem, units_for(problem), config, options, generator, None)


@pytest.mark.parametrize("prior_precision", [1.0, 0.04])
@pytest.mark.parametrize(("name", "network"), CASES)
def test_error_and_traces_are_those_of_the_definition(name, network, prior_precision):
    problem, state = random_problem(name, **network)
    rows, _ = random_problem(name, **network, n=11, seed=1)
    subspace = mixed_subspace(problem.network.d)
    sigma, sigma_P = naive_covariances(problem, rows, state, subspace.matrix, prior_precision)
    problem = with_precision(problem, prior_precision)
    found = measure(problem, units_for(problem), hand(problem, state, subspace), rows=rows)
    error = np.linalg.norm(sigma - sigma_P) / np.linalg.norm(sigma)
    assert 0.01 < error < 0.99
    assert found.relative_error == pytest.approx(error, rel=1e-9)
    assert found.trace == pytest.approx(np.trace(sigma_P), rel=1e-10)
    assert found.full_trace == pytest.approx(np.trace(sigma), rel=1e-10)


def test_the_rows_are_those_of_training_by_default():
    problem, state = random_problem()
    subspace = mixed_subspace(problem.network.d)
    sigma, sigma_P = naive_covariances(problem, problem, state, subspace.matrix, 1.0)
    found = measure(problem, units_for(problem), hand(problem, state, subspace))
    assert found.trace == pytest.approx(np.trace(sigma_P), rel=1e-10)
    assert found.full_trace == pytest.approx(np.trace(sigma), rel=1e-10)


def test_all_weights_keep_everything():
    problem, state = random_problem()
    d = problem.network.d
    whole = along_axes(np.zeros(d), np.arange(d), "full")
    found = measure(problem, units_for(problem), hand(problem, state, whole))
    assert found.relative_error < 1e-13
    assert found.trace == pytest.approx(found.full_trace, rel=1e-12)


def test_only_the_span_matters():
    problem, state = random_problem()
    generator = np.random.default_rng(2)
    Pi, mix = generator.normal(size=(problem.network.d, 3)), generator.normal(size=(3, 3))
    one, two = (
        measure(problem, units_for(problem), hand(problem, state, along(np.zeros(len(P)), P, "t")))
        for P in (Pi, 5 * Pi @ mix)
    )
    assert two.relative_error == pytest.approx(one.relative_error, rel=1e-10)
    assert two.trace == pytest.approx(one.trace, rel=1e-9)


def test_more_directions_keep_more():
    problem, state = random_problem()
    Pi = np.linalg.qr(np.random.default_rng(3).normal(size=(problem.network.d,) * 2))[0]
    found = [
        measure(problem, units_for(problem),
                hand(problem, state, along(np.zeros(len(Pi)), Pi[:, :k], "test")))
        for k in (1, 4, 8, 12, 16)
    ]  # fmt: skip
    assert (np.diff([m.relative_error for m in found]) < 0).all()
    assert (np.diff([m.trace for m in found]) > 0).all()
    assert found[-1].trace < found[-1].full_trace


def test_chunks_of_rows_change_nothing(monkeypatch):
    problem, state = random_problem("poisson")
    subspace = mixed_subspace(problem.network.d)
    given = (problem, problem, state, subspace)
    whole = (trace_criterion(*given), *relative_error(*given))
    monkeypatch.setattr("semistan.density.ggn.CHUNK", 7 * problem.network.d)
    assert np.allclose((trace_criterion(*given), *relative_error(*given)), whole, rtol=1e-11)


def test_large_matrices_are_not_formed(monkeypatch):
    problem, state = random_problem()
    d = problem.network.d
    monkeypatch.setattr(measures, "MOST", d - 1)
    found = measure(problem, units_for(problem), hand(problem, state, mixed_subspace(d)))
    assert np.isnan([found.relative_error, found.full_trace]).all()
    assert found.trace > 0
    whole = along_axes(np.zeros(d), np.arange(d), "full")
    assert np.isnan(measure(problem, units_for(problem), hand(problem, state, whole)).trace)


@pytest.mark.parametrize(("name", "network"), CASES)
def test_the_state_is_the_trained_one(name, network):
    problem, state = random_problem(name, **network)
    found = state_of(
        problem, units_for(problem), hand(problem, state, mixed_subspace(len(state.w)))
    )
    for field in ("w", "theta", "log_dispersion"):
        assert np.allclose(getattr(found, field), getattr(state, field), rtol=1e-14), field


def test_a_curve_is_linearised_at_its_centre_unless_weights_are_given():
    problem, _ = random_problem()
    trained = constructed(problem, "bezier", 2)
    units, w = units_for(problem), trained.control_points[1]
    assert np.array_equal(state_of(problem, units, trained).w, trained.subspace.p_bar)
    assert np.array_equal(state_of(problem, units, trained, w).w, w)
    at_centre, elsewhere = measure(problem, units, trained), measure(problem, units, trained, w=w)
    assert at_centre.trace != elsewhere.trace
    assert at_centre.arc_length == trained.arc_length > 0
    assert np.array_equal(at_centre.singular_values, trained.singular_values)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_the_trace_orders_subspaces_as_the_relative_error_does(name):
    problem, _ = random_problem(name, hidden=(6, 4), n=80)
    settings = [
        *[("low_rank_laplace", {"curvature": c}) for c in ("diagonal", "kronecker")],
        *[("subnetwork", {"select": s}) for s in ("variance", "magnitude")],
        ("random", {}),
    ]
    trained = [constructed(problem, method, k, **more) for method, more in settings
               for k in (2, 8, 20)]  # fmt: skip
    w = trained[0].control_points[0]
    found = [measure(problem, units_for(problem), each, w=w) for each in trained]
    errors, traces = ([getattr(m, f) for m in found] for f in ("relative_error", "trace"))
    assert kendalltau(errors, traces).statistic < -0.9
