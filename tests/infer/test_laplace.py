"""The linearised Laplace approximation: exact where it should be, linear wherever it is read."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

import semistan
from semistan.density.features import at_features
from semistan.density.mode import Mode, normal_mean
from semistan.density.predictor import network_output
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.methods.laplace import LAPLACE, laplace_draws
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.posterior.draws import level, read_draws
from semistan.posterior.orthogonal import network_along
from semistan.posterior.posterior import SubspacePosterior, read_posterior
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import draw_missing
from support.assertions import assert_correlation, assert_mean, assert_sd
from support.by_hand import linear_posterior
from support.chains import draw_chains
from support.small import small_bundle, small_config, small_frame
from support.untrained import random_bundle, shared_bundle

PRIORS = {"phi": "normal(0, 0.5)", "b": "normal(0, 1)"}
LINEAR = {"activation": "identity", "hidden": [], "priors": PRIORS | {"sigma": "constant(15)"}}
OPTIONS = SampleConfig(method="laplace", chains=2, draws=500, seed=7)
SHORT = OPTIONS.model_copy(update={"draws": 20})


def exact_posterior(bundle, rows):
    """Return mean and covariance of q where the model is linear and sigma is 15."""
    mean, covariance = linear_posterior(bundle, rows, 15.0)
    unit = np.concatenate([bundle.subspace.phi_scale, bundle.units.theta_scale])
    return mean / unit, covariance / np.outer(unit, unit)


def files_of(bundle, rows, folder, options=SHORT):
    draw_chains(bundle, rows, folder, options, find_starts(bundle, rows, options))
    paths = [folder / "chains" / f"chain-{c + 1}.csv" for c in range(options.chains)]
    return [pd.read_csv(path, comment="#") for path in paths]


def run_of(bundle, rows, folder, options=SHORT):
    run = new_run(bundle, rows, folder / "run", options, None)
    draw_missing(run)
    return run


def test_a_linear_gaussian_model_has_its_exact_posterior(tmp_path):
    bundle, rows = random_bundle("gaussian", **LINEAR)
    mean, covariance = exact_posterior(bundle, rows)
    target, (mode, _) = make_target(bundle, rows), find_starts(bundle, rows, OPTIONS).modes
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((normal_mean(target, mode) - mean) / sd).max() < 1e-8
    assert mode.inv_metric == pytest.approx(covariance, rel=1e-8)
    chains = files_of(bundle, rows, tmp_path, OPTIONS)
    names = ["phi.1", "phi.2", "phi.3", "theta.1", "theta.2"]
    unit = np.concatenate([bundle.subspace.phi_scale, bundle.units.theta_scale])
    draws = np.stack([chain[names].to_numpy()[1:] / unit for chain in chains])
    for i, name in enumerate(names):
        assert_mean(draws[..., i], mean[i], name)
        assert_sd(draws[..., i], sd[i], name)
    assert_correlation(draws[..., 0], draws[..., 1], covariance[0, 1] / (sd[0] * sd[1]))


def test_a_step_goes_from_near_the_mode_to_the_exact_mean():
    bundle, rows = random_bundle("gaussian", **LINEAR)
    mean, covariance = exact_posterior(bundle, rows)
    near = Mode(mean + np.sqrt(np.diag(covariance)), covariance, 0.0, 0)
    assert normal_mean(make_target(bundle, rows), near) == pytest.approx(mean, rel=1e-8)


def test_standard_deviations_of_penalised_coefficients_stay_at_their_estimates():
    bundle, rows = small_bundle("y ~ s(x) + nn(u, v)")
    (mode,) = find_starts(bundle, rows, SampleConfig(chains=1)).modes
    moved = normal_mean(make_target(bundle, rows), mode) - mode.q
    held = bundle.layout.positions(["sds_sx_1"])
    assert np.all(moved[held] == 0)
    assert np.count_nonzero(moved) == len(moved) - len(held)


def test_the_densities_are_those_of_the_posterior_and_of_the_normal():
    bundle, rows = random_bundle("poisson")
    target = make_target(bundle, rows)
    (mode,) = find_starts(bundle, rows, SampleConfig(chains=1)).modes
    q, log_g = laplace_draws(target, mode, 5, np.random.default_rng(0))
    normal = multivariate_normal(normal_mean(target, mode), mode.inv_metric)
    assert log_g == pytest.approx(normal.logpdf(q))
    assert q[0] == pytest.approx(mode.q)


def test_the_columns_are_log_p_and_log_g(tmp_path):
    bundle, rows = random_bundle("gaussian", **LINEAR)
    target = make_target(bundle, rows)
    for chain in files_of(bundle, rows, tmp_path):
        assert np.array_equal(chain["log_p__"], chain["lp__"])
        phi = chain[["phi.1", "phi.2", "phi.3"]].to_numpy() / bundle.subspace.phi_scale
        theta = chain[["theta.1", "theta.2"]].to_numpy() / bundle.units.theta_scale
        log_p = [-negative_log_posterior(target, torch.tensor(q)) for q in np.hstack([phi, theta])]
        assert np.ptp(chain["log_p__"] - log_p) < 1e-6
        assert np.ptp(chain["log_p__"] - chain["log_g__"]) < 1e-5  # the posterior is this normal


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_predictions_are_linear_in_phi_and_touch_the_network_at_the_mode(name, frozen, tmp_path):
    bundle, rows = random_bundle(name, frozen=frozen, hidden=(4, 3) if frozen else (4,))
    heads, behind = at_features(bundle, rows)
    posterior = read_posterior(run_of(bundle, rows, tmp_path))
    draws, eta = posterior.draws, posterior.predictor(rows)
    for chain, around in enumerate(draws.around):
        own = eta.reshape(2, SHORT.draws, -1)[chain]
        W = bundle.subspace.lift(np.stack([around, *(around + 1e-5 * np.eye(3))]))
        f = network_output(heads.network, heads.units, W, behind.U)
        slopes = (f[1:] - f[0]) / 1e-5
        linear = f[0] + (draws.phi[chain] - around) @ slopes
        structured = draws.theta[chain] @ (rows.X - bundle.units.x_loc).T
        expected = bundle.units.eta_loc + bundle.units.eta_scale * linear + structured
        assert own == pytest.approx(expected, abs=1e-3 * bundle.units.eta_scale)
    assert not np.allclose(draws.around[0], draws.around[1])
    shifted = eta - draws.flat(draws.theta) @ rows.X.T
    assert draws.flat(level(bundle, draws)) == pytest.approx(shifted.mean(axis=1))
    assert posterior.predictor(rows, part="nn").mean(axis=1) == pytest.approx(0, abs=1e-7)


def test_the_predictor_of_sigma_is_linear_too(tmp_path):
    bundle, rows = random_bundle("gaussian", formula="y ~ x1 + nn(u1), sigma ~ z + nn(u2, u3)")
    posterior = read_posterior(run_of(bundle, rows, tmp_path))
    predictor = posterior.predictor(rows, "sigma")
    names = ("b_sigma_Intercept", "b_sigma_z")
    level, slope = (posterior.draws.flat(posterior.draws.coefficients[name]) for name in names)
    centred = predictor - slope[:, None] * rows.predictors["sigma"].X.T
    assert centred.mean(axis=1) == pytest.approx(level)
    assert np.allclose(posterior.parameters(rows)["sigma"], np.exp(predictor))


@pytest.mark.parametrize("where", ["posterior", "model"])
def test_orthogonalised_coefficients_hold_what_the_linear_network_says(where, tmp_path):
    bundle, rows = shared_bundle(where=where)
    draws = read_draws(run_of(bundle, rows, tmp_path))
    for chain, around in enumerate(draws.around):
        own, linear = draws.chain(chain), bundle.linearised(around)
        gamma = network_along(linear, rows, own.phi, bundle.model.orthogonal)
        assert own.orthogonal.gamma == pytest.approx(gamma, rel=1e-6, abs=1e-6 * gamma.std())
        assert not np.allclose(gamma, network_along(bundle, rows, own.phi, (0,)), rtol=0.01)


def test_thinned_draws_keep_their_network(tmp_path):
    bundle, rows = random_bundle("gaussian")
    posterior = read_posterior(run_of(bundle, rows, tmp_path))
    whole = posterior.predictor(rows).reshape(2, SHORT.draws, -1)
    thin = posterior.thin(8).predictor(rows).reshape(2, 4, -1)
    assert all(any(np.allclose(draw, other) for other in whole[1]) for draw in thin[1])


def test_predictor_onnx_is_refused(tmp_path):
    bundle, rows = random_bundle("gaussian")
    posterior = read_posterior(run_of(bundle, rows, tmp_path))
    with pytest.raises(InputError, match="linearised at its mode, which predictor"):
        replace(posterior, engine=lambda *_: np.zeros(1))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"priors": {"b": "horseshoe()"}}, r"which horseshoe\(\) does not have.*'mclmc'"),
        ({"sample": {"metric": "diag_e"}}, "needs the mode that metric = 'ggn' looks for"),
    ],
)
def test_what_has_no_mode_is_refused(changes, expected):
    with pytest.raises(InputError, match=expected):
        LAPLACE.check(small_config(**changes))


def test_without_a_mode_it_says_so(tmp_path):
    bundle, rows = random_bundle("gaussian")
    starts = replace(find_starts(bundle, rows, SHORT), found=())
    with pytest.raises(InputError, match="needs a mode in the subspace, and none was found"):
        draw_chains(bundle, rows, tmp_path, SHORT, starts)


def test_a_chain_depends_on_the_seed_and_its_number_alone(tmp_path):
    bundle, rows = random_bundle("gaussian")
    one, other = files_of(bundle, rows, tmp_path / "a"), files_of(bundle, rows, tmp_path / "b")
    assert all(a.equals(b) for a, b in zip(one, other, strict=True))
    assert not np.allclose(one[0]["phi.1"], one[1]["phi.1"])
    seeded = files_of(bundle, rows, tmp_path / "c", SHORT.model_copy(update={"seed": 8}))
    assert not np.allclose(seeded[0]["phi.1"], one[0]["phi.1"])


def test_equal_starts_climb_once(monkeypatch):
    bundle, rows = small_bundle("y ~ x + nn(u, v)", subspace__construction="full")
    calls, find = [], semistan.infer.starts.find_mode
    monkeypatch.setattr(
        "semistan.infer.starts.find_mode", lambda *given: calls.append(given) or find(*given)
    )
    assert len(find_starts(bundle, rows, SampleConfig(chains=3)).found) == 3
    assert len(calls) == 1


def wavy_frame(n=80):
    generator = np.random.default_rng(0)
    u, v, x, e = generator.normal(size=(4, n))
    y = 0.5 * x + np.tanh(1.5 * u) + 0.5 * v * np.tanh(u) + 0.3 * e
    return pd.DataFrame({"y": y, "x": x, "u": u, "v": v})


def test_its_sds_are_those_of_nuts_and_plain_draws_are_far_too_wide(toolchain, tmp_path):
    bundle, rows = small_bundle(
        "y ~ x + nn(u, v)", wavy_frame(), subspace__construction="full", train__epochs=300,
        priors__phi="normal(0, 1)",
    )  # fmt: skip
    ours = read_posterior(run_of(bundle, rows, tmp_path, OPTIONS))
    options = SampleConfig(chains=2, draws=500, warmup=500, metric="diag_e")
    run = new_run(bundle, rows, tmp_path / "nuts", options, toolchain)
    draw_missing(run, toolchain)
    nuts = read_posterior(run)
    plain = SubspacePosterior(bundle, replace(ours.draws, around=None))

    def spread(posterior):
        return np.sqrt(posterior.predictor(rows).var(axis=0).mean())

    assert 0.75 < spread(ours) / spread(nuts) < 1.3
    assert spread(plain) / spread(nuts) > 1.6


def test_a_fit_predicts_scores_and_says_what_it_is(tmp_path):
    sample = {"method": "laplace", "chains": 2, "draws": 50}
    config = small_config("y ~ x + nn(u, v)", sample=sample)
    fit = fit_model(config, small_frame(), out=tmp_path / "run")
    assert fit.run.facts()["Method"] == "approximate (linearised Laplace approximation)"
    assert fit.summary.checks[0].name == "Pareto k of the approximation"
    table = semistan.predict(tmp_path / "run", small_frame(), kind="linpred")
    eta = fit.posterior.predictor(fit.run.rows())
    assert table["Estimate"].to_numpy() == pytest.approx(eta.mean(axis=0))
    assert json.loads((tmp_path / "run" / "metric-1.json").read_text())["q"]
    with pytest.raises(InputError, match="use --engine torch"):
        semistan.predict(tmp_path / "run", small_frame(), engine="onnx")
