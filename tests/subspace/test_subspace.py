import numpy as np
import pytest
from sklearn.decomposition import PCA

from semistan.errors import InputError, SemistanError
from semistan.model.config import SubspaceConfig
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks
from semistan.model.subspace import Subspace, along, along_axes
from semistan.subspace.construction import check_construction
from semistan.subspace.span import span

SIZES = [(2, 5, 1), (4, 9, 3), (9, 5, 2), (20, 6, 5)]  # points, d, k


def network(d):
    """A linear network of d weights."""
    return Networks((FullyConnected(d - 1, ()),))


def points_of(m, d, seed=0):
    return np.random.default_rng(seed).normal(size=(m, d)) + 10


def signs(Pi):
    return np.sign(Pi[np.abs(Pi).argmax(axis=0), np.arange(Pi.shape[1])])


@pytest.mark.parametrize(("m", "d", "k"), SIZES)
def test_the_directions_are_orthonormal(m, d, k):
    subspace, values = span(points_of(m, d), k, "test")
    assert subspace.Pi.shape == (d, k)
    assert values.shape == (k,)
    assert np.allclose(subspace.Pi.T @ subspace.Pi, np.eye(k), atol=1e-14)
    assert (np.diff(values) <= 0).all()


@pytest.mark.parametrize(("m", "d", "k"), SIZES)
def test_the_span_is_that_of_scikit_learns_principal_components(m, d, k):
    points = points_of(m, d)
    subspace, values = span(points, k, "test")
    oracle = PCA(k, svd_solver="full").fit(points)
    directions = oracle.components_.T
    assert np.allclose(subspace.p_bar, oracle.mean_, rtol=1e-14)
    assert np.allclose(subspace.Pi, directions * signs(directions), atol=1e-12)
    assert np.allclose(values, oracle.singular_values_, rtol=1e-12)


@pytest.mark.parametrize(("m", "d", "k"), SIZES)
def test_the_span_is_that_of_the_covariances_eigenvectors(m, d, k):
    points = points_of(m, d)
    subspace, values = span(points, k, "test")
    eigenvalues, eigenvectors = np.linalg.eigh(np.cov(points.T) * (m - 1))
    top = eigenvectors[:, ::-1][:, :k]
    assert np.allclose(subspace.Pi, top * signs(top), atol=1e-7)
    assert np.allclose(values**2, eigenvalues[::-1][:k], rtol=1e-10)


@pytest.mark.parametrize(("m", "d", "k"), SIZES)
def test_the_largest_entry_of_each_direction_is_positive(m, d, k):
    assert (signs(span(points_of(m, d), k, "test")[0].Pi) == 1).all()


@pytest.mark.parametrize("k", [1, 3])
def test_mirrored_points_have_the_same_directions(k):
    points = points_of(4, 9)
    subspace, _ = span(points, k, "test")
    mirrored, _ = span(2 * points.mean(axis=0) - points, k, "test")
    assert np.allclose(mirrored.Pi, subspace.Pi, atol=1e-13)


def test_permuted_points_have_the_same_span():
    points = points_of(5, 9)
    first, again = span(points, 3, "test")[0], span(points[::-1], 3, "test")[0]
    assert np.allclose(first.Pi, again.Pi, atol=1e-13)
    assert np.allclose(first.p_bar, again.p_bar, rtol=1e-14)


def test_k_plus_one_points_lie_in_their_span():
    points = points_of(4, 9)
    subspace, _ = span(points, 3, "test")
    assert np.allclose(subspace.lift(subspace.project(points)), points, rtol=1e-13)


def test_the_origin_lifts_to_p_bar():
    subspace, _ = span(points_of(4, 9), 3, "test")
    assert np.array_equal(subspace.lift(np.zeros(3)), subspace.p_bar)


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (2, 1, 4)])
@pytest.mark.parametrize("orthonormal", [True, False])
def test_projecting_undoes_lifting_for_any_batch(batch, orthonormal):
    generator = np.random.default_rng(1)
    Pi = generator.normal(size=(9, 3))
    Pi = np.linalg.qr(Pi)[0] if orthonormal else Pi
    subspace = along(generator.normal(size=9), Pi, "test")
    phi = generator.normal(size=(*batch, 3))
    assert subspace.lift(phi).shape == (*batch, 9)
    assert np.allclose(subspace.project(subspace.lift(phi)), phi, rtol=1e-11, atol=1e-13)


