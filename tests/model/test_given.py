"""Offsets, weights and trials: refusals, what they do to eta and the likelihood, new rows."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy import stats
from scipy.special import expit

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.problem import Weights, make_problem
from semistan.errors import InputError
from semistan.model.design import apply_design, learn_design
from semistan.model.families.families import FAMILIES, family
from semistan.model.formula.formula import parse_formula
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import (
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.workflow.prepare import new_rows
from support.drawn import random_draws
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import FORMULA, FORMULAS, random_bundle, random_frame

WEIGHTED = {name: text.replace(" ~", " + weights(w) ~") for name, text in FORMULAS.items()}
RIGHT = FORMULA.partition("~")[2]


def offsets(rows):
    """The mean's."""
    return rows.predictors["mu"].offset


def without_offsets(rows):
    zero = replace(rows.predictors["mu"], offset=np.zeros(len(rows)))
    return replace(rows, predictors={"mu": zero})


def at(frame, row, **values):
    """Return the table with values in one row, counted from 1."""
    frame = frame.copy()
    for column, value in values.items():
        frame[column] = frame[column].astype(float)
        frame.loc[row - 1, column] = value
    return frame


@pytest.mark.parametrize(
    ("formula", "family", "frame", "message"),
    [
        ("count ~ offset(log(z)) + nn(u)", "poisson", at(small_frame(), 7, z=0),
         "offset(log(z)) must be finite numbers: a logarithm of 0?, got -inf in row 7 (1 of 30"),
        ("count ~ offset(log(x)) + nn(u)", "poisson", small_frame(),
         "must be finite numbers: a logarithm of 0?, got nan in row 1 (30 of 30 rows)"),
        ("y ~ offset(1 / z) + nn(u)", "gaussian", at(small_frame(), 3, z=0),
         "offset(I(1 / z)) must be finite numbers, got inf in row 3 (1 of 30 rows)"),
        ("y ~ offset(g) + nn(u)", "gaussian", small_frame(), "'g'"),
        ("y ~ offset(poly(x, 2)) + nn(u)", "gaussian", small_frame(),
         "'poly(x, 2)' must be one column, got 2"),
        ("y | weights(z) ~ nn(u)", "gaussian", at(small_frame(), 4, z=-0.5),
         "weights(z) must be 0 or more, got -0.5 in row 4 (1 of 30 rows)"),
        ("y | weights(z) ~ nn(u)", "gaussian", small_frame().assign(z=0),
         "weights(z) are all 0: there is nothing to fit"),
        ("y | se(z) ~ nn(u)", "gaussian", at(small_frame(), 4, z=-0.5),
         "se(z) must be 0 or more, got -0.5 in row 4 (1 of 30 rows)"),
        ("y | se(z) ~ nn(u)", "gaussian", at(small_frame(), 4, z=0),
         "se(z) must be above 0, or with a residual standard deviation too, se(z, sigma=TRUE), got "
         "0 in row 4 (1 of 30 rows)"),
        ("count | se(z) ~ nn(u)", "poisson", small_frame(),
         "se() is for families gaussian and student, the family is poisson"),
        ("y | se(z) ~ nn(u), sigma ~ x", "gaussian", small_frame(), "write se(z, sigma=TRUE)"),
        ("y | se(z, TRUE) ~ nn(u)", "gaussian", small_frame(), "as se(s, sigma=TRUE)"),
        ("y | se(z, sigma=2) ~ nn(u)", "gaussian", small_frame(), "as se(s, sigma=TRUE)"),
        ("y | se() ~ nn(u)", "gaussian", small_frame(), "as se(s, sigma=TRUE)"),
        ("y | weights(log(z)) ~ nn(u)", "gaussian", at(small_frame(), 2, z=0),
         "'log(z)' is -inf in row 2"),
        ("y | weights(g) ~ nn(u)", "gaussian", small_frame(), "'g'"),
        ("y | weights(absent) ~ nn(u)", "gaussian", small_frame(), "absent"),
        ("wins | trials(tries) ~ nn(u)", "binomial", at(small_frame(), 5, wins=4, tries=3),
         "trials(tries) must be at least as many as the successes 'wins', got 3 in row 5 (1 of"),
        ("wins | trials(tries) ~ nn(u)", "binomial", at(small_frame(), 5, tries=8.5),
         "trials(tries) must be whole numbers, got 8.5 in row 5 (1 of 30 rows)"),
        ("wins | trials(tries) ~ nn(u)", "binomial", at(small_frame(), 5, tries=-1),
         "trials(tries) must be 0 or more, got -1 in row 5"),
        ("wins | trials(2) ~ nn(u)", "binomial", small_frame(),
         "trials(I(2)) must be at least as many as the successes 'wins', got 2 in row "),
        ("wins ~ nn(u)", "binomial", small_frame(),
         "family binomial needs the number of trials, as wins | trials(n) ~ ...; if it is 1"),
        ("count | trials(tries) ~ nn(u)", "poisson", small_frame(),
         "trials() is for family binomial, beta_binomial and multinomial, the family is poisson; "
         "leave it out"),
        ("wins | trials(tries) ~ nn(u)", "binomial", at(small_frame(), 2, wins=1.5),
         "counts 0, 1, 2, ..., but response 'wins' is 1.5 in row 2"),
        ("y | weights(z) ~ nn(u)", "gaussian", at(small_frame(), 2, z=np.nan),
         "missing or infinite values: z (1)"),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_refused_with_its_row(formula, family, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(formula, frame, family=family)


def test_what_is_given_is_evaluated_row_by_row():
    frame = small_frame()
    formula = "wins | trials(tries + 1) + weights(z / 2) ~ x + offset(log(z)) + offset(u) + nn(v)"
    rows = small_prepared(formula, frame, family="binomial").rows
    assert offsets(rows) == pytest.approx(np.log(frame["z"]) + frame["u"], rel=1e-14)
    assert np.array_equal(rows.given["weights"], frame["z"] / 2)
    assert np.array_equal(rows.given["trials"], frame["tries"] + 1)


def test_trials_may_be_the_same_number_in_all_rows():
    rows = small_prepared("wins | trials(10) ~ x + nn(u)", family="binomial").rows
    assert np.array_equal(rows.given["trials"], np.full(30, 10.0))


def test_dates_and_truth_values_may_be_given():
    frame = small_frame().assign(flag=lambda f: f["flag"] == 1)
    rows = small_prepared("y | weights(flag) ~ x + nn(u)", frame).rows
    assert np.array_equal(rows.given["weights"], frame["flag"].astype(float))


def test_rows_that_are_taken_keep_what_is_given():
    rows = small_prepared("y | weights(z) ~ x + offset(u) + nn(v)").rows
    some = rows.take(np.array([4, 1]))
    assert np.array_equal(some.given["weights"], rows.given["weights"][[4, 1]])
    assert np.array_equal(offsets(some), offsets(rows)[[4, 1]])
    assert len(rows.first(3).given["weights"]) == len(rows.evenly(3).given["weights"]) == 3


def test_a_model_without_any_has_none():
    prepared = small_prepared()
    assert (prepared.rows.known, prepared.design.given) == ({}, ())


def test_new_rows_need_offsets_and_trials_but_no_weights():
    formula = "wins | trials(tries) + weights(z) ~ x + offset(u) + nn(v)"
    bundle, _ = small_bundle(formula, family="binomial")
    assert (bundle.design.given, bundle.design.mean.offsets) == (("weights", "trials"), ("u",))
    frame = small_frame(seed=1)
    rows = new_rows(bundle, frame.drop(columns=["z", "wins"]), response=False)
    assert (set(rows.given), set(rows.known)) == ({"trials"}, {"offsets", "trials"})
    assert np.array_equal(offsets(rows), frame["u"])
    assert new_rows(bundle, frame, response=True).given.keys() == {*rows.given, "weights"}
    for column in ("u", "tries"):
        with pytest.raises(InputError, match=column):
            new_rows(bundle, frame.drop(columns=column), response=False)


def test_a_bundle_reads_back_what_its_rows_must_give(tmp_path):
    formula = "wins | trials(tries) + weights(z) ~ x + offset(u) + nn(v)"
    bundle, rows = small_bundle(formula, family="binomial")
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert again.sha256 == bundle.sha256
    found = new_rows(again, small_frame(), response=True).known
    assert found.keys() == rows.known.keys() == {"weights", "trials", "offsets"}
    assert all(np.array_equal(found[name], rows.known[name]) for name in found)


def problem_of(bundle, rows):
    return make_problem(bundle.model, rows, "cpu")


def state_of(bundle):
    """A random state of the training problem."""
    generator = np.random.default_rng(0)
    spec, P, D = bundle.network, len(bundle.trained.theta), len(bundle.family.dispersion)
    sizes = (spec.d, P, D)
    return Weights(*(torch.tensor(generator.normal(0, 0.5, size=size)) for size in sizes))


@pytest.mark.parametrize("record", FAMILIES, ids=lambda record: record.name)
def test_a_row_of_weight_2_counts_as_two_rows(record):
    formula = WEIGHTED.get(record.name, f"y | weights(w) ~ {RIGHT}")
    bundle, rows = random_bundle(record.name, formula=formula)
    weights = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 1.0)
    weighted = replace(rows, given=rows.given | {"weights": weights})
    twice = rows.take(np.repeat(np.arange(len(rows)), weights.astype(int)))
    twice = replace(twice, given=twice.given | {"weights": np.ones(len(twice))})
    one, other = (problem_of(bundle, r) for r in (weighted, twice))
    state = state_of(bundle)
    totals = [float(problem.loss(state)) * len(problem) for problem in (one, other)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-12)
    draws = random_draws(bundle)
    found = [log_lik(SubspacePosterior(bundle, draws), r).sum(axis=1) for r in (weighted, twice)]
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    plain = log_lik(
        SubspacePosterior(bundle, draws), replace(rows, given=rows.given | {"weights": np.ones(30)})
    )
    assert log_lik(SubspacePosterior(bundle, draws), weighted) == pytest.approx(
        weights * plain, rel=1e-14
    )


def test_a_row_of_weight_0_counts_for_nothing():
    bundle, rows = random_bundle("gaussian", formula=f"y | weights(w) ~ {RIGHT}")
    weights = np.where(np.arange(len(rows)) < 5, 0.0, 1.5)
    silent = replace(rows, given={"weights": weights})
    other = replace(silent, y=np.where(weights == 0, 1e6, rows.y))
    state = state_of(bundle)
    losses = [float(problem_of(bundle, r).loss(state)) for r in (silent, other)]
    assert losses[0] == losses[1]


def test_training_does_not_see_a_row_of_weight_0():
    frame = small_frame(40).assign(w=np.arange(40) % 2)
    wild = frame.copy()
    silent = np.flatnonzero(frame["w"] == 0)
    wild.loc[silent, "y"] = frame.loc[silent[::-1], "y"].to_numpy()
    formula = "y | weights(w) ~ x + nn(u, v)"
    options = {"train__validation": 0.0, "train__epochs": 20}
    trained = [small_bundle(formula, table, **options)[0].trained for table in (frame, wild)]
    # In another order, so that the units, which are those of all rows, stay.
    assert trained[0].subspace.p_bar == pytest.approx(trained[1].subspace.p_bar, rel=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "poisson", "binomial"])
def test_an_offset_moves_eta_by_itself(name):
    plain = FORMULAS.get(name, FORMULA)
    bundle, rows = random_bundle(name, formula=f"{plain} + offset(z)")
    draws = random_draws(bundle)
    without = without_offsets(rows)
    moved = posterior_linpred(SubspacePosterior(bundle, draws), rows) - posterior_linpred(
        SubspacePosterior(bundle, draws), without
    )
    assert np.allclose(moved, offsets(rows), rtol=1e-10)
    state = state_of(bundle)
    f = torch.zeros(len(rows), dtype=torch.float64)
    one, other = (problem_of(bundle, r).eta(state.theta, f).numpy() for r in (rows, without))
    assert one - other == pytest.approx(offsets(rows), rel=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "poisson", "binomial"])
