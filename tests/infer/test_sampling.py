"""A sampled run: its files, their readers, and what happens when it is interrupted."""

import json
import shutil

import cmdstanpy
import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError, SemistanError
from semistan.infer.cmdstan.compile import compile_program, is_compiled
from semistan.infer.methods import method_named
from semistan.infer.plan import (
    default_grainsize,
    gradient_milliseconds,
    plan_in_torch,
    plan_threads,
    timed_plan,
)
from semistan.model.config import SampleConfig
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik, posterior_linpred
from semistan.posterior.run import read_run
from semistan.program.program import bundle_program
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import read_fitted, sample
from support import arviz_oracle
from support.chains import complete_folder
from support.untrained import FORMULA, random_bundle

OPTIONS = SampleConfig(chains=4, warmup=150, draws=120, seed=5)


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    bundle, rows = random_bundle("gaussian")
    folder = tmp_path_factory.mktemp("sampling") / "run"
    return sample(new_run(bundle, rows, folder, OPTIONS, toolchain), toolchain)


@pytest.fixture
def copy(fit, tmp_path):
    shutil.copytree(fit.run.path, tmp_path / "moved")
    return tmp_path / "moved"


def draw_lines(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def test_the_run_has_the_files_of_the_design(fit):
    names = {path.name for path in fit.run.path.iterdir()}
    inits = {f"inits-{chain}.json" for chain in (1, 2, 3, 4)}
    metrics = {f"metric-{chain}.json" for chain in (1, 2, 3, 4)}
    assert names == inits | metrics | {
        "bundle", "program.stan", "data.json", "training.parquet", "labels.json",
        "manifest.json", "chains", "summary.csv", "posterior.nc",
    }  # fmt: skip
    assert {path.name for path in (fit.run.path / "chains").iterdir()} == {
        f"chain-{chain}.csv" for chain in (1, 2, 3, 4)
    }


def test_cmdstanpy_reads_the_csvs(fit):
    again = cmdstanpy.from_csv([str(path) for path in fit.run.csv_files()], method="sample")
    assert again.chains == 4
    assert again.num_draws_sampling == OPTIONS.draws
    assert again.metadata.cmdstan_config["num_warmup"] == OPTIONS.warmup
    assert again.metric_type == "dense_e"
    assert again.step_size.shape == (4,)
    theta = again.stan_variable("theta").reshape(4, -1, 2)
    assert theta == pytest.approx(fit.posterior.draws.theta)
    assert np.array_equal(again.stan_variable("b_x2"), theta[..., 1].ravel())


def test_csv_columns_are_dotted_and_speak(fit):
    header = draw_lines(fit.run.path / "chains" / "chain-1.csv")[0].split(",")
    assert header[7:] == [
        "phi.1", "phi.2", "phi.3", "theta.1", "theta.2", "sigma", "lprior",
        "b_Intercept", "b_x1", "b_x2",
    ]  # fmt: skip


def test_labels_name_every_coefficient(fit):
    labels = json.loads((fit.run.path / "labels.json").read_text())
    assert labels == {"b_Intercept": "Intercept", "b_x1": "x1", "b_x2": "x2"}


def test_summary_csv_has_brms_columns_and_matches_arviz(fit):
    table = pd.read_csv(fit.run.path / "summary.csv").set_index("variable")
    assert list(table.columns) == [
        "Estimate", "Est.Error", "l-95% CI", "u-95% CI", "Rhat", "Bulk_ESS", "Tail_ESS",
    ]  # fmt: skip
    assert list(table.index) == ["b_Intercept", "b_x1", "b_x2", "sigma"]
    data = arviz_oracle.read(fit.run.path / "posterior.nc")
    by_arviz = arviz_oracle.summary(data)
    for name in table.index:
        assert table.loc[name, "Estimate"] == pytest.approx(by_arviz.loc[name, "mean"])
        assert table.loc[name, "Est.Error"] == pytest.approx(by_arviz.loc[name, "sd"])
        assert table.loc[name, "Rhat"] == pytest.approx(by_arviz.loc[name, "r_hat"])
        assert table.loc[name, "Bulk_ESS"] == pytest.approx(by_arviz.loc[name, "ess_bulk"])
        assert table.loc[name, "Tail_ESS"] == pytest.approx(by_arviz.loc[name, "ess_tail"])


def test_inference_data_has_the_conventional_groups_and_names(fit):
    data = arviz_oracle.read(fit.run.path / "posterior.nc")
    assert {"posterior", "sample_stats", "observed_data", "posterior_predictive",
            "log_likelihood"} <= arviz_oracle.group_names(data)  # fmt: skip
    for group in ("observed_data", "posterior_predictive", "log_likelihood"):
        assert list(data[group].data_vars) == ["y"]
        assert data[group]["y"].dims[-1] == "__obs__"
    assert data.posterior["theta"].dims[-1] == "coef"
    assert list(data.posterior["coef"].values) == ["b_x1", "b_x2"]
    assert data.posterior["phi"].dims[-1] == "subspace_dim"
    for key, value in {"formula": FORMULA, "family": "gaussian", "k": 3, "seed": 5}.items():
        assert data.posterior.attrs.get(key, data.attrs.get(key)) == value


def test_log_lik_matches_a_naive_loop(fit):
    rows = fit.run.rows()
    values = log_lik(fit.posterior, rows)
    eta = posterior_linpred(fit.posterior, rows)
    sigma = fit.posterior.draws.dispersion["sigma"].ravel()
    for s, i in ((0, 0), (200, 7), (479, 29)):
        z = (rows.y[i] - eta[s, i]) / sigma[s]
        expected = -0.5 * z**2 - np.log(sigma[s]) - 0.5 * np.log(2 * np.pi)
        assert values[s, i] == pytest.approx(expected, rel=1e-12)


def test_several_threads_get_the_fastest_of_the_timed_grain_sizes(fit, toolchain):
    run = fit.run
    compiled = compile_program(bundle_program(run.bundle), toolchain)
    options = SampleConfig(chains=1, threads=2)
    plan = timed_plan(run.bundle, run.rows(), options, compiled.executable)
    assert plan.threads == 2
    assert set(plan.milliseconds) == {2, 4, 8, 15}
    assert all(0 < ms < 100 for ms in plan.milliseconds.values())
    assert plan.milliseconds[plan.grainsize] == min(plan.milliseconds.values())
    assert str(plan.grainsize) in plan.text()


def test_time_that_other_processes_take_is_not_a_gradients(tmp_path):
    program = tmp_path / "program"  # which waited for a processor, as CmdStan's times say
    program.write_text("#!/bin/sh\necho '# 60 seconds (Sampling)' > timing.csv\n")
    program.chmod(0o755)
    bundle, rows = random_bundle("gaussian")
    (milliseconds,) = gradient_milliseconds(bundle, rows, program, 1).values()
    steps = 500_000 // len(rows)
    assert 0 < milliseconds < 1e3 / steps


@pytest.mark.parametrize(
    ("n", "threads", "expected"), [(30, 1, 30), (1000, 1, 1000), (1000, 4, 125), (1000, 9, 100)]
)
def test_the_default_grain_is_half_a_threads_share(n, threads, expected):
    assert default_grainsize(n, threads) == expected


def test_a_moved_run_reads_the_same(fit, copy):
    again = read_fitted(copy)
    assert np.array_equal(again.posterior.draws.theta, fit.posterior.draws.theta)
    assert again.summary.rows == fit.summary.rows


def test_missing_chains_are_completed_with_the_draws_they_would_have_had(copy, fit, toolchain):
    for chain in (2, 4):
        (copy / "chains" / f"chain-{chain}.csv").unlink()
    run = read_run(copy)
    assert run.missing == [2, 4]
    with pytest.raises(InputError, match=r"lacks chains \[2, 4\]"):
        read_posterior(run)
    again = sample(run, toolchain)
    assert np.array_equal(again.posterior.draws.theta, fit.posterior.draws.theta)
    assert not list(copy.glob(".sampling-*"))


def test_sampling_a_complete_run_changes_nothing(copy, toolchain):
    before = {path: path.read_bytes() for path in (copy / "chains").iterdir()}
    sample(read_run(copy), toolchain)
    assert {path: path.read_bytes() for path in (copy / "chains").iterdir()} == before


def test_a_failing_chain_is_reported_with_what_cmdstan_printed(copy, toolchain):
    run = read_run(copy)
    shutil.rmtree(copy / "chains")
    data = json.loads((copy / "data.json").read_text())
    (copy / "data.json").write_text(json.dumps(data | {"grainsize": 0}))
    with pytest.raises(SemistanError, match="grainsize"):
        complete_folder(copy, run.bundle, run.options, keep_metric=True)
    assert list((copy / "chains").iterdir()) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "data.json").write_text("{}"), "does not match its hash"),
        (lambda run: (run / "program.stan").unlink(), "has no program.stan"),
        (lambda run: (run / "manifest.json").unlink(), "is not a run"),
        (lambda run: (run / "manifest.json").write_text("{"), "damaged"),
    ],
)
def test_a_damaged_run_is_refused(copy, spoil, message):
    spoil(copy)
    with pytest.raises(InputError, match=message):
        read_run(copy)


