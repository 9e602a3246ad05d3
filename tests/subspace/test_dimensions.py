"""Dimensions of single networks: ``nn(u, k=12) + nn(v, k=3)``."""

import numpy as np
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.target import log_prior, make_target
from semistan.errors import InputError, SemistanError
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along
from semistan.subspace.blocks import by_network
from semistan.subspace.construction import training_epochs
from semistan.subspace.narrow import along_its_curve
from semistan.workflow.dimension import resolved
from support.small import category_bundle, small_bundle, small_prepared

FORMULA = "y ~ x + nn(u, v, k=5) + nn(z, k=2)"
SAME = "y ~ x + nn(u, v) + nn(z)"
SIZES = (13, 10)  # weights of both networks


def networks(*dimensions):
    return Networks((FullyConnected(2, (3,)), FullyConnected(1, (3,))), (), dimensions)


def shared(spread, scale=None, seed=0):
    """A subspace in whose directions both networks move."""
    normal = np.random.default_rng(seed).normal(size=(sum(SIZES), len(spread)))
    return along(np.zeros(sum(SIZES)), np.linalg.qr(normal)[0], "test", scale)


def own_blocks(subspace, dimensions):
    """Pi's block (d_i, k_i) of each network; all else is checked to be 0."""
    Pi, row, column, found = subspace.Pi.copy(), 0, 0, []
    for d, k in zip(SIZES, dimensions, strict=True):
        place = slice(row, row + d), slice(column, column + k)
        found.append(subspace.Pi[place])
        Pi[place] = 0
        row, column = row + d, column + k
    assert Pi.shape == (row, column)
    assert not Pi.any()
    return found


def orthonormal(V):
    return np.allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-12)


# ----------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("dimensions", [(4, 4), (4, 1), (1, 4), (2, 3)], ids=str)
def test_each_network_keeps_the_leading_directions_of_its_rows(dimensions):
    spread = np.array([5.0, 2.0, 1.0, 0.5])
    subspace = shared(spread, spread / 4)
    split, values = by_network(networks(*dimensions), subspace, spread)
    start = 0
    blocks = own_blocks(split, dimensions)
    for V, block in zip(blocks, np.split(subspace.Pi * spread, [13]), strict=True):
        k = V.shape[1]
        S, U = np.linalg.eigh(block @ block.T)  # ascending
        leading = U[:, ::-1][:, :k]
        assert orthonormal(V)
        assert np.allclose(np.abs(np.sum(V * leading, axis=0)), 1, atol=1e-9)
        assert np.allclose(values[start : start + k], np.sqrt(S[::-1][:k]), rtol=1e-9)
        start += k
    assert np.allclose(split.phi_scale, values / 4, rtol=1e-12)
    assert start == split.k == len(values)


def test_directions_that_were_added_follow_those_of_the_curve():
    spread = np.array([3.0, 1.0, 0.0, 0.0, 0.0])
    subspace = shared(spread)
    split, values = by_network(networks(), subspace, spread)
    blocks = own_blocks(split, (5, 5))
    for number, (V, rows) in enumerate(zip(blocks, np.split(subspace.Pi, [13]), strict=True)):
        curve = np.linalg.svd(rows * spread)[1][:2]
        assert values[5 * number :][:5] == pytest.approx([*curve, 0, 0, 0], rel=1e-9)
        assert orthonormal(V)
        # the first two span the curve's rows, and all five those of every direction
        first = V[:, :2]
        assert np.allclose(first @ (first.T @ rows[:, :2]), rows[:, :2], atol=1e-12)
        assert np.allclose(V @ (V.T @ rows), rows, atol=1e-12)
    fewer, _ = by_network(networks(4, 1), subspace, spread)
    for V, all_of_them in zip(own_blocks(fewer, (4, 1)), blocks, strict=True):
        assert np.allclose(V, all_of_them[:, : V.shape[1]], atol=1e-12)


def test_a_network_needs_no_more_dimensions_than_it_keeps():
    Pi = np.eye(23)[:, [0, 1, 15]]  # the second network moves in one dimension
    subspace = along(np.zeros(23), Pi, "test")
    split, _ = by_network(networks(2, 1), subspace, np.array([3.0, 2.0, 1.0]))
    assert np.array_equal(split.Pi, Pi)
    with pytest.raises(SemistanError, match=r"network 2 .* in 1 dimensions, fewer than k = 2"):
        by_network(networks(2, 2), subspace, np.ones(3))


