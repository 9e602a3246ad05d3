"""Draws from the priors without Stan, against the densities and against the program's draws."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import expon, gamma, lognorm, norm, t

import semistan
from semistan.command import cli
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred, posterior_linpred
from semistan.posterior.prior_draws import prior_draws
from semistan.program.data import stan_data
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.assertions import Z, assert_mean, assert_probability, assert_sd, mcse
from support.small import small_bundle, small_frame
from support.untrained import random_bundle

SHAPE = (4, 1000)


def drawn(name="gaussian", seed=1, shape=SHAPE, k=3, free="none", **priors):
    settings = {"priors": priors, "subspace": {"k": k, "free": free}}
    bundle, rows = random_bundle(name, k=k, **settings)
    return bundle, rows, prior_draws(bundle, rows, shape, np.random.default_rng(seed))


def test_parameters_follow_their_priors():
    priors = {"b_x2": "student_t(4, -1, 3)", "phi": "normal(1, 2)"}
    bundle, _, draws = drawn(free="bias", **priors)
    for j, scale in enumerate(bundle.subspace.phi_scale):
        assert_mean(draws.phi[..., j], 1, "phi")
        assert_sd(draws.phi[..., j], 2 * scale, "phi")
    one, two = bundle.units.theta_scale
    assert_sd(draws.theta[..., 0], 2.5 * one, "b_x1")
    for p in (0.1, 0.5, 0.9):
        assert_probability(draws.theta[..., 1], -1 + 3 * two * t.ppf(p, 4), p, "b_x2")
        quantile = 2.5 * bundle.units.eta_scale * t.ppf((1 + p) / 2, 3)
        assert_probability(draws.dispersion["sigma"], quantile, p, "sigma")
    assert (draws.coefficients["b_x2"] == draws.theta[..., 1]).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exponential(2)", lambda s: expon(scale=s / 2)),
        ("lognormal(-1, 0.5)", lambda s: lognorm(0.5, scale=s * np.exp(-1))),
        ("gamma(2, 0.1)", lambda s: gamma(2, scale=s / 0.1)),
        ("normal(-1, 1)", lambda s: TruncatedNormal(-1, s)),
    ],
)
def test_dispersion_follows_its_prior(text, expected):
    bundle, _, draws = drawn(sigma=text)
    distribution = expected(bundle.units.eta_scale)
    for p in (0.1, 0.5, 0.9):
        assert_probability(draws.dispersion["sigma"], distribution.ppf(p), p, "sigma")


class TruncatedNormal:
    """A normal above zero, by its own distribution function."""

    def __init__(self, location, scale):
        self.full = norm(location, scale)

    def ppf(self, p):
        below = self.full.cdf(0)
        return self.full.ppf(below + p * (1 - below))


def test_what_the_program_derives_is_derived():
    bundle, rows, draws = drawn(sigma="exponential(1)")
    data = stan_data(bundle, rows)
    expected = (
        norm.logpdf(draws.phi, 0, 5).sum(-1)
        + norm.logpdf(draws.theta, 0, data["prior_b_scale"]).sum(-1)
        + expon.logpdf(draws.dispersion["sigma"], scale=bundle.units.eta_scale)
    )
    assert draws.lprior == pytest.approx(expected, rel=1e-9)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    intercept = eta.mean(axis=1) - draws.flat(draws.theta) @ rows.X.mean(axis=0)
    assert draws.flat(draws.coefficients["b_Intercept"]) == pytest.approx(intercept)


def test_a_fixed_dispersion_and_theta_inside_the_subspace():
    bundle, rows = random_bundle(
        "gaussian", priors={"sigma": "constant(3)"}, subspace={"k": 3, "construction": "naive"}
    )
    draws = prior_draws(bundle, rows, (2, 5), np.random.default_rng(1))
    assert (draws.dispersion["sigma"] == 3).all()
    expected = bundle.subspace.theta_bar + draws.phi @ bundle.subspace.theta_Pi.T
    assert draws.theta == pytest.approx(expected)


def test_the_same_generator_gives_the_same_draws():
    one, same, other = (drawn(seed=seed, shape=(1, 5))[2] for seed in (1, 1, 2))
    assert (one.phi == same.phi).all()
    assert (one.phi != other.phi).all()


def test_predictions_agree_with_a_run_that_leaves_the_likelihood_out(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", sample={"metric": "diag_e"})
    run = new_run(bundle, rows, tmp_path / "run", bundle.config.sample, toolchain, prior_only=True)
    sampled = sample(run, toolchain).posterior.draws
    draws = prior_draws(bundle, rows, (4, 5000), np.random.default_rng(1))
    some = rows.first(3)
    by_stan, by_numpy = (
        posterior_epred(SubspacePosterior(bundle, d), some).reshape(d.chains, -1, 3)
        for d in (sampled, draws)
    )
    for i in range(3):
        for p in (0.1, 0.5, 0.9):
            quantile = np.quantile(by_numpy[..., i], p)
            below = [(x[..., i] < quantile).astype(float) for x in (by_stan, by_numpy)]
            limit = Z * np.hypot(*(mcse(x, "mean") for x in below))
            assert abs(below[0].mean() - below[1].mean()) < limit


@pytest.fixture
def unsampled(tmp_path):
    bundle, rows = small_bundle()
    options = bundle.config.sample.model_copy(update={"chains": 2, "draws": 50})
    return new_run(bundle, rows, tmp_path / "run", options, None)


def test_a_run_without_chains_predicts_from_its_priors(unsampled, tmp_path, monkeypatch):
    small_frame(5, seed=2).to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", unsampled.path, "--newdata", tmp_path / "new.csv", "--prior",
                 "--kind", "predict", "--draws", tmp_path / "draws.csv",
                 "--out", tmp_path / "table.csv"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["semistan", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    long, table = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("draws", "table"))
    assert len(long) == 5 * 100
    means = long.groupby(".row")[".prediction"].mean()
    assert table["Estimate"].to_numpy() == pytest.approx(means.to_numpy())
    frame = small_frame(5, seed=2)
    one, other = (
        semistan.predict(unsampled, frame, kind="predict", prior=True, seed=s) for s in (1, 2)
    )
    assert one["Estimate"].to_numpy() == pytest.approx(table["Estimate"].to_numpy())
    assert (one["Estimate"] != other["Estimate"]).all()


def test_prior_predictions_of_a_part_need_the_training_rows(unsampled):
    frame = small_frame(5, seed=2)
    all_of_it = semistan.predict(unsampled, frame, kind="linpred", prior=True)["Estimate"]
    parts = [
        semistan.predict(unsampled, frame, part=part, prior=True)["Estimate"]
        for part in ("structured", "nn")
    ]
    difference = (all_of_it - parts[0] - parts[1]).to_numpy()
    assert np.ptp(difference) < 1e-8 * np.abs(all_of_it).max()
    assert np.abs(difference).min() > 0
