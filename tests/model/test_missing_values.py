"""``mi(x)`` against least squares, closed forms and the posterior of a plain program."""

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

N, GONE = 60, 15
FORMULA = "y ~ z + mi(x) + nn(u), x | mi() ~ z + C(g)"


def table(**changes):
    generator = np.random.default_rng(3)
    frame = pd.DataFrame({"z": generator.normal(1000, 2, N), "u": generator.random(N)})
    frame["g"] = np.array(["a", "b", "c"])[np.arange(N) % 3]
    frame["x"] = 100 + 3 * (frame.z - 1000) + 2 * (frame.g == "b") + generator.normal(0, 4, N)
    frame["y"] = 0.5 * frame.x + generator.normal(size=N)
    gone = generator.permutation(N)[:GONE]
    frame.loc[gone, "x"] = np.nan
    return frame.assign(**changes)


def learnt(formula=FORMULA, frame=None):
    design, rows = learn_design(parse_formula(formula), table() if frame is None else frame)
    return design, design.terms[0], rows


def columns(frame):
    return np.column_stack([np.ones(len(frame)), frame.z, frame.g == "b", frame.g == "c"])


def values_of(term, generator):
    """Draw parameters, as tensors by name."""
    names = {parameter.name: parameter.shape for parameter in term.parameters(PriorConfig())}
    found = {name: torch.tensor(generator.normal(size=shape)) for name, shape in names.items()}
    numbers = {term.slope: 0.7, term.sigma: 3.1}
    return found | {name: torch.tensor(x, dtype=torch.float64) for name, x in numbers.items()}


def tensors(block):
    return TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))


def test_the_known_values_say_what_least_squares_says():
    _, term, _ = learnt()
    known = table().dropna()
    A = columns(known)
    estimate, (rss,), *_ = np.linalg.lstsq(A, known.x, rcond=None)
    assert term.estimate == pytest.approx(estimate, rel=1e-6)
    assert term.nu == len(known) - 4
    assert term.s == pytest.approx(np.sqrt(rss / term.nu))
    covariance = np.linalg.inv(A.T @ A)
    assert term.root @ term.root.T == pytest.approx(covariance, rel=1e-4, abs=1e-9)
    assert (term.loc, term.scale) == pytest.approx((known.x.mean(), known.x.std()))


def test_what_it_adds_is_that_of_a_loop():
    _, term, rows = learnt()
    values, block = values_of(term, np.random.default_rng(1)), rows.predictors["mu"].blocks[0]
    numpy = {name: x.numpy() for name, x in values.items()}
    b = term.estimate + 3.1 * term.root @ numpy["zb_mi_1"]
    x, z = table().x.to_numpy(copy=True), iter(numpy["z_mi_1"])
    for row in np.flatnonzero(np.isnan(x)):
        x[row] = columns(table())[row] @ b + 3.1 * next(z)
    expected = 0.7 * (x - term.loc)
    assert term.value(values, tensors(block)).numpy() == pytest.approx(expected)
    made = {name: x.numpy()[None] for name, x in term.made(values).items()}
    assert made["Ymi_1"][0] == pytest.approx(x[table().x.isna()])
    assert term.predicted(made, block, Streams((1,), 0, 1, 1))[0] == pytest.approx(expected)
    data = term.data(block)
    by_program = data["x_mi_1"] * made["mi_1"][0][data["J_mi_1"] - 1]
    assert by_program == pytest.approx(expected)


