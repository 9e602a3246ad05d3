"""What R writes shorter, written out as a model keeps it."""

import re

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.shorthand import needs_table, with_table, without_table, written_out
from semistan.subspace.construction import training_epochs
from semistan.workflow.prepare import configure, new_rows, prepare
from semistan.workflow.train import train
from support.small import small_frame

COLUMNS = ("Unnamed: 0", "y", "x", "u", "g", "h", "Sepal.Length", "odd name", "x.")


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("bf(y ~ x + nn(u), sigma ~ z)", "y ~ x + nn(u), sigma ~ z"),
        (" brmsformula( y ~ nn(u) ) ", "y ~ nn(u)"),
        ("bf (y) ~ nn(u)", "bf (y) ~ nn(u)"),
        ("y ~ factor(g) + as.factor(h) + nn(u)", "y ~ C(g) + C(h) + nn(u)"),
        ("y ~ my_factor(g) + `factor(g)`", "y ~ my_factor(g) + `factor(g)`"),
        ("y ~ (1 | g/h) + nn(u)", "y ~ (1 | g) + (1 | g:h) + nn(u)"),
        ("y ~ (1+log(x)||g / h/`a/b`)", "y ~ (1+log(x) || g) + (1+log(x) || g:h) + "
         "(1+log(x) || g:h:`a/b`)"),
        ("y ~ (1 | `g/h`) + I(x/u)", "y ~ (1 | `g/h`) + I(x/u)"),
        ("y | weights(a/b) ~ (1 | g)", "y | weights(a/b) ~ (1 | g)"),
        ("y ~ (1 | g/)", "y ~ (1 | g/)"),
    ],
)  # fmt: skip
def test_what_needs_no_table_is_written_out(short, whole):
    assert written_out(short) == whole
    assert written_out(whole) == whole


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("y ~ Sepal.Length + nn(u)", "y ~ `Sepal.Length` + nn(u)"),
        ("Sepal.Length ~ s(x.) + nn(u, a.b)", "`Sepal.Length` ~ s(`x.`) + nn(u, `a.b`)"),
        ("y ~ `Sepal.Length` + nn(u)", "y ~ `Sepal.Length` + nn(u)"),
        ("y ~ C(g, contr.poly, levels=['a.b']) + I(1.5*x) + nn(u)",
         "y ~ C(g, contr.poly, levels=['a.b']) + I(1.5*x) + nn(u)"),
        ("y ~ x + nn(u, g, h, .)", "y ~ x + nn(u, g, h, `Sepal.Length`, `odd name`, `x.`)"),
        ("log(y) ~ .^2 + C(g) + s(h) + nn(u, Sepal.Length, x.)",
         "log(y) ~ (x + `odd name`)^2 + C(g) + s(h) + nn(u, `Sepal.Length`, `x.`)"),
        ("y ~ . + nn(.)", "y ~ ({0}) + nn({1})"),
    ],
)  # fmt: skip
def test_the_table_explains_names_with_dots_and_the_dot(short, whole):
    rest = ["x", "u", "g", "h", "`Sepal.Length`", "`odd name`", "`x.`"]
    whole = whole.format(" + ".join(rest), ", ".join(rest))
    assert with_table(short, COLUMNS) == whole
    assert needs_table(short) == (short != whole)
    assert not needs_table(whole)
    parse_formula(without_table(short))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ log(.) + nn(u)", "'.' is all other columns"),
        ("y ~ x + u + g + h + Sepal.Length + `odd name` + x. + nn(.)", "no column is left"),
    ],
)
def test_a_dot_that_means_nothing_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        with_table(text, COLUMNS)
    line, carets = str(refused.value).splitlines()[1:3]
    assert line[carets.index("^")] == "."


def test_attributes_stay_refused():
    for text in ("y ~ x.__class__ + nn(u)", "y ~ np.log(x) + nn(u)", "y ~ nn(u.real)"):
        with pytest.raises(InputError):
            prepare(ModelConfig(formula=text), small_frame())


def test_nested_groups_are_both_terms():
    frame = small_frame(60).assign(g=np.arange(60) % 3, h=np.arange(60) % 4)
    short = prepare(ModelConfig(formula="y ~ x + (1 | g/h) + nn(u)"), frame)
    whole = prepare(ModelConfig(formula="y ~ x + (1 | g) + (1 | g:h) + nn(u)"), frame)
    assert short.config == whole.config
    names = [item.name for term in short.design.terms for item in term.hyperparameters()]
    assert names == ["sd_g__Intercept", "sd_g_h__Intercept"]


