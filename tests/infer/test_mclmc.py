"""Microcanonical Langevin Monte Carlo over the compiled program: its draws and its files."""

import json
import shutil
import threading
from dataclasses import replace

import cmdstanpy
import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.density.target import make_target, value_and_gradient
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import SILENT, Report
from semistan.infer.chain_store import chain_tasks
from semistan.infer.children import Children, working_with
from semistan.infer.content import Content
from semistan.infer.continuation import parsed
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import METHODS, method_named
from semistan.infer.microcanonical import ENERGY_VARIANCE
from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.integral import SAMPLERS
from semistan.model.layout import column_names
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.run import read_run
from semistan.program.data import stan_data
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.watch import Watch
from support.assertions import assert_correlation, assert_mean, assert_sd
from support.chains import columns_of, complete_folder
from support.programs import evaluate
from support.untrained import random_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)", "sigma": "constant(15)"}
OPTIONS = SampleConfig(method="mclmc", chains=4, warmup=200, draws=1000, seed=7)


@pytest.fixture(scope="module")
def linear():
    """A gaussian model with a linear network and known sigma: its posterior is a normal."""
    return random_bundle("gaussian", activation="identity", hidden=[], priors=PRIORS)


def prepared(bundle, rows, folder, options=OPTIONS):
    starts = find_starts(bundle, rows, options, from_mode=False)
    write_stan_folder(bundle, rows, folder, starts, grainsize=len(rows))
    (folder / "chains").mkdir()


def task_of(bundle, folder, options, chain=1):
    return chain_tasks(folder, method_named("mclmc"), bundle, options, chains=[chain])[0]


@pytest.fixture(scope="module")
def folder(linear, toolchain, tmp_path_factory):
    bundle, rows = linear
    folder = tmp_path_factory.mktemp("mclmc")
    prepared(bundle, rows, folder)
    complete_folder(folder, bundle, OPTIONS)
    return folder


@pytest.fixture(scope="module")
def drawn(linear, folder):
    """Columns (C, S) by name, and the coordinates q (C, S, n) of the draws."""
    bundle, columns = linear[0], columns_of(folder, OPTIONS.chains)
    return columns, packed(bundle, columns)


def packed(bundle, columns):
    """Return q (C, S, n) at the columns of parameters."""
    C, S = columns["lp__"].shape

    def values(c, s):
        for p in bundle.layout.parameters:
            value = np.zeros(p.shape)
            for name, index in column_names(p.name, p.shape).items():
                value[index] = columns[name][c, s]
            yield p.name, value

    return np.array([[bundle.layout.pack(dict(values(c, s))) for s in range(S)] for c in range(C)])


def test_a_normal_posterior_has_its_moments(linear, drawn):
    """The mean and covariance are those at which the quadratic density has its top."""
    columns, q = drawn
    target, n = make_target(*linear), q.shape[-1]
    at_zero = value_and_gradient(target, np.zeros(n))[1]  # the gradient is linear in q
    precision = np.stack([value_and_gradient(target, unit)[1] - at_zero for unit in np.eye(n)])
    mean = np.linalg.solve(precision, -at_zero)
    covariance = np.linalg.inv(precision)
    sd = np.sqrt(np.diag(covariance))
    z = (q - mean) / sd
    for i in range(n):
        assert_mean(z[..., i], 0, f"q[{i}]")
        assert_sd(z[..., i], 1, f"q[{i}]")
    for i, j in ((0, 1), (0, n - 1), (1, n - 1)):
        assert_correlation(z[..., i], z[..., j], covariance[i, j] / sd[i] / sd[j], f"{i}, {j}")
    squares = np.einsum("csi,ij,csj->cs", q - mean, precision, q - mean)
    assert_mean(squares, n, "squared distance from the mean")
    assert np.ptp(columns["lp__"] + squares / 2) < 1e-5


def test_densities_and_columns_are_those_of_cmdstan(linear, drawn, toolchain, tmp_path):
    (bundle, rows), (columns, q) = linear, drawn
    some = [(0, 0), (1, 500), (3, 999)]
    states = np.array([q[at] for at in some])
    found = evaluate(bundle, stan_data(bundle, rows), states, toolchain, tmp_path)
    ours = {name: np.array([x[at] for at in some]) for name, x in columns.items()}
    assert ours["lp__"] == pytest.approx(found.lp, rel=1e-8)
    own = [name for name in columns if not name.endswith("__")]
    assert own == list(found.written)
    for name in own:
        assert ours[name] == pytest.approx(found.written[name], rel=1e-7, abs=1e-8)


def test_the_step_has_the_error_that_it_is_adapted_to(drawn):
    columns, _ = drawn
    assert 0.2 * ENERGY_VARIANCE < columns["energy_error__"].mean() < 3 * ENERGY_VARIANCE
    assert set(columns["n_leapfrog__"].ravel()) == {10}
    assert all(len(set(steps)) == 1 for steps in columns["stepsize__"])
    assert np.all(columns["divergent__"] == 0)


def test_its_file_is_one_of_stan(folder):
    paths = [str(folder / "chains" / f"chain-{c}.csv") for c in (1, 2, 3, 4)]
    fit = cmdstanpy.from_csv(paths, method="sample")
    assert (fit.chains, fit.num_draws_sampling) == (4, OPTIONS.draws)
    table = pd.read_csv(paths[0], comment="#")
    assert list(table)[:7] == list(NUTS_COLUMNS.values())
    assert list(table)[-1] == "energy_error__"
    assert fit.step_size[0] == pytest.approx(table["stepsize__"][0])
    assert fit.inv_metric.shape == (4, 5)


