"""theta is solved for once the network is trained, and hardly depends on how it was trained."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from semistan.density.problem import TensorColumns, make_problem
from semistan.model.config import TrainConfig
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.families.families import FAMILIES
from semistan.model.names import MU
from semistan.subspace import coefficients
from semistan.subspace.coefficients import mean_theta, settle, theta_at
from semistan.subspace.descent import Parameters, descend, initial_parameters
from support.random_problem import random_problem
from support.small import family_bundle, small_bundle, small_frame

SHAPES = [{}, {"hidden": ()}, {"hidden": (5, 3), "activation": "relu"}]
LOG_DENSITIES = {
    "gaussian": lambda eta, at: stats.norm(eta, at["sigma"]).logpdf,
    "poisson": lambda eta, _: stats.poisson(np.exp(eta)).logpmf,
    "bernoulli": lambda eta, _: stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf,
    "student": lambda eta, at: stats.t(at["nu"], eta, at["sigma"]).logpdf,
    "gamma": lambda eta, at: stats.gamma(at["shape"], scale=np.exp(eta) / at["shape"]).logpdf,
}


def inputs_of_the_output_layer(problem, state):
    """The output layer's inputs and 1, in NumPy, one layer at a time."""
    functions = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}
    weights, h = state.w.numpy(), problem.U.numpy()
    for m, n in pairwise(problem.network.parts[0].widths[:-1]):
        W, b, weights = weights[: m * n].reshape(n, m), weights[m * n :][:n], weights[(m + 1) * n :]
        h = functions[problem.network.activation](h @ W.T + b)
    return np.column_stack([h, np.ones(len(h))]), weights


def scipys_theta(problem, state):
    """theta of the penalised generalised linear model, by SciPy."""
    h, centre = inputs_of_the_output_layer(problem, state)
    A, y = np.column_stack([problem.Z.numpy(), h]), problem.y.numpy()
    P = A.shape[1] - len(centre)
    at = {key: float(value) for key, value in problem.dispersion(state.log_dispersion).items()}

    def objective(beta):
        eta = problem.eta_loc + problem.eta_scale * (A @ beta)
        log_lik = LOG_DENSITIES[problem.family.name](eta, at)(y).sum()
        penalty = (beta[:P] ** 2).sum() / 2.5**2 + ((beta[P:] - centre) ** 2).sum()
        return 0.5 * penalty - log_lik

    start = np.concatenate([np.zeros(P), centre])
    return minimize(objective, start, method="BFGS", options={"gtol": 1e-7}).x[:P]


def with_columns(problem, Z):
    """The problem with other structured columns."""
    return replace(problem, columns={MU: TensorColumns(Z)})


def curve_of(problem, state, points, seed=0):
    """A curve of random control points around the state."""
    noise = np.random.default_rng(seed).normal(scale=0.5, size=(points, len(state.w)))
    control_points = state.w + torch.tensor(noise)
    return Parameters(control_points, state.theta, state.log_dispersion)


