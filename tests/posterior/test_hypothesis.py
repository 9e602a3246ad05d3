"""Expressions against Python's own arithmetic, hypotheses against closed forms."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.posterior.expression import DEEPEST, evaluate_expression
from semistan.posterior.hypothesis import density_at_0, hypotheses, parse_hypothesis
from semistan.posterior.posterior import Mixture, SubspacePosterior
from support.drawn import random_draws
from support.untrained import random_bundle

VALUES = {
    "b_x": np.array([[0.5, 2.0, 3.0]]),
    "b_z": np.array([[1.0, 4.0, 0.25]]),
    "b_Intercept[1]": np.array([[2.0, 1.0, 7.0]]),
}


@pytest.mark.parametrize(
    "text",
    [
        "b_x", "-b_x", "b_x + b_z", "b_x - b_z - 1", "b_x * b_z / 2", "2 * (b_x - b_z) / b_z",
        "-b_x ** 2", "b_x ** -b_z", "b_x ** b_z ** 0.5", "exp(b_x) - 1e-1", "log(b_x) + sqrt(b_z)",
        "abs(-b_x)", "+b_x-+.5*b_z", "b_x/b_z*3 - b_z/b_x",
    ],
)  # fmt: skip
def test_an_expression_means_what_python_means(text):
    names = {name: VALUES[name] for name in ("b_x", "b_z")}
    functions = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt}
    expected = eval(text, {"abs": abs}, {**names, **functions})
    assert evaluate_expression(text, VALUES) == pytest.approx(expected, rel=1e-14)
    assert evaluate_expression(text.replace("**", "^"), VALUES) == pytest.approx(expected)


def test_names_with_brackets_and_in_backticks_are_names():
    found = evaluate_expression("b_Intercept[1] - `b_x`", VALUES)
    assert found == pytest.approx(VALUES["b_Intercept[1]"] - VALUES["b_x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b_y", "'b_y' in 'b_y' is no parameter of this fit. Did you mean 'b_z'"),
        ("b_x +", "ends where a parameter or a number should stand"),
        ("(b_x", "lacks a closing parenthesis"),
        ("b_x b_z", "'b_z' in 'b_x b_z' is not expected there"),
        ("b_x * ) 2", "is not expected there"),
        ("3 + 1", "has no parameter in it"),
        ("b_x @ 2", "cannot be read at '@ 2'"),
        ("__import__('os')", "cannot be read at ''os')'"),
        ("b_x.__class__", "is no parameter"),
        ("log(-b_x)", r"not a finite number in 3 of 3 draws"),
        ("(" * 60 + "b_x" + ")" * 60, f"nested more than {DEEPEST} deep"),
        ("-" * 100_000 + "b_x", "nested more than"),
    ],
)
def test_what_is_no_expression_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        evaluate_expression(text, VALUES)


@pytest.mark.parametrize("text", ["b_x", "b_x > 0 > 1", "> 0", "b_x >= 0", "b_x =", ""])
def test_what_is_no_hypothesis_is_refused(text):
    with pytest.raises(InputError, match="a hypothesis has one of >, < and ="):
        parse_hypothesis(text)


def posterior(mean=0.3, sd=0.4, seed=3, **settings):
    """Draws of b_x1 that are normal, in a model whose prior of it is normal(0, 2)."""
    priors = {"b": "normal(0, 2)", "autoscale": False}
    bundle, rows = random_bundle("gaussian", priors=priors, **settings)
    draws = random_draws(bundle, chains=4, iterations=5000)
    values = stats.norm.ppf(
        (np.random.default_rng(seed).permutation(20_000) + 0.5) / 20_000, mean, sd
    )
    coefficients = {**draws.coefficients, "b_x1": values.reshape(4, 5000)}
    return SubspacePosterior(bundle, replace(draws, coefficients=coefficients)), rows


def judged(one, rows, *texts, **options):
    return hypotheses(one, rows, texts, generator=np.random.default_rng(1), **options)


def test_one_sided_hypotheses_have_the_probabilities_and_bounds_of_the_normal():
    one, rows = posterior()
    found = judged(one, rows, "b_x1 > 0.1", "2 * b_x1 < 1", rope=(-0.1, 0.1)).table()
    exact = stats.norm(0.2, 0.4)
    line = found.loc[0]
    assert line["Hypothesis"] == "b_x1 > 0.1"
    assert line["Estimate"] == pytest.approx(0.2, abs=1e-3)
    assert line["Est.Error"] == pytest.approx(0.4, abs=1e-3)
    assert line["CI.Lower"] == pytest.approx(exact.ppf(0.05), abs=1e-3)
    assert line["CI.Upper"] == pytest.approx(exact.ppf(0.95), abs=1e-3)
    assert line["Post.Prob"] == pytest.approx(exact.sf(0), abs=1e-3)
    assert line["Evid.Ratio"] == pytest.approx(exact.sf(0) / exact.cdf(0), rel=5e-3)
    assert line["P(ROPE)"] == pytest.approx(exact.cdf(0.1) - exact.cdf(-0.1), abs=1e-3)
    share = exact.sf(0)
    assert line["MCSE"] == pytest.approx(np.sqrt(share * (1 - share) / 20_000), rel=0.2)
    assert found.loc[1, "Post.Prob"] == pytest.approx(stats.norm.cdf(0.5, 0.3, 0.4), abs=1e-3)


def test_the_evidence_ratio_of_equality_is_that_of_savage_and_dickey():
    one, rows = posterior()
    line = judged(one, rows, "b_x1 = 0").table().loc[0]
    exact = stats.norm.pdf(0, 0.3, 0.4) / stats.norm.pdf(0, 0, 2)
    assert line["Evid.Ratio"] == pytest.approx(exact, rel=0.1)
    assert line["Post.Prob"] == pytest.approx(exact / (1 + exact), abs=0.03)
    assert line["CI.Lower"] == pytest.approx(stats.norm.ppf(0.025, 0.3, 0.4), abs=1e-3)


def test_a_density_at_0_is_that_of_the_draws():
    generator = np.random.default_rng(0)
    assert density_at_0(generator.normal(0.5, 1, 100_000)) == pytest.approx(
        stats.norm.pdf(0.5), rel=0.03
    )
    cauchy = generator.standard_cauchy(100_000)
    assert density_at_0(cauchy) == pytest.approx(1 / np.pi, rel=0.05)
    assert np.isnan(density_at_0(generator.normal(9, 1, 1000)))
    assert np.isnan(density_at_0(np.ones(50)))


def test_where_0_is_far_there_is_no_evidence_ratio():
    one, rows = posterior(mean=20)
    found = judged(one, rows, "b_x1 == 0", "b_x1 > 0")
    assert np.isnan(found.table().loc[0, "Evid.Ratio"])
    assert "No evidence ratio of 'b_x1 = 0': fewer than 10 posterior draws" in found.notes[0]
    assert found.table().loc[0, "P(d > 0)"] == 1
    assert found.table().loc[1, "Evid.Ratio"] == np.inf
    assert "within the subspace" in found.notes[-1]


def test_draws_that_are_not_the_posteriors_have_no_evidence_ratio():
    one, rows = posterior()
    one = replace(one, draws=replace(one.draws, reservations=("T = 2",)))
    found = judged(one, rows, "b_x1 = 0")
    assert np.isnan(found.table().loc[0, "Evid.Ratio"])
    assert any(note.startswith("Not the posterior: T = 2") for note in found.notes)


def test_of_a_mixture_draws_are_pooled():
    (one, rows), (other, _) = posterior(), posterior(mean=-0.2)
    mixed = Mixture((one, other))
    line = judged(mixed, rows, "b_x1 > 0").table().loc[0]
    share = (stats.norm.sf(0, 0.3, 0.4) + stats.norm.sf(0, -0.2, 0.4)) / 2
    assert line["Post.Prob"] == pytest.approx(share, abs=1e-3)
    assert line["Estimate"] == pytest.approx(0.05, abs=1e-3)


def test_numbers_out_of_range_are_refused():
    one, rows = posterior()
    with pytest.raises(InputError, match=r"above 0\.5"):
        judged(one, rows, "b_x1 > 0", interval=0.5)
    with pytest.raises(InputError, match="LOW below HIGH"):
        judged(one, rows, "b_x1 > 0", rope=(1, 0))
    with pytest.raises(InputError, match="at least one"):
        judged(one, rows)