def test_parts_and_offsets_add_up_to_the_linear_predictor(name):
    bundle, rows = random_bundle(name, formula=f"{FORMULAS.get(name, FORMULA)} + offset(z)")
    draws = random_draws(bundle)
    structured, nn = (
        posterior_linpred(SubspacePosterior(bundle, draws), rows, part=part)
        for part in ("structured", "nn")
    )
    intercept = draws.flat(draws.coefficients["b_Intercept"])[:, None]
    total = intercept + structured + nn + offsets(rows)
    assert total == pytest.approx(posterior_linpred(SubspacePosterior(bundle, draws), rows))


def test_predictions_of_counts_follow_trials_and_exposure():
    bundle, rows = random_bundle("binomial")
    draws, trials = random_draws(bundle), rows.given["trials"]
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    assert posterior_epred(SubspacePosterior(bundle, draws), rows) == pytest.approx(
        trials * expit(eta)
    )
    y = posterior_predict(SubspacePosterior(bundle, draws), rows, np.random.default_rng(0))
    assert ((y >= 0) & (y <= trials)).all()
    assert (y.max(axis=0)[trials == 20] > 8).any()
    expected = stats.binom.logpmf(rows.y, trials, expit(eta))
    assert log_lik(SubspacePosterior(bundle, draws), rows) == pytest.approx(expected, rel=1e-10)
    bundle, rows = random_bundle("poisson", formula=f"{FORMULA} + offset(log(w))")
    draws, w = random_draws(bundle), np.exp(offsets(rows))
    without = without_offsets(rows)
    rates = posterior_epred(SubspacePosterior(bundle, draws), without)
    assert posterior_epred(SubspacePosterior(bundle, draws), rows) == pytest.approx(w * rates)


