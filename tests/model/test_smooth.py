"""Penalised splines against SciPy's smoothing spline, and what is learnt of them."""

import json
import re

import numpy as np
import pytest
from scipy.interpolate import CubicSpline, make_smoothing_spline

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.errors import InputError
from semistan.model.design import design_from_plain, design_to_plain, learn_design
from semistan.model.formula.calls import TermCall
from semistan.model.formula.formula import parse_formula
from semistan.model.terms.smooth import learn_smooth, smooth_from_plain, smooth_to_plain
from semistan.workflow.prepare import new_rows
from support.small import small_bundle, small_frame, small_prepared


def skewed(n=40, seed=0):
    """Uneven values far from 0, some of them twice."""
    x = 100 + np.random.default_rng(seed).gamma(2, 30, n)
    return np.concatenate([x, x[:5]])


def learnt(x, k=10):
    return learn_smooth(TermCall("s", "x", (("k", k),)), x, "sx")


def bending(smooth, g):
    """Integral of the squared second derivative of the spline with values g at the knots."""
    second = CubicSpline(smooth.knots, g, bc_type="natural").derivative(2)
    ends, middles = smooth.knots, (smooth.knots[1:] + smooth.knots[:-1]) / 2
    squares = (second(ends[:-1]) ** 2 + 4 * second(middles) ** 2 + second(ends[1:]) ** 2) / 6
    return float(squares @ np.diff(ends))  # Simpson's rule, which is exact here


def posterior_mean(smooth, x, y, sigma, sds):
    """Line and penalised coefficients of least cost, given both standard deviations."""
    Z = smooth.basis(x).Z
    A = np.column_stack([np.ones(len(x)), x, Z])
    penalty = np.diag([0.0, 0.0] + [(sigma / sds) ** 2] * Z.shape[1])
    return np.linalg.solve(A.T @ A + penalty, A.T @ y)


