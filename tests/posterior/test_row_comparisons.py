"""Comparisons of each row against naive loops over draws, and a closed form."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.posterior.effects.comparisons import average_comparisons
from semistan.posterior.effects.row_comparisons import row_comparisons
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred
from support.drawn import random_draws
from support.small import category_bundle, small_bundle, small_frame

BOUNDS = ("l-95% CI", "u-95% CI")


@pytest.fixture(scope="module")
def poisson():
    bundle, _ = small_bundle("count ~ x + C(g) + nn(u, v)", family="poisson")
    return SubspacePosterior(bundle, random_draws(bundle, iterations=20)), small_frame()


def mu(one, table):
    return posterior_epred(one, apply_design(one.design, table, response=False))


def check(found, draws):
    """Check estimates against draws (S, n)."""
    assert found["Estimate"].to_numpy() == pytest.approx(draws.mean(axis=0), rel=1e-9)
    assert found["Est.Error"].to_numpy() == pytest.approx(draws.std(axis=0, ddof=1), rel=1e-9)
    for name, at in zip(BOUNDS, (0.025, 0.975), strict=True):
        assert found[name].to_numpy() == pytest.approx(np.quantile(draws, at, axis=0), rel=1e-9)


@pytest.mark.parametrize(
    ("comparison", "compare"),
    [
        ("difference", lambda h, lo: h - lo),
        ("ratio", lambda h, lo: h / lo),
        ("lift", lambda h, lo: h / lo - 1),
    ],
)
def test_each_row_is_the_naive_one(poisson, comparison, compare):
    one, table = poisson
    found = row_comparisons(one, table, variables="x", contrast="2.5", comparison=comparison)
    assert list(found["row"]) == list(range(1, len(table) + 1))
    assert set(found["contrast"]) == {"+2.5"}
    high, low = (mu(one, table.assign(x=table["x"] + step)) for step in (2.5, 0.0))
    check(found, compare(high, low))


def test_without_an_interaction_the_effect_of_every_row_is_the_coefficient():
    bundle, _ = small_bundle("y ~ x + nn(u, v)")
    one, table = SubspacePosterior(bundle, random_draws(bundle, iterations=50)), small_frame()
    b = one.coefficients["b_x"].reshape(-1)
    found = row_comparisons(one, table, variables="x")
    check(found, np.repeat(b[:, None], len(table), axis=1))


def test_levels_stand_one_after_the_other_and_their_means_are_the_averages(poisson):
    one, table = poisson
    found = row_comparisons(one, table, variables=["g", "x"])
    assert list(dict.fromkeys(zip(found["term"], found["contrast"], strict=True))) == [
        ("g", "b - a"), ("g", "c - a"), ("x", "+1"),
    ]  # fmt: skip
    means = found.groupby(["term", "contrast"], sort=False)["Estimate"].mean().to_numpy()
    averages = average_comparisons(one, table, variables=["g", "x"])
    assert means == pytest.approx(averages["Estimate"].to_numpy(), rel=1e-9)


def test_categories_have_a_block_each():
    bundle, _ = category_bundle()
    one, table = SubspacePosterior(bundle, random_draws(bundle, iterations=20)), small_frame()
    found = row_comparisons(one, table, variables="x")
    assert list(found.columns[:4]) == ["term", "contrast", "category", "row"]
    change = mu(one, table.assign(x=table["x"] + 1)) - mu(one, table)
    assert list(dict.fromkeys(found["category"])) == ["bus", "car", "train trip"]
    for k, (_, block) in enumerate(found.groupby("category", sort=False)):
        check(block, change[..., k])


def test_pieces_change_nothing_and_some_rows_keep_their_numbers(poisson, monkeypatch):
    one, table = poisson
    whole = row_comparisons(one, table, variables=["x", "g"])
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 300)
    pd.testing.assert_frame_equal(whole, row_comparisons(one, table, variables=["x", "g"]))
    some = row_comparisons(one, table, variables="x", rows=7, generator=np.random.default_rng(1))
    assert len(some) == 7
    same = whole[(whole["term"] == "x") & whole["row"].isin(some["row"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(some, same)


def test_what_does_not_exist_in_a_draw_is_refused(poisson):
    one, table = poisson
    with pytest.raises(InputError, match="the lnor does not exist"):
        row_comparisons(one, table, variables="x", comparison="lnor")