@pytest.mark.parametrize("shift", [0.0, 900.0])
def test_the_location_of_eta_is_the_poisson_null_model_of_statsmodels(shift):
    frame = random_frame("poisson", np.random.default_rng(0))
    y, offsets = frame["y"].to_numpy(), frame["z"].to_numpy()
    glm = sm.GLM(y, np.ones(len(y)), family=sm.families.Poisson(), offset=offsets).fit(tol=1e-12)
    location, scale = family("poisson").eta_units(y, {"offsets": offsets + shift})
    assert location + shift == pytest.approx(glm.params[0], rel=1e-9)
    assert scale == 1


def test_the_location_of_eta_is_the_binomial_null_model_of_statsmodels():
    frame = random_frame("binomial", np.random.default_rng(0))
    y, trials = frame["y"].to_numpy(), frame["tries"].to_numpy()
    both = np.column_stack([y, trials - y])
    for offset in (0.0, 0.7):
        glm = sm.GLM(both, np.ones(len(y)), family=sm.families.Binomial(), offset=y * 0 + offset)
        given = {"trials": trials, "offsets": np.full(len(y), offset)}
        location, scale = family("binomial").eta_units(y, given)
        assert location == pytest.approx(glm.fit(tol=1e-12).params[0], rel=1e-9)
        assert scale == 1


