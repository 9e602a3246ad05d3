"""Rows that are of several levels of one group, ``(1 | mm(g1, g2))``."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.streams import Streams
from semistan.model.terms.term import TensorBlock

N, LEVELS = 60, 8
TERM = "(1 + x | mm(g1, g2, weights=cbind(w1, w2)))"


def table():
    i = np.arange(N)
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"g1": [f"s{k % LEVELS}" for k in i], "g2": [f"s{k % 5}" for k in i]})
    w = generator.random((N, 2))
    frame = frame.assign(w1=w[:, 0], w2=w[:, 1], x=generator.normal(3, 2, N))
    return frame.assign(u=generator.random(N), y=generator.random(N))


def learnt(term=TERM, frame=None):
    formula = parse_formula(f"y ~ x + {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows


def streams(S):
    return Streams((1,), 0, 1, S)


def tensors(block):
    return TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))


@pytest.mark.parametrize(
    ("term", "name", "text"),
    [
        (TERM, "mmg1g2", TERM),
        ("(1|mm(g1,g2))", "mmg1g2", "(1 | mm(g1, g2))"),
        ("(1 | mm(g1, g2, weights = cbind(w1, 2*w2), scale = FALSE))", "mmg1g2",
         "(1 | mm(g1, g2, weights=cbind(w1, I(2 * w2)), scale=FALSE))"),
    ],
)  # fmt: skip
def test_names_are_brmss(term, name, text):
    _, group, _ = learnt(term)
    assert group.spread[0] == f"sd_{name}__Intercept"
    assert group.elements["r_1"].name == f"r_{name}"
    assert group.text == text
    assert group.n_levels == LEVELS
    again, _, _ = learnt(group.text)
    assert again.terms[0].text == text


@pytest.mark.parametrize("scale", ["", ", scale=FALSE"])
def test_effects_are_those_of_a_loop(scale):
    _, group, rows = learnt(TERM.replace("))", f"){scale})"))
    generator = np.random.default_rng(2)
    r = generator.normal(size=(LEVELS, 2))
    expected = []
    for row in table().itertuples():
        total = 1.0 if scale else row.w1 + row.w2
        each = ((row.w1, r[int(row.g1[1:])]), (row.w2, r[int(row.g2[1:])]))
        expected.append(sum(w / total * (own[0] + own[1] * row.x) for w, own in each))
    values = {
        "z_1": torch.tensor(r), "L_1": torch.eye(2, dtype=torch.float64),
        **{name: torch.tensor(1.0) for name in group.spread},
    }  # fmt: skip
    block = rows.predictors["mu"].blocks[0]
    assert group.value(values, tensors(block)).numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in group.made(values).items()}
    assert group.predicted(made, block, streams(1))[0] == pytest.approx(expected)
    columns = group.training_columns(tensors(block))
    x = torch.tensor(generator.normal(size=2 * LEVELS))
    assert group.training_value(x, tensors(block)).numpy() == pytest.approx((columns @ x).numpy())
    standardised = torch.tensor(r.ravel() / group.training_units(1.0))
    assert (columns @ standardised).numpy() == pytest.approx(expected)


def test_without_weights_levels_count_alike():
    for term, each in (("(1 | mm(g1, g2))", 0.5), ("(1 | mm(g1, g2, scale=FALSE))", 1.0)):
        _, _, rows = learnt(term)
        assert np.array_equal(rows.predictors["mu"].blocks[0].Z, np.full((N, 2), each))


def test_a_level_twice_is_one_level():
    """Two columns of the same levels are the group of one column."""
    frame = table().assign(g2=table().g1)
    _, twice, rows = learnt("(1 + x | mm(g1, g2))", frame)
    _, once, plain = learnt("(1 + x | g1)", frame)
    draws = {
        "r_1": np.random.default_rng(3).normal(size=(5, LEVELS, 2)),
        **{name: np.full(5, 1.0 + i) for i, name in enumerate(twice.spread)},
        **{name: np.full(5, 1.0 + i) for i, name in enumerate(once.spread)},
        **dict.fromkeys((*twice.correlations, *once.correlations), np.full(5, 0.3)),
    }
    blocks = rows.predictors["mu"].blocks[0], plain.predictors["mu"].blocks[0]
    for name in ("predicted", "deviation"):
        arguments = (streams(5),) if name == "predicted" else ()
        mine, other = (
            getattr(group, name)(draws, block, *arguments)
            for group, block in zip((twice, once), blocks, strict=True)
        )
        assert mine == pytest.approx(other)


def test_new_levels_have_the_deviation_that_is_said():
    design, group, _ = learnt()
    S = 20_000
    name = "mmg1g2__Intercept"
    draws = {f"sd_{name}": np.full(S, 1.5), "sd_mmg1g2__x": np.full(S, 0.5),
             f"cor_{name}__x": np.full(S, -0.4), "r_1": np.zeros((S, LEVELS, 2))}  # fmt: skip
    new = table().iloc[:4].assign(g1=["n", "n", "n", "s0"], g2=["n", "m", None, "m"])
    rows = apply_design(design, new, response=False, allow_new_levels=True)
    block = rows.predictors["mu"].blocks[0]
    assert block.new == ("m", "n")
    drawn = group.predicted(draws, block, streams(S)).std(axis=0)
    said = group.deviation(draws, block)[0]
    assert drawn[:2] == pytest.approx(said[:2], rel=5 / np.sqrt(2 * S))
    assert (drawn[2:] < said[2:]).all()  # what is missing or known has no spread of its own here
    every = group.predicted(draws, group.renewed(block), streams(S)).std(axis=0)
    assert every == pytest.approx(said, rel=5 / np.sqrt(2 * S))
    with pytest.raises(InputError, match="--allow-new-levels"):
        apply_design(design, new, response=False)


def test_a_missing_level_has_no_effect():
    design, group, _ = learnt("(1 | mm(g1, g2))")
    rows = apply_design(design, table().iloc[:2].assign(g2=[None, "s3"]), response=False)
    block = rows.predictors["mu"].blocks[0]
    r = np.arange(1.0, LEVELS + 1)[None, :, None]
    assert group.predicted({"r_1": r}, block, streams(1))[0] == pytest.approx([0.5, 3.0])


def test_the_state_survives_json():
    design, group, rows = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert again.terms[0].members == group.members
    new = apply_design(again, table(), response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, rows.predictors["mu"].blocks[0].Z)
    plain = design_to_plain(design)
    plain["groups"][0]["members"]["scaled"] = False
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("(1 | mm(g1))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, g1))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, g2, by=x))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, g2, weights=w1))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, g2, scale=1))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, log(g2)))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, g2, weights=cbind(w1)))", table(), "2 columns and 1 weights"),
        ("(1 | mm(g1, g2, weights=cbind(w1, s(u))))", table(), "mm() takes two columns or more"),
        ("(1 | mm(g1, nothing))", table(), "names column 'nothing'"),
        ("(1 | mm(g1, g2))", table().assign(g1="a", g2="a"), "has one level"),
        (TERM, table().assign(w1=-1.0), "weights must not be negative, nor all 0 in a row; got -1"),
        (TERM, table().assign(w1=0.0, w2=0.0), "nor all 0 in a row; got 0, 0 in row 0"),
        (TERM, table().assign(w1="a"), "'w1'"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


def test_weights_are_known_and_not_learnt():
    formula = parse_formula(f"y ~ x + {TERM} + nn(u) + offset(x)")
    assert formula.not_learnt == ("w1", "w2")
    assert formula.grouping == ("g1", "g2")
    assert set(formula.columns) == {"x", "w1", "w2", "g1", "g2", "u"}
