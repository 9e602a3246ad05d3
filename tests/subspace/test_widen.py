"""Directions behind those of the curve, up to all weights."""

import numpy as np
import pytest

from semistan.density.problem import make_problem
from semistan.errors import InputError
from semistan.model.subspace import along_axes
from semistan.subspace.construction import check_construction
from semistan.subspace.curve import bernstein
from semistan.subspace.measures import measure
from support.small import PAPERS, small_bundle, small_config, small_prepared

FORMULA = "y ~ x + nn(u, v)"
D = 13


def bundle_of(k, curve, **settings):
    return small_bundle(FORMULA, subspace__k=k, subspace__curve=curve, **settings)[0]


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_the_curves_directions_come_first_and_all_are_orthonormal(curvature):
    narrow, wide = bundle_of(3, None), bundle_of(7, 3, subspace__curvature=curvature)
    assert wide.trained.control_points == pytest.approx(narrow.trained.control_points)
    assert wide.subspace.Pi[:, :3] == pytest.approx(narrow.subspace.Pi)
    assert wide.subspace.Pi.T @ wide.subspace.Pi == pytest.approx(np.eye(7), abs=1e-12)
    assert wide.trained.singular_values[3:] == pytest.approx(np.zeros(4))
    assert wide.model.moves == "directions"


def test_more_directions_keep_more_of_the_predictions_variance():
    prepared = small_prepared(FORMULA)
    problem, units = make_problem(prepared.model, prepared.rows, "cpu"), prepared.model.units
    errors = []
    for k in (2, 4, 8, 12):
        trained = bundle_of(k, 2).trained
        w = bernstein(np.array(0.5), 2) @ trained.control_points
        errors.append(measure(problem, units, trained, w=w).relative_error)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 < errors[0]


def test_as_many_dimensions_as_weights_are_the_weights_themselves():
    bundle = bundle_of(D, 3)
    every = along_axes(np.zeros(D), np.arange(D), "bezier")
    assert np.array_equal(bundle.subspace.axes, every.axes)
    assert not bundle.subspace.p_bar.any()
    assert bundle.subspace.Pi.shape == (D, 0)
    assert bundle.trained.control_points.shape == (4, D)
    assert bundle.model.moves == "all"


def test_all_of_several_networks():
    bundle, _ = small_bundle("y ~ nn(u) + nn(v)", subspace__k=20, subspace__curve=2)
    assert bundle.network.d == 20
    assert bundle.model.moves == "all"
    assert np.array_equal(bundle.subspace.axes, np.arange(20))


@pytest.mark.parametrize(
    ("k", "curve", "words"),
    [
        (3, 4, "curve must not be more than k = 3, got curve = 4"),
        (14, 3, "k must be smaller than the number of Bayesian weights d = 13, got k = 14"),
        (13, None, "k must be smaller than the number of Bayesian weights d = 13, got k = 13"),
    ],
)
def test_impossible_dimensions_are_refused(k, curve, words):
    config = small_config(FORMULA, subspace__k=k, subspace__curve=curve, priors__phi=PAPERS)
    with pytest.raises(InputError, match=words):
        check_construction(config.subspace, small_prepared(FORMULA).model.network)


def test_what_is_added_is_not_known_of_other_predictors():
    with pytest.raises(InputError, match="knows the curvature in the mean's predictor"):
        small_prepared("y ~ nn(u), sigma ~ nn(v)", subspace__k=6, subspace__curve=2)