def test_a_new_missing_value_has_the_distribution_of_x():
    design, term, _ = learnt()
    new = table().iloc[:2].assign(x=np.nan)
    rows = apply_design(design, new, response=False)
    S, generator = 4000, np.random.default_rng(2)
    draws = {
        "mi_1": np.full((S, 1 + GONE), 0.5),
        "b_mi_1": generator.multivariate_normal(term.estimate, 9 * term.root @ term.root.T, S),
        term.sigma: np.full(S, 3.0),
    }
    block = rows.predictors["mu"].blocks[0]
    added = term.predicted(draws, block, Streams((1,), 0, 1, S))
    a = columns(new)
    mean = 0.5 * (a @ term.estimate - term.loc)
    sd = 1.5 * np.sqrt(1 + np.square(a @ term.root).sum(axis=1))
    assert (np.abs(added.mean(axis=0) - mean) < 5 * sd / np.sqrt(S)).all()
    assert added.std(axis=0) == pytest.approx(sd, rel=0.06)
    assert abs(np.corrcoef((added - draws["b_mi_1"] @ a.T / 2).T)[0, 1]) < 0.1
    again = term.predicted(draws, block.take(np.array([1])), Streams((1,), 0, 1, S))
    assert again[:, 0] == pytest.approx(added[:, 1])
    with pytest.raises(InputError, match="'x' is missing in 2 new rows"):
        term.data(block)


@pytest.mark.parametrize("nothing", [None, pd.NA, np.nan])
def test_all_new_rows_may_lack_x(nothing):
    design, *_ = learnt()
    new = table().head(3).assign(x=pd.Series([nothing] * 3, dtype=object))
    block = apply_design(design, new, response=False).predictors["mu"].blocks[0]
    assert block.level.tolist() == [GONE, GONE + 1, GONE + 2]


@pytest.mark.parametrize("kept", [slice(None), slice(7, 40), [30, 2, 11]])
def test_rows_of_the_training_keep_their_missing_values(kept):
    design, _, rows = learnt()
    own = apply_design(design, rows.frame.iloc[kept], response=False).predictors["mu"].blocks[0]
    assert np.array_equal(own.level, rows.predictors["mu"].blocks[0].level[kept])
    assert own.new == ()
    others = apply_design(design, table().iloc[kept], response=False).predictors["mu"].blocks[0]
    gone = table().x.isna().to_numpy()[kept]
    assert len(others.new) == gone.sum()
    assert ((others.level >= GONE) == gone).all()


def test_the_prior_of_sigma_is_scaled_inverse_chi_squared():
    _, term, _ = learnt()
    prior = term.parameters(PriorConfig())[0].prior
    draws = prior.draw(np.random.default_rng(1), 4000, ())
    square = stats.invgamma(term.nu / 2, scale=term.nu * term.s**2 / 2)
    assert stats.kstest(draws**2, square.cdf).pvalue > 0.001
    for sigma in (0.5 * term.s, 2.0 * term.s):
        density = float(prior.log_density(torch.tensor(sigma, dtype=torch.float64)))
        assert density == pytest.approx(square.logpdf(sigma**2) + np.log(2 * sigma))


def test_the_start_has_the_trained_effects():
    _, term, rows = learnt()
    block = tensors(rows.predictors["mu"].blocks[0])
    x = torch.tensor([0.8], dtype=torch.float64)
    start = term.start(x.numpy() * term.training_units(3.0), 3.0)
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in start.items()}
    trained = 3 * term.training_value(x, block)
    assert term.value(values, block).numpy() == pytest.approx(trained.numpy())


def test_sigma_is_estimated_by_em():
    """Of missing values of which the response says nothing, sigma is that of the known ones."""
    _, term, _ = learnt()
    values = {name: x.numpy() for name, x in values_of(term, np.random.default_rng(1)).items()}
    values |= {"z_mi_1": np.zeros(GONE), term.sigma: term.s}
    again = term.reestimated(values, np.eye(GONE), set(), 1.0)
    assert again[term.sigma] == pytest.approx(term.s)
    values["z_mi_1"] = np.full(GONE, 2.0)
    new = term.reestimated(values, 0 * np.eye(GONE), set(), 1.0)
    expected = term.s * np.sqrt((term.nu + 4 * GONE) / (term.nu + GONE))
    assert new[term.sigma] == pytest.approx(expected)
    before, after = (
        term.made({name: torch.as_tensor(np.asarray(x)) for name, x in (values | found).items()})
        for found in ({}, new)
    )
    for name in term.made_names:
        assert after[name].numpy() == pytest.approx(before[name].numpy())


