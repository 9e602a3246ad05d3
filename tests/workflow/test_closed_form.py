"""A linear network, Gaussian family and fixed sigma: the posterior is exactly Gaussian."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from semistan.model.names import MU
from semistan.model.subspace import along_axes
from semistan.model.table.rows import Columns, Rows
from semistan.posterior.predictive import posterior_linpred, posterior_predict
from semistan.program.data import stan_data
from semistan.workflow.fit import fit_model
from support.assertions import assert_correlation, assert_mean, assert_probability, assert_sd

MODEL = Path(__file__).parents[2] / "models" / "closed_form" / "model.toml"


@pytest.fixture(scope="module", params=[("stan", "none"), ("cpp", "none"), ("cpp", "bias")])
def fit(request, toolchain, tmp_path_factory):
    kernel, free = request.param
    out = tmp_path_factory.mktemp("closed-form") / "run"
    fit = fit_model(MODEL, out=out, overrides={"sample.kernel": kernel, "subspace.free": free})
    assert fit.run.kernel == kernel
    return fit


def jacobian(bundle, rows):
    """eta = offset + G (phi, theta) for a linear network."""
    units, subspace = bundle.units, bundle.subspace
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    offset = units.eta_loc + units.eta_scale * inputs @ subspace.p_bar
    G = np.column_stack([units.eta_scale * inputs @ subspace.matrix, rows.X - units.x_loc])
    return offset, G


@pytest.fixture(scope="module")
def exact(fit):
    return exact_posterior(fit.run.bundle, fit.run.rows())


def exact_posterior(bundle, rows):
    """Mean, covariance and residual sd of the Gaussian posterior of (phi, theta)."""
    data = stan_data(bundle, rows)
    offset, G = jacobian(bundle, rows)
    sigma = data["prior_sigma_value"]
    location = np.concatenate([data["prior_phi_location"], data["prior_b_location"]])
    scale = np.concatenate([data["prior_phi_scale"], data["prior_b_scale"]])
    precision = G.T @ G / sigma**2 + np.diag(scale**-2.0)
    covariance = np.linalg.inv(precision)
    mean = covariance @ (G.T @ (rows.y - offset) / sigma**2 + location / scale**2)
    return mean, covariance, sigma


@pytest.fixture(scope="module")
def draws(fit):
    return np.concatenate([fit.posterior.draws.phi, fit.posterior.draws.theta], axis=-1)


def test_the_metric_of_one_mode_is_kept_and_its_dimensions_are_the_programs(fit):
    assert fit.run.keep_metric
    for chain, csv in enumerate(fit.run.csv_files(), start=1):
        given = json.loads((fit.run.path / f"metric-{chain}.json").read_text())["inv_metric"]
        lines = csv.read_text().splitlines()
        start = next(i for i, line in enumerate(lines) if "inverse mass matrix" in line) + 1
        used = [
            [float(x) for x in line[1:].split(",")] for line in lines[start : start + len(given)]
        ]
        assert used == pytest.approx(np.array(given), rel=1e-4)


def test_means_and_sds(draws, exact):
    mean, covariance, _ = exact
    for i in range(draws.shape[-1]):
        assert_mean(draws[..., i], mean[i], f"parameter {i}")
        assert_sd(draws[..., i], np.sqrt(covariance[i, i]), f"parameter {i}")


def test_correlation_matrix(draws, exact):
    sd = np.sqrt(np.diag(exact[1]))
    correlation = exact[1] / np.outer(sd, sd)
    for i in range(draws.shape[-1]):
        for j in range(i):
            pair = draws[..., i], draws[..., j]
            assert_correlation(*pair, correlation[i, j], f"({i}, {j})")


def test_quantiles(draws, exact):
    mean, covariance, _ = exact
    for i in range(draws.shape[-1]):
        for p in (0.05, 0.5, 0.95):
            quantile = norm.ppf(p, mean[i], np.sqrt(covariance[i, i]))
            assert_probability(draws[..., i], quantile, p, f"parameter {i}")


@pytest.fixture(scope="module")
def new(fit):
    generator = np.random.default_rng(3)
    units = fit.run.bundle.units
    X = units.x_loc + 2 * units.x_scale * generator.normal(size=(3, len(units.x_loc)))
    U = units.u_loc + 2 * units.u_scale * generator.normal(size=(3, len(units.u_loc)))
    return Rows(None, {MU: Columns(X)}, U, (0, 1, 2))


def test_predictor_of_new_rows(fit, exact, new):
    mean, covariance, _ = exact
    offset, G = jacobian(fit.run.bundle, new)
    eta = posterior_linpred(fit.posterior, new)
    for i in range(3):
        by_chain = eta[:, i].reshape(fit.posterior.draws.chains, -1)
        assert_mean(by_chain, offset[i] + G[i] @ mean, f"eta {i}")
        assert_sd(by_chain, np.sqrt(G[i] @ covariance @ G[i]), f"eta {i}")


def test_predictive_distribution_of_new_rows(fit, exact, new):
    mean, covariance, sigma = exact
    offset, G = jacobian(fit.run.bundle, new)
    y = posterior_predict(fit.posterior, new, np.random.default_rng(5))
    for i in range(3):
        by_chain = y[:, i].reshape(fit.posterior.draws.chains, -1)
        sd = np.sqrt(G[i] @ covariance @ G[i] + sigma**2)
        assert_mean(by_chain, offset[i] + G[i] @ mean, f"y {i}")
        assert_sd(by_chain, sd, f"y {i}")
        for p in (0.1, 0.9):
            quantile = norm.ppf(p, offset[i] + G[i] @ mean, sd)
            assert_probability(by_chain, quantile, p, f"y {i}")


def intercept_weights(bundle, rows):
    """b_Intercept is affine in (phi, theta), so it is Gaussian too."""
    _, G = jacobian(bundle, rows)
    return G.mean(axis=0) - np.concatenate([np.zeros(bundle.subspace.k), bundle.units.x_loc])


def test_intercept(fit, exact):
    mean, covariance, _ = exact
    rows, bundle = fit.run.rows(), fit.run.bundle
    weights, (offset, _) = intercept_weights(bundle, rows), jacobian(bundle, rows)
    intercept = fit.posterior.draws.coefficients["b_Intercept"]
    assert_mean(intercept, offset.mean() + weights @ mean, "b_Intercept")
    assert_sd(intercept, np.sqrt(weights @ covariance @ weights), "b_Intercept")


def test_a_free_output_bias_gives_the_intercept_the_error_of_all_weights(fit):
    bundle, rows = fit.run.bundle, fit.run.rows()
    every = along_axes(np.zeros(bundle.subspace.d), np.arange(bundle.subspace.d), "all")
    errors = []
    for subspace in (bundle.subspace, every):
        inside = replace(bundle, trained=replace(bundle.trained, subspace=subspace))
        weights, (_, covariance, _) = intercept_weights(inside, rows), exact_posterior(inside, rows)
        errors.append(np.sqrt(weights @ covariance @ weights))
    assert errors[1] == pytest.approx(0.1123, abs=5e-5)
    if bundle.config.subspace.free == "bias":
        assert errors[0] == pytest.approx(errors[1], rel=0.02)
    else:
        assert errors[0] < 0.5 * errors[1]


def test_sigma_stays_at_its_constant(fit, exact):
    assert np.all(fit.posterior.draws.dispersion["sigma"] == exact[2])
    assert np.isnan(fit.summary.rows[-1].rhat)
