"""Effects of levels that are related, ``(1 | gr(g, cov='A.csv'))``."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.streams import Streams
from semistan.model.terms.group_cov import covariances
from semistan.model.terms.term import TensorBlock
from semistan.workflow.prepare import prepare

N = 40
LEVELS = tuple("abcdef")  # f has no rows
TERM = "(1 + x || gr(g, cov='A.csv'))"


def table():
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"g": np.array(LEVELS[:5])[np.arange(N) % 5]})
    return frame.assign(x=generator.normal(3, 2, N), u=generator.random(N), y=generator.random(N))


def matrix():
    """A phylogeny: levels share their way from the root."""
    half = np.kron(np.eye(2), np.full((3, 3), 0.5))
    return half + np.diag([0.5, 0.5, 0.5, 0.5, 0.5, 1.1])


def related(**changes):
    return pd.DataFrame(matrix(), columns=list(LEVELS)).assign(**changes)


def named(order=range(6)):
    """As R's write.csv writes it, with rows in another order than the columns."""
    frame = related()
    frame.insert(0, "Unnamed: 0", list(LEVELS))
    return frame.iloc[list(order)]


def learnt(term=TERM, own=None):
    formula = parse_formula(f"y ~ x + {term} + nn(u)")
    A = {"A.csv": related() if own is None else own}
    design, rows = learn_design(formula, table(), related=A)
    return design, design.terms[0], rows


def streams(S):
    return Streams((1,), 0, 1, S)


def test_names_are_brmss():
    _, group, _ = learnt()
    assert group.spread == ("sd_g__Intercept", "sd_g__x")
    assert group.text == TERM
    assert group.levels == LEVELS


@pytest.mark.parametrize("own", [related(), named(), named([5, 3, 1, 0, 2, 4])])
def test_the_factor_is_of_the_covariances(own):
    _, group, _ = learnt(own=own)
    assert group.factor @ group.factor.T == pytest.approx(matrix())


def test_effects_are_those_of_a_loop():
    """The density of effects is that of a normal with the Kronecker product of A and Sigma."""
    _, group, rows = learnt("(1 + x | gr(g, cov='A.csv'))")
    generator = np.random.default_rng(2)
    z, sd = generator.normal(size=(6, 2)), np.array([1.5, 0.3])
    L = np.linalg.cholesky([[1, 0.6], [0.6, 1]])
    r = np.linalg.cholesky(matrix()) @ z @ (sd[:, None] * L).T
    frame = table()
    at = [LEVELS.index(g) for g in frame.g]
    expected = r[at, 0] + r[at, 1] * frame.x.to_numpy()
    values = {"z_1": torch.tensor(z), "L_1": torch.tensor(L)}
    values |= {name: torch.tensor(x) for name, x in zip(group.spread, sd, strict=True)}
    block = rows.predictors["mu"].blocks[0]
    tensors = TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))
    assert group.value(values, tensors).numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in group.made(values).items()}
    assert group.predicted(made, block, streams(1))[0] == pytest.approx(expected)
    columns, x = group.training_columns(tensors), torch.tensor(z.ravel())
    assert group.training_value(x, tensors).numpy() == pytest.approx((columns @ x).numpy())
    trained = group.start(group.training_units(1.0) * z.ravel(), 1.0)
    start = {name: torch.as_tensor(value) for name, value in trained.items()}
    assert group.value(start, tensors).numpy() == pytest.approx(
        group.training_value(x, tensors).numpy()
    )


def test_levels_without_rows_follow_their_relatives():
    design, group, _ = learnt("(1 | gr(g, cov='A.csv'))")
    r = np.arange(1.0, 7)[None, :, None]
    new = table().iloc[:2].assign(g=["f", "b"])
    block = apply_design(design, new, response=False).predictors["mu"].blocks[0]
    assert group.predicted({"r_1": r}, block, streams(1))[0] == pytest.approx([6, 2])


def test_what_is_said_of_the_deviation_is_that_of_the_effects():
    design, group, _ = learnt("(1 | gr(g, cov='A.csv'))")
    S = 20_000
    z = np.random.default_rng(4).normal(size=(S, 6, 1))
    draws = {"sd_g__Intercept": np.full(S, 2.0), "r_1": 2 * (group.factor @ z)}
    new = table().iloc[:3].assign(g=["a", "f", "other"])
    rows = apply_design(design, new, response=False, allow_new_levels=True)
    block = rows.predictors["mu"].blocks[0]
    said = group.deviation(draws, block)[0]
    assert said == pytest.approx([2, 2 * np.sqrt(1.6), 2])
    drawn = group.predicted(draws, block, streams(S)).std(axis=0)
    assert drawn == pytest.approx(said, rel=5 / np.sqrt(2 * S))


def test_the_state_survives_json():
    design, group, rows = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert np.array_equal(again.terms[0].factor, group.factor)
    new = apply_design(again, table(), response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.level, rows.predictors["mu"].blocks[0].level)


@pytest.mark.parametrize(
    "damage", [{"cov": "B.csv"}, {"factor": [[1.0]]}, {"factor": [[-1.0]] * 6}]
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt()[0])
    plain["groups"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize(
    ("term", "own", "message"),
    [
        (TERM, related().iloc[:, :4], "one row and one column for each level, got 6 rows and 4"),
        (TERM, related().iloc[:4, :4], "has no covariances of 'e', which 'g' has"),
        (TERM, named().assign(**{"Unnamed: 0": list("abcdeg")}), "the same levels in rows and"),
        (TERM, named().assign(**{"Unnamed: 0": [*"abcde", None]}), "in rows and columns; see"),
        (TERM, related(a=["x"] * 6), "must have numbers alone"),
        (TERM, related(a=np.nan), "finite numbers"),
        (TERM, related(a=[1, 0.3, 0.5, 0, 0, 0]),
         "must be symmetric, got 0.5 of 'a' and 'b', and 0.3 of 'b' and 'a'"),
        (TERM, pd.DataFrame(np.ones((6, 6)), columns=list(LEVELS)), "positive definite"),
        ("(1 | gr(g:x, cov='A.csv'))", related(), "covariances are of the levels of one column"),
        ("(1 | gr(g, cov=A))", related(), "expected a column"),
        ("(1 | gr(g, by=x, cov='A.csv'))", related(), "expected a column"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(term, own, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, own)


def test_there_is_a_largest_number_of_levels(monkeypatch):
    monkeypatch.setattr("semistan.model.terms.group_cov.MOST_LEVELS", 5)
    with pytest.raises(InputError, match="6 levels; at most 5"):
        covariances(related(), "A")


def test_the_file_is_beside_the_table_or_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    table().to_csv("data/table.csv", index=False)
    config = ModelConfig(formula=f"y ~ x + {TERM} + nn(u)", data="data/table.csv")
    for name in ("A.csv", "A" * 5000):
        absent = config.model_copy(update={"formula": config.formula.replace("A.csv", name)})
        with pytest.raises(InputError, match=f"cov='{name}' is no file, neither beside"):
            prepare(absent)
    named([5, 3, 1, 0, 2, 4]).to_csv("data/A.csv", index=False)
    beside = prepare(config).design.terms[0].factor
    assert beside @ beside.T == pytest.approx(matrix())
    (tmp_path / "data" / "A.csv").rename("A.csv")
    assert np.array_equal(prepare(config, table()).design.terms[0].factor, beside)