# ----------------------------------------------------------------------------- trained


@pytest.mark.parametrize("construction", ["bezier", "pca", "random", "low_rank_laplace"])
def test_the_construction_is_trained_with_the_largest_k(construction):
    settings = {
        "subspace__construction": construction, "subspace__snapshots": 8, "train__epochs": 20
    }  # fmt: skip
    own, _ = small_bundle(FORMULA, subspace__k="auto", **settings)
    same, _ = small_bundle(SAME, subspace__k=5, **settings)
    assert (own.config.subspace.k, own.subspace.k, same.subspace.k) == (5, 7, 10)
    assert np.array_equal(own.trained.control_points, same.trained.control_points)
    kept = [0, 1, 2, 3, 4, 5, 6]  # of the second network the leading two
    assert np.array_equal(own.subspace.Pi, same.subspace.Pi[:, kept])
    assert np.array_equal(own.trained.singular_values, same.trained.singular_values[kept])
    assert np.array_equal(own.subspace.phi_scale, same.subspace.phi_scale[kept])
    assert all(map(orthonormal, own_blocks(own.subspace, (5, 2))))


def test_networks_without_a_k_have_that_of_the_section():
    bundle, _ = small_bundle("y ~ x + nn(u, v, k=6) + nn(z)", subspace__k=3)
    assert bundle.network.dimensions == (6, 3)
    assert bundle.config.subspace.k == 3
    assert len(bundle.trained.control_points) == 7
    assert all(map(orthonormal, own_blocks(bundle.subspace, (6, 3))))
    smaller, _ = small_bundle("y ~ x + nn(u, v, k=1) + nn(z)", subspace__k=3)
    assert len(smaller.trained.control_points) == 4
    assert all(map(orthonormal, own_blocks(smaller.subspace, (1, 3))))


def test_of_one_network_it_is_the_k_of_the_section():
    own, _ = small_bundle("y ~ x + nn(u, v, k=4)", subspace__k="auto")
    same, _ = small_bundle("y ~ x + nn(u, v)", subspace__k=4)
    assert own.config.subspace == same.config.subspace
    assert np.array_equal(own.subspace.Pi, same.subspace.Pi)
    prepared = small_prepared("y ~ x + nn(u, v, k=4)", subspace__k=2)
    assert prepared.config.subspace.k == 4
    axes, _ = small_bundle("y ~ nn(u, v, k=4)", subspace__construction="subnetwork")
    assert axes.subspace.k == len(axes.subspace.axes) == 4


def test_all_weights_of_one_network_may_be_asked_for_in_the_formula():
    bundle, _ = small_bundle("y ~ x + nn(u, v, k=13)", subspace__k="auto", subspace__curve=3)
    assert bundle.model.moves == "all"
    assert np.array_equal(bundle.subspace.axes, np.arange(13))


def test_nothing_is_left_to_the_budget_where_every_network_has_a_k():
    prepared = small_prepared(FORMULA, subspace__k="auto")
    found = resolved(prepared, say=lambda _: 1 / 0)
    one = prepared.config.subspace.model_copy(update={"subspaces": 1})
    assert found.config.subspace == one
    assert training_epochs(prepared.config) == 3


@pytest.mark.parametrize("curve", [2, 4])
def test_directions_beside_a_curve_are_shared_out_too(curve):
    formula = "y ~ x + nn(u, v, k=7) + nn(z, k=3)"
    bundle, rows = small_bundle(formula, subspace__k="auto", subspace__curve=curve)
    assert all(map(orthonormal, own_blocks(bundle.subspace, (7, 3))))
    beside = bundle.trained.singular_values == 0
    assert np.array_equal(np.flatnonzero(beside), [*range(curve, 7), *range(7 + min(curve, 3), 10)])
    assert f"k = 10 (bezier, {curve + min(curve, 3)} of them a curve's)" in repr(bundle)
    narrow = along_its_curve(bundle, rows)
    assert all(map(orthonormal, own_blocks(narrow.subspace, (curve, min(curve, 3)))))


