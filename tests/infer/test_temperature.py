"""Tempered posteriors against closed forms, quadrature, finite differences and the program."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson
from scipy.stats import t as student_t

from semistan.bundle.bundle import read_bundle
from semistan.density import mode as geometry
from semistan.density.derivatives import derivatives
from semistan.density.marginal import Conditional
from semistan.density.marginal import log_marginal as laplace
from semistan.density.mode import find_mode
from semistan.density.predictor import linear_predictor
from semistan.density.target import log_marginal_likelihood, make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.cmdstan.compile import without_comments
from semistan.model.bundle import as_sampled
from semistan.model.config import SampleConfig, with_overrides
from semistan.model.families.families import family
from semistan.program.data import stan_data
from semistan.program.program import bundle_program, stan_program
from semistan.program.quantities import quantities_program
from semistan.subspace.start_values import curve_states
from semistan.workflow.compiled import compile_model, trusted_kernel
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import configure, prepare
from semistan.workflow.sample import sample
from semistan.workflow.train import train
from support.assertions import assert_correlation, assert_mean, assert_sd
from support.programs import declared, evaluate
from support.small import RESPONSES, small_prepared
from support.untrained import VARIANTS, random_bundle, states, tempered

MODEL = Path(__file__).parents[2] / "models" / "closed_form" / "model.toml"
LINEAR = {"activation": "identity", "hidden": [], "priors": {"sigma": "constant(0.7)"}}


def program(formula="y ~ x + C(g) + nn(u, v)", temperature=1.0, temper="likelihood", **settings):
    prepared = small_prepared(
        formula, sample__temperature=temperature, sample__temper=temper, **settings
    )
    return stan_program(prepared.model)


# ---- The program's text


@pytest.mark.parametrize("temper", ("likelihood", "subspace"))
def test_a_temperature_of_one_leaves_the_program_and_its_data_alone(temper):
    assert program(temper=temper) == program()
    bundle, rows = tempered("gaussian", 1.0, temper)
    assert list(stan_data(bundle, rows)) == list(stan_data(*random_bundle("gaussian")))


def test_the_likelihood_is_divided_by_the_temperature_and_nothing_else_changes():
    plain, text = without_comments(program()), without_comments(program(temperature=2))
    data = "  real<lower=0> temperature;\n"
    assert text.replace(data, "").replace(") / temperature;", ");") == plain
    assert without_comments(program(temperature=0.3)) == text


@pytest.mark.parametrize("temper", ("likelihood", "subspace"))
def test_the_header_names_the_temperature_and_what_is_tempered(temper):
    (line,) = [line for line in program(temperature=2.5, temper=temper).splitlines()
               if line.startswith("// temperature")]  # fmt: skip
    what = {"likelihood": "the likelihood", "subspace": "p(y | phi)"}[temper]
    assert line == f"// temperature: 2.5, of {what}"


@pytest.mark.parametrize(("name", "prior", "integral"), VARIANTS)
def test_theta_is_integrated_out_exactly_where_it_can_be(name, prior, integral):
    text = program(f"{RESPONSES[name]} ~ x + nn(u)", 2, "subspace", family=name, priors__b=prior)
    assert ("normal_marginal_lpdf" in text) == (integral == "exact")
    assert ("Laplace's method" in text) == (integral == "laplace")
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    for opening, closing in ("()", "[]", "{}"):
        code = without_comments(text)
        assert code.count(opening) == code.count(closing)


def test_the_kernel_is_pure_stan_where_theta_is_integrated_out():
    bundle, _ = tempered("poisson", 2.0, "subspace")
    assert bundle_program(bundle, "cpp") == bundle_program(bundle, "stan")
    assert bundle.model.integrates_theta
    likelihood, _ = tempered("poisson", 2.0, "likelihood")
    assert not likelihood.model.integrates_theta


def test_without_coefficients_both_equations_are_the_same():
    texts = [program("y ~ nn(u)", 2, temper) for temper in ("likelihood", "subspace")]
    assert texts[0] == texts[1]


def test_a_subspace_that_holds_theta_has_only_equation_7():
    naive = {"subspace__construction": "naive"}
    assert "/ temperature" in program(temperature=2, **naive)
    assert program(temper="subspace", **naive) == program(**naive)
    with pytest.raises(InputError, match=r"'naive' theta moves with phi; use temper = 'likeli"):
        program(temperature=2, temper="subspace", **naive)


@pytest.mark.parametrize("temper", ("likelihood", "subspace"))
@pytest.mark.parametrize(("name", "prior", "integral"), VARIANTS)
def test_the_data_are_what_the_program_declares(name, prior, integral, temper):
    bundle, rows = tempered(name, 2.0, temper, prior)
    data = stan_data(bundle, rows)
    assert list(data) == list(declared(bundle_program(bundle)))
    assert data["temperature"] == 2
    assert bundle.model.temper.integral == (integral if temper == "subspace" else None)


def test_generated_quantities_are_not_tempered():
    plain, _ = random_bundle("gaussian")
    bundle, _ = tempered("gaussian", 2.0, "subspace")
    assert quantities_program(bundle) == quantities_program(plain)


def test_a_runs_own_temperature_replaces_the_bundles_and_nothing_else():
    bundle, _ = random_bundle("gaussian", sample={"chains": 3})
    own = as_sampled(bundle, SampleConfig(temperature=3, temper="subspace", chains=9))
    expected = {"sample.temperature": 3, "sample.temper": "subspace"}
    assert own.config == with_overrides(bundle.config, expected)
    assert own.trained is bundle.trained


# ---- The density


@pytest.mark.parametrize(
    ("name", "prior", "temper"),
    [
        *((name, prior, "subspace") for name, prior, _ in VARIANTS),
        ("gaussian", "normal(1, 2)", "likelihood"),
    ],
)
def test_program_and_torch_have_one_density_and_the_gradient_of_finite_differences(
    name, prior, temper, toolchain, tmp_path
):
    bundle, rows = tempered(name, 2.5, temper, prior)
    target, q = make_target(bundle, rows), states(bundle, 2)
    steps = 1e-5 * np.eye(q.shape[1])
    around = np.concatenate([q[0] + steps, q[0] - steps])
    stan = evaluate(bundle, stan_data(bundle, rows), np.vstack([q, around]), toolchain, tmp_path)
    ours = [-negative_log_posterior(target, torch.tensor(state)) for state in q]
    assert np.ptp(stan.lp[:2] - ours) < 1e-10 * np.max(np.abs(stan.lp))
    for state, expected in zip(q, stan.gradient[:2], strict=True):
        gradient = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
    above, below = stan.lp[2:].reshape(2, -1)
    differences = (above - below) / 2e-5
    error = np.max(np.abs(stan.gradient[0] - differences))
    assert error < 1e-6 * np.max(np.abs(differences))


def by_hand(bundle, rows, q):
    """The rows' offset at q, their centred X, and the data, for integrals over theta."""
    k, P = bundle.subspace.k, rows.X.shape[1]
    phi = bundle.subspace.phi_scale * q[:k]
    offset = linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi[None], np.zeros((1, P))
    )[0]
    return offset, rows.X - bundle.units.x_loc, stan_data(bundle, rows)


