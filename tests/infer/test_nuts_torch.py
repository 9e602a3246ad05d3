"""NUTS in PyTorch: its trajectories, its adaptation, closed forms, and CmdStan's NUTS."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.density.target import make_target, value_and_gradient
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import SILENT
from semistan.infer.methods import nuts_torch, suited
from semistan.infer.methods.nuts_torch import (
    DIVERGENT,
    Averaging,
    Dynamics,
    PhasePoint,
    adapted,
    extended,
    first_metric,
    first_state,
    first_step,
    metric_of,
    transition,
    windows,
)
from semistan.infer.resumable_chain import run_to_end
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.posterior.posterior import read_posterior
from semistan.subspace.start_values import curve_states
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.outputs import generate
from semistan.workflow.sample import sample as sample_run
from support.assertions import Z, assert_correlation, assert_mean, assert_sd, mcse
from support.by_hand import linear_posterior
from support.chains import assert_goes_on, assert_seed_decides, columns_of, draw_chains
from support.gradients import assert_gradient
from support.small import small_config, small_frame
from support.untrained import random_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)"}
LINEAR = {"activation": "identity", "hidden": [], "priors": PRIORS | {"sigma": "constant(15)"}}
SHORT = SampleConfig(method="nuts-torch", chains=2, warmup=24, draws=20, seed=7, max_treedepth=5)


def normal(precision):
    """The density of N(0, precision^-1)."""

    def density(q):
        slope = precision @ q
        return float(q @ slope / 2), slope

    return density


STANDARD, TWO = normal(np.eye(3)), np.linalg.inv(np.array([[1.0, 1.6], [1.6, 4.0]]))


def begun(dynamics, q, seed=0):
    return dynamics.begun(q, *dynamics.density(q), np.random.default_rng(seed))


def chain_of(density, start, number, metric="diag_e", warmup=300, draws=400):
    options = SampleConfig(
        method="nuts-torch", warmup=warmup, draws=draws, seed=2, metric=metric, adapt_delta=0.8,
        max_treedepth=10,
    )  # fmt: skip
    task = SimpleNamespace(options=options, number=number, left=None)
    ends = () if metric == "unit_e" else windows(warmup)
    first = first_metric(len(start), options, None)
    return run_to_end(
        task,
        lambda generator: first_state(density, start, first, number, generator),
        lambda walk, generator: nuts_torch._next(density, options, ends, walk, generator),
        SILENT,
    )


def test_a_step_goes_back_and_conserves_the_energy_to_its_square():
    generator = np.random.default_rng(3)
    q, metric, errors = generator.normal(size=2), metric_of(np.array([0.5, 3.0])), []
    for step in (0.2, 0.1, 0.05):
        dynamics = Dynamics(normal(TWO), metric, step)
        place = start = begun(dynamics, q)
        found = []
        for _ in range(round(4 / step)):
            place = dynamics.moved(place, 1)
            found.append(place.energy - start.energy)
        errors.append(np.abs(found).max())
        for _ in found:
            place = dynamics.moved(place, -1)
        assert place.q == pytest.approx(start.q)
        assert place.p == pytest.approx(start.p)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize("inverse", [np.array([0.5, 3.0]), np.array([[1.0, 1.6], [1.6, 4.0]])])
def test_momenta_have_the_metric_as_covariance(inverse):
    metric, generator = metric_of(inverse), np.random.default_rng(0)
    p = np.array([metric.momentum(generator.normal(size=2)) for _ in range(40_000)])
    expected = np.linalg.inv(inverse if inverse.ndim == 2 else np.diag(inverse))
    assert np.cov(p.T) == pytest.approx(expected, abs=0.05)
    velocity = inverse @ p[0] if inverse.ndim == 2 else inverse * p[0]
    assert metric.velocity(p[0]) == pytest.approx(velocity)


@pytest.mark.parametrize("direction", [1, -1])
def test_a_tree_is_what_its_places_make(direction):
    dynamics, generator = Dynamics(STANDARD, metric_of(np.ones(3)), 0.1), np.random.default_rng(1)
    start = begun(dynamics, np.array([1.0, -2.0, 0.5]))
    tree = extended(dynamics, start, direction, 3, start.energy, generator)
    places, place = [], start
    for _ in range(8):
        place = dynamics.moved(place, direction)
        places.append(place)
    gains = np.array([start.energy - each.energy for each in places])
    ends = places[::direction]
    assert not tree.ended
    assert tree.steps == 8
    assert tree.first.q == pytest.approx(ends[0].q)
    assert tree.last.q == pytest.approx(ends[-1].q)
    assert tree.rho == pytest.approx(sum(each.p for each in places))
    assert tree.log_weight == pytest.approx(np.log(np.exp(gains).sum()))
    assert tree.accepted == pytest.approx(np.minimum(1, np.exp(gains)).sum())
    assert any(np.array_equal(tree.drawn.q, each.q) for each in places)


def test_a_trajectory_turns_round_after_about_half_a_period():
    dynamics = Dynamics(STANDARD, metric_of(np.ones(3)), 0.1)
    generator = np.random.default_rng(0)
    for seed in range(20):
        tree, depth = transition(dynamics, begun(dynamics, np.ones(3), seed), 10, generator)
        assert tree.turned
        assert not tree.diverged
        assert 4 <= depth <= 6  # pi / 0.1 = 31.4 steps
    tree, depth = transition(dynamics, begun(dynamics, np.ones(3)), 2, generator)
    assert (depth, tree.steps, tree.ended) == (2, 3, False)


def test_what_has_no_density_diverges_and_is_never_drawn():
    def density(q):
        return (float(q @ q / 2), q) if q[0] < 2 else (np.nan, np.full_like(q, np.nan))

    start = np.array([1.9, 0.0])
    generator, dynamics = np.random.default_rng(0), Dynamics(density, metric_of(np.ones(2)), 0.2)
    q = np.array([1.9, 0.0])
    place = PhasePoint(q, np.array([5.0, 0]), np.array([5.0, 0]), *density(q))
    tree = extended(dynamics, place, 1, 3, place.energy, generator)
    assert (tree.diverged, tree.accepted) == (True, 0)
    steep = Dynamics(normal(np.array([[4 * DIVERGENT]])), metric_of(np.ones(1)), 1.0)
    at = steep.begun(np.ones(1), *steep.density(np.ones(1)), generator)
    assert extended(steep, at, 1, 0, at.energy, generator).diverged
    drawn = chain_of(density, start, 1, warmup=60, draws=100)
    assert (drawn["q"][:, 0] < 2).all()
    assert drawn["divergent__"].any()


def test_windows_are_those_of_cmdstan():
    assert windows(1000) == (75, 100, 150, 250, 450, 950)
    assert windows(500) == (75, 100, 150, 250, 450)
    assert windows(300) == (75, 100, 150, 250)
    assert windows(50) == (7, 45)
    assert windows(19) == ()


def test_the_metric_is_shrunk_as_in_cmdstan():
    draws = np.random.default_rng(0).normal(size=(45, 3)) * [1, 2, 3]
    diagonal = adapted(draws, metric_of(np.ones(3))).inverse
    dense = adapted(draws, metric_of(np.eye(3))).inverse
    assert diagonal == pytest.approx(0.9 * draws.var(axis=0, ddof=1) + 0.1 * 1e-3)
    assert dense == pytest.approx(0.9 * np.cov(draws.T) + 0.1 * 1e-3 * np.eye(3))


def test_the_step_is_averaged_towards_the_acceptance_that_is_wanted():
    generator, averaging, step = np.random.default_rng(0), Averaging(np.log(10 * 0.1)), 0.1
    for _ in range(2000):
        acceptance = np.exp(-step) + 0.05 * generator.normal()
        averaging, step = averaging.updated(acceptance, 0.8)
    assert np.exp(-np.exp(averaging.log_step)) == pytest.approx(0.8, abs=0.02)


def test_the_first_step_is_accepted_about_as_it_should():
    generator = np.random.default_rng(0)
    for scale in (1e-4, 1.0, 1e4):
        dynamics = Dynamics(normal(np.eye(5) / scale**2), metric_of(np.ones(5)), 1.0)
        place = begun(dynamics, scale * generator.normal(size=5))
        assert 0.1 * scale < first_step(dynamics, place, generator) < 10 * scale
    flat = Dynamics(lambda q: (0.0, np.zeros_like(q)), metric_of(np.ones(2)), 1.0)
    with pytest.raises(SemistanError, match="the posterior is flat or not continuous"):
        first_step(flat, begun(flat, np.zeros(2)), generator)


@pytest.mark.lengthy
@pytest.mark.parametrize("metric", ["diag_e", "dense_e", "unit_e"])
def test_a_correlated_gaussian_has_its_moments(metric):
    chains = [chain_of(normal(TWO), np.array([3.0, -6.0]), number, metric) for number in (1, 2)]
    q = np.stack([chain["q"] for chain in chains])
    assert_mean(q[..., 0], 0)
    assert_mean(q[..., 1], 0)
    assert_sd(q[..., 0], 1)
    assert_sd(q[..., 1], 2)
    assert_correlation(q[..., 0], q[..., 1], 0.8)
    energy = np.stack([chain["energy"] for chain in chains])
    assert_mean(energy, 2)  # of L and of the kinetic energy n / 2 each
    assert 0.7 < np.mean([chain["accept_stat__"] for chain in chains]) < 0.95
    assert not np.any([chain["divergent__"] for chain in chains])


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_the_gradient_is_that_of_the_posterior_in_one_chunk_and_in_several(name, monkeypatch):
    bundle, rows = random_bundle(name)
    whole, q = make_target(bundle, rows), curve_states(bundle, 1)[0]
    monkeypatch.setattr("semistan.density.target.CHUNK", 7 * bundle.subspace.d)
    several = make_target(bundle, rows)
    assert [len(part.chunks) for part in several.parts] == [1] * 5
    for target in (whole, several, replace(whole, prior_only=True)):
        assert_gradient(target, q)


@pytest.mark.parametrize("how", ["model", "subspace"])
def test_rows_that_belong_together_are_gone_through_together(how, monkeypatch):
    settings = {
        "model": {"orthogonalise": "all", "orthogonalise_in": "model"},
        "subspace": {"sample": {"temperature": 2.0, "temper": "subspace"}},
    }[how]
    bundle, rows = random_bundle("gaussian", **settings)
    q = curve_states(bundle, 1)[0]
    value, gradient = value_and_gradient(make_target(bundle, rows), q)
    monkeypatch.setattr("semistan.density.target.CHUNK", 7 * bundle.subspace.d)
    again, of_chunks = value_and_gradient(make_target(bundle, rows), q)
    assert again == pytest.approx(value)
    assert of_chunks == pytest.approx(gradient)


def sampled(bundle, rows, folder, options=SHORT, **settings):
    """Sample, and return the columns (C, S) by name."""
    starts = find_starts(bundle, rows, options)
    draw_chains(bundle, rows, folder, starts.resolve(options), starts, **settings)
    return columns_of(folder, options.chains)


@pytest.mark.lengthy
@pytest.mark.parametrize("metric", ["ggn", "diag_e"])
def test_a_linear_model_has_its_exact_posterior(metric, tmp_path):
    bundle, rows = random_bundle("gaussian", **LINEAR)
    mean, covariance = linear_posterior(bundle, rows, 15.0)
    settings = {"draws": 150, "warmup": 60, "max_treedepth": 10, "metric": metric}
    columns = sampled(bundle, rows, tmp_path, SHORT.model_copy(update=settings))
    names = [name for name in columns if name.startswith(("phi.", "theta."))]
    for i, name in enumerate(names):
        assert_mean(columns[name], mean[i], name)
        assert_sd(columns[name], np.sqrt(covariance[i, i]), name)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert_correlation(columns[names[0]], columns[names[1]], expected)
    # energy__ is minus lp__ and the kinetic energy, whose mean is half the dimensions
    assert_mean(columns["energy__"] + columns["lp__"], len(names) / 2)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_cmdstan_finds_the_same(family, toolchain, tmp_path):
    bundle, rows = random_bundle(family, hidden=(2,), k=2, priors=PRIORS)
    options = SampleConfig(chains=2, warmup=100, draws=200, seed=3)
    fit = sample_run(new_run(bundle, rows, tmp_path / "stan", options, toolchain), toolchain)
    ours = sampled(bundle, rows, tmp_path, options.model_copy(update={"method": "nuts-torch"}))
    files = [pd.read_csv(path, comment="#") for path in fit.run.csv_files()]
    theirs = {name: np.stack([file[name] for file in files]) for name in files[0]}
    assert list(ours) == list(theirs)
    for name in ("lp__", "energy__", *list(ours)[7:]):
        for moment, method in ((np.mean, "mean"), (np.std, "sd")):
            limit = Z * np.hypot(mcse(ours[name], method), mcse(theirs[name], method))
            assert abs(moment(ours[name]) - moment(theirs[name])) < limit, (name, method)
    for name in ("accept_stat__", "n_leapfrog__", "stepsize__"):
        assert ours[name].mean() == pytest.approx(theirs[name].mean(), rel=0.6)


@pytest.mark.lengthy
def test_an_interrupted_chain_goes_on_to_the_same_bytes(tmp_path):
    bundle, rows = random_bundle("gaussian")
    assert_goes_on(partial(sampled, bundle, rows), tmp_path, ((1, 23), (1, 40), (2, 12)))


@pytest.mark.lengthy
def test_the_seed_decides_and_each_chain_has_its_own(tmp_path):
    bundle, rows = random_bundle("gaussian")
    assert_seed_decides(partial(sampled, bundle, rows), tmp_path, SHORT)


def test_a_start_without_density_is_an_error():
    with pytest.raises(SemistanError, match="chain 3 starts where the posterior is not finite"):
        first_state(
            lambda _: (np.nan, np.zeros(2)), np.zeros(2), metric_of(np.ones(2)), 3,
            np.random.default_rng(0),
        )  # fmt: skip


def test_methods_of_pytorch_take_the_place_of_those_of_the_program_where_stan_cannot_compute():
    for in_stan, method, found in (
        (True, "nuts", "nuts"), (False, "nuts", "nuts-torch"), (True, "mclmc", "mclmc"),
        (False, "mclmc", "mclmc-torch"), (False, "laplace", "laplace"),
    ):  # fmt: skip
        networks = SimpleNamespace(in_stan=in_stan)
        assert suited(SampleConfig(method=method), networks).method == found


@pytest.mark.lengthy
def test_a_fit_has_the_diagnostics_of_nuts(tmp_path):
    sample = {"method": "nuts-torch", "chains": 2, "warmup": 40, "draws": 20}
    config = small_config("y ~ x + nn(u, v)", sample=sample)
    fit = fit_model(config, small_frame(), out=tmp_path / "run")
    assert [check.name for check in fit.summary.checks[:3]] == [
        "divergences", "tree depth", "E-BFMI",
    ]  # fmt: skip
    assert {"diverging", "tree_depth", "energy"} < set(read_posterior(fit.run).sampler)
    page = semistan.report(fit.run, tmp_path / "page.html").read_text()
    assert "NUTS in PyTorch" in page
    assert "Target acceptance" in page
    for refused in (generate, lambda run: sample_run(run, more=5)):
        with pytest.raises(InputError, match="this run's method is 'nuts-torch'"):
            refused(fit.run)