def test_a_run_of_a_newer_format_is_refused(copy):
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    with pytest.raises(InputError, match="upgrade semistan"):
        read_run(copy)


def test_a_new_bundle_of_the_same_formula_compiles_nothing(toolchain, fit):
    other, _ = random_bundle("gaussian", hidden=(7, 5), activation="relu", frozen=1, seed=9)
    assert other.sha256 != fit.run.bundle.sha256
    assert is_compiled(bundle_program(other), toolchain)


@pytest.mark.parametrize(
    ("chains", "threads", "cores", "plan"),
    [
        (4, "auto", 2, (2, 1)),
        (4, "auto", 8, (4, 2)),
        (1, "auto", 8, (1, 8)),
        (4, 2, 4, (2, 2)),
        (4, 9, 4, (1, 9)),
    ],
)
def test_chains_fill_the_cores_first(chains, threads, cores, plan):
    assert plan_threads(SampleConfig(chains=chains, threads=threads), cores) == plan


@pytest.mark.parametrize(
    ("method", "draws", "activations", "at_once"),
    [
        ("mclmc-torch", 1000, 10_000, 3),
        ("mclmc-torch", 1000, 1_000_000, 3),
        ("mclmc-torch", 100, 10_000, 1),
        ("mclmc-torch", 100, 1_000_000, 3),
        ("nuts-torch", 1000, 10_000, 3),
        ("elliptical-slice", 1000, 10_000, 1),
        ("elliptical-slice", 10_000, 10_000, 3),
        ("laplace", 10_000, 10_000, 1),
    ],
)
def test_long_chains_in_pytorch_are_processes(method, draws, activations, at_once, monkeypatch):
    monkeypatch.setattr("semistan.infer.plan.usable_cores", lambda: 3)
    options = SampleConfig(method=method, draws=draws)
    assert plan_in_torch(options, method_named(method), activations) == at_once
