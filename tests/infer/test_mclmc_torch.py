"""Microcanonical Langevin Monte Carlo: its steps, its adaptation, and closed forms."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from semistan.density.target import make_target
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import SILENT
from semistan.infer.methods import mclmc_torch, reservations
from semistan.infer.methods.mclmc_torch import (
    ENERGY_VARIANCE,
    Adaptation,
    Motion,
    Position,
    adapted,
    correlation_time,
    integrated,
    refreshed,
    turned,
)
from semistan.infer.resumable_chain import run_to_end
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.posterior.diagnostics import diagnose, worst
from semistan.posterior.posterior import SubspacePosterior, read_posterior
from semistan.subspace.start_values import curve_states
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import draw_missing
from semistan.workflow.watch import Watch
from support.assertions import Z, assert_mean, mcse
from support.chains import assert_goes_on, assert_seed_decides, columns_of, draw_chains
from support.drawn import random_draws
from support.gradients import assert_gradient
from support.small import small_config, small_frame
from support.untrained import random_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)"}
SHORT = SampleConfig(method="mclmc-torch", chains=2, warmup=16, draws=30, seed=7)


def unit(generator, n):
    u = generator.normal(size=n)
    return u / np.linalg.norm(u)


def correlated(n=20):
    """A Gaussian with standard deviations from 0.3 to 3: mean, covariance, and its density."""
    generator = np.random.default_rng(1)
    A = generator.normal(size=(n, n))
    covariance = A @ A.T / n + 0.3 * np.eye(n)
    scale = np.geomspace(0.3, 3, n) / np.sqrt(np.diag(covariance))
    covariance = covariance * np.outer(scale, scale)
    mean, precision = generator.normal(size=n), np.linalg.inv(covariance)

    def density(q):
        slope = precision @ (q - mean)
        return float((q - mean) @ slope / 2), slope

    return mean, covariance, density


def chain_of(density, start, number, warmup=400, draws=500):
    options = SampleConfig(method="mclmc-torch", warmup=warmup, draws=draws, seed=2)
    task = SimpleNamespace(options=options, number=number, left=None)
    return run_to_end(
        task,
        lambda generator: mclmc_torch._first(density, start, number, generator),
        lambda walk, generator: mclmc_torch._moved(density, task, walk, generator),
        SILENT,
    )


@pytest.mark.parametrize("time", [0.01, 0.7, 5.0])
def test_a_turn_solves_its_differential_equation(time):
    generator, n = np.random.default_rng(0), 6
    u, slope = unit(generator, n), 4 * generator.normal(size=n)

    def right(_, y):
        v = y[:n]
        along = v @ slope
        return [*(-(slope - along * v) / (n - 1)), -along]

    solution = solve_ivp(right, (0, time), [*u, 0.0], rtol=1e-11, atol=1e-12).y[:, -1]
    new, gain = turned(u, slope, time)
    assert new == pytest.approx(solution[:n], abs=1e-8)
    assert gain == pytest.approx(solution[n], abs=1e-7)


def test_a_turn_is_stable_where_the_slope_is_steep_or_zero():
    u = np.array([1.0, 0, 0])
    for slope in (np.array([1e8, 0, 0]), np.array([-1e8, 0, 0]), np.array([0, 1e8, 0])):
        new, gain = turned(u, slope, 1.0)
        assert np.linalg.norm(new) == pytest.approx(1)
        assert np.isfinite(gain)
    assert turned(u, np.zeros(3), 1.0) == (u, 0.0)


def test_energy_is_conserved_to_the_square_of_the_step_without_noise():
    _, covariance, density = correlated()
    generator = np.random.default_rng(3)
    start, direction = generator.multivariate_normal(np.zeros(20), covariance), unit(generator, 20)
    worst_error = []
    for step in (0.4, 0.2, 0.1):
        motion, total, found = Motion(step, np.inf, np.ones(20)), 0.0, []
        place, u = Position(start, *density(start)), direction
        for _ in range(round(8 / step)):
            place, u, error = integrated(density, place, u, motion)
            assert np.linalg.norm(u) == pytest.approx(1, abs=1e-12)
            found.append(total := total + error)
        worst_error.append(np.abs(found).max())
    assert worst_error[0] / worst_error[1] == pytest.approx(4, rel=0.5)
    assert worst_error[1] / worst_error[2] == pytest.approx(4, rel=0.5)


def test_a_step_goes_back_when_the_velocity_is_turned_round():
    _, _, density = correlated()
    generator = np.random.default_rng(3)
    q, u = generator.normal(size=20), unit(generator, 20)
    motion = Motion(0.3, np.inf, np.linspace(0.5, 2, 20))
    there, new, error = integrated(density, Position(q, *density(q)), u, motion)
    back, old, other = integrated(density, there, -new, motion)
    assert back.q == pytest.approx(q)
    assert old == pytest.approx(-u)
    assert other == pytest.approx(-error)


def test_noise_keeps_the_length_and_forgets_over_the_distance():
    generator, n = np.random.default_rng(0), 200
    motion, u = Motion(0.1, 2.0, np.ones(n)), unit(generator, n)
    new = [refreshed(u, motion, generator) for _ in range(400)]
    assert np.linalg.norm(new, axis=1) == pytest.approx(1)
    assert np.mean(new @ u) == pytest.approx(np.exp(-0.1 / 2.0), abs=1e-3)


def test_the_step_is_adapted_to_the_variance_of_the_energy():
    generator, n, adaptation, step = np.random.default_rng(0), 50, Adaptation(), 30.0
    for _ in range(600):
        error = generator.normal() * 0.01 * step**3
        adaptation, step = adapted(adaptation, step, error, n)
    assert (0.01 * step**3) ** 2 / n == pytest.approx(ENERGY_VARIANCE, rel=0.5)
    bounded, shorter = adapted(adaptation, step, np.nan, n)
    assert shorter == bounded.largest == 0.8 * step


def test_the_correlation_time_is_that_of_an_autoregression():
    generator, rho = np.random.default_rng(0), 0.8
    draws = np.zeros((20_000, 3))
    for i in range(1, len(draws)):
        draws[i] = rho * draws[i - 1] + generator.normal(size=3)
    assert correlation_time(draws) == pytest.approx((1 + rho) / (1 - rho), rel=0.15)
    assert correlation_time(generator.normal(size=(1000, 3))) == pytest.approx(1, abs=0.2)
    assert correlation_time(np.ones((9, 2))) == 1


@pytest.mark.lengthy
def test_a_correlated_gaussian_has_its_moments():
    mean, covariance, density = correlated()
    sd = np.sqrt(np.diag(covariance))
    chains = [chain_of(density, mean + 3 * sd, number) for number in (1, 2, 3, 4)]
    z = (np.stack([chain["q"] for chain in chains]) - mean) / sd
    for j in range(20):
        assert_mean(z[..., j], 0)
        assert abs(z[..., j].var() - 1) < 0.03 + Z * mcse(z[..., j] ** 2, "mean")
    assert z.var(axis=(0, 1)).mean() == pytest.approx(1, abs=0.05)
    correlation = covariance / np.outer(sd, sd)
    assert np.corrcoef(z.reshape(-1, 20).T) == pytest.approx(correlation, abs=0.15)
    assert np.mean([chain["energy_error"] for chain in chains]) < 2 * ENERGY_VARIANCE
    assert np.all(chains[0]["gradients"] == 10)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_the_gradient_is_that_of_the_posterior(name):
    bundle, rows = random_bundle(name)
    target, q = make_target(bundle, rows), curve_states(bundle, 1)[0]
    assert_gradient(target, q)


def sampled(bundle, rows, folder, options=SHORT, **settings):
    """Sample, and return the columns (C, S) by name."""
    starts = find_starts(bundle, rows, options, from_mode=False)
    draw_chains(bundle, rows, folder, options, starts, **settings)
    return columns_of(folder, options.chains)


@pytest.mark.slow
def test_its_predictors_are_those_of_elliptical_slice_sampling(tmp_path):
    bundle, rows = random_bundle("gaussian", hidden=(2,), k=2, priors=PRIORS)
    found = []
    for method, draws in (("mclmc-torch", 250), ("elliptical-slice", 400)):
        options = SampleConfig(method=method, chains=2, warmup=120, draws=draws, seed=3)
        run = new_run(bundle, rows, tmp_path / method, options, None)
        draw_missing(run)
        found.append(read_posterior(run).predictor(rows).reshape(2, draws, -1))
    for i in range(len(rows)):
        for moment, kind, bias in ((np.mean, "mean", 0.05), (np.std, "sd", 0.05)):
            ours, theirs = (moment(eta[..., i]) for eta in found)
            limit = Z * np.hypot(*(mcse(eta[..., i], kind) for eta in found))
            assert abs(ours - theirs) < limit + bias * found[1][..., i].std()


@pytest.mark.lengthy
def test_an_interrupted_chain_goes_on_to_the_same_bytes(tmp_path):
    bundle, rows = random_bundle("gaussian")
    assert_goes_on(partial(sampled, bundle, rows), tmp_path, ((1, 1), (1, 12), (1, 46), (2, 33)))


@pytest.mark.lengthy
def test_the_seed_decides_and_each_chain_has_its_own(tmp_path):
    bundle, rows = random_bundle("gaussian")
    assert_seed_decides(partial(sampled, bundle, rows), tmp_path, SHORT)


def test_chains_start_on_the_curve_and_look_for_no_mode(monkeypatch, tmp_path):
    bundle, rows = random_bundle("gaussian")
    monkeypatch.setattr("semistan.infer.starts.find_mode", lambda *_: 1 / 0)
    said = []
    run = new_run(bundle, rows, tmp_path / "run", SHORT, None, watch=Watch(said.append))
    assert said == ["they start on the curve"]
    assert run.options.warmup == 16
    assert not list(run.path.glob("metric-*.json"))


def test_it_cannot_move_in_one_dimension(tmp_path):
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ nn(u1)", k=1, priors={"sigma": "constant(15)"}
    )
    with pytest.raises(InputError, match="needs at least two parameters to sample, got one"):
        sampled(bundle, rows, tmp_path)


def test_a_start_without_density_is_an_error():
    with pytest.raises(SemistanError, match="chain 3 starts where the posterior is not finite"):
        mclmc_torch._first(
            lambda _: (np.nan, np.zeros(2)), np.zeros(2), 3, np.random.default_rng(0)
        )


def test_a_chain_stays_where_it_would_leave_the_support():
    def density(q):
        return (float(q @ q / 2) if q[0] > 0 else np.inf), q

    drawn = chain_of(density, np.array([1.0, 0.0, 0.0]), 1, warmup=40, draws=60)
    assert (drawn["q"][:, 0] > 0).all()
    assert np.isfinite(drawn["log_density"]).all()


def judged(error):
    bundle, _ = random_bundle("gaussian")
    draws = random_draws(bundle)
    sampler = {"energy_error": np.full(draws.lprior.shape, error)}
    posterior = SubspacePosterior(
        bundle, replace(draws, sampler=sampler, method=mclmc_torch.MCLMC_TORCH)
    )
    return diagnose(posterior, worst([]), worst([]))[0]


def test_the_errors_of_the_energy_are_judged():
    assert judged(5e-4).passed
    for error in (0.1, np.nan):
        check = judged(error)
        assert (check.name, check.passed) == ("energy error", False)


def test_a_fit_says_that_it_is_unadjusted(tmp_path):
    text = "unadjusted (microcanonical Langevin Monte Carlo: the errors of its steps are a bias)"
    assert reservations(SHORT) == (text,)
    sample = {"method": "mclmc-torch", "chains": 2, "warmup": 20, "draws": 20}
    config = small_config("y ~ x + nn(u, v)", sample=sample)
    fit = fit_model(config, small_frame(), out=tmp_path / "run")
    assert f"Not the posterior: {text}." in repr(fit)
    assert fit.run.facts()["Draws"] == "2 chains x 20 after 20 warm-up draws"
    assert fit.summary.checks[0].name == "energy error"
    assert set(fit.posterior.sampler) == {"lp", "energy_error"}
