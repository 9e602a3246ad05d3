"""theta beside networks that cannot move, against statsmodels: the same likelihood, summed.

With k = 1 and phi held at 0 by its prior, the network's output is an offset. Under a wide prior,
theta's posterior is the likelihood of a generalised linear model, normalised.
"""

import numpy as np
import pytest
import statsmodels.api as sm

from semistan.density.predictor import linear_predictor, network_output
from semistan.model.config import SampleConfig
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.assertions import assert_correlation, assert_mean, assert_sd
from support.untrained import CATEGORICAL, random_bundle

OPTIONS = SampleConfig(chains=2, warmup=300, draws=1000, seed=3, kernel="stan")
PRIORS = {"phi": "normal(0, 1e-6)", "b": "normal(0, 1000)"}
SIGMA = 15.0
NETWORK = "nn(u1, u2, u3)"


def weighted_normal(y, x, offset, given):
    """A generalised linear model that counts each row's log-likelihood as often as it weighs."""
    model = sm.GLM(y, x, freq_weights=given["weights"], offset=offset)
    return lambda theta: model.loglike(theta, scale=SIGMA**2)


def poisson(y, x, offset, given):
    return sm.GLM(y, x, sm.families.Poisson(), offset=offset + given["offsets"]).loglike


def binomial(y, x, offset, given):
    successes = np.column_stack([y, given["trials"] - y])
    return sm.GLM(successes, x, sm.families.Binomial(), offset=offset).loglike


CASES = {
    "gaussian": (f"y | weights(w) ~ x1 + {NETWORK}", weighted_normal),
    "poisson": (f"y ~ x1 + offset(z) + {NETWORK}", poisson),
    "binomial": (f"y | trials(tries) ~ x1 + {NETWORK}", binomial),
}


def categorical(y, x, offsets):
    """The multinomial logit of theta (2,), whose offsets are columns with coefficients 1."""
    model = sm.MNLogit(y, np.column_stack([*offsets, x]))
    return lambda theta: model.loglike(np.vstack([np.eye(2), theta]))


def moments(log_likelihood, middle, width):
    """Mean and standard deviation of theta (1,) under a flat prior, by the trapezoidal rule."""
    grid = np.linspace(middle - width, middle + width, 2001)
    logs = np.array([log_likelihood(np.array([theta])) for theta in grid])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    assert max(p[0], p[-1]) < 1e-12
    mean = p @ grid
    return mean, np.sqrt(p @ (grid - mean) ** 2)


@pytest.mark.parametrize("family", CASES)
def test_theta_has_the_posterior_of_a_generalised_linear_model(family, toolchain, tmp_path):
    formula, oracle = CASES[family]
    priors = PRIORS | ({"sigma": f"constant({SIGMA})"} if family == "gaussian" else {})
    bundle, rows = random_bundle(family, formula=formula, k=1, priors=priors)
    fit = sample(new_run(bundle, rows, tmp_path / "run", OPTIONS, toolchain), toolchain)
    assert np.abs(fit.posterior.draws.phi).max() < 1e-5 * bundle.subspace.phi_scale.max()
    network = linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, np.zeros((1, 1)),
        np.zeros((1, 1)),
    )[0]  # fmt: skip
    log_likelihood = oracle(rows.y, rows.X - rows.X.mean(axis=0), network, rows.known)
    draws = fit.posterior.draws.theta[..., 0]
    mean, sd = moments(log_likelihood, draws.mean(), 12 * draws.std())
    assert_mean(draws, mean, "theta")
    assert_sd(draws, sd, "theta")


def test_coefficients_of_categories_have_the_posterior_of_a_multinomial_logit(toolchain, tmp_path):
    formula = f"y ~ x1 + {NETWORK}"
    bundle, rows = random_bundle(CATEGORICAL, formula=formula, k=1, priors=PRIORS)
    fit = sample(new_run(bundle, rows, tmp_path / "run", OPTIONS, toolchain), toolchain)
    units, trained = bundle.units, bundle.trained
    w = bundle.subspace.p_bar
    mutrain = network_output(bundle.network, units, w, rows.U, "mutrain")
    car = linear_predictor(
        bundle.network, units, trained, rows.X, rows.U, np.zeros((1, 2)), np.zeros((1, 1))
    )[0]
    offsets = car, mutrain + np.log((rows.y == 3).sum() / (rows.y == 1).sum())
    log_likelihood = categorical(rows.y, rows.X - rows.X.mean(axis=0), offsets)
    draws = [fit.posterior.draws.coefficients[name] for name in ("b_mucar_x1", "b_mutrain_x1")]
    grids = [x.mean() + x.std() * np.linspace(-12, 12, 121) for x in draws]
    logs = np.array([[log_likelihood(np.array([a, b])) for b in grids[1]] for a in grids[0]])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    means, sds = [], []
    for axis, (name, grid, found) in enumerate(zip(("car", "train"), grids, draws, strict=True)):
        marginal = p.sum(axis=1 - axis)
        assert max(marginal[0], marginal[-1]) < 1e-12
        means.append(marginal @ grid)
        sds.append(np.sqrt(marginal @ (grid - means[-1]) ** 2))
        assert_mean(found, means[-1], name)
        assert_sd(found, sds[-1], name)
    off = [(grid - mean) / sd for grid, mean, sd in zip(grids, means, sds, strict=True)]
    assert_correlation(*draws, off[0] @ p @ off[1])