@pytest.mark.parametrize("name", LOG_DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_theta_at_a_point_is_that_of_a_penalised_glm_by_scipy(name, shape):
    problem, state = random_problem(name, n=60, **shape)
    assert np.allclose(theta_at(problem, state), scipys_theta(problem, state), atol=1e-5)


def test_one_step_is_ridge_regression(monkeypatch):
    monkeypatch.setattr(coefficients, "STEPS", 1)
    problem, state = random_problem(n=40)
    h, centre = inputs_of_the_output_layer(problem, state)
    A, sigma = np.column_stack([problem.Z.numpy(), h]), float(state.log_dispersion.exp())
    y = (problem.y.numpy() - problem.eta_loc) / problem.eta_scale
    ridge = np.diag([2.5**-2] * 2 + [1.0] * len(centre))
    right = A.T @ y / sigma**2 + ridge @ np.concatenate([np.zeros(2), centre])
    expected = np.linalg.solve(A.T @ A / sigma**2 + ridge, right)
    assert np.allclose(theta_at(problem, state), expected[:2], rtol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
@pytest.mark.parametrize("points", [2, 6])
def test_theta_is_the_mean_over_the_curve(name, points):
    problem, state = random_problem(name)
    curve, t = curve_of(problem, state, points), np.linspace(0, 1, 201)
    basis = np.array([stats.binom(points - 1, s).pmf(np.arange(points)) for s in t])
    along = [theta_at(problem, curve.at(row)).numpy() for row in torch.tensor(basis)]
    expected, width = np.trapezoid(along, t, axis=0), np.ptp(along, axis=0)
    assert (np.abs(mean_theta(problem, curve).numpy() - expected) < 0.01 * width).all()


@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_theta_does_not_depend_on_where_descent_left_it(name):
    problem, state = random_problem(name)
    one, other = (
        theta_at(problem, replace(state, theta=torch.tensor(theta, dtype=torch.float64)))
        for theta in ([0.0, 0.0], [2.0, -1.0])
    )
    assert np.allclose(one, other, atol=1e-6)


def test_a_start_from_which_whole_steps_overshoot_ends_in_the_same_place():
    problem, state = random_problem("poisson")
    far = replace(state, theta=torch.tensor([-9.0, 9.0], dtype=torch.float64))
    assert np.allclose(theta_at(problem, far), theta_at(problem, state), atol=1e-6)


@pytest.mark.parametrize("record", FAMILIES, ids=lambda record: record.name)
@pytest.mark.parametrize("wide", [False, True])
def test_collinear_columns_and_more_columns_than_rows_have_a_finite_theta(record, wide):
    problem, state = random_problem(record.name, n=60)
    Z = problem.Z[:, [0, 1, 0]]
    if wide:
        Z = torch.tensor(np.random.default_rng(1).normal(size=(60, 200)))
    zeros = torch.zeros(Z.shape[1], dtype=torch.float64)
    theta = theta_at(with_columns(problem, Z), replace(state, theta=zeros))
    assert theta.isfinite().all()
    assert 0 < theta.abs().max() < 10
    assert wide or abs(theta[0] - theta[2]) < 1e-6


def test_collinear_columns_under_a_nearly_exact_fit_have_a_finite_theta():
    problem, state = random_problem(n=60)
    sharp = replace(state, log_dispersion=torch.tensor([-18.0], dtype=torch.float64),
                    theta=torch.zeros(3, dtype=torch.float64))  # fmt: skip
    theta = theta_at(with_columns(problem, problem.Z[:, [0, 1, 0]]), sharp)
    assert theta.isfinite().all()
    assert theta.abs().max() < 10


def test_separated_responses_have_a_finite_theta():
    problem, state = random_problem("bernoulli")
    y = (problem.Z[:, 0] > 0).to(torch.float64)
    theta = theta_at(replace(problem, y=y), state)
    assert 1 < theta[0] < 10


def test_rows_are_taken_a_few_at_a_time(monkeypatch):
    problem, state = random_problem("bernoulli")
    whole, columns = theta_at(problem, state), 2 + 5
    monkeypatch.setattr(coefficients, "CHUNK", 7 * columns)
    assert np.allclose(theta_at(problem, state), whole, rtol=1e-9)


def test_nothing_but_theta_changes_and_what_is_given_is_left_alone():
    problem, state = random_problem()
    curve = curve_of(problem, state, 3)
    before = [tensor.clone() for tensor in curve.tensors()]
    settled = settle(problem, curve)
    assert all(map(torch.equal, curve.tensors(), before))
    for field in ("control_points", "log_dispersion"):
        assert torch.equal(getattr(settled, field), getattr(curve, field))
    assert not torch.equal(settled.theta, curve.theta)


def test_theta_of_the_control_points_own_stays():
    problem, state = random_problem()
    own = replace(curve_of(problem, state, 3), theta=torch.ones(3, 2, dtype=torch.float64))
    assert settle(problem, own) is own


def test_without_coefficients_there_is_nothing_to_solve():
    problem, state = random_problem()
    none = replace(curve_of(problem, state, 3), theta=torch.zeros(0, dtype=torch.float64))
    assert settle(with_columns(problem, problem.Z[:, :0]), none) is none
    assert small_bundle("y ~ nn(u)")[0].trained.theta.shape == (0,)


@pytest.mark.parametrize("name", sorted(set(CONSTRUCTIONS) - {"naive"}))
@pytest.mark.parametrize("response", ["gaussian", "poisson"])
def test_every_construction_hands_over_the_solution_given_all_rows(name, response):
    bundle, rows = family_bundle(
        response, subspace__construction=name, subspace__snapshots=5, train__validation=0.3
    )
    trained, units = bundle.trained, bundle.units
    problem = make_problem(bundle.model, rows, "cpu")
    state = Parameters(
        torch.tensor(trained.control_points),
        torch.zeros(len(trained.theta), dtype=torch.float64),
        torch.tensor(problem.log_dispersion(trained.dispersion)),
    )  # fmt: skip
    found = trained.theta / units.theta_scale
    whole, few = (
        mean_theta(part, state).numpy() for part in (problem, problem.rows(torch.arange(25)))
    )
    assert np.allclose(found, whole, atol=1e-6)
    assert np.abs(found - few).max() > 1e-3


@pytest.mark.parametrize("name", ["bezier", "curve", "pca", "random", "full"])
def test_these_subspaces_are_what_descent_found(monkeypatch, name):
    settings = {"subspace__construction": name, "subspace__snapshots": 5, "train__epochs": 20}
    solved = family_bundle("poisson", **settings)[0].trained
    monkeypatch.setattr(coefficients, "mean_theta", lambda _, left: left.theta)
    left = family_bundle("poisson", **settings)[0].trained
    assert np.array_equal(solved.control_points, left.control_points)
    assert np.array_equal(solved.subspace.Pi, left.subspace.Pi)
    assert np.abs(solved.theta - left.theta).max() > 0


def test_the_linear_model_is_least_squares_however_it_was_trained():
    for rate in (1e-6, 1e-2):
        bundle, rows = small_bundle(
            "y ~ x + nn(u)", small_frame(200), network__hidden=[], subspace__k=1, train__epochs=30,
            train__learning_rate=rate,
        )  # fmt: skip
        A = np.column_stack([np.ones(len(rows.y)), rows.X, rows.U])
        solution, rss, *_ = np.linalg.lstsq(A, rows.y, rcond=None)
        error = np.sqrt(np.linalg.inv(A.T @ A)[1, 1] * rss[0] / (len(A) - 3))
        assert abs(bundle.trained.theta[0] - solution[1]) < 0.1 * error


@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.lengthy
def test_the_spread_over_seeds_and_learning_rates_is_at_most_half_of_descents(name):
    problem = random_problem(name, n=300, seed=3)[0]
    left, solved = [], []
    for rate in (5e-3, 1e-4):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            start = initial_parameters(problem, 3, generator)
            options = TrainConfig(epochs=300, learning_rate=rate)
            best, _ = descend(problem, start, options, generator)
            left.append(best.theta.numpy())
            solved.append(settle(problem, best).theta.numpy())
    spread = [np.sqrt(np.var(values, axis=0, ddof=1).mean()) for values in (left, solved)]
    assert spread[1] < 0.5 * spread[0]