def test_several_networks_without_a_k_may_be_widened():
    bundle, _ = small_bundle(SAME, subspace__k=6, subspace__curve=2)
    assert all(map(orthonormal, own_blocks(bundle.subspace, (6, 6))))
    points, subspace = bundle.trained.control_points, bundle.subspace
    assert np.allclose(subspace.lift(subspace.project(points)), points, atol=1e-10)
    assert "k = 12 (bezier, 4 of them a curve's)" in repr(bundle)


@pytest.mark.parametrize("free", ["none", "bias", "output"])
def test_the_carried_prior_is_the_weights_prior_restricted_to_the_subspace(free):
    settings = {"priors__phi": None, "priors__w": "normal(0, 1.5)"}
    bundle, rows = small_bundle(FORMULA, subspace__free=free, subspace__k="auto", **settings)
    k = bundle.subspace.k
    assert k == 7 + {"none": 0, "bias": 2, "output": 8}[free]
    target, q = make_target(bundle, rows, prior_only=True), np.zeros((5, bundle.layout.size))
    q[:, :k] = 2 * np.random.default_rng(1).normal(size=(5, k))
    found = [float(log_prior(target, torch.tensor(row))) for row in q]
    w = bundle.subspace.lift(q[:, :k] * bundle.subspace.phi_scale)
    expected = -0.5 * np.sum((w / bundle.model.weight_scale) ** 2, axis=1)
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=1e-9, abs=1e-10)


def test_every_category_has_its_network_with_its_k():
    bundle, _ = category_bundle(predictors="x + nn(u, v, k=3)", subspace__k="auto")
    assert bundle.network.dimensions == (3, 3)
    assert bundle.subspace.k == 6


def test_a_network_that_predictors_share_has_one_k():
    shared = "nn(u, v, shared='f', k=3)"
    bundle, _ = small_bundle(f"y ~ x + {shared}, sigma ~ {shared}", subspace__k="auto")
    assert bundle.network.dimensions == (3,)
    assert bundle.subspace.k == 3


def test_a_bundle_goes_through_its_files(tmp_path):
    bundle, _ = small_bundle(FORMULA, subspace__k="auto")
    write_bundle(bundle, tmp_path / "bundle")  # checks both graphs against torch
    again = read_bundle(tmp_path / "bundle")
    assert (again.sha256, again.network) == (bundle.sha256, bundle.network)
    assert again.network.dimensions == (5, 2)
    assert "2-3-1 + 1-3-1, tanh; 23 weights in a subspace of k = 7 (bezier)" in repr(again)


# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("formula", "settings", "message"),
    [
        ("y ~ nn(u, v, k=5) + nn(z)", {"k": "auto"}, "give it by --k NUMBER .* or k in each nn"),
        ("y ~ nn(u, v, k=5), sigma ~ nn(z)", {"k": "auto"}, "give it by --k NUMBER"),
        ("y ~ nn(u, v, k=5) + nn(z, k=10)", {}, "d = 10 of network 2 of the formula, got k = 10"),
        ("y ~ nn(u, v, k=2) + nn(z)", {"k": 23, "curve": 2}, "d = 10 of network 2 .* got k = 23"),
        ("y ~ nn(u, v, k=13)", {}, "d = 13, got k = 13"),
        ("y ~ nn(u, v, k=3) + nn(z, k=2)", {"curve": 4}, "more than k = 3, got curve = 4"),
        ("y ~ nn(u, v, k=5) + nn(z)", {"construction": "subnetwork"}, "chooses k weights among"),
        ("y ~ nn(u, v, k=5)", {"construction": "full"}, "'full' lets all weights move"),
        ("y ~ nn(u, v, k=5) + nn(z)", {"construction": "naive"}, "cannot have 2 networks"),
        ("y ~ nn(u, v, k=3) + nn(z)", {"construction": "curve"}, "has k = 2, got k = 3"),
        ("y ~ nn(u, v, k=8)", {"construction": "pca", "snapshots": 8}, "path, 8, got k = 8"),
        ("y ~ nn(u, v, k=0)", {}, "'k=0' is not allowed"),
        ("y ~ nn(u, v, k='auto')", {}, "'k='auto'' is not allowed"),
        ("y ~ nn(u, v, k=2.0)", {}, "'k=2.0' is not allowed"),
    ],
)
def test_a_k_that_a_network_cannot_have_is_refused(formula, settings, message):
    settings = {f"subspace__{key}": value for key, value in settings.items()}
    with pytest.raises(InputError, match=message):
        small_prepared(formula, **settings)
