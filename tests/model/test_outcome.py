"""Responses in words, and words among numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula
from semistan.show.pictures.material import Material
from semistan.show.pictures.words import mean_words
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.train import train
from support.small import small_frame

OPTIONS = {"train": {"epochs": 5}, "network": {"hidden": (3,)}, "subspace": {"k": 2}}
WORDS = np.array(["No", "Yes"])[np.arange(30) % 2]
SIZES = np.array(["small", "mid", "large"])[np.arange(30) % 3]


def prepared(formula, frame, family="bernoulli"):
    return prepare(ModelConfig(formula=formula, family=family, **OPTIONS), frame)


def test_levels_left_of_the_tilde_are_read():
    formula = parse_formula("C(`a b`, levels=['No', 'Yes']) | weights(w) ~ x + nn(u)")
    assert (formula.response, formula.levels) == ("`a b`", ("No", "Yes"))
    assert (formula.outcome, formula.weights) == (("a b", "w"), "w")


@pytest.mark.parametrize("text", ["C(y)", "C(y, levels=['a'])", "C(y, levels=['a', 'a'])"])
def test_levels_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="gives the values in order"):
        parse_formula(f"{text} ~ x + nn(u)")


@pytest.mark.parametrize(
    "column", [WORDS, pd.Categorical(WORDS), pd.Categorical(WORDS, ["No", "Yes", "Maybe"])]
)
def test_two_words_are_0_and_1_and_which_is_said(column):
    frame = small_frame().assign(ill=column)
    found = prepared("ill ~ x + nn(u)", frame)
    np.testing.assert_array_equal(found.rows.y, np.arange(30) % 2)
    assert "'Yes' of response 'ill' is 1, 'No' is 0" in " ".join(found.notes)
    assert found.config.formula == "C(ill, levels=['No', 'Yes']) ~ x + nn(u)"
    again = prepare(found.config, found.rows.frame)  # as kfold does with a run's own table
    np.testing.assert_array_equal(again.rows.y, found.rows.y)


def test_the_order_of_levels_and_of_categories_counts():
    reverse = pd.Categorical(WORDS, ["Yes", "No"])
    for formula, column in (("C(ill, levels=['Yes', 'No'])", WORDS), ("ill", reverse)):
        found = prepared(f"{formula} ~ x + nn(u)", small_frame().assign(ill=column))
        np.testing.assert_array_equal(found.rows.y, 1 - np.arange(30) % 2)


def test_new_rows_are_read_by_the_same_levels():
    frame = small_frame().assign(ill=WORDS)
    bundle = train(prepared("ill ~ x + nn(u)", frame))
    rows = new_rows(bundle, frame.iloc[1:5], response=True)
    np.testing.assert_array_equal(rows.y, [1, 0, 1, 0])
    with pytest.raises(InputError, match=r"'yes' in row 2.*Did you mean 'Yes'"):
        new_rows(bundle, frame.iloc[:4].assign(ill=["No", "yes", "No", "No"]), response=True)
    assert len(new_rows(bundle, frame.drop(columns="ill"))) == 30


def test_a_response_beside_weights_keeps_them():
    frame = small_frame().assign(ill=WORDS, w=np.arange(30.0))
    found = prepared("ill | weights(w) ~ x + nn(u)", frame)
    assert found.config.formula == "C(ill, levels=['No', 'Yes']) | weights(w) ~ x + nn(u)"
    np.testing.assert_array_equal(found.rows.given["weights"], np.arange(30.0))


def test_ordered_words_have_their_levels_in_the_formula():
    frame = small_frame().assign(size=SIZES)
    written = "C(size, levels=['small', 'mid', 'large']) ~ x + nn(u)"
    found = prepared(written, frame, "cumulative")
    np.testing.assert_array_equal(found.rows.y, np.arange(30) % 3 + 1)
    assert found.config.family == "cumulative(logit, 3)"
    as_categories = frame.assign(size=pd.Categorical(SIZES, ["small", "mid", "large"], True))
    other = prepared("size ~ x + nn(u)", as_categories, "cumulative")
    np.testing.assert_array_equal(other.rows.y, found.rows.y)
    with pytest.raises(InputError, match=r"C\(size, levels=\['large', 'mid', 'small'\]\)"):
        prepared("size ~ x + nn(u)", frame, "cumulative")


def test_whole_numbers_are_words_as_well():
    frame = small_frame().assign(ill=np.where(np.arange(30) % 2, 2, 1))
    found = prepared("C(ill, levels=[2, 1]) ~ x + nn(u)", frame)
    np.testing.assert_array_equal(found.rows.y, 1 - np.arange(30) % 2)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("size ~ x + nn(u)", "bernoulli", "expects two values, but response 'size' has 3"),
        ("size ~ x + nn(u)", "gaussian", "must be numeric, got 'small'"),
        ("C(size, levels=['small', 'mid']) ~ x + nn(u)", "gaussian", "the family is gaussian"),
        ("C(size, levels=['small', 'mid']) ~ x + nn(u)", "bernoulli", "'large' in row 3"),
        ("C(size, levels=['small', 'mid', 'large']) ~ x + nn(u)", "bernoulli", "has two levels"),
    ],
)
def test_words_that_say_nothing_are_refused(formula, family, message):
    with pytest.raises(InputError) as refused:
        prepared(formula, small_frame().assign(size=SIZES), family)
    assert message in str(refused.value)


@pytest.mark.parametrize("formula", ["y ~ m + nn(u)", "y ~ x + nn(u, m)", "y ~ x:m + nn(u)"])
def test_a_stray_word_among_numbers_is_refused(formula):
    """It would make the column a factor of as many levels as there are numbers."""
    values = [str(0.5 * i) for i in range(29)] + ["n/k"]
    frame = small_frame().assign(m=values)
    with pytest.raises(InputError, match=r"numbers but for 1 of 30 rows, as 'n/k' in row 30"):
        prepared(formula, frame, "gaussian")


def test_words_that_are_levels_stay_levels():
    few = np.array(["1", "2", "3", "4", "5+"])[np.arange(30) % 5]
    frame = small_frame().assign(m=few, g=few)
    assert prepared("y ~ x + C(m) + (1 | g) + nn(u)", frame, "gaussian").design
    many = np.array(["1", "2", "many"])[np.arange(30) % 3]
    assert prepared("y ~ m + nn(u)", frame.assign(m=many), "gaussian").design


def test_the_first_word_is_named_where_numbers_are_needed():
    frame = small_frame().assign(m=[str(i) for i in range(29)] + ["n/k"])
    with pytest.raises(InputError, match=r"'m' must be numeric, got 'n/k' .* in row 30"):
        prepared("y ~ log(m) + nn(u)", frame, "gaussian")


@pytest.mark.parametrize(("formula", "said"), [("ill ~ x + nn(u)", "Yes"), ("flag ~ nn(u)", "1")])
def test_pictures_say_what_is_1(formula, said):
    frame = small_frame().assign(ill=WORDS)
    posterior = SimpleNamespace(config=prepared(formula, frame).config, family=family("bernoulli"))
    material = SimpleNamespace(
        success=Material.success.fget(SimpleNamespace(posterior=posterior)),
        response="ill", posterior=posterior,
    )  # fmt: skip
    assert mean_words(material) == f"P(ill = {said})"
