"""Programs that sample orthogonalised coefficients: against closed forms, PyTorch and Stan."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import semistan
from semistan.density.derivatives import derivatives, expansion
from semistan.density.features import at_features
from semistan.density.predictor import linear_predictor
from semistan.density.target import log_lik as row_log_lik
from semistan.density.target import make_target, negative_log_posterior
from semistan.infer.cmdstan.compile import without_comments
from semistan.infer.cmdstan.kernel import ROWS, kernel_rows
from semistan.infer.methods.flow import ROWS as FLOW_ROWS
from semistan.infer.methods.flow import _some_rows
from semistan.infer.stan_csv import sampled_columns
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.names import MU
from semistan.model.orthogonal import least_squares
from semistan.model.table.rows import Columns
from semistan.posterior.orthogonal import STORED
from semistan.posterior.posterior import SubspacePosterior, read_posterior
from semistan.posterior.predictive import log_lik, posterior_linpred
from semistan.program.data import stan_data
from semistan.program.program import bundle_program, labels, raw_labels
from semistan.program.quantities import quantities_program
from semistan.show.inference_data import inference_data
from semistan.subspace.start_values import curve_states
from semistan.workflow.compiled import compile_model, trusted_kernel
from semistan.workflow.new_run import new_run
from semistan.workflow.outputs import generate
from semistan.workflow.sample import sample
from support.assertions import assert_mean, assert_sd
from support.programs import declared, evaluate
from support.untrained import LINEAR, shared_bundle, states

FAMILIES = ("gaussian", "poisson", "bernoulli")
SUBSPACE = {"sample": {"temperature": 2.0, "temper": "subspace"}}
PLAIN = ({}, {"subspace": {"free": "bias", "k": 3}}, {"frozen": 1, "hidden": (4, 3)})
SETTINGS = (*PLAIN, SUBSPACE)
PROGRAMS = [
    ("gaussian", "stan", PLAIN[1]), ("poisson", "stan", SUBSPACE), ("bernoulli", "cpp", PLAIN[2]),
    ("gaussian", "cpp", {"mode": "all"}),
]  # fmt: skip
FIXED = {"b": "normal(0, 2.5)", "phi": "normal(0, 5)", "sigma": "constant(0.7)"}


def sheared(name="gaussian", **arguments):
    return shared_bundle(name, where="model", **arguments)


def raw_theta(bundle, rows, phi, theta):
    """theta (S, P) less the least squares of the network's part, from the definition."""
    columns = [0, 1] if bundle.config.orthogonalise == "all" else [0]
    zero = np.zeros_like(theta)
    heads, rows = at_features(bundle, rows)
    f = linear_predictor(heads.network, heads.units, heads.trained, rows.X, rows.U, phi, zero)
    X = np.column_stack([rows.X[:, columns], np.ones(len(rows))])
    raw = theta.copy()
    raw[:, columns] -= np.linalg.lstsq(X, f.T, rcond=None)[0][:-1].T
    return raw


# ---- Text and data


@pytest.mark.parametrize("kernel", ("stan", "cpp"))
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_data_are_what_the_program_declares(name, settings, kernel):
    bundle, rows = sheared(name, **settings)
    program = bundle_program(bundle, kernel)
    data = stan_data(bundle, rows)
    assert list(data) == list(declared(program))
    assert (data["n_orth"], data["orth"]) == (1, [1])
    for text in (program, quantities_program(bundle)):
        assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def test_labels_name_the_raw_coefficient_too():
    bundle, _ = sheared()
    assert labels(bundle.model) | raw_labels(bundle.model) == {
        "b_Intercept": "Intercept", "b_x1": "x1", "b_x2": "x2", "b_x1_raw": "x1 (raw)",
    }  # fmt: skip
    plain, _ = shared_bundle()
    assert raw_labels(plain.model) == {}


def test_the_text_does_not_depend_on_which_columns_but_for_their_names():
    one, both = (without_comments(bundle_program(sheared(mode=m)[0])) for m in ("auto", "all"))
    assert both.replace("  real b_x2_raw = theta_raw[2];\n", "") == one


# ---- The density


