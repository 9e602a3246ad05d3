"""The normalising flow: its density, what it learns, and its randomness."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.density.mode import Mode
from semistan.density.target import log_prior, make_target, negative_log_posterior
from semistan.errors import InputError, SemistanError
from semistan.infer.methods import flow as module
from semistan.infer.methods.flow import fit_flow, new_flow
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.names import MU
from semistan.model.table.rows import Columns
from semistan.posterior.psis import pareto_smoothed
from semistan.subspace.start_values import curve_states
from support.assertions import assert_mean
from support.chains import draw_chains
from support.small import small_bundle
from support.untrained import random_bundle

LINEAR = {"activation": "identity", "hidden": [], "priors": {"sigma": "constant(15)"}}
OPTIONS = SampleConfig(method="flow", chains=2, draws=60, seed=7)


@pytest.fixture(autouse=True, scope="module")
def zuko():
    return pytest.importorskip("zuko")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(draws, n, seed=1):
    return torch.randn(draws, n, generator=generator(seed), dtype=torch.float64)


def written(bundle, rows, folder, steps, progress=None):
    """Draw by flows that take some steps of Adam."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr(module, "STEPS", steps)
        starts = find_starts(bundle, rows, OPTIONS)
        draw_chains(bundle, rows, folder, OPTIONS, starts, progress=progress)
    files = [folder / "chains" / f"chain-{c + 1}.csv" for c in range(OPTIONS.chains)]
    return [pd.read_csv(path, comment="#") for path in files]


def pareto_k(log_p, log_g):
    return float(pareto_smoothed(np.asarray(log_p - log_g)[None])[1][0])


def bent(n, mode=None):
    """A flow whose layers are no identity any more."""
    flow, draws = new_flow(np.linspace(-1, 1, n), mode, generator()), generator(3)
    with torch.no_grad():
        for parameter in flow.parameters:
            noise = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return flow


def a_mode(n=3):
    factor = np.tril(np.random.default_rng(5).normal(size=(n, n))) + 2 * np.eye(n)
    return Mode(np.arange(n, dtype=float), factor @ factor.T, 0.0, 1)


def test_a_new_flow_is_the_laplace_approximation():
    mode = a_mode()
    q, log_g = new_flow(mode.q, mode, generator()).draw(normal(5, 3))
    laplace = torch.distributions.MultivariateNormal(
        torch.tensor(mode.q), torch.tensor(mode.inv_metric)
    )
    assert log_g.detach().numpy() == pytest.approx(laplace.log_prob(q.detach()).numpy())


@pytest.mark.parametrize("n", (1, 2, 5))
def test_the_density_is_that_of_the_map(n):
    flow, start = bent(n, a_mode(n)), normal(4, n)
    q, log_g = flow.draw(start)
    for i, e in enumerate(start):
        J = torch.autograd.functional.jacobian(lambda x: flow.draw(x[None])[0][0], e)
        expected = torch.distributions.Normal(0, 1).log_prob(e).sum() - J.det().abs().log()
        assert float(log_g[i].detach()) == pytest.approx(float(expected), rel=1e-10)
    assert not torch.allclose(q, flow.mean + start @ flow.factor.T)


def test_in_one_dimension_it_is_a_gaussian(tmp_path):
    bundle, rows = small_bundle("flag ~ nn(u, v)", family="bernoulli", subspace__k=1)
    flow, e = bent(1), torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
    steps = flow.draw(e)[0].detach().diff(dim=0)
    assert steps.numpy() == pytest.approx(float(steps[0]))
    (chain, _) = written(bundle, rows, tmp_path, steps=3)
    assert np.isfinite(chain).all(axis=None)


@pytest.mark.lengthy
def test_it_learns_a_correlated_gaussian_from_a_poor_start():
    bundle, rows = random_bundle("gaussian", **LINEAR)
    X = rows.X @ np.array([[1, 0.3], [0, 0.05]])  # nearly collinear
    rows = replace(rows, predictors={MU: Columns(X)})
    target = make_target(bundle, rows)
    exact = find_starts(bundle, rows, SampleConfig(chains=1)).modes[0]
    sd = np.sqrt(np.diag(exact.inv_metric))
    correlation = exact.inv_metric / np.outer(sd, sd)
    assert np.abs(correlation - np.eye(5)).max() > 0.5
    poor = replace(exact, q=exact.q + sd, inv_metric=np.diag((0.6 * sd) ** 2))
    flow = new_flow(poor.q, poor, generator())

    def found():
        with torch.no_grad():
            q, log_g = flow.draw(normal(4000, 5))
        log_p = np.array([-negative_log_posterior(target, x) for x in q])
        return q.numpy(), pareto_k(log_p, log_g.numpy())

    assert found()[1] > 0.7
    fit_flow(flow, target, 600, generator(2))
    q, k = found()
    assert k < 0.7
    assert np.abs((q.mean(axis=0) - exact.q) / sd).max() < 0.1
    assert np.abs(q.std(axis=0) / sd - 1).max() < 0.1
    assert np.abs(np.corrcoef(q.T) - correlation).max() < 0.1


