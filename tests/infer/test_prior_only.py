"""Without the likelihood, the program's draws follow the priors, and lprior is their density."""

import numpy as np
import pytest
from scipy.stats import expon, norm, t

from semistan.program.data import stan_data
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support import arviz_oracle
from support.assertions import assert_mean, assert_probability, assert_sd
from support.untrained import random_bundle


def prior_draws(toolchain, folder, **priors):
    bundle, rows = random_bundle("gaussian", priors=priors, sample={"metric": "diag_e"})
    run = new_run(bundle, rows, folder / "run", bundle.config.sample, toolchain, prior_only=True)
    return bundle, stan_data(bundle, rows), sample(run, toolchain)


@pytest.fixture(scope="module")
def default(toolchain, tmp_path_factory):
    return prior_draws(toolchain, tmp_path_factory.mktemp("prior"))


def test_phi_and_theta_follow_their_normal_priors(default):
    bundle, data, fit = default
    for i in range(bundle.subspace.k):
        assert_mean(fit.posterior.draws.phi[..., i], 0, "phi")
        assert_sd(fit.posterior.draws.phi[..., i], 5, "phi")
    for i in range(2):
        assert data["prior_b_scale"][i] == pytest.approx(2.5 * bundle.units.theta_scale[i])
        assert_mean(fit.posterior.draws.theta[..., i], 0, "theta")
        assert_sd(fit.posterior.draws.theta[..., i], data["prior_b_scale"][i], "theta")


def test_sigma_follows_its_half_student_t_prior(default):
    bundle, data, fit = default
    scale = 2.5 * bundle.units.eta_scale
    assert data["prior_sigma_scale"] == pytest.approx(scale)
    for p in (0.1, 0.5, 0.9):
        quantile = scale * t.ppf((1 + p) / 2, 3)
        assert_probability(fit.posterior.draws.dispersion["sigma"], quantile, p, "sigma")


def test_lprior_is_the_prior_density(default):
    _, data, fit = default
    expected = (
        norm.logpdf(fit.posterior.draws.phi, 0, 5).sum(-1)
        + norm.logpdf(fit.posterior.draws.theta, 0, data["prior_b_scale"]).sum(-1)
        + t.logpdf(fit.posterior.draws.dispersion["sigma"], 3, 0, data["prior_sigma_scale"])
        + np.log(2)
    )
    assert fit.posterior.draws.lprior == pytest.approx(expected, rel=1e-7)  # CSV has ten digits


def test_a_prior_run_is_marked_as_one(default):
    _, _, fit = default
    groups = arviz_oracle.group_names(arviz_oracle.read(fit.run.path / "posterior.nc"))
    assert "prior" in groups
    assert "posterior" not in groups
    assert "log_likelihood" not in groups


def test_other_densities(toolchain, tmp_path):
    priors = {"b": "student_t(4, 1, 2)", "sigma": "exponential(0.5)", "autoscale": False}
    _, _, fit = prior_draws(toolchain, tmp_path, **priors)
    for p in (0.1, 0.5, 0.9):
        assert_probability(fit.posterior.draws.theta[..., 0], 1 + 2 * t.ppf(p, 4), p, "theta")
        quantile = expon.ppf(p, scale=2)
        assert_probability(fit.posterior.draws.dispersion["sigma"], quantile, p, "sigma")
    expected = (
        norm.logpdf(fit.posterior.draws.phi, 0, 5).sum(-1)
        + t.logpdf(fit.posterior.draws.theta, 4, 1, 2).sum(-1)
        + expon.logpdf(fit.posterior.draws.dispersion["sigma"], scale=2)
    )
    assert fit.posterior.draws.lprior == pytest.approx(expected, rel=1e-7)
