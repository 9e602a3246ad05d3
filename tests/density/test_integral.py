"""What eta is linear in, integrated out: against Laplace's method, which is exact there."""

import numpy as np
import pytest
import torch

from semistan.density.integral import completed_draws, log_integrated, whole
from semistan.density.target import log_likelihood, log_prior, make_target
from support.untrained import random_bundle, states

ALL = {"subspace": {"construction": "full"}}
WEIGHTS = {"priors": {"phi": None}}
CASES = {
    "output layer": {**ALL, **WEIGHTS},
    "priors elsewhere": {**ALL, "priors": {"b": "normal(3, 0.7)"}},
    "several networks": {
        **ALL,
        "formula": "y ~ x1 + nn(u1, u2, hidden=[3, 2]) + nn(v)",
    },
    "output layer alone": {**ALL, "formula": "y ~ nn(u1, u2)"},
    "output layer, theta sampled": {**ALL, "priors": {"b": "student_t(3, 0, 2)"}},
    "output bias": {"subspace": {"free": "bias", "k": 3}},
    "known of rows, terms": {
        **ALL,
        "formula": "y | weights(w) ~ x1 + offset(z) + s(v, k=4) + (1 | g) + nn(u1, u2)",
    },
    "scales of weights": {**ALL, "priors": {"phi": None, "sd_w": "student_t(4, 0, 1)"}},
    "constant layer": {**ALL, "frozen": 1, "hidden": (4, 3)},
    "smooths": {"formula": "y ~ x1 + s(v, k=5) + s(z, by=g, k=4) + t2(u1, u2, k=3) + nn(u1)"},
    "processes": {
        **ALL,
        "formula": "y | weights(w) ~ gp(v, k=6) + gp(z, by=g, k=4) + nn(u1)",
    },
    "groups": {
        "formula": "y ~ x1 + (1 | g) + (1 + x1 || h) + (0 + x2 | mm(g, h)) + (1 + x2 | g:h) "
        "+ nn(u1)",
    },
    "horseshoe": {"formula": "y ~ x1 + x2 + nn(u1)", "priors": {"b": "horseshoe(3)"}},
    "horseshoe beside all weights": {
        **ALL,
        "formula": "y ~ x1 + x2 + s(v, k=4) + nn(u1)",
        "priors": {"b": "horseshoe()"},
    },
    "shares of R2": {
        "formula": "y ~ x1 + x2 + s(v, k=4) + nn(u1)",
        "priors": {"b": "R2D2(0.4, 3)"},
    },
    "groups that are related": {
        "formula": "y ~ x1 + (1 | gr(h, by=t)) + (1 | gr(g, cov='A.csv')) + nn(u1)",
        "priors": {"b": "student_t(3, 0, 2)"},
    },
}


def made(name, prior_only=False):
    bundle, rows = random_bundle("gaussian", **CASES[name])
    target = make_target(bundle, rows, prior_only=prior_only)
    return target, states(bundle, 3)[:, bundle.layout.sampled]


def conditional(target, x):
    """Mean, precision and log integral of the joint density at sampled coordinates x, in beta."""

    def joint(beta):
        q = whole(target, torch.tensor(x), beta)
        return log_prior(target, q) + (0 if target.prior_only else log_likelihood(target, q))

    start = torch.zeros(len(target.layout.integrated), dtype=torch.float64)
    slope = torch.func.grad(joint)(start)
    bend = torch.autograd.functional.hessian(joint, start)
    mean = start - torch.linalg.solve(bend, slope)
    volume = len(start) * np.log(2 * np.pi) - torch.linalg.slogdet(-bend)[1]
    units = target.layout.log_unit[target.layout.integrated].sum()
    return mean.numpy(), -bend.numpy(), float(joint(mean) + volume / 2) + units


@pytest.mark.parametrize("name", CASES)
def test_the_integral_is_that_of_the_joint_density(name):
    target, points = made(name)
    assert len(target.layout.integrated)
    for x in points:
        _, _, expected = conditional(target, x)
        assert float(log_integrated(target, torch.tensor(x))) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["output layer", "known of rows, terms", "scales of weights"])
def test_its_gradient_is_that_of_differences(name):
    target, (x, *_) = made(name)
    leaf = torch.tensor(x, requires_grad=True)
    (gradient,) = torch.autograd.grad(log_integrated(target, leaf), leaf)
    for j, slope in enumerate(gradient):
        ends = [
            float(log_integrated(target, torch.tensor(x + move * np.eye(len(x))[j])))
            for move in (1e-5, -1e-5)
        ]
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)


@pytest.mark.lengthy
@pytest.mark.parametrize("prior_only", [False, True])
def test_draws_have_the_moments_of_the_conditional_distribution(prior_only):
    target, (x, *_) = made("output bias", prior_only)
    mean, precision, _ = conditional(target, x)
    draws = completed_draws(target, np.tile(x, (4000, 1)), np.random.default_rng(1))
    assert draws[:, target.layout.sampled] == pytest.approx(np.tile(x, (4000, 1)))
    root = np.linalg.cholesky(precision)
    standard = (draws[:, target.layout.integrated] - mean) @ root
    assert np.abs(standard.mean(axis=0)).max() < 5 / 4000**0.5
    assert np.abs(standard.T @ standard / 4000 - np.eye(len(mean))).max() < 5 * (2 / 4000) ** 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "gaussian(log)"}, {"family": "student"}, {"family": "poisson"},
        {"formula": "y ~ x1 + nn(u1), sigma ~ z"},
        {"formula": "y | cens(c, y2) ~ x1 + nn(u1)"},
        {"formula": "y | trunc(lb=least) ~ x1 + nn(u1)"},
        {"sample": {"temperature": 2.0}},
        {"sample": {"method": "laplace"}},
        {"sample": {"integrate": "none"}},
        {"priors": {"phi": "student_t(3, 0, 1)"}},
        {"priors": {"sigma": "constant(1)"}},
        {"formula": "y ~ x1 + nn(u1, u2, hidden=[3, 3], skip=True)"},
        {"subspace": {"construction": "bezier"}},
        {"hidden": (64,)},
        {"orthogonalise": "all", "orthogonalise_in": "model"},
        {"subspace": {"construction": "naive", "k": 3}},
        {"subspace": {"construction": "subnetwork", "k": 3}, "formula": "y ~ nn(u1)"},
    ],
    ids=str,
)  # fmt: skip
def test_nothing_is_integrated_out_where_it_cannot_be(settings):
    settings = {**ALL, **settings}
    bundle, _ = random_bundle(settings.pop("family", "gaussian"), **settings)
    assert bundle.model.integral is None
    assert list(bundle.layout.sampled) == list(range(bundle.layout.size))


def test_coefficients_whose_priors_are_not_normal_stay_sampled():
    bundle, _ = random_bundle("gaussian", **ALL, priors={"b": "student_t(3, 0, 1)"})
    assert not bundle.model.integral.theta
