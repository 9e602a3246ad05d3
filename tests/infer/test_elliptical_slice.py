"""Elliptical slice sampling, against closed forms and NUTS, and what interruptions do to it."""

import re
from dataclasses import replace
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.bundle.unfinished import kept_state
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError, SemistanError
from semistan.infer.chain_store import partial_file
from semistan.infer.methods import elliptical_slice
from semistan.infer.methods.elliptical_slice import (
    Reference,
    State,
    elliptical_step,
    reference_of,
    slice_step,
)
from semistan.infer.starts import Starts, find_starts, initial_values
from semistan.model.config import SampleConfig
from semistan.program.data import stan_data
from semistan.subspace.start_values import curve_states
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.assertions import Z, assert_correlation, assert_mean, assert_sd, mcse
from support.by_hand import linear_posterior
from support.chains import columns_of, draw_chains
from support.small import family_bundle
from support.untrained import random_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)"}
LINEAR = {"activation": "identity", "hidden": [], "priors": PRIORS | {"sigma": "constant(15)"}}
SHORT = SampleConfig(method="elliptical-slice", chains=2, warmup=16, draws=30, seed=7)


def without_modes(bundle, chains):
    """Starts on the curve, so that the reference is the prior."""
    return Starts(tuple(initial_values(bundle, state) for state in curve_states(bundle, chains)))


def sampled(bundle, rows, folder, options, starts=None, **settings):
    """Sample, and return the columns (C, S) by name."""
    options = options.model_copy(update={"method": "elliptical-slice"})
    starts = starts or find_starts(bundle, rows, options)
    draw_chains(bundle, rows, folder, options, starts, **settings)
    return columns_of(folder, options.chains)


def names_of(columns):
    return [name for name in columns if name.startswith(("phi.", "theta."))]


@pytest.mark.parametrize("reference", ("Laplace", "prior"))
@pytest.mark.lengthy
def test_a_linear_model_has_its_exact_posterior(reference, tmp_path):
    bundle, rows = random_bundle("gaussian", **LINEAR)
    mean, covariance = linear_posterior(bundle, rows, 15.0)

    options = SampleConfig(chains=2, warmup=100, draws=400)
    starts = None if reference == "Laplace" else without_modes(bundle, 2)
    columns = sampled(bundle, rows, tmp_path, options, starts)
    names = names_of(columns)
    assert len(names) == 5
    for i, name in enumerate(names):
        assert_mean(columns[name], mean[i], name)
        assert_sd(columns[name], np.sqrt(covariance[i, i]), name)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert_correlation(columns[names[0]], columns[names[1]], expected)
    assert np.all(columns["sigma"] == 15)


@pytest.mark.parametrize("reference", ("Laplace", "prior"))
@pytest.mark.parametrize(
    "family", ("gaussian", "poisson", pytest.param("bernoulli", marks=pytest.mark.slow))
)
def test_nuts_finds_the_same(family, reference, toolchain, tmp_path):
    bundle, rows = random_bundle(family, hidden=(2,), k=2, priors=PRIORS)
    assert_found_by_nuts(bundle, rows, reference, toolchain, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ("Laplace", "prior"))
def test_nuts_finds_the_same_predictor_of_sigma(reference, toolchain, tmp_path):
    formula = "y ~ x1 + nn(u1, u2, u3), sigma ~ z"
    bundle, rows = random_bundle("gaussian", formula=formula, hidden=(2,), k=2, priors=PRIORS)
    assert_found_by_nuts(bundle, rows, reference, toolchain, tmp_path)


def assert_found_by_nuts(bundle, rows, reference, toolchain, tmp_path):
    options = SampleConfig(chains=2, warmup=100, draws=300, seed=3)
    fit = sample(new_run(bundle, rows, tmp_path / "nuts", options, toolchain), toolchain)
    starts = None if reference == "Laplace" else without_modes(bundle, 2)
    ours = sampled(bundle, rows, tmp_path, options, starts)
    files = [pd.read_csv(path, comment="#") for path in fit.run.csv_files()]
    theirs = {name: np.stack([file[name] for file in files]) for name in files[0]}
    assert list(ours) == list(theirs)
    for name in ("lp__", *list(ours)[7:]):
        for moment, method in ((np.mean, "mean"), (np.std, "sd")):
            limit = Z * np.hypot(mcse(ours[name], method), mcse(theirs[name], method))
            assert abs(moment(ours[name]) - moment(theirs[name])) < limit, (name, method)


