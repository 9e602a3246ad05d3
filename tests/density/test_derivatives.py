"""The curvature of the posterior against differences of its gradient, for all families."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from semistan.density.derivatives import SHARE, Expansion, expansion
from semistan.density.mode import find_mode, normal_mean
from semistan.density.spread import held_coordinates
from semistan.density.target import make_target, value_and_gradient
from semistan.model.families.families import FAMILIES
from semistan.model.names import MU
from semistan.model.subspace import Subspace
from semistan.model.table.rows import Columns
from semistan.subspace.start_values import curve_states
from support.untrained import FORMULA, FORMULAS, LINEAR, random_bundle, states

MODELS = [
    *((f"cumulative({link}, {K})", FORMULA) for link, K in (("logit", 4), ("probit", 7))),
    *((record.name, FORMULAS.get(record.name, FORMULA))
      for record in FAMILIES if record.parameters),
    *((name, f"y | {given} ~ x1 + nn(u1, u2, u3)")
      for name in ("gaussian", "negbinomial", "weibull")
      for given in ("cens(c, y2)", "trunc(least, most)", "trunc(least, most) + weights(w)")),
    ("student", f"{FORMULA}, sigma ~ z, nu ~ x2"),
    ("gaussian", "y | trunc(least, most) ~ x1 + nn(u1, u2, u3), sigma ~ z + (1 | g)"),
    ("zero_inflated_negbinomial", "y ~ x1 + s(v, k=5) + (1 | g) + nn(u1, u2, u3), zi ~ x2"),
    ("cumulative", "y ~ x1 + s(v, k=5) + (1 + x1 | g) + nn(u1, u2, u3)"),
    ("categorical(bus, car, train)", "y ~ x1 + s(v, k=5) + nn(u1, u2, u3)"),
]  # fmt: skip


def linear_model(name, formula, **settings):
    """Return the target of a model whose network is linear, and a state near its curve."""
    bundle, rows = random_bundle(name, formula=formula, **LINEAR, **settings)
    return make_target(bundle, rows), states(bundle)[0]


def differences(target, q):
    """Return the Hessian (n, n) of the negative log posterior by differences of its gradient."""
    steps = 1e-5 * np.eye(len(q))
    columns = [
        (value_and_gradient(target, q + step)[1] - value_and_gradient(target, q - step)[1]) / 2e-5
        for step in steps
    ]
    return np.stack(columns)


@pytest.mark.parametrize(("name", "formula"), MODELS, ids=map(" ".join, MODELS))
def test_the_curvature_is_exact_where_the_network_is_linear(name, formula):
    """In all coordinates but standard deviations and correlations of smooths and groups."""
    target, q = linear_model(name, formula)
    found = expansion(target, torch.tensor(q))
    free = ~held_coordinates(target, len(q))
    exact, expected = (x[np.ix_(free, free)] for x in (found.exact.numpy(), differences(target, q)))
    size = np.sqrt(np.outer(*[np.abs(expected.diagonal()) + 1] * 2))
    assert np.max(np.abs(exact - expected) / size) < 1e-5
    assert torch.linalg.eigvalsh(found.safe).min() > 0


@pytest.mark.parametrize(("name", "formula"), MODELS, ids=map(" ".join, MODELS))
def test_the_matrix_is_positive_definite_and_nowhere_below_half_the_prior(name, formula):
    """At random states, where the likelihood bends the wrong way in many directions."""
    target, q = linear_model(name, formula)
    found = expansion(target, torch.tensor(q))
    least = torch.linalg.eigvalsh(found.matrix - torch.diag(SHARE * found.prior)).min()
    assert found.bends_upwards == torch.equal(found.matrix, found.exact)
    assert torch.linalg.eigvalsh(found.matrix).min() > 0
    if found.bends_upwards:
        assert least > 0


def test_a_direction_that_bends_downwards_has_the_priors_curvature():
    """By hand: of independent coordinates each has its own, or the prior's."""
    prior = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    exact = torch.diag(torch.tensor([10.0, -7.0, 1.6], dtype=torch.float64))
    safe = torch.diag(torch.tensor([10.0, 5.0, 4.0], dtype=torch.float64))
    found = Expansion(prior, exact, safe, prior)
    assert not found.bends_upwards
    assert torch.equal(found.quick, safe)
    expected = torch.diag(torch.tensor([10.0, 2.0, 1.6], dtype=torch.float64))
    assert torch.allclose(found.matrix, expected, rtol=1e-12)


