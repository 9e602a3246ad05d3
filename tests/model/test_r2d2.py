"""The R2D2 prior: the program against NumPy, what it says of R2, its starts and refusals."""

import re

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.priors.densities import parse_prior
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.prior_draws import prior_draws
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from support.assertions import Z, mcse
from support.programs import evaluate, stanc_output
from support.small import small_prepared
from support.untrained import random_bundle

R2D2 = {"b": "R2D2(mean_R2=0.4, prec_R2=3, cons_D2=0.7)"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("R2D2()", (0.5, 2, 0.5)),
        ("R2D2(0.2, cons_D2=1)", (0.2, 2, 1)),
        ("R2D2(.3,5,2)", (0.3, 5, 2)),
    ],
)
def test_arguments_have_brmss_defaults_and_names(text, values):
    assert parse_prior(text, "b").values == values


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"b": "R2D2(1)"}, "the mean_R2 of R2D2 must be between 0 and 1, got 1"),
        ({"b": "R2D2(prec_R2=0)"}, "the prec_R2 of R2D2 must be positive, got 0"),
        ({"b": "R2D2(scale=1)"}, "R2D2 takes (mean_R2=0.5, prec_R2=2, cons_D2=0.5)"),
        ({"b_x": "R2D2()"}, "for all coefficients together, as prior 'b'"),
        ({"b": "R2D2()", "b_x": "normal(0, 1)"}, "none can have another"),
    ],
)
def test_a_wrong_one_is_refused(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(priors=settings)


def test_it_needs_one_sigma():
    with pytest.raises(InputError, match="in units of one sigma, which has a predictor here"):
        small_prepared("y ~ x + nn(u), sigma ~ z", priors__b="R2D2()")


def test_the_program_has_the_density_that_numpy_computes(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=R2D2, sample={"integrate": "none"})
    states = np.random.default_rng(3).normal(0, 0.7, size=(4, 9))
    found = evaluate(bundle, stan_data(bundle, rows, prior_only=True), states, toolchain, tmp_path)
    phi, z, R2, share = states[:, :3], states[:, 3:5], states[:, 5], np.exp(states[:, 6:8])
    R2, sigma = 1 / (1 + np.exp(-R2)), np.exp(states[:, 8])
    sd = rows.X.std(axis=0, ddof=1)
    for j in range(2):
        expected = z[:, j] * sigma / sd[j]
        expected = expected * np.sqrt(R2 / (1 - R2) * share[:, j] / share.sum(axis=1))
        assert found.vector("theta", 2)[:, j] == pytest.approx(expected, rel=1e-12)
    prior = (
        stats.norm.logpdf(phi, 0, 5).sum(axis=1)
        + stats.beta.logpdf(R2, 1.2, 1.8)
        + stats.gamma.logpdf(share, 0.7).sum(axis=1)
        + stats.t.logpdf(sigma, 3, 0, 2.5 * bundle.units.eta_scale) + np.log(2)
    )  # fmt: skip
    jacobian = np.log(share).sum(axis=1) + np.log(sigma) + np.log(R2) + np.log1p(-R2)
    assert found.written["lprior"] == pytest.approx(prior, rel=1e-12)
    effects = stats.norm.logpdf(z).sum(axis=1)
    assert found.lp == pytest.approx(prior + effects + jacobian, rel=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "student", "poisson"])
def test_what_the_coefficients_explain_has_the_prior_that_was_asked_for(name):
    """Of the variance of x' theta and of the residuals it is R2, given the shares and zb."""
    bundle, rows = random_bundle(name, priors=R2D2)
    draws = prior_draws(bundle, rows, (4, 2000), np.random.default_rng(1))
    sigma = draws.dispersion.get("sigma", 1.0)
    sd = rows.X.std(axis=0, ddof=1)
    explained = ((draws.theta * sd) ** 2).sum(axis=-1) / sigma**2
    generator, size = np.random.default_rng(2), 8000
    R2, share = generator.beta(1.2, 1.8, size), generator.dirichlet((0.7, 0.7), size)
    expected = R2 / (1 - R2) * (share * generator.normal(size=(size, 2)) ** 2).sum(axis=1)
    for p in (0.1, 0.5, 0.9):
        below = (explained < np.quantile(expected, p)).astype(float)
        limit = Z * np.hypot(mcse(below, "mean"), np.sqrt(p * (1 - p) / size))
        assert abs(below.mean() - p) < limit


def test_autoscale_does_not_change_it():
    with_units, without = (
        random_bundle("gaussian", priors=R2D2 | {"autoscale": autoscale})[0]
        for autoscale in (True, False)
    )
    (line,) = (line for line in priors_as_used(with_units) if line.parameter == "b_x1")
    assert line.used == "R2D2(0.4, 3, 0.7)"
    assert with_units.prior_data["prior_b_mean_R2"] == without.prior_data["prior_b_mean_R2"]


def test_a_known_sigma_is_its_unit(toolchain, tmp_path):
    bundle, _ = random_bundle("gaussian", priors=R2D2 | {"sigma": "constant(2)"})
    assert stanc_output(bundle_program(bundle), toolchain, tmp_path) == ""


def test_the_kernel_passes_its_self_check(toolchain):
    bundle, rows = random_bundle("gaussian", priors=R2D2)
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert kernel_failure(bundle, rows, compiled.executable) is None


def test_chains_start_at_the_trained_coefficients():
    bundle, rows = random_bundle("gaussian", priors=R2D2, sample={"integrate": "none"})
    sd = rows.X.std(axis=0, ddof=1)
    for values in find_starts(bundle, rows, SampleConfig()).values:
        R2, share = values["R2D2_R2"], values["R2D2_share"]
        unit = values["sigma"] / sd * np.sqrt(R2 / (1 - R2) * share / share.sum())
        assert np.abs(values["zb"] * unit - bundle.trained.theta).max() < unit.max()
        assert np.abs(values["zb"]).max() < 5
