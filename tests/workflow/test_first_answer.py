"""The answer that comes before the chains: exact where Laplace's approximation is."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.subspace.narrow import along_its_curve
from semistan.workflow.first_answer import DRAWS, MOST_DERIVATIVES, FirstAnswer, first_answer
from support.assertions import Z
from support.by_hand import linear_posterior
from support.small import small_bundle
from support.untrained import random_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)", "sigma": "constant(15)"}
LINEAR = {"activation": "identity", "hidden": [], "priors": PRIORS}
OPTIONS = SampleConfig(chains=2, seed=7)


def test_figures_are_exact_where_the_model_is_linear():
    bundle, rows = random_bundle("gaussian", **LINEAR)
    mean, covariance = linear_posterior(bundle, rows, 15.0)
    found = first_answer(bundle, rows, OPTIONS).figures
    n, k = OPTIONS.chains * DRAWS, bundle.subspace.k
    for j, name in enumerate(("b_x1", "b_x2")):
        sd = np.sqrt(covariance[k + j, k + j])
        assert abs(found[name][0] - mean[k + j]) < Z * sd * np.sqrt(np.pi / 2 / n)
        below, slope = stats.norm.cdf(-1), stats.norm.pdf(1)  # of quantiles at mean -+ sd
        error = np.sqrt((below - 2 * below**2) / (2 * n)) / slope
        assert abs(found[name][1] / sd - 1) < Z * error


def test_the_standard_deviation_of_few_levels_has_figures_that_can_be_read():
    formula = "y ~ x1 + (1 | t) + nn(u1), shape ~ (1 | t) + (1 | g)"
    bundle, rows = random_bundle("negbinomial", formula=formula)
    middle, spread = first_answer(bundle, rows, OPTIONS).figures["sd_t__Intercept"]
    assert 0 < middle < 1 and spread < 5, "of draws, the mean is 5 and the sd 24"


def test_modes_that_were_found_are_not_looked_for_again(monkeypatch):
    bundle, rows = random_bundle("poisson")
    modes = find_starts(bundle, rows, OPTIONS).found
    own = first_answer(bundle, rows, OPTIONS)
    monkeypatch.setattr("semistan.workflow.first_answer.find_starts", None)
    assert first_answer(bundle, rows, OPTIONS, modes) == own
    assert own.where == "the subspace (k = 3)"


def test_where_all_weights_move_it_is_that_of_the_curve():
    settings = {"subspace": {"k": 13, "curve": 2}, "priors": {}}
    bundle, rows = small_bundle("y ~ x + nn(u, v)", **settings)
    assert bundle.subspace.k == bundle.subspace.d == 13
    narrow = along_its_curve(bundle, rows)
    points = bundle.trained.control_points
    phi = narrow.subspace.project(points)
    assert narrow.subspace.k == 2
    assert narrow.subspace.lift(phi) == pytest.approx(points)
    # The prior of phi is that of the weights, w ~ normal(0, s), on the plane.
    s = bundle.subspace.phi_scale
    whole = -np.square(points / s).sum(axis=1) / 2
    plane = -np.square((phi - narrow.subspace.phi_location) / narrow.subspace.phi_scale)
    assert np.diff(plane.sum(axis=1) / 2) == pytest.approx(np.diff(whole))
    answer = first_answer(bundle, rows, OPTIONS)
    assert answer.figures == first_answer(narrow, rows, OPTIONS).figures
    assert answer.where == "the span of the curve (k = 2)"
    assert set(answer.figures) == {"b_Intercept", "b_x", "sigma"}


def test_there_is_none_for_other_methods_and_where_modes_take_long():
    bundle, rows = random_bundle("gaussian")
    assert first_answer(bundle, rows, OPTIONS.model_copy(update={"method": "flow"})) is None
    many = replace(rows, U=np.zeros((MOST_DERIVATIVES // 3 + 1, 3)))
    assert first_answer(bundle, many, OPTIONS) is None


def test_the_text_is_a_table_with_two_digits_of_each_error():
    text = FirstAnswer({"b_x": (1.2345, 0.0567), "sigma": (52.7, 2.1)}, "the subspace (k = 8)")
    assert text.text().splitlines() == [
        "a first answer, by Laplace's approximation in the subspace (k = 8), until the chains end:",
        "         Estimate  Est.Error",
        "b_x         1.234      0.057",
        "sigma        52.7        2.1",
    ]