def by_maximum(loss, start):
    """Return where a function is least, and the inverse of its Hessian there by differences."""
    best = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-4}).x
    steps = 1e-3 * np.eye(len(best))

    def bend(a, b):
        return loss(best + a + b) - loss(best + a - b) - loss(best - a + b) + loss(best - a - b)

    return best, np.linalg.inv([[bend(a, b) / 4e-6 for a in steps] for b in steps])


def plain_model(name, y, x, given=None, formula="y ~ x1 + nn(u1)", priors=()):
    """Return a bundle whose phi is the intercept, beside one slope, under flat priors."""
    flat = {"phi": "normal(0, 1e4)", "b": "normal(0, 1e4)"} | dict(priors)
    bundle, rows = random_bundle(name, formula=formula, n=len(y), k=1, priors=flat, **LINEAR)
    d = bundle.network.d
    subspace = Subspace(np.zeros(d), np.eye(d)[:, [d - 1]], "bias", np.ones(1), np.arange(0))
    rows = replace(rows, y=y, given=given or rows.given, predictors={MU: Columns(x[:, None])})
    return replace(bundle, trained=replace(bundle.trained, subspace=subspace)), rows


def student_case(generator, x):
    y = 100 + 5 * (x - 5) + 14 * generator.standard_t(3, size=len(x))

    def loss(p):
        nu, prior = np.exp(p[3]), stats.gamma(2, scale=10)
        lik = stats.t(nu, p[0] + p[1] * (x - 5), np.exp(p[2])).logpdf(y).sum()
        return -lik - p[2] - prior.logpdf(nu) - p[3]

    priors = {"sigma": "normal(0, 1e4)", "nu": "gamma(2, 0.1)"}
    return ("student", y, x, None, "y ~ x1 + nn(u1)", priors), loss, [100.0, 5.0, 2.6, 1.1]


def cumulative_case(generator, x):
    cuts = np.array([0, 0.7, 1.5, 2.0])
    y = 1.0 + (0.6 + 0.3 * (x - 5) + generator.logistic(size=len(x)) > cuts[:, None]).sum(axis=0)

    def loss(p):
        tau = np.concatenate([[-np.inf, 0], np.exp(p[2:]).cumsum(), [np.inf]])
        k, eta = y.astype(int), p[0] + p[1] * (x - 5)
        return -np.log(special.expit(tau[k] - eta) - special.expit(tau[k - 1] - eta)).sum()

    case = ("cumulative(logit, 5)", y, x, None, "y ~ x1 + nn(u1)", {"gap": "lognormal(0, 1e3)"})
    return case, loss, [0.6, 0.3, -0.4, -0.2, -0.7]


def truncated_case(generator, x):
    y = 100 + 5 * (x - 5) + 20 * generator.normal(size=len(x))
    x, y = x[y > 90], y[y > 90]

    def loss(p):
        normal = stats.norm(p[0] + p[1] * (x - 5), np.exp(p[2]))
        return -(normal.logpdf(y) - normal.logsf(90)).sum() - p[2]

    given = {"lb": np.full(len(y), 90.0)}
    formula, priors = "y | trunc(least) ~ x1 + nn(u1)", {"sigma": "normal(0, 1e4)"}
    return ("gaussian", y, x, given, formula, priors), loss, [100.0, 5.0, 3.0]


@pytest.mark.parametrize("case", [student_case, cumulative_case, truncated_case])
def test_standard_errors_are_those_of_maximum_likelihood(case):
    """Of the slope and of all scalars, by SciPy on the users' scale."""
    generator = np.random.default_rng(3)
    arguments, loss, start = case(generator, generator.normal(5, 2, size=400))
    best, covariance = by_maximum(loss, np.array(start))
    bundle, rows = plain_model(*arguments)
    target = make_target(bundle, rows)
    mode = find_mode(target, curve_states(bundle, 1)[0])
    slope = bundle.units.theta_scale[0]
    unit = np.concatenate([[slope], np.ones(len(best) - 2)])
    found, expected = mode.inv_metric[1:, 1:] * np.outer(unit, unit), covariance[1:, 1:]
    sd, sds = np.sqrt(found.diagonal()), np.sqrt(expected.diagonal())
    assert sd == pytest.approx(sds, rel=0.03)
    assert found / np.outer(sd, sd) == pytest.approx(expected / np.outer(sds, sds), abs=0.03)
    assert np.abs((unit * normal_mean(target, mode)[1:] - best[1:]) / sds).max() < 0.05
