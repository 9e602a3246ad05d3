"""Axes of the output layer beside the directions: what they span, and the scales along them."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along, along_axes
from semistan.subspace.axes import with_axes
from support.small import small_prepared
from support.untrained import random_bundle

ONE = Networks((FullyConnected(2, (3,)),))  # 9 weights, 3 biases, 3 weights, 1 bias
BIAS, OUTPUT = [12], [9, 10, 11, 12]
TWO = Networks((FullyConnected(2, (3,)), FullyConnected(1, (3,))))
CASES = [(ONE, "bias", BIAS), (ONE, "output", OUTPUT), (TWO, "bias", [12, 22])]


def trained_in(subspace, values=None):
    generator = np.random.default_rng(3)
    bundle, _ = random_bundle("gaussian")
    points = generator.normal(size=(4, subspace.d))
    values = np.ones(subspace.k) if values is None else values
    return replace(bundle.trained, subspace=subspace, singular_values=values, control_points=points)


def directions(d, k=3):
    return np.linalg.qr(np.random.default_rng(1).normal(size=(d, k)))[0]


@pytest.mark.parametrize(("network", "free", "axes"), CASES)
def test_the_old_span_and_the_axes_are_spanned_by_orthonormal_columns(network, free, axes):
    Pi = directions(network.d)
    subspace = with_axes(trained_in(along(np.zeros(network.d), Pi, "test")), network, free).subspace
    assert subspace.axes.tolist() == axes
    assert subspace.k == 3 + len(axes)
    matrix = subspace.matrix
    assert matrix.T @ matrix == pytest.approx(np.eye(subspace.k), abs=1e-12)
    wanted = np.hstack([Pi, np.eye(network.d)[:, axes]])
    assert matrix @ (matrix.T @ wanted) == pytest.approx(wanted, abs=1e-12)
    assert subspace.phi_scale == pytest.approx(np.ones(subspace.k))


def test_a_direction_that_is_an_axis_is_no_longer_one():
    Pi = np.eye(13)[:, [12, 0]]
    subspace = with_axes(trained_in(along(np.zeros(13), Pi, "test")), ONE, "bias").subspace
    assert subspace.Pi[:, 0] == pytest.approx(np.eye(13)[0])
    assert subspace.k == 2


def test_axes_that_move_already_are_not_added():
    some = along_axes(np.zeros(13), np.array([12, 3]), "test")
    subspace = with_axes(trained_in(some), ONE, "output").subspace
    assert subspace.axes.tolist() == [12, 3, 9, 10, 11]
    every = trained_in(along_axes(np.zeros(13), np.arange(13), "test"))
    assert with_axes(every, ONE, "output") is every
    assert with_axes(trained_in(some), ONE, "none").subspace is some


def test_scales_and_spread_follow_the_directions():
    scale, values = np.array([3.0, 2.0, 1.0]), np.array([6.0, 4.0, 2.0])
    Pi = directions(13)
    before = trained_in(along(np.zeros(13), Pi, "test", scale), values)
    after = with_axes(before, ONE, "bias")
    rest = np.delete(np.arange(13), 12)
    for old, new in (
        (scale, after.subspace.phi_scale), (values, after.singular_values),
    ):  # fmt: skip
        kept = (after.subspace.Pi * new[1:] ** 2) @ after.subspace.Pi.T
        wanted = (Pi * old**2) @ Pi.T
        assert np.trace(kept) == pytest.approx(wanted[rest, rest].sum())
    points = before.control_points[:, 12]
    assert after.singular_values[0] == pytest.approx(points.std() * 2)
    assert after.subspace.phi_scale[0] == 1


def test_theta_moves_with_the_weights_as_before():
    Pi, generator = directions(13), np.random.default_rng(5)
    before = replace(
        along(np.zeros(13), Pi, "test"),
        theta_bar=generator.normal(size=2), theta_Pi=generator.normal(size=(2, 3)),
    )  # fmt: skip
    after = with_axes(trained_in(before), ONE, "output").subspace
    phi = generator.normal(size=3)
    moved = after.project(before.lift(phi))
    assert after.lift(moved) == pytest.approx(before.lift(phi), abs=1e-12)
    assert after.theta_Pi @ moved == pytest.approx(before.theta_Pi @ phi, abs=1e-12)


@pytest.mark.parametrize(
    ("formula", "free"),
    [
        ("y ~ x + nn(u)", "none"),
        ("y ~ x + s(v, k=4) + nn(u)", "none"),
        ("y ~ x + (0 + x | g) + nn(u)", "none"),
        ("y ~ x + (1 | g) + nn(u)", "bias"),
        ("y ~ x + s(g, bs='re') + nn(u)", "bias"),
        ("y ~ x + gp(v, k=4) + nn(u)", "bias"),
        ("y ~ x + gp(v, by=g, k=4) + nn(u)", "bias"),
        ("y ~ x + (0 + z | g) + nn(u) + z:nn(v)", "bias"),
        ("y ~ x + nn(u), sigma ~ (1 | g) + nn(u)", "bias"),
    ],
)
def test_by_default_the_bias_moves_beside_what_can_take_the_level(formula, free):
    assert small_prepared(formula).config.subspace.free == free
    given = small_prepared(formula, subspace={"k": 2, "free": "output"})
    assert given.config.subspace.free == "output"
    whole = small_prepared(formula, subspace={"construction": "full"})
    assert whole.config.subspace.free == "none"
