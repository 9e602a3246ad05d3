"""Uniformity of ranks, and coverage of intervals: closed forms, SciPy, and its own error rate."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semistan.posterior.scoring.ranks import coverage, fractions, ranks_table, uniformity
from semistan.show.pictures.ranks import draw_coverage, draw_ranks
from support.figures import texts, untidy


def test_the_difference_is_that_of_the_empirical_distribution_function():
    values = np.random.default_rng(0).random(40)
    found = uniformity(values)
    empirical = stats.ecdf(values).cdf.evaluate(found.points)
    np.testing.assert_allclose(found.difference, empirical - found.points)
    assert (found.lower < 0).all() and (found.upper > 0).all()


def test_uniform_values_leave_the_band_as_often_as_it_says():
    """One of twenty samples; 400 have a standard error of 1.1%."""
    generator = np.random.default_rng(1)
    found = [uniformity(generator.random(50)) for _ in range(400)]
    assert 0.015 < np.mean([each.outside for each in found]) < 0.09
    assert 0.015 < np.mean([each.p < 0.05 for each in found]) < 0.09


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (3, 3), (2, 1)])
def test_values_that_are_not_uniform_leave_the_band(a, b):
    """Intervals too narrow, too wide, and estimates too low."""
    found = uniformity(np.random.default_rng(2).beta(a, b, 200))
    assert found.outside and found.p < 0.01


def test_the_sign_says_what_is_wrong():
    generator = np.random.default_rng(3)
    narrow, low = uniformity(generator.beta(0.4, 0.4, 300)), uniformity(generator.beta(3, 1, 300))
    left, right = narrow.points < 0.3, narrow.points > 0.7
    assert (narrow.difference[left] > 0).all() and (narrow.difference[right] < 0).all()
    assert (low.difference[20:80] < 0).all()


def test_fractions_of_uniform_ranks_are_uniform():
    ranks = np.repeat(np.arange(10), 500)
    values = fractions(ranks, np.full(len(ranks), 9))
    assert stats.kstest(values, "uniform").pvalue > 0.001
    np.testing.assert_array_equal(np.floor(values * 10), ranks)


def test_coverage_counts_central_intervals():
    values = np.array([0.02, 0.3, 0.5, 0.74, 0.97])
    assert coverage(values, 0.5) == 3 / 5
    assert coverage(values, 0.95) == 4 / 5


def some_records(n=60):
    generator = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "replication": np.repeat(np.arange(1, n + 1), 2),
            "quantity": ["b_x", "eta[1]"] * n,
            "rank": generator.integers(0, 100, 2 * n),
            "draws": 99,
        }
    )


def test_the_table_has_a_line_for_each_quantity():
    table = ranks_table(some_records())
    assert list(table["quantity"]) == ["b_x", "eta[1]"]
    assert (table["replications"] == 60).all()
    np.testing.assert_allclose(table["SE 50%"], np.sqrt(0.25 / 60))
    assert (abs(table["coverage 50%"] - 0.5) < 4 * table["SE 50%"]).all()


@pytest.mark.parametrize("draw", [draw_ranks, draw_coverage])
def test_pictures_have_a_panel_for_each_quantity(draw):
    figure = draw(some_records())
    assert [axes.get_title() for axes in figure.axes] == ["b_x", "eta[1]"]
    assert "in 60 replications" in texts(figure)
    assert not untidy(figure)
