"""The R2D2 prior: the program against NumPy, what it says of R2, its starts and refusals."""

import re

import numpy as np
import pytest
import torch
from scipy import stats

from semistan.density.derivatives import derivatives
from semistan.density.target import log_prior, make_target
from semistan.errors import InputError
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.networks.networks import forward
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
        ({"sigma": "R2D2()"}, "prior 'b', and for standard deviations of terms and 'sd_w'"),
        ({"w": "R2D2()"}, "prior 'w': R2D2() is for all coefficients together, as prior 'b'"),
        ({"lscale": "R2D2()"}, "as prior 'b', and for standard deviations of terms"),
    ],
)
def test_a_wrong_one_is_refused(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(priors=settings)


PARTS = "y ~ x1 + x2 + s(v, k=4) + (1 + x1 | g) + nn(u1, u2)"
OF_PARTS = {
    "phi": None, "b": "R2D2(0.4, 3)", "sd": "R2D2()", "sds": "R2D2()", "sd_w": "R2D2()",
}  # fmt: skip


def of_parts(family="gaussian", **given):
    settings = {"formula": PARTS, "priors": OF_PARTS, "subspace": {"construction": "full"}} | given
    return random_bundle(family, **settings)


def test_it_needs_one_sigma():
    with pytest.raises(InputError, match="in units of one sigma, which has a predictor here"):
        small_prepared("y ~ x + nn(u), sigma ~ z", priors__b="R2D2()")


def log_density(sd, sigma, arguments):
    """The density of standard deviations (S, m) from SciPy's of R2 and of the shares."""
    mean, precision, concentration = arguments
    variance = np.square(sd / sigma[:, None])
    total, m = variance.sum(axis=1), variance.shape[1]
    alpha = np.full(m, concentration)
    of_shares = [stats.dirichlet.logpdf(v / v.sum(), alpha) for v in variance]
    of_total = stats.betaprime.logpdf(total, mean * precision, (1 - mean) * precision)
    slope = np.log(2 * sd / sigma[:, None] ** 2).sum(axis=1) - (m - 1) * np.log(total)
    return of_total + np.array(of_shares) + slope


def test_the_program_has_the_density_that_numpy_computes(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=R2D2, sample={"integrate": "none"})
    states = np.random.default_rng(3).normal(0, 0.7, size=(4, 8))
    found = evaluate(bundle, stan_data(bundle, rows, prior_only=True), states, toolchain, tmp_path)
    phi, z, sdb, sigma = states[:, :3], states[:, 3:5], np.exp(states[:, 5:7]), np.exp(states[:, 7])
    sd = rows.X.std(axis=0, ddof=1)
    assert found.vector("theta", 2) == pytest.approx(z * sdb / sd, rel=1e-12)
    prior = (
        stats.norm.logpdf(phi, 0, 5).sum(axis=1)
        + log_density(sdb, sigma, (0.4, 3, 0.7))
        + stats.t.logpdf(sigma, 3, 0, 2.5 * bundle.units.eta_scale) + np.log(2)
    )  # fmt: skip
    jacobian = states[:, 5:].sum(axis=1)
    assert found.written["lprior"] == pytest.approx(prior, rel=1e-12)
    explained = np.square(sdb / sigma[:, None]).sum(axis=1)
    assert found.written["R2D2_R2"] == pytest.approx(explained / (1 + explained), rel=1e-12)
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
    name = "prior_R2D2_mean_R2"
    assert with_units.prior_data[name] == without.prior_data[name] == 0.4


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
        unit = values["sdb"] / sd
        assert np.abs(values["zb"] * unit - bundle.trained.theta).max() < unit.max()
        assert np.abs(values["zb"]).max() <= 1


def test_it_is_of_all_parts_that_have_it():
    explained = of_parts()[0].model.explained
    names = ["sd_w", "sdb", "sds_sv_1", "sd_g__Intercept", "sd_g__x1"]
    assert list(explained.sizes) == names and len(explained.unit) == 7
    assert [*explained.arguments.values()] == [0.4, 3, 0.5]
    some = of_parts(priors={"sd_g__x1": "R2D2(0.2)"})[0].model
    assert list(some.explained.sizes) == ["sd_g__x1"] and some.joint is None
    assert of_parts(priors={"b": "normal(0, 1)"})[0].model.explained is None


def test_its_arguments_stand_in_one_place():
    same = of_parts(priors={"b": "R2D2(0.4)", "sd": "R2D2(0.4)"})[0].model.explained
    assert [*same.arguments.values()] == [0.4, 2, 0.5]
    message = "priors 'sd' and 'b' are one R2D2() prior of what both explain, got 'R2D2(0.3, 2, "
    with pytest.raises(InputError, match=re.escape(message)):
        _ = of_parts(priors={"b": "R2D2(0.4)", "sd": "R2D2(0.3)"})[0].model.priors


@pytest.mark.parametrize(
    ("family", "formula", "message"),
    [
        ("negbinomial", "count ~ x + nn(u), shape ~ v + (1 | g)",
         "prior 'sd': R2D2() is of what explains the mean, and sd_g__shape_Intercept is of log"),
        ("categorical", "g ~ s(x, k=4) + nn(u)", "several categories' means"),
        ("gaussian", "y ~ (1 | g) + nn(u), sigma ~ v", "prior 'sd': R2D2() shares out variance"),
    ],
)  # fmt: skip
def test_it_is_of_one_mean(family, formula, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(formula, family=family, priors={"sd": "R2D2()", "sds": "R2D2()"})


def test_a_part_over_its_unit_is_what_it_adds_to_the_predictor():
    """A slope times its column's standard deviation, a network as it varies under its prior."""
    bundle, rows = of_parts()
    *_, slope = bundle.model.explained.unit
    assert 1 / slope == pytest.approx(rows.X[:, 0].std(ddof=1), rel=0.02)
    spec, generator = bundle.network, np.random.default_rng(5)
    w = bundle.model.weight_scale * generator.normal(size=(2000, spec.d))
    with torch.no_grad():
        f = forward(spec, torch.from_numpy(w), torch.from_numpy(generator.normal(size=(100, 2))))
    variance = f.numpy().var(axis=1)
    expected = bundle.units.eta_scale**2 * variance.mean()
    error = bundle.units.eta_scale**2 * variance.std() * np.sqrt(1 / 2000 + 1 / 400)
    assert abs(bundle.model.explained.unit[0] ** -2 - expected) < Z * error


def test_draws_from_the_prior_have_the_density():
    """R2 and the shares have the distributions that the density was derived from."""
    bundle, rows = of_parts()
    draws = prior_draws(bundle, rows, (1, 4000), np.random.default_rng(1))
    R2 = draws.spread["R2D2_R2"].ravel()
    assert stats.kstest(R2, stats.beta(1.2, 1.8).cdf).pvalue > 1e-3
    sd = draws.spread["sd_g__Intercept"].ravel() / draws.dispersion["sigma"].ravel()
    share = sd**2 * (1 - R2) / R2
    assert stats.kstest(share, stats.beta(0.5, 6 * 0.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_its_curvature_in_each_standard_deviation_is_exact(name):
    """Of which each depends on the others, so that a sum over all rows of the Hessian is not it."""
    bundle, rows = of_parts(name, priors={"sd": "R2D2(0.4, 3)", "sds": "R2D2()"})
    target = make_target(bundle, rows, prior_only=True)
    q = torch.tensor(np.random.default_rng(2).normal(0, 0.3, target.layout.size))
    at = target.layout.positions(bundle.model.explained.sizes)
    H = torch.autograd.functional.hessian(lambda x: -log_prior(target, x), q)
    bend = derivatives(target, q)[1].diagonal()
    assert np.abs(H.numpy()[np.ix_(at, at)] - np.diag(H.numpy().diagonal()[at])).max() > 0.01
    assert bend[at].numpy() == pytest.approx(H.diagonal()[at].clamp(min=1e-3).numpy(), rel=1e-9)