@pytest.mark.parametrize("mode", ("auto", "all"))
@pytest.mark.parametrize("settings", PLAIN, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_likelihood_is_the_raw_programs_at_raw_theta_and_the_prior_is_on_theta(
    name, settings, mode
):
    bundle, rows = sheared(name, mode=mode, **settings)
    plain, _ = shared_bundle(name, mode="off", **settings)
    k, scale = bundle.subspace.k, bundle.units.theta_scale
    q = states(bundle, 2)
    moved = q.copy()
    phi, theta = bundle.subspace.phi_scale * q[:, :k], scale * q[:, k : k + 2]
    moved[:, k : k + 2] = raw_theta(bundle, rows, phi, theta) / scale
    target, raw = make_target(bundle, rows), make_target(plain, rows)
    prior, raw_prior = (make_target(b, rows, prior_only=True) for b in (bundle, plain))
    for here, there in zip(torch.tensor(q), torch.tensor(moved), strict=True):
        likelihood = negative_log_posterior(target, here) - negative_log_posterior(prior, here)
        expected = negative_log_posterior(raw, there) - negative_log_posterior(raw_prior, there)
        assert likelihood == pytest.approx(expected, rel=1e-11)
        at_theta = negative_log_posterior(raw_prior, here)
        assert negative_log_posterior(prior, here) == pytest.approx(at_theta, rel=1e-12)


@pytest.mark.parametrize(
    "settings", ({}, {"subspace": {"free": "bias", "k": 3}, "frozen": 1, "hidden": (4, 3)}), ids=str
)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_matrix_is_gauss_newtons(name, settings, monkeypatch):
    monkeypatch.setattr("semistan.density.target.CHUNK", 100)  # several chunks of rows
    bundle, rows = sheared(name, mode="all", **settings)
    target, q = make_target(bundle, rows), torch.tensor(states(bundle)[0])
    assert len(target.chunks) > 1
    found = expansion(target, q)
    leaf = q.clone().requires_grad_()

    def eta(x):
        return torch.cat([each[MU] for each in target.predictors(target.values(x))])

    J = torch.autograd.functional.jacobian(eta, leaf)
    values = target.values(q)
    chunk = replace(target.chunks[0], y=torch.cat([c.y for c in target.chunks]))
    bend = -torch.autograd.functional.hessian(
        lambda e: row_log_lik(target, chunk, {MU: e}, values).sum(), eta(q)
    ).diagonal()
    m = bundle.subspace.k + 2  # phi and theta, with which eta is linear in f
    prior = expansion(make_target(bundle, rows, prior_only=True), q).exact
    expected = (J.T @ (bend[:, None] * J) + prior)[:m, :m]
    assert torch.allclose(found.exact[:m, :m], expected, rtol=1e-9, atol=1e-9)
    for j, step in enumerate(1e-6 * torch.eye(len(q), dtype=torch.float64)):
        high, low = (negative_log_posterior(target, x) for x in (q + step, q - step))
        assert found.gradient[j].item() == pytest.approx((high - low) / 2e-6, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(("name", "kernel", "settings"), PROGRAMS, ids=str)
def test_program_and_torch_have_one_density_gradient_and_columns(
    name, settings, kernel, toolchain, tmp_path
):
    bundle, rows = sheared(name, **settings)
    target, q = make_target(bundle, rows), states(bundle)
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path, kernel)
    ours = np.array([-negative_log_posterior(target, torch.tensor(state)) for state in q])
    assert np.ptp(program.lp - ours) < 1e-9 * np.max(np.abs(program.lp))
    for state, expected in zip(q, program.gradient, strict=True):
        gradient = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
    columns = sampled_columns(target, q, ours, np.ones(len(q)))
    written = program.written
    assert list(columns)[7:] == list(written)
    assert columns["lp__"] == pytest.approx(program.lp, rel=1e-9)
    for name, values in written.items():
        assert columns[name] == pytest.approx(values, rel=1e-9), name
    k = bundle.subspace.k
    expected = raw_theta(bundle, rows, program.vector("phi", k), program.vector("theta", 2))
    assert program.vector("theta_raw", 2) == pytest.approx(expected, rel=1e-9)
    assert np.array_equal(written["b_x1_raw"], written["theta_raw.1"])


# ---- Agreement with the projection of each draw


def linear_model(bundle, rows):
    """Offset and derivatives of eta by (phi, theta) in the user's units, and the prior's sds."""
    units, data = bundle.units, stan_data(bundle, rows)
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    offset = units.eta_loc + units.eta_scale * inputs @ bundle.subspace.p_bar
    G, X = units.eta_scale * inputs @ bundle.subspace.matrix, rows.X - units.x_loc
    scale = np.concatenate([data["prior_phi_scale"], data["prior_b_scale"]])
    return offset, G, X, scale, data["prior_sigma_value"]


def gaussian_posterior(offset, J, scale, sigma, y):
    covariance = np.linalg.inv(J.T @ J / sigma**2 + np.diag(scale**-2.0))
    return covariance @ J.T @ (y - offset) / sigma**2, covariance


def exact(bundle, rows, where):
    """Mean and covariance of (phi, theta) of a linear model, theta raw or orthogonalised."""
    offset, G, X, scale, sigma = linear_model(bundle, rows)
    if where == "model":
        held = X[:, :1] @ least_squares(X[:, :1])
        offset, G = offset - held @ offset, G - held @ G
    return gaussian_posterior(offset, np.hstack([G, X]), scale, sigma, rows.y)


def test_with_a_flat_prior_both_agree_exactly():
    flat = FIXED | {"b": "normal(0, 1e7)"}
    bundle, rows = shared_bundle(rows=60, priors=flat, **LINEAR)
    mean, covariance = exact(bundle, rows, "posterior")
    inside_mean, inside = exact(bundle, rows, "model")
    offset, G, X, *_ = linear_model(bundle, rows)
    k = bundle.subspace.k
    A = least_squares(X[:, :1])
    T = np.eye(k + 2)  # (phi, theta) -> (phi, theta + A f) but for a constant
    T[k, :k] = A @ G
    moved = T @ mean
    moved[k] += (A @ offset)[0]
    sd = np.sqrt(np.diag(inside))
    assert np.max(np.abs(moved - inside_mean) / sd) < 1e-8
    assert np.max(np.abs(T @ covariance @ T.T - inside) / np.outer(sd, sd)) < 1e-8
    assert np.max(np.abs(mean - inside_mean)[k] / sd[k]) > 0.01
    informative, _ = shared_bundle(rows=60, priors=FIXED | {"b": "normal(0, 0.05)"}, **LINEAR)
    mean, _ = exact(informative, rows, "posterior")
    moved = T @ mean
    moved[k] += (A @ offset)[0]
    assert np.max(np.abs(moved - exact(informative, rows, "model")[0]) / sd) > 0.1


def test_mode_and_metric_are_the_closed_forms():
    bundle, rows = sheared(rows=60, priors=FIXED, **LINEAR)
    mean, covariance = exact(bundle, rows, "model")
    starts = find_starts(bundle, rows, SampleConfig(chains=2))
    units = np.concatenate([bundle.subspace.phi_scale, bundle.units.theta_scale])
    for mode in starts.found:
        sd = np.sqrt(np.diag(covariance))
        assert np.max(np.abs(units * mode.q - mean) / sd) < 0.2
        expected = covariance / np.outer(units, units)
        assert mode.inv_metric == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_chains_without_a_mode_start_at_the_trained_predictor(monkeypatch):
    monkeypatch.setattr("semistan.infer.starts.JITTER", 0.0)
    bundle, rows = sheared()
    values = find_starts(bundle, rows, SampleConfig(chains=3, metric="diag_e")).values
    phi = np.array([value["phi"] for value in values])
    theta = np.array([value["theta"] for value in values])
    trained = np.tile(bundle.trained.theta, (3, 1))
    assert raw_theta(bundle, rows, phi, theta) == pytest.approx(trained, rel=1e-10)
    assert phi == pytest.approx(curve_states(bundle, 3)[:, : bundle.subspace.k])


def test_all_rows_are_used_where_some_would_do_otherwise():
    rows = FLOW_ROWS + 10
    plain, learnt = shared_bundle(rows=rows)
    inside, _ = sheared(rows=rows)
    generator = torch.Generator().manual_seed(1)
    sizes = [
        sum(map(len, _some_rows(make_target(bundle, learnt), generator)[0].chunks))
        for bundle in (plain, inside)
    ]
    assert sizes == [FLOW_ROWS, rows]


def test_the_kernel_is_checked_on_enough_rows_to_project():
    bundle, rows = sheared()
    assert len(kernel_rows(bundle, rows)) == ROWS
    X = rows.X.copy()
    X[:15, 0] = bundle.units.x_loc[0]
    flat = replace(rows, predictors={MU: Columns(X)})
    assert len(kernel_rows(bundle, flat)) == 2 * ROWS
    plain, _ = shared_bundle()
    assert len(kernel_rows(plain, flat)) == ROWS


# ---- Runs


@pytest.fixture(scope="module", params=["stan", "cpp"])
def fit(request, toolchain, tmp_path_factory):
    sampling = {"kernel": request.param, "draws": 1000, "chains": 2}
    bundle, rows = sheared(rows=60, priors=FIXED, sample=sampling, **LINEAR)
    options, said = bundle.config.sample, []
    kernel = compile_model(bundle.model, toolchain, said.append)
    assert trusted_kernel(kernel, bundle, rows, toolchain, said.append) == request.param
    out = tmp_path_factory.mktemp("shear") / "run"
    return sample(new_run(bundle, rows, out, options, toolchain, kernel=kernel), toolchain)


def test_nuts_has_the_closed_form(fit):
    bundle, rows, draws = fit.run.bundle, fit.run.rows(), fit.posterior.draws
    mean, covariance = exact(bundle, rows, "model")
    q = np.concatenate([draws.phi, draws.effects], axis=-1)
    for i in range(len(mean)):
        assert_mean(q[..., i], mean[i], f"q[{i}]")
        assert_sd(q[..., i], np.sqrt(covariance[i, i]), f"q[{i}]")
    k = bundle.subspace.k
    assert draws.coefficients["b_x1"] == pytest.approx(draws.effects[..., 0], rel=1e-9)
    assert np.array_equal(draws.coefficients["b_x1_raw"], draws.theta[..., 0])
    offset, G, X, *_ = linear_model(bundle, rows)
    A = least_squares(X[:, :1])
    row = np.concatenate([-(A @ G)[0], [1.0, 0.0]])  # theta - A f
    assert_mean(draws.theta[..., 0], row @ mean - (A @ offset)[0], "b_x1_raw")
    assert_sd(draws.theta[..., 0], np.sqrt(row @ covariance @ row), "b_x1_raw")
    assert len(row) == k + 2


def test_predictions_and_parts_are_those_of_the_closed_form(fit):
    bundle, rows, draws = fit.run.bundle, fit.run.rows(), fit.posterior.draws
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    structured, nn = (
        posterior_linpred(SubspacePosterior(bundle, draws), rows, part=p)
        for p in ("structured", "nn")
    )
    intercept = draws.flat(draws.coefficients["b_Intercept"])[:, None]
    assert np.max(np.abs(intercept + structured + nn - eta)) < 1e-7 * np.max(np.abs(eta))
    x = rows.X[:, 0] - rows.X[:, 0].mean()
    cosine = nn @ x / np.linalg.norm(x) / np.linalg.norm(nn, axis=1)
    assert np.max(np.abs(cosine)) < 1e-6  # CmdStan writes ten digits


def test_generated_quantities_and_inference_data_follow(fit):
    bundle, rows, draws = fit.run.bundle, fit.run.rows(), fit.posterior.draws
    generate(fit.run)
    table = pd.read_csv(fit.run.path / "generated" / "chain-2.csv", comment="#")
    ours = log_lik(SubspacePosterior(bundle, draws), rows)[draws.phi.shape[1] :]
    found = table[[f"log_lik.{i + 1}" for i in range(len(rows))]].to_numpy()
    assert found == pytest.approx(ours, rel=1e-6, abs=1e-6)
    posterior = inference_data(fit.run, SubspacePosterior(fit.run.bundle, draws), rows).posterior
    for theta, name in (("theta", "b_x1"), ("theta_raw", "b_x1_raw")):
        by_coefficient = posterior[theta].sel(coef="b_x1").to_numpy()
        assert by_coefficient == pytest.approx(posterior[name].to_numpy(), rel=1e-9)
    assert not (fit.run.path / STORED).exists()


def test_afterwards_a_run_keeps_gamma_and_reports_both(toolchain, tmp_path):
    bundle, rows = shared_bundle(sample={"kernel": "stan"})
    options = SampleConfig(chains=2, warmup=50, draws=50)
    run = new_run(bundle, rows, tmp_path / "run", options, toolchain)
    fit = sample(run, toolchain)
    kept = np.load(run.path / STORED)
    assert np.array_equal(kept["gamma"], fit.posterior.draws.orthogonal.gamma)
    table = pd.read_csv(run.path / "summary.csv", index_col=0)
    expected = fit.posterior.draws.coefficients["b_x1"] + kept["gamma"][..., 0]
    assert table.loc["b_x1_orth", "Estimate"] == pytest.approx(expected.mean(), rel=1e-8)
    posterior = inference_data(fit.run, fit.posterior, rows).posterior
    assert np.array_equal(posterior["b_x1_orth"], expected)
    (run.path / STORED).unlink()
    again = read_posterior(run).draws
    assert again.orthogonal.gamma == pytest.approx(kept["gamma"], rel=1e-12)
    assert "b_x1_orth" in semistan.draws(run)
