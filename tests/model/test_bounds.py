"""Bounds of coefficients: coordinates, the program's text, training, draws, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from semistan.density.problem import make_problem
from semistan.errors import InputError
from semistan.infer.starts import find_starts
from semistan.model.bounded import bounded
from semistan.model.config import SampleConfig
from semistan.model.left_out import left_out
from semistan.model.names import MU
from semistan.model.networks.networks import output_inputs, output_layers
from semistan.model.parameter import REAL
from semistan.model.priors.densities import parse_prior
from semistan.posterior.prior_draws import prior_draws
from semistan.program.program import stan_program
from semistan.subspace.coefficients import settle
from semistan.subspace.descent import descend, initial_parameters
from semistan.workflow.fit import fit_model
from semistan.workflow.train import train
from support.assertions import Z, mcse
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import random_bundle

LOWER = np.array([-np.inf, 0.0, -np.inf, -1.0])
UPPER = np.array([np.inf, np.inf, 2.0, 3.0])


# ----------------------------------------------------------------------------- coordinates


def test_values_are_those_of_stan_and_have_an_inverse():
    kind, x = bounded(LOWER, UPPER, "theta"), torch.tensor([800.0, -1.5, 0.3, 0.7])
    value = kind.value(x.double(), (4,)).numpy()
    expected = [800, np.exp(-1.5), 2 - np.exp(0.3), -1 + 4 / (1 + np.exp(-0.7))]
    assert value == pytest.approx(expected, rel=1e-7)
    assert kind.coordinates(value) == pytest.approx(x.numpy(), rel=1e-7)


def test_the_jacobian_is_that_of_the_values():
    kind, x = bounded(LOWER, UPPER, "theta"), torch.tensor([800.0, -1.5, 0.3, 0.7]).double()
    slopes = torch.func.jacrev(lambda x: kind.value(x, (4,)))(x)
    assert torch.equal(slopes, torch.diag(slopes.diagonal()))  # without nan, far out too
    log = float(slopes.diagonal().abs().log().sum())
    assert float(kind.log_jacobian(x, (4,))) == pytest.approx(log, rel=1e-12)


def test_what_has_no_bound_is_an_ordinary_parameter():
    assert bounded(-np.inf, np.inf, "theta") is REAL
    assert random_bundle("gaussian")[0].layout.parameters[1].kind is REAL


# ----------------------------------------------------------------------------- as it is written


@pytest.mark.parametrize(
    ("text", "bounds", "again"),
    [
        ("normal(0, 1), lb=0", (0, np.inf), "normal(0, 1), lb=0"),
        ("normal(0, 1) , ub = -.5", (-np.inf, -0.5), "normal(0, 1), ub=-0.5"),
        ("exponential(2),lb=0,ub=1e3", (0, 1000), "exponential(2), lb=0, ub=1000"),
        ("beta(2, 3), ub=1, lb=0", (0, 1), "beta(2, 3), lb=0, ub=1"),
    ],
)
def test_bounds_stand_behind_the_density(text, bounds, again):
    prior = parse_prior(text, "b_x")
    assert (prior.lb, prior.ub) == bounds
    assert str(prior) == str(parse_prior(str(prior), "b_x")) == again
    assert (prior.rescaled(7).lb, prior.rescaled(7).ub) == bounds


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("b", "normal(0, 1), lb=1, ub=1", "lb must be below ub"),
        ("b", "normal(0, 1), lb=x", "only bounds are known, as in 'normal(0, 2.5), lb=0, ub=1'"),
        ("b", "normal(0, 1), scale=2", "only bounds are known"),
        ("b", "normal(0, 1), lb=0, lb=1", "only bounds are known"),
        ("b", "normal(0, 1),", "only bounds are known"),
        ("b", "exponential(1)", "or give a coefficient bounds, as 'exponential(1), lb=0'"),
        ("b", "exponential(1), lb=-1", "exponential allows only positive values"),
        ("b", "beta(1, 1), lb=0", "beta allows only values between 0 and 1"),
        ("b", "horseshoe(1), lb=0", "of all coefficients together has no bounds"),
        ("sigma", "normal(0, 1), lb=1", "only coefficients may have bounds"),
        ("phi", "normal(0, 1), lb=1", "only coefficients may have bounds"),
        ("w", "normal(0, 1), lb=1", "only coefficients may have bounds"),
        ("b_sigma_Intercept", "normal(0, 1), lb=1", "only coefficients may have bounds"),
    ],
)
def test_others_are_refused(key, text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        parse_prior(text, key)


@pytest.mark.parametrize("density", ["exponential(1)", "gamma(2, 1)"])
def test_a_positive_density_needs_the_bound_of_its_own_coefficient(density):
    with pytest.raises(InputError, match="allows only positive values"):
        small_prepared("y ~ x + z + nn(u)", priors={"b": "normal(0, 1), lb=0", "b_x": density})


def test_tempering_of_the_subspace_does_not_know_them():
    tempered = {"temperature": 2.0, "temper": "subspace"}
    bundle, _ = random_bundle("gaussian", priors={"b": "normal(0, 1), lb=0"}, sample=tempered)
    with pytest.raises(InputError, match="has no coefficients with bounds"):
        assert bundle.model.temper


def test_a_construction_that_holds_the_coefficients_has_none():
    naive = {"subspace__construction": "naive", "priors": {"b": "normal(0, 1), lb=0"}}
    with pytest.raises(InputError, match="lie in the subspace, and no bounds can hold them"):
        small_prepared("y ~ x + nn(u, v)", **naive)


# ----------------------------------------------------------------------------- the program


def program(priors, formula="y ~ x + z + nn(u)"):
    return stan_program(small_prepared(formula, priors=priors).model)


def test_one_bound_of_all_coefficients_is_read_where_they_are_declared():
    text = program({"b": "normal(0, 2), lb=0"})
    assert "vector<lower=0>[P] theta;" in text
    assert "theta_lower" not in text
    assert "normal_lpdf(theta | prior_b_location, prior_b_scale)" in " ".join(text.split())


def test_bounds_of_some_stand_in_the_transformed_data():
    text = program({"b_x": "normal(0, 2), lb=-1.5", "b_z": "normal(0, 2), lb=0, ub=1"})
    assert "vector<lower=theta_lower, upper=theta_upper>[P] theta;" in text
    assert "vector[P] theta_lower = rep_vector(negative_infinity(), P);" in text
    for line in (r"theta_lower\[1\] = -1.5; +// b_x", r"theta_upper\[2\] = 1; +// b_z"):
        assert re.search(line, text)
    assert "theta_upper[1]" not in text


def test_a_monotonic_effect_may_only_rise():
    frame = small_frame().assign(m=np.arange(30) % 4)
    prepared = small_prepared("y ~ mo(m) + nn(u)", frame, priors={"bsp_mom": "normal(0, 1), lb=0"})
    assert "real<lower=0> bsp_mom;" in stan_program(prepared.model)


@pytest.mark.parametrize(("bounds", "sampled"), [("", False), (", lb=0", True)])
def test_bounded_coefficients_are_sampled_and_not_integrated_out(bounds, sampled):
    bundle, _ = random_bundle("gaussian", priors={"b": f"normal(0, 2){bounds}"},
                              subspace={"construction": "full"})  # fmt: skip
    integral = bundle.model.integral
    assert integral.phi
    assert ("theta" not in integral.parameters) == sampled


# ----------------------------------------------------------------------------- training, starts


def falling(n=200):
    """A response that falls with x and z."""
    generator = np.random.default_rng(1)
    x, z, u = generator.normal(size=(3, n))
    y = 5 - 2 * x - 1 * z + 0.8 * (x + z) + np.sin(u) + generator.normal(0, 0.3, n)
    return pd.DataFrame({"y": y, "x": x, "z": z + 0.6 * x, "u": u})


@pytest.mark.parametrize("prior", ["normal(0, 2.5), lb=0", "normal(0, 2.5), lb=-0.7, ub=0.2"])
def test_training_keeps_to_the_bounds(prior):
    prepared = small_prepared("y ~ x + z + nn(u)", falling(), priors={"b_x": prior},
                              train__epochs=60)  # fmt: skip
    written = parse_prior(prior, "b_x")
    x, z = train(prepared).trained.theta
    assert x == pytest.approx(written.lb, abs=1e-9)  # where it would go further
    assert z < -0.3


def test_coefficients_settle_at_the_optimum_between_the_bounds():
    """The penalised likelihood between bounds, against SciPy's L-BFGS-B."""
    priors = {"b_x": "normal(0, 1), lb=-0.2"}
    prepared = small_prepared("y ~ x + z + nn(u)", falling(), priors=priors)
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    generator = torch.Generator().manual_seed(1)
    start = initial_parameters(problem, 1, generator)
    trained, _ = descend(problem, start, prepared.config.train, generator)
    found = settle(problem, trained).theta.numpy()
    w, sigma = trained.control_points[0], float(problem.dispersion(trained.log_dispersion)["sigma"])
    inputs = output_inputs(problem.network, w, problem.U)
    columns = torch.cat([problem.Z, inputs], dim=1).numpy()
    output = w[output_layers(problem.network, MU)[0]].numpy()

    def loss(beta):
        eta = problem.eta_loc + problem.eta_scale * columns @ beta
        of_rows = np.square((problem.y.numpy() - eta) / sigma).sum() / 2
        return (
            of_rows + np.square(beta[:2] / 2.5).sum() / 2 + np.square(beta[2:] - output).sum() / 2
        )

    lower = float(problem.bounds[0][0])
    limits = [(lower, None)] + [(None, None)] * (columns.shape[1] - 1)
    least = minimize(loss, np.r_[0, 0, output], bounds=limits, method="L-BFGS-B",
                     options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000})  # fmt: skip
    assert found == pytest.approx(least.x[:2], abs=1e-4)
    assert found[0] == pytest.approx(lower)