@pytest.mark.lengthy
def test_draws_from_the_prior(tmp_path):
    bundle, rows = random_bundle("gaussian", priors=PRIORS | {"sigma": "exponential(2)"})
    options = SampleConfig(chains=2, warmup=50, draws=600)
    starts = without_modes(bundle, 2)
    columns = sampled(bundle, rows, tmp_path, options, starts, prior_only=True)
    assert_mean(columns["phi.2"], 0)
    assert_sd(columns["phi.2"], 0.5)
    assert_mean(columns["sigma"], bundle.units.eta_scale / 2)


@pytest.mark.parametrize("spread", (0.6, 3.0))
@pytest.mark.lengthy
def test_a_step_is_exact_for_a_reference_that_does_not_fit(spread):
    generator = np.random.default_rng(4)
    precision = np.linalg.inv(np.array([[1.0, 0.8], [0.8, 1.0]]))
    reference = Reference(np.array([0.5, -1.0]), spread * np.eye(2), is_prior=False)

    def density(q):
        return -q @ precision @ q / 2

    draws = np.empty((4, 8000, 2))
    for chain in draws:
        state = State(np.zeros(2), reference.standardise(np.zeros(2)), 0.0)
        for draw in chain:
            state, evaluations = elliptical_step(density, reference, state, generator)
            draw[:] = state.q
            assert evaluations >= 1
            assert reference.point(state.z) == pytest.approx(state.q)
    assert_mean(draws[..., 0], 0)
    assert_sd(draws[..., 1], 1)
    assert_correlation(draws[..., 0], draws[..., 1], 0.8)


@pytest.mark.parametrize("width", (0.2, 1.0, 9.0))
def test_a_slice_step_draws_from_an_asymmetric_density(width, monkeypatch):
    """The log of an exponential variable."""
    monkeypatch.setattr(elliptical_slice, "SLICE_WIDTH", width)
    generator, draws = np.random.default_rng(2), np.empty((4, 5000))
    for chain in draws:
        x, value = 0.0, -1.0
        for i in range(len(chain)):
            x, value = slice_step(lambda x: x - np.exp(x), x, value, generator)
            chain[i] = x
    assert_mean(draws, -np.euler_gamma)
    assert_sd(draws, np.pi / np.sqrt(6))


@pytest.mark.lengthy
def test_batches_give_the_same_log_likelihood_and_posterior(tmp_path, monkeypatch):
    bundle, rows = random_bundle("poisson")
    target, q = make_target(bundle, rows), torch.tensor(curve_states(bundle, 1)[0])
    starts = find_starts(bundle, rows, SHORT)
    columns = sampled(bundle, rows, tmp_path / "a", SHORT, starts)
    monkeypatch.setattr("semistan.density.target.CHUNK", 7 * bundle.subspace.d)
    batches = make_target(bundle, rows)
    assert [len(chunk) for chunk in batches.chunks] == [7, 7, 7, 7, 2]
    whole = negative_log_posterior(target, q)
    assert negative_log_posterior(batches, q) == pytest.approx(whole, rel=1e-13)
    again = sampled(bundle, rows, tmp_path / "b", SHORT, starts)
    assert again["phi.1"][:, 0] == pytest.approx(columns["phi.1"][:, 0], rel=1e-6)


@pytest.mark.parametrize("reference", ("Laplace", "prior"))
@pytest.mark.lengthy
def test_an_interrupted_chain_goes_on_to_the_same_bytes(reference, tmp_path, monkeypatch):
    bundle, rows = random_bundle("gaussian", priors=PRIORS)
    starts = None if reference == "Laplace" else without_modes(bundle, 2)
    sampled(bundle, rows, tmp_path / "whole", SHORT, starts)

    def stop_at(chain, iteration):
        def progress(*now):
            assert now[2] == 46
            if now[:2] == (chain, iteration):
                raise KeyboardInterrupt

        return progress

    for chain, iteration in ((1, 1), (1, 12), (1, 46), (2, 33)):
        with pytest.raises(KeyboardInterrupt):
            sampled(bundle, rows, tmp_path / "parts", SHORT, starts,
                    progress=stop_at(chain, iteration))  # fmt: skip
        left = np.load(BytesIO(kept_state(partial_file(tmp_path / "parts" / "chains", chain))))
        assert left["done"] == len(left["trace_q"]) == iteration
    with monkeypatch.context() as context:  # within a draw
        calls, density = [], elliptical_slice._log_density

        def failing(*arguments):
            calls.append(arguments)
            if len(calls) == 47:
                raise KeyboardInterrupt
            return density(*arguments)

        context.setattr(elliptical_slice, "_log_density", failing)
        with pytest.raises(KeyboardInterrupt):
            sampled(bundle, rows, tmp_path / "parts", SHORT, starts)
    sampled(bundle, rows, tmp_path / "parts", SHORT, starts)
    assert_same_files(tmp_path / "whole", tmp_path / "parts")


