"""Smooths by group and by a number, periodic ones and effects of levels, against mgcv and SciPy.

The figures of mgcv 1.8-41 come from R 4.2, with the data of ``table``:

    control <- gam.control(scalePenalty = FALSE)
    m <- gam(y ~ g + s(x, by=g, k=8, bs="cr"), data=d, sp=rep(0.7, 3), control=control, scale=0.25)
    fitted(m)[c(1, 2, 3, 20, 59)]; sum(m$edf)

and the same for the other formulas, with one smoothing parameter of 0.7.
"""

import json

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.terms.splines import SPLINES

N, SP, SIGMA2 = 60, 0.7, 0.25
SHOWN = [0, 1, 2, 19, 58]
MGCV = {
    "g + s(x, by=g, k=8)": (
        [0.295230019929, -0.287150692111, 1.320646462556, 0.698179160048, 0.941755737094],
        15.7922071926,
    ),
    "s(x, by=z, k=6)": (
        [-0.717195995782, -0.219170054728, 1.226449981446, 0.801723974141, 1.122835222296],
        5.89271566798,
    ),
    "s(x, k=8, bs='cc')": (
        [0.961352600208, -0.124569266269, 1.351359562862, 0.907933166060, 1.047607805216],
        5.18249799158,
    ),
    "s(x, k=8, bs='cr')": (
        [1.275304451771, -0.141698736488, 1.333224332596, 0.955560385135, 1.193865817743],
        6.25813559587,
    ),
    "s(g, bs='re')": (
        [0.356857349975, 0.565198280713, 0.640610663578, 0.565198280713, 0.565198280713],
        2.93236714976,
    ),
}


def table():
    i = np.arange(N)
    x, z = (i * 37 % 60) / 6, (i * 23 % 60) / 20 - 1
    noise = ((i * i * 7) % 11 - 5) / 10
    y = np.sin(x) * (1 + i % 3) / 2 + z * np.cos(x / 2) + noise
    return pd.DataFrame({"x": x, "z": z, "g": np.array(["a", "b", "c"])[i % 3], "y": y, "u": x * z})


def learnt(terms, frame=None):
    frame = table() if frame is None else frame
    return learn_design(parse_formula(f"y ~ {terms} + nn(u)"), frame)


def bending(smooth):
    """The integral of the squared second derivative by x of one penalised direction."""
    direction = smooth.T[:, 0]
    return direction @ smooth.spline.penalty(smooth.knots) @ direction / smooth.scale**3


def fitted(design, rows):
    """Fitted values and their degrees of freedom at a bending's weight of ``SP``."""
    (term,), (block,) = design.terms, rows.predictors["mu"].blocks
    levels = max(block.level) + 1
    Z = np.zeros((len(rows), levels, block.Z.shape[1]))
    Z[np.arange(len(rows)), block.level] = block.Z
    Z = Z.reshape(len(rows), -1)
    of = getattr(term, "one", term)
    weight = SP * (bending(of) if hasattr(of, "T") else 1)
    A = np.column_stack([np.ones(len(rows)), rows.X, Z])
    penalty = np.diag([0.0] * (1 + rows.X.shape[1]) + [weight] * Z.shape[1])
    hat = A @ np.linalg.solve(A.T @ A + penalty, A.T)
    return hat @ rows.y, np.trace(hat)


@pytest.mark.parametrize("terms", MGCV)
def test_at_one_smoothing_parameter_the_fit_is_mgcvs(terms):
    values, edf = fitted(*learnt(terms))
    expected, of_mgcv = MGCV[terms]
    assert values[SHOWN] == pytest.approx(expected, abs=1e-9)
    assert edf == pytest.approx(of_mgcv, abs=1e-8)


def test_a_periodic_basis_goes_on_from_its_beginning():
    design, _ = learnt("s(x, bs='cc', k=7, knots=[-1, 11])")
    (smooth,) = design.terms
    x = np.linspace(-1, 11, 50)
    assert pytest.approx(smooth.basis(x).Z, abs=1e-10) == smooth.basis(x + 12).Z
    slopes = [np.diff(smooth.basis(at + np.array([0, 1e-6])).Z, axis=0) for at in (-1, 11 - 1e-6)]
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-9)
    assert design.coefficients == ()