def test_chains_start_inside():
    bundle, rows = random_bundle("poisson", priors={"b": "normal(0, 1), lb=0, ub=0.5"})
    for metric in ("ggn", "diag_e"):
        for values in find_starts(bundle, rows, SampleConfig(metric=metric)).values:
            assert np.all((values["theta"] > 0) & (values["theta"] < 0.5))


def test_a_completion_leaves_bounded_coefficients_where_they_are_and_says_so():
    priors = {"b_x": "normal(0, 1), lb=0"}
    bundle, _ = small_bundle("y ~ x + z + nn(u, v)", small_frame(40), priors=priors)
    x, z = bundle.completion.others["theta"]
    assert np.all(x == 0)
    assert np.any(z != 0)
    assert "b_x, between bounds, has no part of it" in left_out(bundle, 3)


# ----------------------------------------------------------------------------- draws


@pytest.mark.parametrize(("lower", "upper"), [(0.3, np.inf), (-np.inf, -2.0), (6.0, 7.0)])
def test_draws_of_the_prior_are_those_of_the_density_between_the_bounds(lower, upper):
    bounds = "".join(f", {k}={v}" for k, v in (("lb", lower), ("ub", upper)) if np.isfinite(v))
    priors = {"b_x1": f"normal(0, 1){bounds}", "autoscale": False}
    bundle, rows = random_bundle("gaussian", priors=priors)
    draws = prior_draws(bundle, rows, (4, 500), np.random.default_rng(1)).theta[..., 0].ravel()
    assert stats.kstest(draws, stats.truncnorm(lower, upper).cdf).pvalue > 1e-3


