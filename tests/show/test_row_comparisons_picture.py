"""The picture of comparisons by row: its points, order, axes and panels."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.show.pictures import draw_row_comparisons, row_comparisons_alt
from support.figures import lines, texts, ticks, untidy

N = 50


@pytest.fixture
def table():
    effect = np.random.default_rng(3).normal(size=N)
    bounds = {"l-90% CI": effect - 0.5, "u-90% CI": effect + 0.4}
    return pd.DataFrame(
        {"term": "z", "contrast": "+1", "row": np.arange(1, N + 1), "Estimate": effect} | bounds
    )


def points(axes):
    (found,) = [line for line in lines(axes, marker="o") if len(line[0]) > 2]
    return found


def test_rows_stand_by_their_estimates(table):
    figure = draw_row_comparisons(table, label="difference, mean of y")
    (axes,) = figure.axes
    x, y = points(axes)
    assert y == pytest.approx(np.sort(table["Estimate"]))
    assert x == pytest.approx((np.arange(N) + 0.5) / N)
    assert axes.get_ylabel() == "difference, mean of y"
    assert "90% intervals" in texts(figure)
    assert not untidy(figure)


def test_rows_stand_over_a_column(table):
    u = pd.Series(np.linspace(5, 9, N), index=table["row"], name="u")
    (axes,) = draw_row_comparisons(table, label="d", against=u).axes
    x, y = points(axes)
    assert dict(zip(x, y, strict=True)) == dict(zip(u, table["Estimate"], strict=True))
    assert axes.get_xlabel() == "u"


def test_rows_stand_around_their_level(table):
    g = pd.Series(np.tile(["b", "a"], N // 2), index=table["row"], name="g")
    figure = draw_row_comparisons(table, label="d", against=g)
    (axes,) = figure.axes
    x, y = points(axes)
    level = dict(zip(table["Estimate"], g, strict=True))
    assert ["ab"[round(at)] for at in x] == [level[value] for value in y]
    assert ticks(axes.xaxis) == ["a", "b"]
    assert not untidy(figure)


def test_changes_and_categories_have_panels_of_which_the_first_are_shown(table):
    several = pd.concat(
        [table.assign(contrast=f"{name} - a", category=c) for name in "bcde" for c in ("n", "y")]
    )
    figure = draw_row_comparisons(several, label="d")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:3] == ["z: b - a, n", "z: b - a, y", "z: c - a, n"]
    assert len(titles) == 6
    assert "2 more changes are not shown" in texts(figure).replace("\n", " ")
    assert not untidy(figure)


def test_the_alternative_text_counts_intervals_that_leave_out_0(table):
    apart = ((table["l-90% CI"] > 0) | (table["u-90% CI"] < 0)).mean()
    said = row_comparisons_alt(table, label="mean of y")
    assert f"{apart:.0%} of the intervals leave out 0" in said
    assert "z: +1 from " in said


def test_a_table_without_an_interval_is_refused(table):
    with pytest.raises(InputError, match="needs columns"):
        draw_row_comparisons(table.drop(columns="l-90% CI"), label="d")
