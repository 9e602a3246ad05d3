"""A method of inference is one file and one line: independence Metropolis, defined here."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import semistan
from semistan.density.target import negative_log_posterior
from semistan.errors import InputError
from semistan.infer.method import Method
from semistan.infer.methods import METHODS, names_text
from semistan.infer.stan_csv import Origin, sampled_columns, stan_csv
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.posterior.run import read_run
from semistan.workflow.fit import fit_model
from semistan.workflow.outputs import generate
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.watch import Watch
from support.assertions import assert_mean, assert_sd
from support.chains import draw_chains
from support.small import small_config, small_frame
from support.untrained import random_bundle

pytestmark = pytest.mark.lengthy


def metropolis_chain(task, report):
    """Propose from the Laplace approximation at the mode."""
    target, options = task.target(), task.options
    _, mode = task.begin(target)
    generator = np.random.default_rng(task.seed)
    factor = np.linalg.cholesky(mode.inv_metric)
    total, draws, densities = options.warmup + options.draws, [], []
    z, q, density = None, mode.q, -np.inf
    for done in range(1, total + 1):
        step = generator.normal(size=len(mode.q))
        proposal = mode.q + factor @ step
        new = -negative_log_posterior(target, torch.tensor(proposal))
        gain = np.inf if z is None else new - density + (step @ step - z @ z) / 2
        if np.log(generator.uniform()) < gain:
            z, q, density = step, proposal, new
        draws.append(q)
        densities.append(density)
        report.step(done, total)
    kept = slice(options.warmup, None)
    columns = sampled_columns(
        target, np.array(draws)[kept], np.array(densities)[kept], np.ones(options.draws)
    )
    origin = Origin("metropolis", "a toy", task.number, options.seed, options.warmup)
    return stan_csv(columns, origin)


TOY = Method(
    "toy", "independence Metropolis", metropolis_chain, approximate=False, by_stan=False,
    has_warmup=True, columns={"lp": "lp__"},
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        context.setitem(METHODS, "toy", f"{__name__}:TOY")
        yield


@pytest.fixture(scope="module")
def fit(registered, tmp_path_factory):
    config = small_config("y ~ x + nn(u, v)", network__hidden=[], train__epochs=100)
    settings = {"method": "toy", "chains": 2, "warmup": 50, "draws": 200, "seed": 3}
    said, steps = [], []
    found = fit_model(
        config, small_frame(60), out=tmp_path_factory.mktemp("toy") / "run",
        overrides={f"sample.{key}": value for key, value in settings.items()},
        watch=Watch(said.append, chains=lambda *figures: steps.append(figures)),
    )  # fmt: skip
    return found, said, steps


def test_a_gaussian_posterior_has_nearly_every_proposal_accepted(tmp_path):
    priors = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)", "sigma": "constant(15)"}
    bundle, rows = random_bundle("gaussian", activation="identity", hidden=[], priors=priors)
    options = SampleConfig(method="toy", chains=2, warmup=10, draws=300, seed=1)
    starts = find_starts(bundle, rows, options)
    draw_chains(bundle, rows, tmp_path, options, starts)
    chains = [pd.read_csv(path, comment="#") for path in sorted(tmp_path.glob("chains/*.csv"))]
    phi = np.stack([chain["phi.1"] for chain in chains])
    assert all(len(set(chain)) > 0.95 * options.draws for chain in phi)
    mode, scale = starts.modes[0], bundle.subspace.phi_scale[0]
    assert_mean(phi, scale * mode.q[0])
    assert_sd(phi, scale * np.sqrt(mode.inv_metric[0, 0]))


def test_it_fits_and_says_what_it_does(fit):
    found, said, steps = fit
    assert found.posterior.draws.phi.shape == (2, 200, 2)
    assert found.posterior.method is TOY
    assert "b_x" in [row.name for row in found.summary.rows]
    assert found.summary.checks[0].name.startswith("Rhat")
    assert found.run.facts()["Method"] == "independence Metropolis"
    assert found.run.facts()["Draws"] == "2 chains x 200 after 50 warm-up draws"
    assert said[-1].startswith("sampling 2 chains x (50 + 200) draws")
    assert steps == [(chain, done, 250) for chain in (1, 2) for done in range(1, 251)]


def test_its_run_is_read_predicts_and_reports(fit, tmp_path):
    run = fit[0].run.path
    again = read_fitted(run)
    assert np.array_equal(again.posterior.draws.theta, fit[0].posterior.draws.theta)
    assert len(semistan.predict(run, small_frame(7))) == 7
    page = semistan.report(run, tmp_path / "page.html").read_text()
    assert "independence Metropolis in PyTorch" in page
    semistan.plot(run, "trace")
    with pytest.raises(InputError, match="this run's method is 'toy'"):
        generate(run)


def test_a_lost_chain_comes_back_without_a_search_for_modes(fit, monkeypatch):
    run = read_run(fit[0].run.path)
    path = run.csv_files()[1]
    before = path.read_bytes()
    path.unlink()
    for module in ("infer.starts", "workflow.compiled"):
        monkeypatch.setattr(f"semistan.{module}.find_starts", lambda *_: 1 / 0)
    sample(run)
    assert path.read_bytes() == before


def test_the_help_lists_it():
    assert names_text().endswith("flow or toy")
    code = (
        "from semistan.infer.methods import METHODS; METHODS['toy'] = 'a:B'; "
        "import sys; sys.argv = ['semistan', 'fit', '--help']; "
        "from semistan.command.cli import main; main()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "or toy." in " ".join(shown.replace("│", " ").split())


def test_an_unknown_method_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"no 'pathfindr'\. Did you mean 'pathfinder'\?"):
        fit_model(
            "y ~ x + nn(u, v)", small_frame(), out="nowhere",
            overrides={"sample.method": "pathfindr"},
        )  # fmt: skip