def assert_same_files(one, other):
    names = ["chain-1.csv", "chain-2.csv"]
    for folder in (one, other):
        assert sorted(path.name for path in (folder / "chains").iterdir()) == names
    for name in names:
        assert (one / "chains" / name).read_bytes() == (other / "chains" / name).read_bytes()


def test_a_chain_is_saved_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr("semistan.infer.resumable_chain.SECONDS_BETWEEN_SAVES", 0)
    bundle, rows = random_bundle("gaussian")
    path, seen = partial_file(tmp_path / "chains", 1), []

    def progress(chain, iteration, total):
        if chain == 1 and iteration > 1:
            seen.append(np.load(BytesIO(kept_state(path)))["done"] == iteration - 1)

    sampled(bundle, rows, tmp_path, SHORT, progress=progress)
    assert len(seen) == 45
    assert all(seen)


@pytest.mark.lengthy
def test_what_another_run_left_is_not_used(tmp_path):
    bundle, rows = random_bundle("gaussian")

    def stop(*now):
        raise KeyboardInterrupt

    other = SHORT.model_copy(update={"seed": 8})
    with pytest.raises(KeyboardInterrupt):
        sampled(bundle, rows, tmp_path / "b", other, progress=stop)
    sampled(bundle, rows, tmp_path / "a", SHORT)
    sampled(bundle, rows, tmp_path / "b", SHORT)
    assert_same_files(tmp_path / "a", tmp_path / "b")


@pytest.mark.lengthy
def test_a_chain_depends_on_the_seed_and_its_number_alone(tmp_path):
    bundle, rows = random_bundle("gaussian")
    np.random.seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    columns = sampled(bundle, rows, tmp_path / "a", SHORT)
    assert np.array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert not np.array_equal(columns["phi.1"][0], columns["phi.1"][1])

    sampled(bundle, rows, tmp_path / "b", SHORT)
    (tmp_path / "b" / "chains" / "chain-1.csv").unlink()
    kept = (tmp_path / "b" / "chains" / "chain-2.csv").stat().st_mtime_ns
    sampled(bundle, rows, tmp_path / "b", SHORT)
    assert (tmp_path / "b" / "chains" / "chain-2.csv").stat().st_mtime_ns == kept
    assert_same_files(tmp_path / "a", tmp_path / "b")

    other = sampled(bundle, rows, tmp_path / "c", SHORT.model_copy(update={"seed": 8}))
    assert not np.array_equal(other["phi.1"], columns["phi.1"])


@pytest.mark.parametrize("name", ("b", "phi"))
def test_without_a_mode_the_priors_must_be_normal(name):
    bundle, rows = random_bundle("gaussian", priors={name: "student_t(4, 0, 2)"})
    target = make_target(bundle, rows)
    expected = re.escape(f"prior '{name}' is student_t(4, 0, 2)")
    with pytest.raises(InputError, match=f"needs a normal prior.*{expected}.*'nuts'"):
        reference_of(target, None)
    mode = find_starts(bundle, rows, SampleConfig(chains=1)).modes[0]
    assert not reference_of(target, mode).is_prior


def test_the_priors_reference_is_in_the_units_of_q():
    bundle, rows = family_bundle("gaussian", priors__b="normal(1, 2)", priors__phi="normal(3, 4)")
    reference = reference_of(make_target(bundle, rows), None)
    data, P = stan_data(bundle, rows), len(bundle.trained.theta)
    assert reference.mean == pytest.approx([3, 3, *np.full(P, 1) / bundle.units.theta_scale])
    assert reference.factor[2:] * bundle.units.theta_scale == pytest.approx(data["prior_b_scale"])
    assert reference.factor[:2] == pytest.approx(data["prior_phi_scale"])


def test_a_start_without_density_is_an_error(tmp_path):
    bundle, rows = random_bundle("poisson")
    starts = without_modes(bundle, 2)
    far = replace(starts, values=({**starts.values[0], "theta": np.full(2, 1e6)},) * 2)
    with pytest.raises(SemistanError, match="chain 1 starts where the posterior is not finite"):
        sampled(bundle, rows, tmp_path, SHORT, far)
