import numpy as np
import pytest
from scipy import integrate, interpolate, stats

from semistan.subspace.curve import arc_length, bernstein, curve_points

T = np.linspace(0, 1, 23)
DEGREES = (1, 2, 5, 20, 60)


@pytest.mark.parametrize("k", [0, *DEGREES])
def test_the_weights_are_a_partition_of_unity(k):
    weights = bernstein(T, k)
    assert weights.shape == (23, k + 1)
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(axis=-1), 1, rtol=1e-13)


@pytest.mark.parametrize("k", DEGREES)
def test_the_weights_are_binomial_probabilities(k):
    expected = stats.binom(k, T[:, None]).pmf(np.arange(k + 1))
    assert np.allclose(bernstein(T, k), expected, rtol=1e-11, atol=1e-300)


def test_the_weights_keep_the_shape_of_t():
    assert bernstein(np.array(0.3), 4).shape == (5,)
    assert bernstein(np.zeros((2, 3)), 4).shape == (2, 3, 5)


@pytest.mark.parametrize("k", DEGREES)
def test_the_curve_starts_at_the_first_point_and_ends_at_the_last(k):
    points = np.random.default_rng(0).normal(size=(k + 1, 4))
    ends = curve_points(points, np.array([0.0, 1.0]))
    assert np.array_equal(ends, points[[0, -1]])


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_curve_is_scipys(k):
    points = np.random.default_rng(k).normal(size=(k + 1, 4))
    oracle = interpolate.BPoly(points[:, None, :], [0, 1])
    assert np.allclose(curve_points(points, T), oracle(T), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_curve_lies_in_the_affine_span_of_its_points(k):
    points = np.random.default_rng(k).normal(size=(k + 1, 9))
    directions = np.linalg.qr((points[1:] - points[0]).T)[0]
    offset = curve_points(points, T) - points[0]
    assert np.allclose(offset @ directions @ directions.T, offset, atol=1e-13)


@pytest.mark.parametrize("k", DEGREES)
def test_equally_spaced_points_on_a_line_have_the_lines_length(k):
    line = np.linspace(0, 1, k + 1)[:, None] * np.array([3.0, 4.0])
    assert arc_length(line) == pytest.approx(5, rel=1e-12)


@pytest.mark.parametrize("k", DEGREES)
def test_a_curve_that_stays_has_no_length(k):
    assert arc_length(np.ones((k + 1, 3))) == 0


def test_a_line_walked_there_and_back_is_twice_as_long():
    # b(t) = 2 t (1 - t): from 0 up to 1/2 and back. The speed has a kink at t = 1/2, where an
    # even number of symmetric Gauss nodes errs by O(1 / nodes^2), less than 1e-3 with 32.
    assert arc_length(np.array([[0.0], [1.0], [0.0]])) == pytest.approx(1, abs=1e-3)


def test_a_parabola_has_its_known_length():
    # Points (0, 0), (1/2, 0), (1, 1) give b(t) = (t, t^2).
    points = np.array([[0, 0], [0.5, 0], [1, 1]])
    known = np.sqrt(5) / 2 + np.arcsinh(2) / 4
    numeric, error = integrate.quad(lambda t: np.hypot(1, 2 * t), 0, 1)
    assert abs(known - numeric) < error
    assert arc_length(points) == pytest.approx(known, rel=1e-12)


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_any_curve_has_the_length_that_quadrature_finds(k):
    points = np.random.default_rng(k).normal(size=(k + 1, 200))
    velocity = interpolate.BPoly(points[:, None, :], [0, 1]).derivative()
    expected, error = integrate.quad(
        lambda t: np.linalg.norm(velocity(t)), 0, 1, epsabs=1e-12, epsrel=1e-12, limit=200
    )
    assert error < 1e-9
    assert arc_length(points) == pytest.approx(expected, rel=1e-9)
