import resource

import numpy as np
import pytest
import torch

from semistan.errors import InputError
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.subspace.construction import construction
from semistan.subspace.measures import measure, state_of
from semistan.subspace.subnetwork import largest
from semistan.subspace.trajectory import train_and_average
from support.random_problem import naive_ggn, random_problem, units_for

SELECT = ("variance", "magnitude", "swag", "last_layer")
TRAIN = TrainConfig(epochs=30, learning_rate=0.05, validation=0.0, device="cpu")


def constructed(problem, k, name="subnetwork", progress=None, train=TRAIN, **settings):
    config = SubspaceConfig(construction=name, k=k, snapshots=5, **settings)
    generator = torch.Generator().manual_seed(3)
    return construction(name)(problem, units_for(problem), config, train, generator, progress)


def naive_deviations(problem, trained):
    """Each weight's posterior standard deviation under the diagonal of the looped H."""
    state = state_of(problem, units_for(problem), trained)
    return 1 / np.sqrt(np.diag(naive_ggn(problem, state)))


def order(scores, k):
    return sorted(range(len(scores)), key=lambda j: -scores[j])[:k]


@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli"])
def test_the_weights_of_largest_variance_are_those_of_a_loop(name):
    problem, _ = random_problem(name, hidden=(4, 3))
    trained = constructed(problem, 6)
    deviations = naive_deviations(problem, trained)
    assert trained.subspace.axes.tolist() == order(deviations, 6)
    assert np.allclose(trained.singular_values, deviations[trained.subspace.axes], rtol=1e-10)


def test_the_weights_of_largest_magnitude():
    problem, _ = random_problem(hidden=(4, 3))
    trained = constructed(problem, 6, select="magnitude")
    sizes = np.abs(trained.control_points[0])
    assert trained.subspace.axes.tolist() == order(sizes, 6)
    assert np.array_equal(trained.singular_values, sizes[trained.subspace.axes])


def test_the_weights_that_vary_most_along_the_path():
    problem, _ = random_problem(hidden=(4, 3))
    trained = constructed(problem, 6, select="swag")
    path = train_and_average(problem, 5, TRAIN, torch.Generator().manual_seed(3))
    assert trained.subspace.axes.tolist() == order(path.variance, 6)
    assert np.allclose(trained.singular_values**2, path.variance[trained.subspace.axes])
    assert np.array_equal(trained.subspace.p_bar, path.w)
    assert np.array_equal(trained.history["loss"], path.history["loss"])


def test_the_last_layers_weights_of_largest_variance():
    problem, _ = random_problem(hidden=(4, 3))
    last = np.arange(problem.network.d - 4, problem.network.d)  # three weights and a bias
    trained = constructed(problem, 2, select="last_layer")
    deviations = naive_deviations(problem, trained)[last]
    assert trained.subspace.axes.tolist() == [last[j] for j in order(deviations, 2)]
    whole = constructed(problem, 4, select="last_layer").subspace.axes
    assert sorted(whole) == last.tolist()


@pytest.mark.parametrize("hidden", [(4, 6), ()], ids=str)
def test_more_weights_than_the_last_layer_has_are_refused_before_training(hidden):
    problem, _ = random_problem(hidden=hidden, Q=3 if hidden else 6)
    seen = []
    with pytest.raises(InputError, match=r"7 weights, got k = 8|d = 7, got k = 8"):
        constructed(problem, 8, select="last_layer", progress=lambda *record: seen.append(record))
    assert not seen


def test_the_rules_select_different_weights():
    problem, _ = random_problem(hidden=(4, 3))
    chosen = {frozenset(constructed(problem, 4, select=select).subspace.axes) for select in SELECT}
    assert len(chosen) == len(SELECT)


@pytest.mark.parametrize("select", SELECT)
def test_the_others_stay_as_trained(select):
    problem, _ = random_problem(hidden=(4, 3))
    trained = constructed(problem, 4, select=select)
    subspace = trained.subspace
    assert (subspace.origin, subspace.k) == ("subnetwork", 4)
    assert np.array_equal(subspace.lift(np.zeros(4)), trained.control_points[0])
    moved = np.flatnonzero(subspace.lift(np.ones(4)) != trained.control_points[0])
    assert moved.tolist() == sorted(subspace.axes)


def test_of_equal_weights_the_first_is_selected():
    problem, _ = random_problem(hidden=(4,), activation="relu")
    off = torch.arange(problem.network.d)[4 * 3 : 4 * 4]  # the hidden layer's biases
    trained = constructed(problem, 8)
    state = state_of(problem, units_for(problem), trained)
    state.w[off] = -100.0  # no unit is ever active: all but the output's bias have the prior
    deviations = 1 / np.sqrt(np.diag(naive_ggn(problem, state)))
    assert np.unique(deviations[:-1]).tolist() == [1.0]
    assert largest(deviations, np.arange(len(deviations)), 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("select", ["variance", "magnitude"])
def test_a_subnetwork_of_all_weights_spans_what_the_full_space_does(select):
    problem, _ = random_problem(hidden=(4, 3))
    d = problem.network.d
    sub = constructed(problem, d, select=select)
    whole = constructed(problem, 2, "full")
    assert np.array_equal(sub.control_points, whole.control_points)
    assert np.array_equal(sub.theta, whole.theta)
    assert sorted(sub.subspace.axes) == whole.subspace.axes.tolist() == list(range(d))
    points = np.random.default_rng(0).normal(size=(3, d))
    for subspace in (sub.subspace, whole.subspace):
        assert np.allclose(subspace.lift(subspace.project(points)), points, atol=1e-15)
    for trained in (sub, whole):
        assert measure(problem, units_for(problem), trained).relative_error < 1e-12


def test_in_the_full_space_phi_is_w():
    problem, _ = random_problem(hidden=(4, 3))
    trained = constructed(problem, 2, "full")
    subspace, points = (
        trained.subspace,
        np.random.default_rng(0).normal(size=(3, problem.network.d)),
    )
    assert (subspace.origin, subspace.k) == ("full", problem.network.d)
    assert np.array_equal(subspace.lift(points), points)
    assert np.array_equal(subspace.project(trained.control_points), trained.control_points)
    assert trained.control_points.any()
    assert np.array_equal(trained.singular_values, subspace.phi_scale)


def test_many_weights_take_no_large_matrix():
    problem, _ = random_problem(hidden=(316, 315), n=100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trained = constructed(problem, 2000, train=TrainConfig(epochs=1, device="cpu"))
    assert (trained.subspace.d, trained.subspace.k) == (101_435, 2000)
    assert trained.subspace.Pi.size == 0
    phi = np.random.default_rng(0).normal(size=(3, 2000))
    again = trained.subspace.project(trained.subspace.lift(phi))
    assert np.allclose(again, phi, rtol=1e-9, atol=1e-15)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kilobytes < 1_000_000, "2000 dense columns have 1.6 GB, a square matrix 82 GB"