def log_marginal(bundle, rows, q):
    target = make_target(bundle, rows)
    return log_marginal_likelihood(target, target.values(torch.tensor(q))).item()


def test_the_marginal_of_a_gaussian_is_that_of_an_n_by_n_normal():
    bundle, rows = random_bundle("gaussian", priors={"b": "normal(1, 2)"})
    q = states(bundle)[1]
    offset, X, data = by_hand(bundle, rows, q)
    covariance = np.exp(2 * q[-1]) * np.eye(len(rows)) + X * data["prior_b_scale"] ** 2 @ X.T
    expected = multivariate_normal(offset + X @ data["prior_b_location"], covariance)
    assert log_marginal(bundle, rows, q) == pytest.approx(expected.logpdf(rows.y), rel=1e-11)


LOG_LIK = {
    "poisson": lambda y, eta: poisson(np.exp(eta)).logpmf(y),
    "bernoulli": lambda y, eta: -np.logaddexp(0, (1 - 2 * y) * eta),
}


def by_quadrature(log_lik, y, offset, X, prior, t_hat, sd):
    """log p(y | phi) on a grid of 8 sds around the mode, by the trapezium rule."""
    axes = [m + s * np.linspace(-8, 8, 161) for m, s in zip(t_hat, sd, strict=True)]
    t = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    log_density = prior.logpdf(t).sum(axis=1) + log_lik(y, offset + t @ X.T).sum(axis=1)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return logsumexp(log_density) + np.log(cell)