def test_the_columns_are_log_p_and_log_g(tmp_path):
    bundle, rows = random_bundle("gaussian", **LINEAR)
    chains = written(bundle, rows, tmp_path, steps=0)
    modes = find_starts(bundle, rows, OPTIONS).modes
    for chain, laplace in zip(chains, modes, strict=True):
        q = np.column_stack([chain[["phi.1", "phi.2", "phi.3"]], chain[["theta.1", "theta.2"]]])
        q[:, 3:] /= bundle.units.theta_scale
        gap = q - laplace.q
        expected = -np.einsum("si,ij,sj->s", gap, np.linalg.inv(laplace.inv_metric), gap) / 2
        assert np.ptp(chain["log_g__"] - expected) < 1e-6
        log_p = [-negative_log_posterior(make_target(bundle, rows), x) for x in torch.tensor(q)]
        assert np.ptp(chain["log_p__"] - log_p) < 1e-6
        assert np.array_equal(chain["log_p__"], chain["lp__"])


@pytest.mark.lengthy
def test_random_rows_estimate_the_log_likelihood_without_bias(monkeypatch):
    bundle, rows = random_bundle("poisson")
    monkeypatch.setattr("semistan.density.target.CHUNK", 11 * bundle.subspace.d)
    target, q = make_target(bundle, rows), torch.tensor(curve_states(bundle, 1))
    assert [len(chunk) for chunk in target.chunks] == [11, 11, 8]
    whole = float(module._log_densities(target, q, generator())[0])
    assert whole == pytest.approx(-negative_log_posterior(target, q[0]))
    monkeypatch.setattr(module, "ROWS", 9)
    draws = generator(6)
    some = [float(module._log_densities(target, q, draws)[0]) for _ in range(2000)]
    assert np.std(some) > 0.1
    assert_mean(np.reshape(some, (4, 500)), whole)
    prior_only = replace(target, prior_only=True)
    alone = module._log_densities(prior_only, q, draws)[0]
    assert float(alone) == pytest.approx(float(log_prior(target, q[0])))


def test_a_chain_depends_on_the_seed_and_its_number_alone(tmp_path):
    bundle, rows = random_bundle("gaussian")
    before, reports = torch.get_rng_state(), []
    chains = written(bundle, rows, tmp_path / "a", steps=4,
                     progress=lambda *now: reports.append(now))  # fmt: skip
    assert torch.equal(torch.get_rng_state(), before)
    assert reports == [(chain, step, 4) for chain in (1, 2) for step in (1, 2, 3, 4)]
    assert not np.array_equal(chains[0]["phi.1"], chains[1]["phi.1"])
    torch.manual_seed(99)
    written(bundle, rows, tmp_path / "b", steps=4)
    (tmp_path / "b" / "chains" / "chain-1.csv").unlink()
    written(bundle, rows, tmp_path / "b", steps=4)
    for chain in (1, 2):
        one, other = (tmp_path / x / "chains" / f"chain-{chain}.csv" for x in "ab")
        assert one.read_bytes() == other.read_bytes()
    assert "it is no sampler" in one.read_text()


def test_without_zuko_the_error_says_what_to_install(monkeypatch, tmp_path):
    bundle, rows = random_bundle("gaussian")
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(InputError, match=r"pip install 'semistan\[flow\]'"):
        written(bundle, rows, tmp_path, steps=1)
    assert not list((tmp_path / "chains").iterdir())


def test_a_bound_that_is_not_finite_is_an_error():
    bundle, rows = random_bundle("poisson")
    flow = new_flow(np.full(5, 1e4), None, generator())
    with pytest.raises(SemistanError, match="not finite in step 1"):
        fit_flow(flow, make_target(bundle, rows), 5, generator())
