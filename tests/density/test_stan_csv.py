"""Draws written in the layout of Stan CSV: the program's own columns, and their readers."""

import shutil
import subprocess
from dataclasses import replace

import cmdstanpy
import numpy as np
import pandas as pd
import pytest

from semistan.density.columns import unconstrained
from semistan.density.target import make_target
from semistan.infer.stan_csv import Origin, stan_csv
from semistan.infer.starts import initial_values
from semistan.model.config import SampleConfig
from semistan.posterior.posterior import SubspacePosterior, read_posterior
from semistan.posterior.predictive import log_lik as log_lik_of
from semistan.posterior.run import read_run, record_chain
from semistan.workflow.new_run import new_run
from semistan.workflow.outputs import generate
from semistan.workflow.sample import sample
from support.columns import columns_of, states
from support.small import small_bundle
from support.untrained import random_bundle

ORIGIN = Origin("by_hand", "made by hand", chain=3, seed=8, warmup=40)


def test_rows_and_draws_in_pieces_give_the_same(monkeypatch):
    bundle, rows = random_bundle("gaussian")
    whole = columns_of(bundle, rows, states(bundle))
    monkeypatch.setattr("semistan.density.target.CHUNK", 7 * bundle.subspace.d)
    monkeypatch.setattr("semistan.density.predictor.MOST_ACTIVATIONS", 60)
    pieces = columns_of(bundle, rows, states(bundle))
    for name in whole:
        assert pieces[name] == pytest.approx(whole[name], rel=1e-12)


def test_q_is_that_of_the_initial_values():
    bundle, rows = random_bundle("poisson", subspace={"free": "bias", "k": 3})
    for q in states(bundle):
        again = unconstrained(make_target(bundle, rows), initial_values(bundle, q))
        assert again == pytest.approx(q, rel=1e-12)


def test_theta_follows_phi_where_the_subspace_holds_it():
    bundle, rows = small_bundle(subspace__construction="naive")
    q = states(bundle)
    columns = columns_of(bundle, rows, q)
    names = ["phi.1", "phi.2", "sigma", "theta.1", "theta.2", "theta.3", "lprior"]
    assert list(columns)[7:14] == names
    subspace = bundle.subspace
    phi = np.column_stack([columns["phi.1"], columns["phi.2"]])
    theta = subspace.theta_bar + phi @ subspace.theta_Pi.T
    for j, name in enumerate(bundle.design.coefficients):
        assert columns[name] == pytest.approx(theta[:, j])
        assert np.array_equal(columns[name], columns[f"theta.{j + 1}"])


@pytest.fixture
def written(tmp_path):
    bundle, rows = random_bundle("gaussian")
    columns = columns_of(bundle, rows, states(bundle, 50)) | {"log_g__": np.arange(50.0)}
    paths = [tmp_path / f"chain-{chain}.csv" for chain in (1, 2)]
    for path in paths:
        path.write_bytes(stan_csv(columns, ORIGIN))
    return columns, paths


def test_cmdstanpy_reads_the_file(written):
    columns, paths = written
    fit = cmdstanpy.from_csv([str(path) for path in paths], method="sample")
    assert (fit.chains, fit.num_draws_sampling, fit.metric_type) == (2, 50, "unit_e")
    assert fit.metadata.cmdstan_config["num_warmup"] == 40
    assert fit.metadata.cmdstan_config["seed"] == 8
    assert fit.divergences.sum() == fit.max_treedepths.sum() == 0
    phi = fit.stan_variable("phi").reshape(2, 50, 3)
    assert phi[1, :, 2] == pytest.approx(columns["phi.3"], rel=1e-9)
    assert fit.method_variables()["log_g__"][:, 0] == pytest.approx(columns["log_g__"])
    assert fit.method_variables()["n_leapfrog__"][3, 1] == 9


@pytest.mark.lengthy
def test_rstan_reads_the_file_without_a_warning(written):
    rscript = shutil.which("Rscript")
    if rscript is None:
        pytest.skip("Rscript is not installed")
    installed = subprocess.run(
        [rscript, "-e", "cat(rownames(installed.packages()))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if "rstan" not in installed.stdout.split():
        pytest.skip("R lacks the package rstan")
    columns, paths = written
    code = (
        "options(warn = 2); suppressMessages(library(methods)); fit <- rstan::read_stan_csv(c('"
        + "', '".join(str(path) for path in paths)
        + "')); x <- as.array(fit); cat(dim(x), '\\n', fit@sim$warmup, mean(x[, 2, 'phi[2]']), "
        "sum(rstan::get_sampler_params(fit, FALSE)[[1]][, 'n_leapfrog__']), '\\n')"
    )
    result = subprocess.run([rscript, "-e", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    numbers = [float(word) for word in result.stdout.split()]
    assert numbers[:2] == [50, 2]
    assert numbers[3:] == pytest.approx([40, columns["phi.2"].mean(), 450], rel=1e-6)


def test_read_draws_and_generate_read_the_file(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    options = SampleConfig(chains=2, warmup=10, draws=30)
    run = new_run(bundle, rows, tmp_path / "run", options, toolchain)
    q = states(bundle, 30)
    for chain in (1, 2):
        columns = columns_of(bundle, rows, q + chain)
        path = run.path / "chains" / f"chain-{chain}.csv"
        content = stan_csv(columns, replace(ORIGIN, chain=chain))
        record_chain(path, content)
        path.write_bytes(content)
    run = read_run(run.path)
    draws = read_posterior(run).draws
    assert draws.phi[0] == pytest.approx((q + 1)[:, :3], rel=1e-9)
    assert draws.coefficients["b_Intercept"][1] == pytest.approx(columns["b_Intercept"], rel=1e-9)
    generate(run)
    log_lik = pd.read_csv(run.path / "generated" / "chain-2.csv", comment="#")["log_lik.4"]
    expected = log_lik_of(SubspacePosterior(bundle, draws), rows)[30:, 3]
    assert log_lik.to_numpy() == pytest.approx(expected, rel=1e-6)


def test_the_columns_of_nuts_are_recomputed_from_its_draws(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    options = SampleConfig(chains=1, warmup=50, draws=40)
    fit = sample(new_run(bundle, rows, tmp_path / "run", options, toolchain), toolchain)
    by_nuts = pd.read_csv(fit.run.csv_files()[0], comment="#")
    target = make_target(bundle, rows)
    q = [
        unconstrained(target, {"phi": phi, "theta": theta, "sigma": sigma})
        for phi, theta, sigma in zip(
            fit.posterior.draws.phi[0],
            fit.posterior.draws.theta[0],
            fit.posterior.draws.dispersion["sigma"][0],
            strict=True,
        )
    ]
    ours = columns_of(bundle, rows, np.array(q))
    assert list(ours) == list(by_nuts)
    for name in ("lp__", *list(ours)[7:]):
        assert ours[name] == pytest.approx(by_nuts[name].to_numpy(), rel=1e-6), name


def test_the_same_draws_give_the_same_bytes_and_no_time(written):
    _, (one, other) = written
    assert one.read_bytes() == other.read_bytes()
    assert "Not by CmdStan: made by hand" in one.read_text()