def test_a_table_of_r_is_fitted_by_its_own_names(tmp_path):
    """Names with dots, the rest by a dot: kept in the model, said, and used for new rows."""
    frame = small_frame().rename(columns={"x": "Sepal.Length", "u": "Petal.Length"})
    frame = frame[["Sepal.Length", "y", "Petal.Length"]]
    frame.to_csv(tmp_path / "iris.csv")  # with row names
    options = {
        "data": str(tmp_path / "iris.csv"), "train.epochs": 5, "network.hidden": (3,),
        "subspace.k": 2,
    }  # fmt: skip
    config = configure("y ~ Sepal.Length + nn(.)", options)
    assert training_epochs(config) == 5
    prepared = prepare(config)
    assert "'.' is Petal.Length" in prepared.notes
    assert prepared.config.formula == "y ~ `Sepal.Length` + nn(`Petal.Length`)"
    assert prepared.design.coefficients == ("b_Sepal_Length",)
    np.testing.assert_allclose(prepared.rows.U[:, 0], frame["Petal.Length"])
    assert len(new_rows(train(prepared), frame.head(3))) == 3


def test_every_name_that_is_no_column_is_said_at_once():
    text = "y ~ Sepal.Length + x + mass + nn(u, vv, Petal.Width)"
    with pytest.raises(InputError) as refused:
        prepare(ModelConfig(formula=text), small_frame())
    message = str(refused.value)
    assert "names columns 'Sepal.Length', 'mass', 'vv', 'Petal.Width', which" in message
    assert message.splitlines()[2].index("^") == message.splitlines()[1].index("`Sepal")


def test_a_dot_takes_no_column_twice():
    frame = pd.DataFrame(small_frame()).assign(w=np.arange(30.0) % 7)
    prepared = prepare(ModelConfig(formula="y | weights(w) ~ . + nn(u)"), frame)
    named = {"y", "w", "u"}
    assert set(prepared.design.mean.x.terms) == set(frame.columns) - named


@pytest.mark.parametrize(
    "text",
    [
        "bf(y ~ mi(x) + nn(u)) + bf(x | mi() ~ z)",
        "bf(y ~ mi(x) + nn(u)) + bf(x | mi() ~ z) + set_rescor(FALSE)",
        "brmsformula(y ~ mi(x) + nn(u)) + bf(x|mi() ~ z)+set_rescor(rescor = FALSE)",
        "bf(y ~ mi(x) + nn(u), x | mi() ~ z)",
    ],
)
def test_formulas_that_brms_adds_stand_behind_one_another(text):
    assert parse_formula(text).mean == parse_formula("y ~ mi(x) + nn(u), x | mi() ~ z").mean


@pytest.mark.parametrize(
    "text",
    ["+ bf(y ~ x + nn(u))", "bf(y ~ mi(x) + nn(u)) bf(x | mi() ~ z)", "bf(y ~ x + nn(u)) + z"],
)
def test_other_sums_of_formulas_are_refused(text):
    with pytest.raises(InputError):
        parse_formula(text)


def test_mi_is_a_call_in_places_where_a_name_is_none():
    with pytest.raises(InputError, match=r"mi\(\) must be a term of its own"):
        parse_formula("y ~ x + nn(mi(u))")
    assert parse_formula("y ~ `mi(x)` + nn(mi)").columns == ("mi(x)", "mi")


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("y ~ x %in% g + nn(u)", "y ~ x:g + nn(u)"),
        ("y ~ g + x %in% g + nn(u)", "y ~ g + x:g + nn(u)"),
        ("y ~ (x + z) %in% g + nn(u)", "y ~ (x + z):g + nn(u)"),
        ("y ~ `a %in% b` + nn(u)", "y ~ `a %in% b` + nn(u)"),
    ],
)
def test_nested_effects_are_interactions_as_in_r(written, plain):
    assert parse_formula(written).predictors == parse_formula(plain).predictors


@pytest.mark.parametrize("formula", ["y ~ nn(`.`)", "y ~ `.` + nn(u)", "y ~ s(`.`) + nn(u)"])
def test_a_column_called_dot_is_refused(formula):
    with pytest.raises(InputError, match=r"a column cannot be called '\.', .* rename it"):
        parse_formula(formula)
