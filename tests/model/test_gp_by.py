"""Gaussian processes by group and by a number, against processes of one group's rows."""

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
from semistan.model.terms.gp_covariances import COVARIANCES
from semistan.model.terms.term import TensorBlock

N, LEVELS = 60, ("a", "b", "c")


def table():
    generator = np.random.default_rng(5)
    frame = pd.DataFrame({name: generator.random(N) for name in ("x", "z", "u", "y")})
    return frame.assign(g=np.resize(LEVELS, N))


def learnt(term, frame=None):
    formula = parse_formula(f"y ~ {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows.predictors["mu"].blocks[0]


def tensors(values):
    return {name: torch.as_tensor(x, dtype=torch.float64) for name, x in values.items()}


def of_rows(block):
    return TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))


def parameters(term):
    generator = np.random.default_rng(7)
    values = dict(zip(term.spread, generator.uniform(0.2, 0.8, len(term.spread)), strict=True))
    return values | {"zgp_1": generator.normal(size=term.z_shape)}


@pytest.mark.parametrize("cov", COVARIANCES)
def test_each_level_has_a_process_of_its_own(cov):
    _, term, block = learnt(f"gp(x, by=g, cov='{cov}')")
    _, alone, whole = learnt(f"gp(x, cov='{cov}')")
    values = parameters(term)
    expected = np.zeros(N)
    for i, level in enumerate(LEVELS):
        own = {
            "sdgp_gpx": values[f"sdgp_gpxg{level}"],
            "lscale_gpx": values[f"lscale_gpxg{level}"],
            "zgp_1": values["zgp_1"][i],
        }
        where = table().g == level
        expected[where] = alone.value(tensors(own), of_rows(whole)).numpy()[where]
    assert term.value(tensors(values), of_rows(block)).numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in term.made(tensors(values)).items()}
    predicted = term.predicted(made, block, Streams((1,), 0, 1, 1))
    assert predicted[0] == pytest.approx(expected)
    numbers = {name: float(x) for name, x in values.items() if name in term.spread}
    assert term.variances(numbers) == pytest.approx(term.sd_of_each(values).numpy().ravel() ** 2)


def test_by_a_number_it_is_multiplied():
    _, term, block = learnt("gp(x, by=z)")
    _, alone, whole = learnt("gp(x)")
    values = parameters(term)
    own = {name.replace("gpxz", "gpx"): value for name, value in values.items()}
    expected = table().z * alone.value(tensors(own), of_rows(whole)).numpy()
    assert term.value(tensors(values), of_rows(block)).numpy() == pytest.approx(expected)
    size = np.sqrt((table().z ** 2).mean())
    assert [item.unit for item in term.hyperparameters()] == pytest.approx([1 / size, 1])
    (view,) = term.views(table())
    assert (view.at, view.less) == ({"z": 1.0}, {"z": 0.0})


def test_names_are_brmss():
    _, term, _ = learnt("gp(x, by=g)")
    sds, lscales = ([f"{name}_gpxg{level}" for level in LEVELS] for name in ("sdgp", "lscale"))
    assert term.reported == (*sds, *lscales)
    assert term.labels()["lscale_gpxgb"] == "length scale of gp(x) where g is b, over the range"
    assert [view.spread for view in term.views(table())] == [(name,) for name in sds]
    assert learnt("gp(x, by=z)")[1].reported == ("sdgp_gpxz", "lscale_gpxz")


@pytest.mark.parametrize("terms", ["gp(x, by=g, k=6)", "gp(x, by=g)", "gp(x, by=z)"])
def test_the_state_survives_json(terms):
    design, _, block = learnt(terms)
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert again.terms[0].text == terms.replace(", k=6", "")
    new = apply_design(again, table().iloc[[8, 3]], response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, block.Z[[8, 3]])
    assert np.array_equal(new.level, block.level[[8, 3]])