def test_a_projection_is_the_nearest_point():
    subspace, _ = span(points_of(4, 9), 3, "test")
    w = np.random.default_rng(2).normal(size=9)
    residual = w - subspace.lift(subspace.project(w))
    assert np.allclose(subspace.Pi.T @ residual, 0, atol=1e-12)


def test_two_points_span_the_line_between_them():
    points = np.array([[0.0, 0, 0], [3, 0, -4]])
    subspace, values = span(points, 1, "test")
    assert np.allclose(subspace.Pi[:, 0], [-0.6, 0, 0.8], atol=1e-15)
    assert np.allclose(subspace.p_bar, [1.5, 0, -2])
    assert values[0] == pytest.approx(np.sqrt(12.5), rel=1e-14)


@pytest.mark.parametrize(
    ("points", "k"),
    [
        (np.ones((3, 5)), 1),
        (np.outer(np.arange(4.0), np.ones(5)), 2),
        (np.repeat(points_of(2, 5), 2, axis=0), 2),
        (np.full((3, 5), np.nan), 2),
        (np.full((3, 5), np.inf), 2),
    ],
    ids=["one point", "a line", "repeated points", "nan", "inf"],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_degenerate_points_are_refused(points, k):
    with pytest.raises(SemistanError):
        span(points, k, "test")


@pytest.mark.parametrize(("k", "d"), [(5, 5), (6, 5)])
def test_a_subspace_must_be_smaller_than_weight_space(k, d):
    with pytest.raises(InputError, match=f"d = {d}, got k = {k}"):
        check_construction(SubspaceConfig(k=k), network(d))


def test_all_but_one_dimension_are_allowed():
    check_construction(SubspaceConfig(k=4), network(5))


@pytest.mark.parametrize("shape", [(3, 5), (5,), (5, 2, 2)])
def test_the_shapes_of_shift_and_directions_must_agree(shape):
    with pytest.raises(ValueError, match="expected Pi"):
        along(np.zeros(5), np.zeros(shape), "test")


def test_sizes_and_origin_are_reported():
    subspace, _ = span(points_of(4, 9), 3, "some name")
    assert (subspace.d, subspace.k, subspace.origin) == (9, 3, "some name")


def test_axes_move_single_weights():
    generator = np.random.default_rng(0)
    p_bar, axes = generator.normal(size=6), np.array([4, 1])
    subspace, phi = along_axes(p_bar, axes, "test"), generator.normal(size=(3, 2))
    assert (subspace.d, subspace.k) == (6, 2)
    assert np.allclose(subspace.lift(phi), p_bar + phi @ np.eye(6)[axes], atol=1e-15)
    assert np.array_equal(
        subspace.project(subspace.lift(phi)), subspace.lift(phi)[:, axes] - p_bar[axes]
    )
    assert np.array_equal(subspace.matrix, np.eye(6)[:, axes])


def test_axes_and_directions_together():
    generator = np.random.default_rng(1)
    p_bar, Pi = generator.normal(size=6), generator.normal(size=(6, 2))
    subspace = Subspace(p_bar, Pi, "test", np.ones(3), np.array([5]))
    phi = generator.normal(size=(4, 3))
    assert np.allclose(subspace.lift(phi), p_bar + phi @ subspace.matrix.T, atol=1e-14)
    assert np.allclose(subspace.project(subspace.lift(phi)), phi, atol=1e-12)


def test_axes_of_a_large_space_take_no_large_matrix():
    subspace = along_axes(np.zeros(100_000), np.arange(0, 100_000, 50), "test")
    phi = np.ones((2, 2000))
    assert np.array_equal(subspace.project(subspace.lift(phi)), phi)
    assert subspace.Pi.nbytes == 0


def test_the_number_of_scales_must_be_k():
    with pytest.raises(ValueError, match=r"expected phi_scale \(2,\), got \(3,\)"):
        along(np.zeros(5), np.zeros((5, 2)), "test", np.ones(3))


def test_a_curve_has_two_dimensions_and_a_subnetwork_up_to_all():
    with pytest.raises(InputError, match="has k = 2, got k = 8"):
        check_construction(SubspaceConfig(construction="curve"), network(100))
    with pytest.raises(InputError, match="d = 5, got k = 6"):
        check_construction(SubspaceConfig(construction="subnetwork", k=6), network(5))
    check_construction(SubspaceConfig(construction="subnetwork", k=5), network(5))
    check_construction(SubspaceConfig(construction="full", k=8), network(5))