@pytest.mark.parametrize("bs", SPLINES)
def test_the_penalty_is_the_integral_of_the_squared_second_derivative(bs):
    spline, knots = SPLINES[bs], np.array([0.0, 0.7, 1.1, 2.5, 3.0])
    fine = np.linspace(0, 3, 60_001)
    second = np.gradient(np.gradient(spline.basis(knots, fine), fine, axis=0), fine, axis=0)
    by_hand = np.einsum("ni,nj->ij", second[5:-5], second[5:-5]) * (fine[1] - fine[0])
    assert spline.penalty(knots) == pytest.approx(by_hand, rel=2e-2, abs=2e-2)


def test_names_are_brmss_and_lines_are_coefficients():
    design, _ = learnt("g + s(x, by=g, k=5) + s(x, by=z, k=5) + s(g, bs='re')")
    reported = [name for term in design.terms for name in term.reported]
    assert reported == ["sds_sxga_1", "sds_sxgb_1", "sds_sxgc_1", "sds_sxz_1", "sds_sg_1"]
    assert {"b_x_ga", "b_x_gb", "b_x_gc", "b_x_z", "b_z"} < {*design.coefficients}


def test_of_an_ordered_factor_the_first_level_is_the_reference():
    frame = table()
    frame["g"] = pd.Categorical(frame["g"], ["b", "c", "a"], ordered=True)
    design, rows = learnt("g + s(x, k=5) + s(x, by=g, k=5)", frame)
    _, term = design.terms
    assert (term.levels, term.reference) == (("c", "a"), "b")
    of_reference = rows.predictors["mu"].blocks[1].Z[frame.g == "b"]
    assert not of_reference.any()


@pytest.mark.parametrize(
    "terms",
    ["g + s(x, by=g, k=5)", "s(x, by=z, k=5)", "s(x, bs='cc', k=5)", "s(g, bs='re')"],
)
def test_new_rows_have_the_columns_of_the_training_rows(terms):
    design, rows = learnt(terms)
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    new = apply_design(again, table().iloc[[7, 2]], response=False).predictors["mu"]
    trained = rows.predictors["mu"].take(np.array([7, 2]))
    assert np.array_equal(new.X, trained.X)
    assert np.array_equal(new.blocks[0].Z, trained.blocks[0].Z)
    assert np.array_equal(new.blocks[0].level, trained.blocks[0].level)


def test_a_level_that_was_not_trained_on_has_no_smooth_but_may_have_an_effect():
    new = table().iloc[:2].assign(g="new")
    design, _ = learnt("s(x, by=g, k=5, bs='cc')")
    with pytest.raises(InputError, match=r"levels that the model was not trained on: 'new'"):
        apply_design(design, new, response=False)
    design, _ = learnt("s(g, bs='re')")
    with pytest.raises(InputError, match="--allow-new-levels"):
        apply_design(design, new, response=False)
    rows = apply_design(design, new, response=False, allow_new_levels=True)
    assert rows.predictors["mu"].blocks[0].new == ("new",)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("s(x, by=2)", "s() takes one expression and k"),
        ("s(x, by=log(z))", "s() takes one expression and k"),
        ("s(x, bs='tp')", "s() takes one expression and k"),
        ("s(x, z)", "s() takes one expression and k"),
        ("s(x, bs='cc', knots=[3, 1])", "s() takes one expression and k"),
        ("s(x, knots=[0, 10])", "of bs='cc' alone"),
        ("s(x, bs='cc', knots=[1, 10])", "has the period 1 to 10, but 'x' goes from 0 to 9.8"),
        ("s(x, bs='re')", "takes a column of text or categories"),
        ("s(x, by=nothing)", "names column 'nothing'"),
    ],
)
def test_what_cannot_be_smoothed_is_refused(terms, message):
    with pytest.raises(InputError) as caught:
        learnt(terms)
    assert message in str(caught.value)


def test_a_factor_of_one_level_is_refused():
    with pytest.raises(InputError, match="has one level; by= needs several"):
        learnt("s(x, by=g, bs='cc')", table().assign(g="a"))


@pytest.mark.parametrize(
    "damage", [{"bs": "tp"}, {"levels": []}, {"levels": ["a", "a"]}, {"by": "z"}, {"T": [[1.0]]}]
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt("g + s(x, by=g, k=5)")[0])
    plain["smooths"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
