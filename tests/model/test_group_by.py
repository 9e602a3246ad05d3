"""Standard deviations of a group's effects by another column, ``(1 | gr(g, by=h))``."""

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

N, TERM = 60, "(1 + x || gr(g, by=h))"


def table():
    i = np.arange(N)
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"g": [f"p{k % 12:02d}" for k in i], "h": np.array(["a", "b"])[i % 2]})
    return frame.assign(x=generator.normal(3, 2, N), u=generator.random(N), y=generator.random(N))


def learnt(term=TERM, frame=None):
    formula = parse_formula(f"y ~ x + {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows


def streams(S):
    return Streams((1,), 0, 1, S)


def test_names_are_brmss():
    _, group, _ = learnt()
    assert group.spread == ("sd_g__Intercept_ha", "sd_g__x_ha", "sd_g__Intercept_hb", "sd_g__x_hb")
    assert group.text == TERM


def test_effects_are_those_of_a_loop():
    _, group, rows = learnt()
    generator = np.random.default_rng(2)
    z, sd = generator.normal(size=(12, 2)), dict(zip(group.spread, [1.0, 2, 3, 4], strict=True))
    frame, block = table(), rows.predictors["mu"].blocks[0]
    expected = [
        sd[f"sd_g__Intercept_h{row.h}"] * z[int(row.g[1:]), 0]
        + sd[f"sd_g__x_h{row.h}"] * z[int(row.g[1:]), 1] * row.x
        for row in frame.itertuples()
    ]
    values = {"z_1": torch.tensor(z)} | {name: torch.tensor(x) for name, x in sd.items()}
    found = group.value(values, TensorBlock(torch.tensor(block.Z), torch.tensor(block.level)))
    assert found.numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in group.made(values).items()}
    assert group.predicted(made, block, streams(1))[0] == pytest.approx(expected)


def test_a_new_level_has_the_spread_of_its_h():
    design, group, _ = learnt("(1 | gr(g, by=h))")
    S = 4000
    draws = {"sd_g__Intercept_ha": np.full(S, 1.0), "sd_g__Intercept_hb": np.full(S, 9.0),
             "r_1": np.zeros((S, 12, 1))}  # fmt: skip
    new = table().iloc[:2].assign(g=["new", "other"], h=["b", "a"])
    rows = apply_design(design, new, response=False, allow_new_levels=True)
    effects = group.predicted(draws, rows.predictors["mu"].blocks[0], streams(S))
    assert effects.std(axis=0) == pytest.approx([9, 1], rel=5 / np.sqrt(2 * S))
    with pytest.raises(InputError, match="--allow-new-levels"):
        apply_design(design, new, response=False)


def test_new_standard_deviations_keep_the_effects():
    _, group, _ = learnt()
    r = np.array([1.0, 10, 2, 20] * 6)  # of the levels of a, and of b
    start = group.start(r, 1.0)
    assert [start[name] for name in group.spread] == pytest.approx([1, 10, 2, 20])
    moved = start | {name: 3 * start[name] for name in group.spread}
    moved["z_1"] = start["z_1"] / 3
    again = group.reestimated(moved, np.zeros((24, 24)), set(), 1.0)
    for name, value in start.items():
        assert again[name] == pytest.approx(value)
    held = group.reestimated(moved, np.zeros((24, 24)), {"sd_g__x_ha"}, 1.0)
    assert held["sd_g__x_ha"] == pytest.approx(30)


def test_the_state_survives_json():
    design, _, rows = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert again.terms[0].per_of == design.terms[0].per_of == (0, 1) * 6
    new = apply_design(again, table(), response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, rows.predictors["mu"].blocks[0].Z)


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("(1 + x | gr(g, by=h))", table(), "write two bars, '(1 + x || gr(g, by=h))'"),
        ("(1 | gr(g, by=h))", table().assign(h="a"), "'h' has one level"),
        ("(1 | gr(g, by=h))", table().assign(h=["a", "b"] * 15 + ["b", "a"] * 15),
         "level 'p06' of 'g' is of several levels of 'h'"),
        ("(1 | gr(g, cov=h))", table(), "expected a column"),
        ("(1 | gr(g, by=nothing))", table(), "names column 'nothing'"),
    ],
)  # fmt: skip
def test_what_cannot_be_grouped_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


def test_a_level_keeps_its_h_and_a_new_one_has_one():
    design, _, _ = learnt()
    rows, moved = (
        apply_design(design, x, response=False) for x in (table(), table().assign(h="b"))
    )
    before, after = (found.predictors["mu"].blocks[0] for found in (rows, moved))
    assert np.array_equal(before.level, after.level)
    assert after.of_new == ()
    with pytest.raises(InputError, match="'new' of 'g' is of several levels"):
        apply_design(design, table().assign(g="new"), response=False, allow_new_levels=True)


@pytest.mark.parametrize("damage", [{"per_of": [0]}, {"per_of": [7] * 12}, {"per": "x"}])
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt()[0])
    plain["groups"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