@pytest.mark.parametrize("ratio", [0.03, 0.5, 4.0])
def test_with_a_knot_at_each_value_the_fit_is_scipys_smoothing_spline(ratio):
    generator = np.random.default_rng(1)
    x = np.sort(generator.gamma(2, 30, 35))
    y = np.sin(x / 20) + generator.normal(0, 0.3, 35)
    smooth, sigma = learnt(x, k=35), 0.3
    intercept, slope, *s = posterior_mean(smooth, x, y, sigma, ratio)
    # s's = size bending(T s), in units of x's standard deviation: its cube is the integral's unit.
    size = 1 / bending(smooth, smooth.T[:, 0])
    lam = (sigma / ratio) ** 2 * size * smooth.scale**3
    oracle = make_smoothing_spline(x, y, lam=lam)
    fitted = intercept + slope * x + smooth.basis(x).Z @ s
    assert fitted == pytest.approx(oracle(x), rel=1e-6, abs=1e-6)
    between = np.linspace(x[0], x[-1], 501)
    fitted = intercept + slope * between + smooth.basis(between).Z @ s
    assert fitted == pytest.approx(oracle(between), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("k", [3, 4, 10, 30])
def test_the_penalty_is_the_same_for_all_directions_and_for_none_of_their_pairs(k):
    smooth = learnt(skewed(), k)
    single = [bending(smooth, column) for column in smooth.T.T]
    assert smooth.size == len(single) == k - 2
    assert single == pytest.approx(np.full(k - 2, single[0]), rel=1e-6)
    for a in range(k - 2):
        for b in range(a):
            both = bending(smooth, smooth.T[:, a] + smooth.T[:, b])
            assert both == pytest.approx(2 * single[0], rel=1e-5)


@pytest.mark.parametrize("k", [3, 10, 40])
def test_columns_are_orthogonal_to_the_line_and_rows_have_variance_1_on_average(k):
    x = skewed()
    block = learnt(x, k).basis(x)
    assert block.Z.shape == (len(x), k - 2)
    assert np.array_equal(block.level, np.zeros(len(x)))
    assert np.abs(block.Z.T @ np.ones(len(x))).max() < 1e-9
    assert np.abs(block.Z.T @ (x - x.mean())).max() < 1e-9 * x.std() * len(x)
    assert (block.Z**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("sds", [0.01, 1.0, 100.0])
def test_the_coefficient_of_x_is_the_least_squares_slope(sds):
    x = skewed()
    y = np.sqrt(x) + np.random.default_rng(2).normal(0, 0.1, len(x))
    _, slope, *_ = posterior_mean(learnt(x), x, y, 0.1, sds)
    assert slope == pytest.approx(np.polyfit(x, y, 1)[0], rel=1e-9)


def test_columns_are_straight_beyond_the_knots_and_smooth_there():
    x = skewed()
    smooth = learnt(x)
    for edge, away in ((x.max(), 1.0), (x.min(), -1.0)):
        steps = smooth.basis(edge + away * np.arange(0, 500.0, 10)).Z
        assert np.abs(np.diff(steps, 2, axis=0)).max() < 1e-10 * np.abs(steps).max()
        inside, at, outside = smooth.basis(edge + away * 1e-4 * np.arange(-1, 2)).Z
        assert (outside - at) == pytest.approx(at - inside, rel=1e-2, abs=1e-8)
        assert np.abs(outside - at).max() > 1e-7


def test_knots_are_quantiles_of_the_distinct_values():
    x = np.concatenate([np.full(500, 3.0), np.arange(10.0)])
    smooth = learnt(x, k=10)
    assert smooth.loc + smooth.scale * smooth.knots == pytest.approx(np.arange(10.0), abs=1e-12)


@pytest.mark.parametrize("units", [1e-6, 1e6])
def test_units_of_x_do_not_matter(units):
    x = skewed()
    plain, other = learnt(x).basis(x).Z, learnt(units * x - 7).basis(units * x - 7).Z
    # f's prior covariance, since a direction may point either way
    assert other @ other.T == pytest.approx(plain @ plain.T, rel=1e-6, abs=1e-8)


def test_the_state_survives_json():
    x = skewed()
    smooth = learnt(x)
    again = smooth_from_plain(json.loads(json.dumps(smooth_to_plain(smooth), allow_nan=False)))
    assert np.array_equal(again.basis(x[::-1] * 2).Z, smooth.basis(x[::-1] * 2).Z)
    assert (again.name, again.expression, again.spread) == ("sx", "x", ("sds_sx_1",))


@pytest.mark.parametrize(
    "damage",
    [
        {"knots": [0.0, 1.0]},
        {"knots": [0.0, 2.0, 1.0, 3.0]},
        {"knots": [0.0, 1.0, 1.0, 3.0]},
        {"T": [[1.0, 0.0]] * 3},
        {"line": [[0.0, 0.0]]},
        {"expression": "z"},
        {"loc": None},
    ],
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(small_prepared("y ~ s(x, k=4) + nn(u)").design)
    plain["smooths"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize(
    ("formula", "frame", "message"),
    [
        ("y ~ s(tries) + nn(u)", small_frame(),
         "s(tries) has k = 10 knots, but 'tries' has only 5 distinct values; use s(tries, k=5)"),
        ("y ~ s(flag) + nn(u)", small_frame(), "'flag' has only 2 distinct values"),
        ("y ~ s(log(x)) + nn(u)", small_frame(), "is nan in row 1"),
        ("y ~ s(g) + nn(u)", small_frame(), "'g'"),
        ("y ~ s(C(tries)) + nn(u)", small_frame(), "must be one column"),
        ("y ~ s(poly(x, 2)) + nn(u)", small_frame(), "'poly(x, 2)' must be one column, got 2"),
        ("y ~ s(x) + s(x, k=5) + nn(u)", small_frame(), "a standard deviation 'sds_sx_1'"),
    ],
)  # fmt: skip
def test_what_cannot_be_smoothed_is_refused(formula, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learn_design(parse_formula(formula), frame)


def test_a_suggested_k_is_only_named_where_it_can_be_used():
    with pytest.raises(InputError) as caught:
        small_prepared("y ~ s(flag) + nn(u)")
    assert "; use" not in str(caught.value)
    assert small_prepared("y ~ s(tries, k=5) + nn(u)").design.terms[0].size == 3


def test_a_formula_has_the_line_among_the_coefficients_and_the_rest_in_a_block():
    frame = small_frame()
    prepared = small_prepared("y ~ z + s(log(z), k=5) + s(x) + nn(u)", frame)
    assert prepared.design.coefficients == ("b_z", "b_logz", "b_x")
    assert [smooth.spread for smooth in prepared.design.terms] == [
        ("sds_slogz_1",), ("sds_sx_1",),
    ]  # fmt: skip
    first, second = prepared.rows.predictors["mu"].blocks
    assert np.array_equal(second.Z, learnt(frame["x"].to_numpy()).basis(frame["x"].to_numpy()).Z)
    assert first.Z.shape == (30, 3)


def test_new_rows_have_the_columns_of_the_training_rows(tmp_path):
    bundle, rows = small_bundle("y ~ s(x, k=6) + s(z) + nn(u)")
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    applied = new_rows(again, small_frame().iloc[[7, 2]], response=False).predictors["mu"]
    for block, trained in zip(applied.blocks, rows.predictors["mu"].blocks, strict=True):
        assert np.array_equal(block.Z, trained.Z[[7, 2]])
    assert np.array_equal(again.trained.terms["mu"], bundle.trained.terms["mu"])
    assert len(again.trained.terms["mu"]) == 4 + 8