def test_a_share_has_draws_between_0_and_1_under_a_wider_density():
    bundle, rows = random_bundle("zero_inflated_poisson", priors={"zi": "exponential(0.5)"})
    draws = prior_draws(bundle, rows, (4, 500), np.random.default_rng(1)).dispersion["zi"].ravel()
    cut = stats.expon(scale=2)
    assert stats.kstest(draws, lambda x: cut.cdf(x) / cut.cdf(1)).pvalue > 1e-3


@pytest.mark.slow
def test_the_posterior_is_the_unbounded_one_where_that_keeps_to_the_bounds(toolchain, tmp_path):
    frame = falling(60).assign(y=lambda table: table.y + 1.15 * table.x)
    settings = {"network.hidden": (2,), "train.epochs": 200, "sample.draws": 2000}
    free, kept = (
        fit_model("y ~ x + z + nn(u)", frame, out=tmp_path / name,
                  overrides={**settings, "priors.b_x": prior}).posterior.coefficients
        for name, prior in (("free", "student_t(3, 0, 1)"), ("kept", "student_t(3, 0, 1), lb=0"))
    )  # fmt: skip
    inside = free["b_x"].ravel() > 0
    assert 0.1 < inside.mean() < 0.9
    assert kept["b_x"].min() > 0
    for name in ("b_x", "b_z"):
        given = free[name].ravel()[inside]
        error = np.hypot(mcse(kept[name], "mean"), 2 * given.std() / np.sqrt(len(given)))
        assert abs(kept[name].mean() - given.mean()) < Z * error