def test_the_state_survives_json():
    design, term, rows = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    new = apply_design(again, rows.frame, response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, rows.predictors["mu"].blocks[0].Z)
    assert np.array_equal(again.terms[0].A, term.A)
    assert term.reported == (
        "bsp_mix", "b_x[Intercept]", "b_x[z]", "b_x[C(g)[T.b]]", "b_x[C(g)[T.c]]", "sigma_mix"
    )  # fmt: skip
    assert set(term.labels()) == set(term.reported)


def test_names_with_blanks_are_spelled_as_coefficients_are():
    frame = table().rename(columns={"x": "my x", "z": "a z"})
    formula = "y ~ mi(`my x`) + nn(u), `my x` | mi() ~ `a z`"
    _, term, rows = learnt(formula, frame)
    assert term.reported == (
        "bsp_mi_my_x", "b_my_x[Intercept]", "b_my_x[a.z]", "sigma_mi_my_x"
    )  # fmt: skip
    assert set(term.labels()) == set(term.reported)
    assert "Ymi_my x" in rows.frame


def test_a_column_without_missing_values_may_lack_them_in_new_rows():
    design, term, _ = learnt(frame=table(x=np.arange(N) % 7.0))
    assert term.missing == ()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design))))
    assert again.terms[0].A.shape == (0, 4)
    block = apply_design(again, table(), response=False).predictors["mu"].blocks[0]
    assert len(block.new) == GONE


@pytest.mark.parametrize(
    "damage",
    [{"missing": [1]}, {"s": 0}, {"root": [[1.0]]}, {"estimate": [1.0]}, {"loc": float("nan")}],
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt()[0])
    plain["imputed"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


@pytest.mark.parametrize(
    ("formula", "frame", "message"),
    [
        (FORMULA, table(x=[1.0, 2, 3, 4, 5] + [np.nan] * (N - 5)), "at least 6, which differ"),
        (FORMULA, table(x=[1.0] * 50 + [np.nan] * 10), "which differ"),
        (FORMULA, table(z=1000.0), "is constant or collinear"),
        (FORMULA, table(z=lambda t: t.x.fillna(3)), "says exactly what 'x' is"),
        (FORMULA, pd.concat([table()] * 140, ignore_index=True), "at most 2,000 may be"),
        ("y ~ mi(g) + nn(u), g | mi() ~ z", table(), "'g'"),
        ("y ~ mi(x) + nn(u)", table(), "what its missing values are predicted from"),
        ("y ~ mi(log(x)) + nn(u), x | mi() ~ z", table(), "mi() takes a column as it is"),
        ("y ~ mi(x):z + nn(u), x | mi() ~ z", table(), "cannot take part in an interaction"),
        ("y ~ mi(x) + nn(u, x), x | mi() ~ z", table(), "stands in mi(x) alone"),
        ("y ~ mi(x) + nn(u), x | mi() ~ x", table(), "stands in mi(x) alone"),
        ("y ~ mi(x) + nn(u), x | mi() ~ s(z)", table(), "from columns and an intercept"),
        ("y ~ mi(x) + nn(u), x | mi() ~ 0 + z", table(), "from columns and an intercept"),
        ("y ~ mi(x) + nn(u), x | mi() ~ (1 | g)", table(), "from columns and an intercept"),
        ("y ~ mi(x) + nn(u), x | mi() ~", table(), "from columns and an intercept"),
        ("y ~ z + nn(u), x | mi() ~ z", table(), "no mi(x) stands in the formula"),
        ("y ~ mi(x) + nn(u), x | mi() ~ z, x | mi() ~ u", table(), "stands here twice"),
        (
            "y ~ mi(x) + nn(u), sigma ~ mi(x), x | mi() ~ z", table(),
            "mi() stands in the formula of the response alone",
        ),
        ("y | weights(z) ~ mi(x) + nn(u), x | mi() ~ z", table(), "count several times"),
        ("y | mi() ~ z + nn(u)", table(), "leave it out by --drop-missing"),
        ("y ~ mi(x) + nn(u), x | mi() ~ y", table(), "'y' is the response"),
    ],
)  # fmt: skip
def test_what_cannot_be_imputed_is_refused(formula, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(formula, frame)
