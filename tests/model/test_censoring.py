"""Responses of which a bound is known alone, against SciPy and a naive loop."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import gamma

from semistan.errors import InputError
from semistan.model.families.censored import with_censoring
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_linpred, posterior_predict
from semistan.posterior.scoring.scores import pointwise, scores
from semistan.program.program import bundle_program
from semistan.workflow.prepare import new_rows, prepare
from support.distributions import ORACLES
from support.drawn import random_draws
from support.small import small_config, small_frame, small_prepared
from support.untrained import random_bundle

ETA = np.linspace(-2, 3, 11)
Y, END = 1.3, 1.9
SCIPYS = {
    0: lambda oracle: oracle.logpdf(Y),
    1: lambda oracle: oracle.logsf(Y),
    -1: lambda oracle: oracle.logcdf(Y),
    2: lambda oracle: np.log(
        np.where(
            oracle.cdf(Y) > 0.5, oracle.sf(Y) - oracle.sf(END), oracle.cdf(END) - oracle.cdf(Y)
        )
    ),
}


def tensors(values):
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in values.items()}


def censored(name, eta, code, values):
    record = with_censoring(family(name), ("cens", "y2"))
    eta = torch.as_tensor(eta, dtype=torch.float64)
    given = tensors(values | {"cens": code, "y2": END})
    return record.log_lik(torch.full_like(eta, Y), eta, given)


@pytest.mark.parametrize("code", SCIPYS)
@pytest.mark.parametrize("name", ORACLES)
def test_the_likelihood_is_scipys(name, code):
    oracle, values = ORACLES[name]
    found = censored(name, ETA, code, values).numpy()
    assert np.allclose(found, SCIPYS[code](oracle(ETA)), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("code", SCIPYS)
@pytest.mark.parametrize("name", ORACLES)
def test_the_gradient_is_that_of_differences(name, code):
    _, values = ORACLES[name]
    eta = torch.tensor(ETA, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: censored(name, e, code, values), (eta,), rtol=1e-5)


@pytest.mark.parametrize("eta", [-800.0, -40.0, 40.0, 800.0])
@pytest.mark.parametrize("code", [1, -1, 2])
@pytest.mark.parametrize("name", ["gaussian", "lognormal", "weibull", "exponential"])
def test_it_is_finite_and_differentiable_far_out(name, code, eta):
    leaf = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
    value = censored(name, leaf, code, ORACLES[name][1])
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(leaf.grad)


def test_without_censored_rows_it_is_the_family():
    bundle, rows = random_bundle("weibull", formula="y | cens(c, y2) ~ x1 + nn(u1)")
    assert bundle.family.censored
    rows.given["cens"][:] = 0
    plain, _ = random_bundle("weibull", formula="y ~ x1 + nn(u1)")
    draws = random_draws(bundle)
    assert np.array_equal(
        log_lik(SubspacePosterior(bundle, draws), rows),
        log_lik(SubspacePosterior(plain, draws), rows),
    )


def test_log_lik_is_that_of_a_naive_loop():
    bundle, rows = random_bundle("weibull", formula="y | cens(c, y2) ~ x1 + nn(u1)")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    eta, shape = posterior_linpred(posterior, rows), posterior.parameters(rows)["shape"].ravel()
    found, codes = log_lik(posterior, rows), rows.given["cens"]
    assert set(codes) == {-1, 0, 1, 2}
    for s in (0, 41, 99):
        for n in range(len(rows)):
            time = stats.weibull_min(shape[s], scale=np.exp(eta[s, n]) / gamma(1 + 1 / shape[s]))
            y, end = rows.y[n], rows.given["y2"][n]
            expected = {
                0: time.logpdf(y), 1: time.logsf(y), -1: time.logcdf(y),
                2: np.log(time.sf(y) - time.sf(end)),
            }[codes[n]]  # fmt: skip
            assert found[s, n] == pytest.approx(expected, rel=1e-8)


def codes_of(column, expression="c"):
    frame = small_frame(12).assign(c=column, y2=9.0)
    formula = f"z | cens({expression}, y2) ~ x + nn(u)"
    return small_prepared(formula, frame, family="weibull").rows.given["cens"]


def test_brms_s_codes_and_words_and_truth_values_are_read():
    words = ["none", "right", "left", "interval"] * 3
    numbers = [0, 1, -1, 2] * 3
    assert codes_of(words).tolist() == codes_of(numbers).tolist() == numbers
    assert codes_of([True, False] * 6).tolist() == [1, 0] * 6
    assert codes_of([1, 0] * 6, "1 - c").tolist() == [0, 1] * 6


def refused(formula, message, name="weibull", **columns):
    frame = small_frame(12).assign(**({"c": ["right", "none"] * 6, "y2": 9.0} | columns))
    with pytest.raises(InputError, match=message):
        prepare(small_config(formula, family=name), frame)


def test_what_cannot_be_read_is_refused():
    refused("z | cens(c) ~ nn(u)", "true of a right-censored row, got 'late' in row 2",
            c=["none", "late"] * 6)  # fmt: skip
    refused("z | cens(c) ~ nn(u)", r"must be -1 \(left\), 0 .* got 3 in row 2", c=[0, 3] * 6)
    refused("z | cens(c) ~ nn(u)", r"not where they end: name the column, as cens\(c, y2\)",
            c=["none", "interval"] * 6)  # fmt: skip
    refused("z | cens(c, y2) ~ nn(u)", "the end of an interval, 'y2', must be above 'z', got 0",
            c=["none", "interval"] * 6, y2=0.0)  # fmt: skip
    refused("z | cens(c) ~ nn(u)", "PyTorch has no derivative", name="gamma")
    refused("count | cens(c) ~ nn(u)", "for families gaussian, lognormal, weibull",
            name="negbinomial")  # fmt: skip
    refused("count | cens(c, y2) ~ nn(u)", "a whole number, as the counts are, got 9.5",
            name="poisson", c="interval", y2=9.5)  # fmt: skip
    with pytest.raises(InputError, match=r"takes one or two expressions, as cens\(c\)"):
        parse_formula("y | cens(a, b, c) ~ nn(u)")


def test_new_rows_need_no_censoring_and_scores_are_of_the_density_alone():
    bundle, rows = random_bundle("weibull", formula="y | cens(c, y2) ~ x1 + nn(u1)")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    frame = rows.frame.drop(columns=["y", "c", "y2"])
    new = new_rows(bundle, frame)
    assert posterior_predict(posterior, new, np.random.default_rng(1)).shape == (100, 30)
    judged = pointwise(posterior, rows, generator=np.random.default_rng(1))
    assert [item.name for item in scores(bundle.family, judged)] == ["LPPD"]


def test_right_censored_rows_have_no_ends_in_the_program():
    text = bundle_program(random_bundle("weibull", formula="y | cens(h) ~ x1 + nn(u1)", n=10)[0])
    assert "y2;" not in text
    assert "array[N] int<lower=-1, upper=2> cens;" in text