def test_the_seed_decides_and_each_chain_has_its_own(linear, folder, drawn, tmp_path):
    bundle, _ = linear
    columns, _ = drawn

    def phi(options, chain):
        content = method_named("mclmc").chain(task_of(bundle, folder, options, chain), SILENT)
        (tmp_path / "chain.csv").write_bytes(content)
        return pd.read_csv(tmp_path / "chain.csv", comment="#")["phi.1"].to_numpy()

    assert np.array_equal(phi(OPTIONS, 2), columns["phi.1"][1])
    assert not np.allclose(columns["phi.1"][0], columns["phi.1"][1])
    other = OPTIONS.model_copy(update={"seed": OPTIONS.seed + 1})
    assert not np.allclose(phi(other, 2), columns["phi.1"][1])


def test_it_tells_of_its_iterations(linear, folder):
    seen = []
    report = Report(lambda *now: seen.append(now), lambda _: None)
    options = OPTIONS.model_copy(update={"warmup": 30, "draws": 70})
    method_named("mclmc").chain(task_of(linear[0], folder, options), report)
    assert seen == [(1, 100), *((done, 100) for done in range(2, 101, 2))]


def test_a_start_without_density_is_an_error(linear, folder):
    bundle, _ = linear
    task = task_of(bundle, folder, OPTIONS, 3)
    start = json.loads(task.start.read()) | {"theta": [1e300, 1e300]}
    task = replace(task, start=Content("start.json", None, json.dumps(start).encode()))
    with pytest.raises(SemistanError, match="chain 3 starts where the posterior is not finite"):
        method_named("mclmc").chain(task, SILENT)


def test_an_interruption_ends_its_process(linear, folder):
    """Another thread ends a chain that would take minutes."""
    children, begun = Children(), threading.Event()
    options = OPTIONS.model_copy(update={"draws": 10_000_000})
    found = []

    def draw():
        report = Report(lambda *_: begun.set(), lambda _: None)
        with working_with(children), pytest.raises(SemistanError) as caught:
            method_named("mclmc").chain(task_of(linear[0], folder, options), report)
        found.append(str(caught.value))

    thread = threading.Thread(target=draw)
    thread.start()
    assert begun.wait(60)
    children.end()
    thread.join(10)
    assert not thread.is_alive()
    assert not children.running
    assert len(found) == 1


@pytest.mark.parametrize(
    ("integrate", "sigma", "remedy"),
    [("none", "constant(15)", "method = 'nuts'"), ("auto", "normal(0, 9)", "integrate = 'none'")],
)
def test_it_cannot_move_in_one_dimension(integrate, sigma, remedy, tmp_path):
    formula, sample = "y ~ nn(u1)", {"method": "mclmc", "integrate": integrate}
    bundle, rows = random_bundle(
        "gaussian", formula=formula, k=1, priors={"sigma": sigma}, sample=sample, hidden=(),
        subspace={"construction": "full" if integrate == "auto" else "bezier"},
    )  # fmt: skip
    prepared(bundle, rows, tmp_path)
    with pytest.raises(InputError, match=f"at least two parameters .*, got one; use {remedy}"):
        method_named("mclmc").chain(task_of(bundle, tmp_path, OPTIONS), SILENT)


def test_methods_that_sample_the_program_are_those_that_integrate_out():
    assert {name for name in METHODS if method_named(name).samples_program} == set(SAMPLERS)


# ----------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def run(linear, toolchain, tmp_path_factory):
    bundle, rows = linear
    options = OPTIONS.model_copy(update={"chains": 2, "warmup": 40, "draws": 150})
    said = []
    folder, watch = tmp_path_factory.mktemp("run") / "run", Watch(said.append)
    run = new_run(bundle, rows, folder, options, toolchain, watch=watch)
    assert said == ["they start on the curve"]
    assert not list(run.path.glob("metric-*.json"))
    return sample(run, toolchain).run


def test_a_lost_chain_is_drawn_anew_with_the_same_draws(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "chains" / "chain-2.csv"
    before = parsed(path.read_bytes())
    path.unlink()
    sample(read_run(tmp_path / "run"), toolchain)
    assert parsed(path.read_bytes()).rows == before.rows


def test_more_draws_go_on_with_the_same_motion(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    fit = sample(read_run(tmp_path / "run"), toolchain, more=1000)
    assert fit.posterior.draws.phi.shape[:2] == (2, 1150)
    assert "the last 1000 by --more" in fit.run.facts()["Draws"]
    for old, new in zip(run.csv_files(), fit.run.csv_files(), strict=True):
        before, after = parsed(old.read_bytes()), parsed(new.read_bytes())
        assert after.rows[:150] == before.rows
        table = pd.read_csv(new, comment="#")
        assert len(set(table["stepsize__"])) == 1
        error = table["energy_error__"]
        assert error[150:].mean() == pytest.approx(error[:150].mean(), rel=0.5)
    phi = fit.posterior.draws.phi
    assert_mean(phi[:, 150:, 0] - phi[:, :150, 0].mean(), 0)


def test_stan_computes_quantities_at_its_draws(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    copy = read_run(tmp_path / "run")
    generate_quantities(copy, toolchain)
    ours = log_lik(read_posterior(copy), copy.rows())
    assert read_generated(copy).log_lik == pytest.approx(ours, rel=1e-6, abs=1e-6)


def test_a_run_says_what_it_is(run, tmp_path):
    fit = read_fitted(run)
    text = "unadjusted (microcanonical Langevin Monte Carlo: the errors of its steps are a bias)"
    assert f"Not the posterior: {text}." in repr(fit)
    assert fit.summary.checks[0].name == "energy error"
    assert set(fit.posterior.sampler) == {"lp", "energy_error"}
    page = semistan.report(run, tmp_path / "page.html").read_text()
    assert "Monte Carlo over the program compiled by CmdStan" in page
