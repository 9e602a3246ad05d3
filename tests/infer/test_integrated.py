"""A run whose program integrates out what is linear: its files, draws, and what comes later."""

import json
import shutil

import numpy as np
import pytest
import torch

import semistan
from semistan.density.integral import linear_part, log_integrated, prior_moments
from semistan.density.target import make_target
from semistan.infer.chain_store import chain_file
from semistan.model.config import SampleConfig
from semistan.posterior.arviz import mcse
from semistan.posterior.draws import read_draws
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.run import read_run
from semistan.posterior.scoring.moment_match import unconstrained
from semistan.program.data import stan_data
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.catalogue import PROGRAMS
from support.columns import states
from support.programs import evaluate
from support.untrained import random_bundle

OPTIONS = SampleConfig(chains=4, warmup=200, draws=300, seed=5)
ALL = {"subspace": {"construction": "full"}}
CASES = {
    "theta": ("y ~ x1 + x2 + nn(u1)", ALL, ["phi_sampled", "sigma"], 5),
    "terms": ("y ~ x1 + x2 + s(v, k=4) + (1 + x2 | h) + nn(u1)", {},
              ["phi", "sigma", "sds_sv_1", "sd_h__Intercept", "sd_h__x2", "L_1"], 8),
}  # fmt: skip


def drawn(case, options, toolchain, folder, **settings):
    formula, subspace, _, _ = CASES[case]
    bundle, rows = random_bundle("gaussian", formula=formula, hidden=(2,), **subspace)
    run = new_run(bundle, rows, folder, options, toolchain, **settings)
    return sample(run, toolchain).run


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def run(case, toolchain, tmp_path_factory):
    return drawn(case, OPTIONS, toolchain, tmp_path_factory.mktemp("integrated") / "run")


def test_starts_and_metrics_are_of_what_is_sampled(run, case):
    *_, names, size = CASES[case]
    inits = json.loads((run.path / "inits-1.json").read_text())
    assert list(inits) == names
    metric = json.loads((run.path / "metric-1.json").read_text())
    assert np.shape(metric["inv_metric"]) == (size, size)
    assert len(metric["q"]) == size


def standardised(run):
    """The integrated coordinates (S, m) of the draws, less their mean, over their sd given y."""
    target, q = make_target(run.bundle, run.rows()), unconstrained(run)
    layout, found = run.bundle.layout, []
    for row in torch.tensor(q):
        x, beta = row[layout.sampled], row[layout.integrated]
        mean, sd = prior_moments(target, x)
        L, half = linear_part(target, x).solved()
        found.append((L.T @ ((beta - mean) / sd) - half).numpy())
    return np.stack(found)


def test_theta_is_drawn_from_its_distribution_given_the_rest(run):
    z = standardised(run)
    S = len(z)
    assert np.abs(z.mean(axis=0)).max() < 4 / S**0.5
    assert np.abs(z.T @ z / S - np.eye(z.shape[1])).max() < 4 * (2 / S) ** 0.5
    # independent of the draw before, given the rest
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 4 / S**0.5


@pytest.fixture(scope="module")
def microcanonical(case, toolchain, tmp_path_factory):
    options = OPTIONS.model_copy(update={"method": "mclmc"})
    return drawn(case, options, toolchain, tmp_path_factory.mktemp("microcanonical") / "run")


def test_microcanonical_chains_draw_theta_from_its_distribution_too(microcanonical):
    z = standardised(microcanonical)
    S = len(z)
    assert np.abs(z.mean(axis=0)).max() < 4 / S**0.5
    assert np.abs(z.T @ z / S - np.eye(z.shape[1])).max() < 4 * (2 / S) ** 0.5


@pytest.fixture(scope="module")
def other(case, toolchain, tmp_path_factory):
    options = OPTIONS.model_copy(update={"integrate": "none", "seed": 6})
    return drawn(case, options, toolchain, tmp_path_factory.mktemp("sampled") / "run")


@pytest.mark.parametrize("chains", ["run", "microcanonical"])
def test_the_posterior_is_that_of_chains_that_sample_everything(chains, request, other):
    one, all_sampled = read_draws(request.getfixturevalue(chains)), read_draws(other)
    assert list(one.interpreted) == list(all_sampled.interpreted)
    for name, x in {**one.interpreted, "lprior": one.lprior}.items():
        y = all_sampled.interpreted.get(name, all_sampled.lprior)
        for statistic in ("mean", "sd"):
            errors = [mcse(each, statistic) for each in (x, y)]
            gap = getattr(np, {"sd": "std"}.get(statistic, "mean"))
            assert abs(gap(x) - gap(y)) < 4.5 * np.hypot(*errors), (name, statistic)


def test_more_draws_go_on(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    longer = sample(read_run(tmp_path / "run"), toolchain, more=50)
    assert longer.posterior.draws.theta.shape[:2] == (4, 350)
    z = standardised(longer.run)
    assert np.abs(z.mean(axis=0)).max() < 4 / len(z) ** 0.5


def test_a_lost_chain_is_drawn_anew_with_the_same_draws(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    path = chain_file(tmp_path / "run" / "chains", 2)
    before = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.unlink()
    sample(read_run(tmp_path / "run"), toolchain)
    after = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert after == before


def test_stan_computes_quantities_at_the_drawn_values(run, tmp_path, toolchain):
    shutil.copytree(run.path, tmp_path / "run")
    copy = read_run(tmp_path / "run")
    generate_quantities(copy, toolchain)
    ours = log_lik(read_posterior(copy), copy.rows())
    assert read_generated(copy).log_lik == pytest.approx(ours, rel=1e-6, abs=1e-6)


def test_without_a_likelihood_theta_is_drawn_from_its_prior(tmp_path, toolchain):
    prior = drawn("theta", OPTIONS, toolchain, tmp_path / "run", prior_only=True)
    theta = read_draws(prior).theta.reshape(-1, 2)
    scale = np.array(json.loads((prior.path / "data.json").read_text())["prior_b_scale"])
    z = theta / scale
    assert np.abs(z.mean(axis=0)).max() < 4 / len(z) ** 0.5
    assert np.abs(z.var(axis=0) - 1).max() < 4 * (2 / len(z)) ** 0.5


def test_runs_of_earlier_versions_integrate_nothing_out(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sample"]["integrate"]
    path.write_text(json.dumps(manifest))
    with semistan.trust_edited():
        assert read_run(tmp_path / "run").options.integrate == "none"


def test_a_spectral_density_that_is_too_small_for_a_number_has_a_slope_of_zero(toolchain, tmp_path):
    (program,) = (item for item in PROGRAMS if str(item).startswith("terms and output layer"))
    bundle, rows = program.make()
    x = states(bundle, 1)[:, bundle.layout.sampled]
    names = [p.name for p in bundle.layout.parameters for _ in range(p.size)]
    x[0, [names[i] for i in bundle.layout.sampled].index("lscale_gpu3")] = np.log(30)
    found = evaluate(bundle, stan_data(bundle, rows), x, toolchain, tmp_path, program.kernel)
    leaf = torch.tensor(x[0], requires_grad=True)
    log_integrated(make_target(bundle, rows), leaf).backward()
    assert found.gradient[0] == pytest.approx(leaf.grad.numpy(), rel=1e-8, abs=1e-8)
