"""Comparisons against naive loops over draws and rows, and against the average marginal effect."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.posterior.effects import answers
from semistan.posterior.effects.answers import comparisons_answer
from semistan.posterior.effects.comparisons import average_comparisons
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.effects.row_comparisons import row_comparisons
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import posterior_epred
from semistan.posterior.weighting import weighting
from support.drawn import random_draws
from support.small import category_bundle, further_bundle, small_bundle, small_frame


@pytest.fixture(scope="module")
def poisson():
    bundle, _ = small_bundle("count ~ x + C(g) + nn(u, v)", family="poisson")
    return SubspacePosterior(bundle, random_draws(bundle, iterations=20)), small_frame()


def mu(one, table):
    return posterior_epred(one, apply_design(one.design, table, response=False))


def naive(one, table, term, low, high, compare, weight=None):
    """Compare averages draw by draw."""
    before, after = (mu(one, table.assign(**{term: value})) for value in (low, high))
    return np.array(
        [
            compare(np.average(h, weights=weight), np.average(lo, weights=weight))
            for h, lo in zip(after, before, strict=True)
        ]
    )


def check(line, draws):
    assert line["Estimate"] == pytest.approx(draws.mean(), rel=1e-9)
    assert line["Est.Error"] == pytest.approx(draws.std(ddof=1), rel=1e-9)
    assert line["l-95% CI"] == pytest.approx(np.quantile(draws, 0.025), rel=1e-9)


COMPARED = {
    "difference": lambda h, lo: h - lo,
    "ratio": lambda h, lo: h / lo,
    "lnratio": lambda h, lo: np.log(h) - np.log(lo),
    "lift": lambda h, lo: h / lo - 1,
}


@pytest.mark.parametrize("comparison", COMPARED)
def test_a_step_of_a_number_is_the_naive_one(poisson, comparison):
    one, table = poisson
    found = average_comparisons(one, table, variables="x", comparison=comparison, contrast="2.5")
    assert found.loc[0, "contrast"] == "+2.5"
    expected = naive(one, table, "x", table["x"], table["x"] + 2.5, COMPARED[comparison])
    check(found.loc[0], expected)


@pytest.mark.parametrize("contrast", ["sd", "2sd", "iqr", "minmax", "-22,-18"])
def test_changes_from_one_value_to_another(poisson, contrast):
    one, table = poisson
    x = table["x"]
    low, high = {
        "sd": (x.mean() - x.std() / 2, x.mean() + x.std() / 2),
        "2sd": (x.mean() - x.std(), x.mean() + x.std()),
        "iqr": (x.quantile(0.25), x.quantile(0.75)),
        "minmax": (x.min(), x.max()),
        "-22,-18": (-22.0, -18.0),
    }[contrast]
    found = average_comparisons(one, table, variables=["x"], contrast=contrast)
    check(found.loc[0], naive(one, table, "x", low, high, COMPARED["difference"]))


@pytest.mark.parametrize(
    ("contrast", "pairs"),
    [
        (None, ["ab", "ac"]),
        ("reference", ["ab", "ac"]),
        ("sequential", ["ab", "bc"]),
        ("pairwise", ["ab", "ac", "bc"]),
        ("c,a", ["ca"]),
    ],
)
def test_levels_of_a_factor(poisson, contrast, pairs):
    one, table = poisson
    found = average_comparisons(one, table, variables="g", contrast=contrast)
    assert list(found["contrast"]) == [f"{high} - {low}" for low, high in pairs]
    for (_, line), (low, high) in zip(found.iterrows(), pairs, strict=True):
        check(line, naive(one, table, "g", low, high, COMPARED["difference"]))


def test_by_takes_the_averages_within_groups(poisson):
    one, table = poisson
    found = average_comparisons(one, table, variables="x", by="g", comparison="ratio")
    assert list(found["g"]) == ["a", "b", "c"]
    for (_, line), level in zip(found.iterrows(), "abc", strict=True):
        inside = table[table["g"] == level]
        check(line, naive(one, inside, "x", inside["x"], inside["x"] + 1, COMPARED["ratio"]))


def test_rows_count_by_their_weights():
    bundle, _ = further_bundle("gaussian")
    one, table = SubspacePosterior(bundle, random_draws(bundle, iterations=20)), small_frame()
    found = average_comparisons(one, table, variables="v", contrast="sd", comparison="difference")
    v = table["v"]
    ends = v.mean() - v.std() / 2, v.mean() + v.std() / 2
    check(found.loc[0], naive(one, table, "v", *ends, COMPARED["difference"], table["z"]))
    assert "g" not in set(average_comparisons(one, table, contrast=None)["term"])
    assert weighting(bundle.config, table.columns) == "weighted by z"
    assert weighting(bundle.config, ["v"]) == "unweighted (the rows have no column 'z')"


def test_a_small_step_is_the_average_marginal_effect(poisson):
    one, table = poisson
    step = average_comparisons(one, table, variables="v", contrast="1e-4")
    slope = average_marginal_effects(one, table, variables="v")
    assert step.loc[0, "Estimate"] / 1e-4 == pytest.approx(slope.loc[0, "Estimate"], rel=1e-3)


def test_categories_have_a_block_each_and_log_odds():
    bundle, _ = category_bundle()
    one = SubspacePosterior(bundle, random_draws(bundle, iterations=20))
    table = small_frame()
    found = average_comparisons(one, table, variables="x", comparison="lnor")
    assert list(found["category"]) == ["bus", "car", "train trip"]
    before, after = (mu(one, table.assign(x=table["x"] + step)).mean(axis=1) for step in (0, 1))
    odds = np.log(after / (1 - after)) - np.log(before / (1 - before))
    for k, (_, line) in enumerate(found.iterrows()):
        check(line, odds[:, k])


def test_of_a_mixture_draws_are_pooled_and_pieces_change_nothing(poisson, monkeypatch):
    one, table = poisson
    other, _ = small_bundle("count ~ x + C(g) + nn(u, v)", family="poisson", train__seed=2)
    mixed = Mixture((one, SubspacePosterior(other, random_draws(other, iterations=20, seed=4))))
    found = average_comparisons(mixed, table, variables=["x", "g"])
    draws = np.concatenate(
        [naive(m, table, "x", table["x"], table["x"] + 1, COMPARED["difference"])
         for m in mixed.members]
    )  # fmt: skip
    check(found.loc[0], draws)
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 300)
    pd.testing.assert_frame_equal(found, average_comparisons(mixed, table, variables=["x", "g"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variables": "x", "contrast": "reference"}, "of the number 'x' is a step"),
        ({"variables": "x", "contrast": "0"}, "of the number 'x' is a step"),
        ({"variables": "x", "contrast": "1,2,3"}, "of the number 'x' is a step"),
        ({"variables": "g", "contrast": "sd"}, "of the factor 'g' is reference"),
        ({"variables": "g", "contrast": "a,d"}, "has no level 'd'"),
        ({"variables": "count"}, "is the response"),
        ({"variables": "z"}, "does not use a column 'z'"),
        ({"comparison": "rations"}, "unknown comparison 'rations'. Did you mean 'ratio'"),
        ({"variables": "x", "comparison": "lnor"}, "the lnor does not exist"),
        (
            {"variables": "x", "by": "u"},
            "--by takes a factor, or a number .*: 'u' has 30",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(poisson, options, message):
    one, table = poisson
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        average_comparisons(one, table, **options)


@pytest.mark.parametrize("each", [False, True])
def test_where_the_work_is_much_a_part_is_compared_and_the_answer_says_so(
    poisson, monkeypatch, each
):
    one, table = poisson
    whole = comparisons_answer(one, table, variables="x", each=each)
    asked = {"variables": "x", "generator": np.random.default_rng(1)}
    compare = row_comparisons if each else average_comparisons
    pd.testing.assert_frame_equal(whole.frame, compare(one, table, **asked))
    assert not whole.partial
    monkeypatch.setattr(answers, "MOST_WORK", 1)
    monkeypatch.setattr(answers, "FEWEST_DRAWS", 20)
    monkeypatch.setattr(answers, "FEWEST_ROWS", 10)
    part = comparisons_answer(one, table, variables="x", each=each)
    assert part.draws == (20, one.size)
    assert part.rows == ((len(table),) * 2 if each else (10, len(table)))
    some = {} if each else {"rows": 10}
    asked = {"variables": "x", "generator": np.random.default_rng(1)}
    pd.testing.assert_frame_equal(part.frame, compare(one.thin(20), table, **asked, **some))
