"""Numbers that are too large or too small, and tables whose sizes a fit should warn of."""

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.table.scale import LARGEST, LARGEST_COUNT, SMALLEST
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.train import train
from support.small import small_frame

OPTIONS = {"train": {"epochs": 30}, "network": {"hidden": (3,)}, "subspace": {"k": 2}}


def prepared(frame, formula="y ~ x + nn(u)", family="gaussian"):
    return prepare(ModelConfig(formula=formula, family=family, **OPTIONS), frame)


@pytest.mark.parametrize("value", [1e300, -1e200, 1e51])
@pytest.mark.parametrize("name", ["y", "x", "u"])
@pytest.mark.parametrize("rows", [slice(None), slice(6, 7)])
def test_numbers_that_are_too_large_are_refused(name, rows, value):
    frame = small_frame()
    frame[name] = frame[name].astype(float)
    frame.loc[frame.index[rows], name] = value * (1 + np.arange(30)[rows] / 100)
    row = 1 if rows == slice(None) else 7
    with pytest.raises(InputError, match=f"'{name}' is .*e\\+.* in row {row}.*another unit"):
        prepared(frame)


@pytest.mark.parametrize("name", ["y", "x", "u"])
def test_numbers_that_are_too_small_are_refused(name):
    frame = small_frame()
    frame[name] = frame[name] * 1e-300
    with pytest.raises(InputError, match=f"{name}'? varies by .*e-.*multiply"):
        prepared(frame)


def test_a_transformation_may_not_be_too_large():
    frame = small_frame().assign(x=np.linspace(1.0, 300.0, 30))
    with pytest.raises(InputError, match=r"'exp\(x\)' is .* in row"):
        prepared(frame, "y ~ exp(x) + nn(u)")


@pytest.mark.parametrize(("of_y", "of_x"), [(1e40, 1e-40), (1e-40, 1e40), (1e45, 1e45)])
def test_units_that_are_allowed_change_nothing(of_y, of_x):
    frame = small_frame()
    usual = train(prepared(frame))
    other = frame.assign(y=frame["y"] * of_y, x=frame["x"] * of_x, u=frame["u"] * of_x)
    assert max(other["y"].abs().max(), other["x"].abs().max()) < LARGEST
    assert np.ptp(other["x"]) > SMALLEST
    scaled = train(prepared(other))
    np.testing.assert_allclose(scaled.subspace.p_bar, usual.subspace.p_bar, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("family", ["poisson", "negbinomial"])
def test_counts_beyond_those_of_stan_are_refused(family):
    frame = small_frame().assign(count=np.arange(30) * 10**8)
    with pytest.raises(InputError, match=f"is 2200000000 in row 23 .8 of 30.*end at {2**31 - 1}"):
        prepared(frame, "count ~ x + nn(u)", family)
    assert LARGEST_COUNT == 2**31 - 1


def test_trials_beyond_those_of_stan_are_refused():
    frame = small_frame().assign(count=np.arange(30), n=3 * 10**9)
    with pytest.raises(InputError, match=r"trials\(n\) is 3000000000 in row 1"):
        prepared(frame, "count | trials(n) ~ x + nn(u)", "binomial")


@pytest.mark.parametrize(
    ("family", "counts", "warned"),
    [("poisson", 10**9, True), ("poisson", 10**4, False), ("negbinomial", 10**9, False)],
)
def test_counts_that_are_taken_as_exact_are_warned_of(family, counts, warned):
    frame = small_frame().assign(count=counts + np.arange(30) * counts // 100)
    notes = " ".join(prepared(frame, "count ~ x + nn(u)", family).notes)
    assert ("intervals far too narrow" in notes) == warned


@pytest.mark.parametrize(("rows", "warned"), [(2, True), (3, True), (30, False)])
def test_few_rows_are_warned_of(rows, warned):
    notes = " ".join(prepared(small_frame(30).iloc[:rows], "y ~ nn(u)").notes)
    assert (f"warning: {rows} rows say little" in notes) == warned


@pytest.mark.parametrize("name", ["x", "u"])
def test_a_row_that_is_alone_far_out_is_warned_of(name):
    frame = small_frame()
    frame[name] = frame[name].astype(float)
    assert not prepared(frame).notes
    frame.loc[frame.index[4], name] = 1e30
    notes = " ".join(prepared(frame).notes)
    assert f"warning: '{name}' is 1e+30 in row 5" in notes
    assert notes.count("warning") == 1


def test_a_small_number_among_new_rows_is_no_small_column():
    frame = small_frame()
    bundle = train(prepared(frame))
    assert len(new_rows(bundle, frame.head(1).assign(x=1e-200))) == 1
    with pytest.raises(InputError, match="'u' is 1e"):
        new_rows(bundle, frame.head(1).assign(u=1e200))
