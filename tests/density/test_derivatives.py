"""The curvature of the posterior against differences of its gradient, for all families."""

import numpy as np
import pytest
import torch

from semistan.density.derivatives import expansion
from semistan.density.spread import held_coordinates
from semistan.density.target import make_target, value_and_gradient
from semistan.model.families.families import FAMILIES
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
