"""Monotonic effects against loops, and their simplex against the Dirichlet distribution."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.priors.section import PriorConfig
from semistan.model.streams import Streams
from semistan.model.terms.term import TensorBlock

N, LEVELS = 40, ["none", "some", "most", "all"]


def table():
    generator = np.random.default_rng(3)
    x = np.arange(N) * 7 % 5 + 2
    text = pd.Categorical(np.array(LEVELS)[np.arange(N) % 4], LEVELS, ordered=True)
    return pd.DataFrame({"x": x, "o": text, "u": generator.random(N), "y": generator.random(N)})


def learnt(term, frame=None):
    formula = parse_formula(f"y ~ {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows


def simplex(stick):
    """Break a stick, piece by piece."""
    shares, rest = [], 1.0
    for share in stick:
        shares.append(share * rest)
        rest -= shares[-1]
    return np.array([*shares, rest])


@pytest.mark.parametrize(("term", "steps"), [("mo(x)", 4), ("mo(o)", 3)])
def test_effects_are_those_of_a_loop(term, steps):
    _, effect, rows = learnt(term)
    stick, slope = np.random.default_rng(1).random(steps - 1), -0.7
    shares, block = simplex(stick), rows.predictors["mu"].blocks[0]
    numbers = table().x - 2 if term == "mo(x)" else table().o.cat.codes
    expected = [slope * steps * shares[:number].sum() for number in numbers]
    values = {effect.slope: torch.tensor(slope), effect.stick: torch.tensor(stick)}
    tensors = TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))
    assert effect.value(values, tensors).numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in effect.made(values).items()}
    assert effect.predicted(made, block, Streams((1,), 0, 1, 1))[0] == pytest.approx(expected)
    assert made[effect.simplex][0] == pytest.approx(shares)
    assert np.ptp(expected) == pytest.approx(0.7 * steps)


@pytest.mark.parametrize(
    ("steps", "priors", "a"),
    [
        (2, {}, [1, 1]),
        (3, {"simo": "dirichlet(0.5)"}, [0.5] * 3),
        (6, {}, [1] * 6),
        (4, {"simo_mox1": "dirichlet(2, 1, 0.5, 3)", "simo": "dirichlet(7)"}, [2, 1, 0.5, 3]),
    ],
)
def test_the_prior_of_the_simplex_is_the_dirichlet(steps, priors, a):
    _, effect, _ = learnt("mo(x)", table().assign(x=np.arange(N) % (steps + 1)))
    (parameter,) = effect.parameters(PriorConfig(**priors))
    prior, exact = parameter.prior, stats.dirichlet(a)
    stick = torch.tensor(np.random.default_rng(2).random(steps - 1))

    def free(x):
        rest = [x.new_ones(()), *(1 - x).cumprod(0)]
        return torch.stack([share * left for share, left in zip(x, rest, strict=False)])

    J = torch.func.jacrev(free)(stick)
    density = prior.log_density(stick) - torch.linalg.slogdet(J).logabsdet
    assert float(density) == pytest.approx(exact.logpdf(simplex(stick.numpy())))
    draws = prior.draw(np.random.default_rng(1), 4000, (steps - 1,))
    shares = np.array([simplex(draw) for draw in draws])
    sd = np.sqrt(exact.var())
    assert (np.abs(shares.mean(axis=0) - exact.mean()) < 5 * sd / np.sqrt(4000)).all()
    assert shares.std(axis=0) == pytest.approx(sd, rel=0.08)


def test_the_start_has_the_trained_effects():
    _, effect, rows = learnt("mo(x)")
    block = rows.predictors["mu"].blocks[0]
    tensors = TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))
    x = np.array([0.5, 1.0, -0.5, 0.2])
    start = effect.start(x * effect.training_units(3.0), 3.0)
    values = {name: torch.as_tensor(value) for name, value in start.items()}
    trained = 3 * effect.training_value(torch.tensor(x), tensors)
    assert effect.value(values, tensors).numpy() == pytest.approx(trained.numpy())
    equal = effect.start(np.array([1.0, 0, 0, 0]), 1.0)[effect.stick]
    assert simplex(equal) == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize("term", ["mo(x)", "mo(o)"])
def test_the_state_survives_json(term):
    design, effect, rows = learnt(term)
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    new = apply_design(again, table().iloc[[7, 2]], response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.level, rows.predictors["mu"].blocks[0].level[[7, 2]])
    name = term[3]
    shares = tuple(f"simo_mo{name}1[{i}]" for i in range(1, effect.steps + 1))
    assert effect.reported == (f"bsp_mo{name}", *shares)
    assert set(effect.labels()) == set(effect.reported)


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("mo(u)", table(), "takes whole numbers or a column of ordered categories"),
        ("mo(x)", table().assign(x=np.arange(N) % 2), "needs 3 to 100 ordered categories, got 2"),
        ("mo(x)", table().assign(x=np.arange(N) * 9), "needs 3 to 100 ordered categories"),
        ("mo(x, k=3)", table(), "mo() takes one column"),
    ],
)
def test_what_is_not_ordered_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


@pytest.mark.parametrize("damage", [{"steps": 1}, {"scale": 0}, {"levels": ["a"]}])
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt("mo(x)")[0])
    plain["monotonic"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize(
    ("term", "new", "message"),
    [
        (
            "mo(x)",
            {"x": 9},
            "mo(x) has the categories of the training rows, 2 to 6, got 9 in row 1",
        ),
        ("mo(o)", {"o": "much"}, "'none', 'some', 'most', 'all', got 'much' in row 1 (40 of 40"),
    ],
)
def test_a_new_category_is_refused_by_its_name(term, new, message):
    design, *_ = learnt(term)
    with pytest.raises(InputError, match=re.escape(message)):
        apply_design(design, table().assign(**new), response=False)