@pytest.mark.parametrize("name", ["gaussian", "student"])
def test_the_units_of_eta_are_those_of_what_offsets_leave(name):
    frame = random_frame(name, np.random.default_rng(0))
    y, offsets = frame["y"].to_numpy(), 50 * frame["z"].to_numpy()
    location, scale = family(name).eta_units(y, {"offsets": offsets})
    glm = sm.GLM(y, np.ones(len(y)), offset=offsets).fit()
    assert location == pytest.approx(glm.params[0], rel=1e-9)
    assert scale == pytest.approx(np.sqrt(glm.scale), rel=1e-9)


@pytest.mark.parametrize(("trials", "message"), [(1e20, "whole numbers in Stan"), (2.5, "whole")])
def test_trials_of_new_rows_are_whole_numbers_that_can_be_drawn_from(trials, message):
    formula = parse_formula("wins | trials(n) ~ x + nn(u)")
    frame = small_frame().assign(n=20)
    design, _ = learn_design(formula, frame)
    with pytest.raises(InputError, match=message):
        apply_design(design, frame.assign(n=trials), response=False)


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        (["0", "1", "-1"], [0, 1, -1]),
        (["none", "Right", " left "], [0, 1, -1]),
        (["True", "False", "true"], [1, 0, 1]),
    ],
)
@pytest.mark.parametrize("dtype", [object, "category"])
def test_kinds_of_censoring_may_be_numbers_as_text(written, codes, dtype):
    formula = parse_formula("y | cens(c) ~ x + nn(u)")
    frame = small_frame().assign(c=pd.Series(written * 10, dtype=dtype))
    _, rows = learn_design(formula, frame)
    assert list(rows.given["cens"]) == codes * 10


