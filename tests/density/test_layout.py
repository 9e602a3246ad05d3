"""The coordinates q, and smooths and groups at them: derivatives, estimated spread, priors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from semistan.density import mode as geometry
from semistan.density.derivatives import derivatives
from semistan.density.mode import find_mode
from semistan.density.spread import held_coordinates
from semistan.density.target import log_likelihood, log_prior, make_target
from semistan.model.layout import Layout
from semistan.model.names import MU
from semistan.model.parameter import (
    CORRELATION,
    POSITIVE,
    UNIT_INTERVAL,
    Parameter,
    correlation_factor,
    partial_correlations,
)
from semistan.model.terms.group import Group
from semistan.posterior.prior_draws import prior_draws
from semistan.subspace.start_values import curve_states
from support.untrained import random_bundle

FORMULA = "y ~ x1 + s(v, k=5) + (1 + x1 + x2 | g) + (x2 || h) + nn(u1, u2, u3)"
KINDS = Layout(
    (
        Parameter("a", "", (2,), ("P",), unit=np.array([0.5, 4.0])),
        Parameter("z", "", (3, 2), ("N", "M")),
        Parameter("b", "", kind=POSITIVE),
        Parameter("c", "", kind=UNIT_INTERVAL),
        Parameter("L", "", (3, 3), ("M", "M"), CORRELATION),
        Parameter("d", "", (2,), ("P",), POSITIVE),
    )
)


def first_group(bundle):
    return next(term for term in bundle.design.terms if isinstance(term, Group))


def near_curve(bundle, seed=0):
    state = curve_states(bundle, 3)[1]
    return state + 0.3 * np.random.default_rng(seed).normal(size=len(state))


def test_coordinates_make_the_values_that_made_them():
    bundle, _ = random_bundle("gaussian", formula=FORMULA)
    layout = bundle.layout
    x = np.random.default_rng(0).normal(size=layout.size)
    values = layout.unpack(torch.tensor(x))
    assert values["z_1"].shape == (len(first_group(bundle).levels), 3)
    assert layout.pack(values) == pytest.approx(x, rel=1e-10)


def test_values_follow_each_other_in_stans_order():
    """Units multiply, matrices go column by column, constraints are those of Stan."""
    x = np.linspace(-1, 1.2, KINDS.size)
    values = KINDS.unpack(torch.tensor(x))
    assert KINDS.size == 2 + 6 + 1 + 1 + 3 + 2
    assert values["a"].numpy() == pytest.approx([0.5 * x[0], 4 * x[1]])
    assert values["z"].numpy() == pytest.approx(np.array([x[2:5], x[5:8]]).T)
    assert float(values["b"]) == pytest.approx(np.exp(x[8]))
    assert float(values["c"]) == pytest.approx(1 / (1 + np.exp(-x[9])))
    assert values["L"].numpy()[1, 0] == pytest.approx(np.tanh(x[10]))
    assert values["d"].numpy() == pytest.approx(np.exp(x[13:]))
    assert KINDS.positions(["d", "b"]).tolist() == [8, 13, 14]
    assert KINDS.pack(values) == pytest.approx(x, rel=1e-10)
    draws = KINDS.unpack_draws(np.stack([x, -x]))
    columns = KINDS.columns(draws)
    assert list(columns)[:8] == ["a.1", "a.2", "z.1.1", "z.2.1", "z.3.1", "z.1.2", "z.2.2", "z.3.2"]
    assert columns["z.2.1"] == pytest.approx([x[3], -x[3]])
    assert columns["L.2.1"] == pytest.approx([np.tanh(x[10]), -np.tanh(x[10])])


def test_the_jacobian_is_that_of_automatic_differentiation():
    """Of what is free in each value: all elements, and of L those below the diagonal."""
    x = torch.linspace(-1, 1.2, KINDS.size, dtype=torch.float64)
    below = np.tril_indices(3, -1)

    def free(q):
        values = KINDS.unpack(q)
        flat = [value[below] if name == "L" else value.mT.flatten() if value.ndim == 2
                else value.reshape(-1) for name, value in values.items()]  # fmt: skip
        return torch.cat(flat)

    expected = torch.linalg.slogdet(torch.autograd.functional.jacobian(free, x))[1]
    assert float(KINDS.log_jacobian(x)) + KINDS.log_units == pytest.approx(float(expected))


def test_the_cholesky_factor_is_that_of_a_correlation_matrix_as_pytorch_has_it():
    x = np.random.default_rng(1).normal(size=6)
    L = correlation_factor(torch.tensor(x), (4, 4)).numpy()
    transform = torch.distributions.transforms.CorrCholeskyTransform()
    assert pytest.approx(transform(torch.tensor(x)).numpy(), rel=1e-12, abs=1e-14) == L
    assert np.diag(L @ L.T) == pytest.approx(np.ones(4))
    assert partial_correlations(L @ L.T) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize(
    ("family", "formula"),
    [("gaussian", FORMULA), ("poisson", FORMULA), ("bernoulli", FORMULA),
     ("gaussian", f"{FORMULA}, sigma ~ x2 + nn(u1)"),
     ("gaussian", f"{FORMULA}, sigma ~ x2 + s(u1, k=4) + (1 | g) + offset(z)"),
     ("categorical(bus, car, train)", "y ~ x1 + s(v, k=5) + (1 | g) + nn(u1, u2, u3)")],
)  # fmt: skip
def test_the_gradient_at_any_state_is_that_of_the_density(family, formula):
    bundle, rows = random_bundle(family, formula=formula)
    target, q = make_target(bundle, rows), torch.tensor(near_curve(bundle))
    x = q.clone().requires_grad_()
    density = log_prior(target, x) + log_likelihood(target, x)
    (expected,) = torch.autograd.grad(-density, x)
    gradient, matrix = derivatives(target, q)
    assert gradient.numpy() == pytest.approx(expected.numpy(), rel=1e-9, abs=1e-10)
    assert torch.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.lengthy
def test_the_spread_that_is_found_maximises_the_likelihood_without_the_coefficients(monkeypatch):
    """A linear network and a gaussian response: everything but the spread is integrated exactly."""
    monkeypatch.setattr(geometry, "ESTIMATES", 150)
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + s(v, k=6) + (1 | g) + nn(u1)", n=80, hidden=(), k=1,
        priors={"sigma": "constant(0.5)", "phi": "normal(0, 1)"},
    )  # fmt: skip
    generator, units = np.random.default_rng(0), bundle.units
    smooth, group = rows.predictors[MU].blocks
    mean = smooth.Z @ generator.normal(size=4) + generator.normal(size=9)[group.level]
    rows = replace(
        rows, y=units.eta_loc + units.eta_scale * (mean + 0.3 * generator.normal(size=80))
    )
    target = make_target(bundle, rows)
    mode = find_mode(target, near_curve(bundle))
    sigma, data = float(target.constants["sigma"]), bundle.prior_data
    f = bundle.subspace.matrix[:, 0]  # one input's weight and the bias
    Z = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(80)])
    along = units.eta_scale * Z @ f * float(data["prior_phi_scale"][0])
    X = (rows.X - units.x_loc) * data["prior_b_scale"]
    offset = units.eta_loc + units.eta_scale * Z @ bundle.subspace.p_bar
    indicator = np.eye(len(first_group(bundle).levels))[group.level]

    def minus_log_lik(logs):
        sds, sd = np.exp(logs)
        covariance = sigma**2 * np.eye(80) + np.outer(along, along) + X @ X.T
        covariance += sds**2 * smooth.Z @ smooth.Z.T + sd**2 * indicator @ indicator.T
        return -stats.multivariate_normal.logpdf(rows.y - offset, np.zeros(80), covariance)

    spread = target.layout.positions(["sds_sv_1", "sd_g__Intercept"])
    best = optimize.minimize(minus_log_lik, mode.q[spread] + 0.5, method="Nelder-Mead",
                             options={"xatol": 1e-7, "fatol": 1e-9})  # fmt: skip
    assert mode.q[spread] == pytest.approx(best.x, abs=2e-3)
    assert np.flatnonzero(held_coordinates(target, len(mode.q))).tolist() == spread.tolist()


@pytest.mark.lengthy
def test_draws_from_the_prior_have_lkjs_correlations():
    bundle, rows = random_bundle("gaussian", formula=FORMULA, priors={"cor": "lkj(1.5)"})
    draws = prior_draws(bundle, rows, (2, 1000), np.random.default_rng(3))
    names = first_group(bundle).correlations
    assert len(names) == 3
    for name in names:  # each is beta distributed on (-1, 1): Lewandowski et al. (2009)
        marginal = stats.beta(1.5 + 0.5, 1.5 + 0.5, loc=-1, scale=2)
        assert stats.kstest(draws.flat(draws.spread[name]), marginal.cdf).pvalue > 1e-3
    r, sd = (draws.flat(x) for x in (draws.terms["r_1"], draws.spread["sd_g__Intercept"]))
    standard = stats.kstest(r[:, 2, 0] / sd, stats.norm().cdf)
    assert standard.pvalue > 1e-3