@pytest.mark.parametrize("terms", ["gp(x, by=g, k=6)", "gp(x, by=z, k=6)"])
def test_the_start_has_the_trained_curves(terms):
    _, term, block = learnt(terms)
    x = np.random.default_rng(2).normal(size=term.training_size)
    trained = term.training_value(torch.tensor(x), of_rows(block)).numpy()
    columns = term.training_columns(of_rows(block)).numpy()
    assert columns @ x == pytest.approx(trained)
    start = tensors(term.start(term.training_units(3.0) * x, 3.0))
    assert term.value(start, of_rows(block)).numpy() == pytest.approx(3 * trained)


def test_new_standard_deviations_keep_the_curves_and_find_each_length_scale():
    _, term, block = learnt("gp(x, by=g, k=40, c=1.25)")
    true, generator = (0.06, 0.1, 0.2), np.random.default_rng(4)
    z = np.stack(
        [5 * term.one.root(lscale) * generator.normal(size=40) / term.one.root(0.3)
         for lscale in true]
    )  # fmt: skip
    before = {name: 1.0 if name.startswith("sd") else 0.3 for name in term.spread}
    before |= {"zgp_1": z}
    found = term.reestimated(before, np.zeros((120, 120)), {"sdgp_gpxgc"}, 1.0)
    curves = [term.value(tensors(values), of_rows(block)).numpy() for values in (before, found)]
    assert curves[1] == pytest.approx(curves[0])
    lscales = [found[f"lscale_gpxg{level}"] for level in LEVELS]
    assert lscales == pytest.approx(true, rel=0.3)
    assert [found["sdgp_gpxga"], found["sdgp_gpxgb"]] == pytest.approx([5, 5], rel=0.5)
    assert found["sdgp_gpxgc"] == 1


def test_uncertain_coefficients_go_to_the_level_that_has_them():
    """The covariance is of z column by column: the second level's coefficients are uncertain."""
    _, term, _ = learnt("gp(x, by=g, k=6)")
    sure = np.zeros((6, 3))
    sure[:, 1] = 9.0
    before = {name: 1.0 if name.startswith("sd") else 0.3 for name in term.spread}
    fixed = {name for name in term.spread if name.startswith("lscale")}
    found = term.reestimated(before | {"zgp_1": np.ones((3, 6))}, np.diag(sure.ravel()), fixed, 1.0)
    sds = [found[f"sdgp_gpxg{level}"] for level in LEVELS]
    assert sds == pytest.approx([1, np.sqrt(10), 1])


def test_a_length_scale_that_the_basis_does_not_follow_is_named_with_its_level():
    _, term, _ = learnt("gp(x, by=g)")
    draws = {name: np.full((2, 50), 0.3) for name in term.spread}
    assert term.warning(draws) is None
    draws["lscale_gpxgb"] = np.random.default_rng(1).lognormal(np.log(1.5), 0.1, (2, 50))
    found = term.warning(draws)
    assert found.startswith("Warning: lscale_gpxgb has a posterior median of 1.5")
    written = re.search(r"write (gp\(x, by=g, k=.*\))\.$", found)[1]
    assert learnt(written)[1].warning(draws) is None


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("gp(x, by=g)", table().assign(g="a"), "has one level; by= needs several"),
        ("gp(x, by=log(z))", table(), "gp() takes one or two expressions"),
        ("gp(x, by=nothing)", table(), "names column 'nothing'"),
    ],
)
def test_what_cannot_vary_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


def test_a_level_that_was_not_there_is_refused():
    design, _, _ = learnt("gp(x, by=g)")
    with pytest.raises(InputError, match="a level has a process of its own"):
        apply_design(design, table().assign(g="d"), response=False)


def test_an_empty_text_is_a_level_like_others():
    design, _, _ = learnt("gp(x, by=g)")
    with pytest.raises(InputError, match="levels that the model was not trained on"):
        apply_design(design, table().assign(g=""), response=False)


@pytest.mark.parametrize("damage", [{"levels": []}, {"levels": ["a", "a"]}])
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt("gp(x, by=g)")[0])
    plain["processes"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