def curvature(function, at, step=1e-3):
    """Second derivatives by central differences: a minimiser's own are as its path left them."""
    steps = step * np.eye(len(at))
    return np.array([
        [sum(a * b * function(at + a * i + b * j) for a in (1, -1) for b in (1, -1)) for j in steps]
        for i in steps
    ]) / (4 * step**2)  # fmt: skip


def random_rows(name, P, N):
    """Response, offset and X of a model without a network."""
    generator = np.random.default_rng(4)
    X, offset = generator.normal(size=(N, P)), generator.normal(size=N)
    eta = offset + X @ np.array([0.5, -0.4])[:P]
    y = {"poisson": generator.poisson(np.exp(eta)), "bernoulli": eta > generator.logistic(size=N)}
    return y[name].astype(float), offset, X


@pytest.mark.parametrize("N", (40, 640))
@pytest.mark.parametrize("P", (1, 2))
@pytest.mark.parametrize("prior", (norm(0.3, 1.2), student_t(3, 0.3, 0.5)), ids=("normal", "t"))
@pytest.mark.parametrize("name", LOG_LIK)
@pytest.mark.lengthy
def test_laplaces_method_agrees_with_quadrature_to_the_order_of_one_over_n(name, prior, P, N):
    y, offset, X = random_rows(name, P, N)
    density = {2: torch.distributions.Normal, 3: torch.distributions.StudentT}[len(prior.args)]
    conditional = Conditional(
        torch.tensor(offset),
        torch.tensor(X),
        lambda eta: family(name).log_lik(torch.tensor(y), eta, {}),
        density(*map(torch.tensor, prior.args)).log_prob,
    )
    ours = laplace(conditional, torch.zeros(P, dtype=torch.float64)).item()

    def minus_log_density(t):
        return -prior.logpdf(t).sum() - LOG_LIK[name](y, offset + X @ t).sum()

    mode = minimize(minus_log_density, np.zeros(P)).x
    sd = np.sqrt(np.diag(np.linalg.inv(curvature(minus_log_density, mode))))
    integral = by_quadrature(LOG_LIK[name], y, offset, X, prior, mode, sd)
    assert ours == pytest.approx(integral, rel=0, abs=5 / N)


def test_newton_finds_the_mode_from_far_away():
    generator = np.random.default_rng(2)
    X, offset = torch.tensor(generator.normal(size=(50, 2))), torch.zeros(50, dtype=torch.float64)
    y = torch.tensor(generator.poisson(1.0, size=50).astype(float))
    prior = torch.distributions.Cauchy(torch.zeros(2).double(), torch.ones(2).double())
    conditional = Conditional(
        offset, X, lambda eta: family("poisson").log_lik(y, eta, {}), prior.log_prob
    )
    near = laplace(conditional, torch.zeros(2, dtype=torch.float64))
    far = laplace(conditional, torch.tensor([-9.0, 30.0], dtype=torch.float64))
    assert far.item() == pytest.approx(near.item(), abs=1e-9)


def test_where_there_is_no_mode_the_density_is_not_a_number():
    bundle, rows = tempered("poisson", 2.0, "subspace")
    q = np.full(bundle.subspace.k + 2, 1e200)
    assert find_mode(make_target(bundle, rows), q) is None


# ---- A linear model: every tempered posterior is exactly Gaussian


def linear_parts(bundle, rows):
    """Residual at the prior's means, derivatives of eta by phi and theta, and prior variances."""
    units, subspace, data = bundle.units, bundle.subspace, stan_data(bundle, rows)
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    G = units.eta_scale * inputs @ subspace.matrix
    X = rows.X - units.x_loc
    residual = rows.y - units.eta_loc - units.eta_scale * inputs @ subspace.p_bar
    assert not np.any(data["prior_phi_location"]) and not np.any(data["prior_b_location"])
    variances = data["prior_phi_scale"] ** 2, data["prior_b_scale"] ** 2
    return residual, G, X, *variances, data["prior_sigma_value"]