def test_an_unknown_kind_of_censoring_is_refused_with_the_codes():
    frame = small_frame().assign(c=["0", "5"] * 15)
    message = "must be left (-1), none (0), right (1) or interval (2), or true of a right-censored"
    with pytest.raises(InputError, match=re.escape(message) + r" row, got '5' in row 2"):
        learn_design(parse_formula("y | cens(c) ~ x + nn(u)"), frame)


@pytest.mark.parametrize("take", [slice(0, 1), slice(0, 5)])
def test_new_rows_may_all_have_the_same_response_and_no_weight(take):
    frame = small_frame()
    bundle, _ = small_bundle("y | weights(z) ~ x + nn(u, v)", frame)
    new = frame[take].assign(y=50.0, z=0.0)
    rows = new_rows(bundle, new, response=True)
    assert (rows.y == 50).all()
    assert not rows.given["weights"].any()
    assert np.isfinite(log_lik(SubspacePosterior(bundle, random_draws(bundle)), rows)).all()
    with pytest.raises(InputError, match="response 'y' is constant"):
        small_prepared("y ~ x + nn(u, v)", frame.assign(y=50.0))


def test_new_rows_are_still_held_to_the_familys_support():
    frame = small_frame()
    bundle, _ = small_bundle("count ~ x + nn(u, v)", frame, family="poisson")
    with pytest.raises(InputError, match="response 'count' is -1 in row 1"):
        new_rows(bundle, frame.head(1).assign(count=-1), response=True)


@pytest.mark.parametrize(("response", "has_sigma"), [("se(w)", False), ("se(w, sigma=TRUE)", True)])
@pytest.mark.parametrize("name", ["gaussian", "student"])
def test_known_standard_errors_are_the_scale_or_add_to_it(name, response, has_sigma):
    bundle, rows = random_bundle(name, formula=f"y | {response} ~ {RIGHT}")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    eta, at_draws = posterior_linpred(posterior, rows), posterior.parameters(rows)
    assert ("sigma" in at_draws) == has_sigma == ("sigma" in posterior.draws.interpreted)
    scale = np.hypot(at_draws.get("sigma", 0.0), rows.given["se"])
    known = {"df": at_draws["nu"]} if name == "student" else {}
    response = (stats.t if known else stats.norm)(loc=eta, scale=scale, **known)
    assert np.allclose(log_lik(posterior, rows), response.logpdf(rows.y), rtol=1e-9)
    assert np.array_equal(posterior_epred(posterior, rows), eta)
    drawn = np.stack(
        [posterior_predict(posterior, rows, np.random.default_rng(i)) for i in range(40)]
    )
    assert stats.kstest(response.cdf(drawn).ravel(), "uniform").pvalue > 1e-4


def test_the_common_mean_of_a_meta_analysis_is_weighted_by_precision():
    y, se = np.random.default_rng(0).normal(size=30), np.geomspace(0.1, 2, 30)
    fit = sm.WLS(y, np.ones(30), weights=se**-2).fit(cov_type="fixed_scale")
    record = random_bundle("gaussian", formula=f"y | se(w) ~ {RIGHT}")[0].family
    eta = torch.tensor(fit.params[0], requires_grad=True)

    def log_lik(mean):
        return record.log_lik(torch.tensor(y), mean.expand(30), {"se": torch.tensor(se)}).sum()

    assert torch.autograd.functional.jacobian(log_lik, eta).abs() < 1e-9
    assert -torch.autograd.functional.hessian(log_lik, eta) == pytest.approx(fit.bse[0] ** -2)


def test_new_rows_need_standard_errors_that_no_effect_is_asked_of():
    bundle, _ = random_bundle("gaussian", formula=f"y | se(w) ~ {RIGHT}")
    frame = random_frame("gaussian", np.random.default_rng(0))
    with pytest.raises(InputError, match="'w'"):
        new_rows(bundle, frame.drop(columns="w"))
    assert new_rows(bundle, frame.drop(columns="y")).given["se"] == pytest.approx(frame["w"])
    formula = parse_formula(f"y | se(w) ~ {RIGHT}")
    assert formula.bounding == ("w",)
    assert parse_formula(f"y | se(w) ~ x1 + w + {RIGHT}").bounding == ()