def exact(bundle, rows, temperature, temper):
    """Mean and covariance of (phi, theta)."""
    r, G, X, phi_variance, theta_variance, sigma = linear_parts(bundle, rows)
    if temper == "likelihood":
        J, variance = np.hstack([G, X]), np.concatenate([phi_variance, theta_variance])
        covariance = np.linalg.inv(J.T @ J / (temperature * sigma**2) + np.diag(1 / variance))
        return covariance @ J.T @ r / (temperature * sigma**2), covariance
    V = np.linalg.inv(sigma**2 * np.eye(len(r)) + X * theta_variance @ X.T)  # of y given phi
    of_phi = np.linalg.inv(G.T @ V @ G / temperature + np.diag(1 / phi_variance))
    phi = of_phi @ G.T @ V @ r / temperature
    given = np.linalg.inv(X.T @ X / sigma**2 + np.diag(1 / theta_variance))
    slope = given @ X.T / sigma**2  # theta's mean given phi is slope (r - G phi)
    K = -slope @ G
    covariance = np.block([[of_phi, of_phi @ K.T], [K @ of_phi, given + K @ of_phi @ K.T]])
    return np.concatenate([phi, slope @ (r - G @ phi)]), covariance


@pytest.mark.parametrize("temperature", (0.5, 1.0, 4.0))
@pytest.mark.parametrize("temper", ("likelihood", "subspace"))
def test_mode_and_metric_of_a_linear_model_are_exact(temper, temperature):
    sample = {"temperature": temperature, "temper": temper}
    bundle, rows = random_bundle("gaussian", sample=sample, **LINEAR)
    mean, covariance = exact(bundle, rows, temperature, temper)
    units = np.concatenate([bundle.subspace.phi_scale, bundle.units.theta_scale])
    mode = find_mode(make_target(bundle, rows), curve_states(bundle, 2)[1])
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(units * mode.q - mean) / sd) < np.sqrt(2 * geometry.ENOUGH)
    expected = covariance / np.outer(units, units)
    assert mode.inv_metric == pytest.approx(expected, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("temperature", (0.4, 6.0))
@pytest.mark.parametrize(("name", "prior", "integral"), VARIANTS)
def test_the_metric_of_equation_8_is_positive_and_leads_to_a_mode(
    name, prior, integral, temperature
):
    bundle, rows = tempered(name, temperature, "subspace", prior)
    target = make_target(bundle, rows)
    mode = find_mode(target, curve_states(bundle, 1)[0])
    gradient = derivatives(target, torch.tensor(mode.q))[0].numpy()
    assert gradient @ mode.inv_metric @ gradient < 2 * geometry.ENOUGH
    assert np.linalg.eigvalsh(mode.inv_metric).min() > 0
    assert bundle.model.temper.integral == integral


@pytest.fixture(scope="module")
def trained():
    prepared = prepare(configure(MODEL))
    return train(prepared), prepared.rows


@pytest.mark.parametrize(
    ("temperature", "temper", "kernel"),
    [(0.5, "subspace", "auto"), (1.0, "subspace", "stan"), (4.0, "subspace", "auto"),
     (0.5, "likelihood", "stan"), (4.0, "likelihood", "cpp")],
)  # fmt: skip
def test_draws_have_the_closed_form(temperature, temper, kernel, trained, toolchain, tmp_path):
    bundle, rows = trained
    overrides = {"sample.temperature": temperature, "sample.temper": temper}
    config = with_overrides(bundle.config, {**overrides, "sample.kernel": kernel})
    said = []
    used = compile_model(bundle.model.replace(config=config), toolchain, said.append)
    used = trusted_kernel(used, as_sampled(bundle, config.sample), rows, toolchain, said.append)
    assert used == ("cpp" if kernel == "cpp" else "stan")
    assert any("theta is integrated out" in line for line in said) == (kernel == "auto")
    run = new_run(bundle, rows, tmp_path / "run", config.sample, toolchain, kernel=used)
    assert run.bundle.config.sample.temperature == temperature
    assert read_bundle(run.path / "bundle").config == bundle.config
    assert run.keep_metric
    draws = sample(run, toolchain).posterior.draws
    mean, covariance = exact(bundle, rows, temperature, temper)
    sd = np.sqrt(np.diag(covariance))
    q = np.concatenate([draws.phi, draws.theta], axis=-1)
    for i in range(len(mean)):
        assert_mean(q[..., i], mean[i], f"q[{i}]")
        assert_sd(q[..., i], sd[i], f"q[{i}]")
    k = bundle.subspace.k
    expected = covariance[0, k] / (sd[0] * sd[k])
    assert_correlation(q[..., 0], q[..., k], expected, "phi[1], theta[1]")
