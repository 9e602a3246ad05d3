"""Programs and PyTorch agree where the linear predictor is far out."""

import numpy as np
import pytest
import torch

from semistan.density.derivatives import derivatives
from semistan.density.target import make_target, negative_log_posterior
from semistan.program.data import stan_data
from support.catalogue import PROGRAMS
from support.columns import states
from support.programs import evaluate

FAR = {
    "gaussian, kernel": 800,
    "poisson, kernel": 300,  # means beyond exp(709) are no doubles
    "bernoulli, kernel": 800,
    "binomial": 800,
    "negbinomial": 300,
    "student": 800,
    "gamma": 300,
    "beta": 800,
}  # the largest distance of a linear predictor from its place


@pytest.mark.cmdstan
@pytest.mark.parametrize("name", FAR)
def test_density_and_gradient_are_pytorchs_far_out(name, toolchain, tmp_path):
    (program,) = (program for program in PROGRAMS if program.name == name)
    bundle, rows = program.make()
    target, q = make_target(bundle, rows), states(bundle, 2)
    k, X = bundle.subspace.k, rows.X - rows.X.mean(axis=0)
    for state, sign in zip(q, (-1, 1), strict=True):
        state[k : k + X.shape[1]] = 0
        state[k] = sign * FAR[name] / (np.abs(X[:, 0]).max() * bundle.units.theta_scale[0])
    given = {"grainsize": 4} if program.kernel == "cpp" else {}
    stan = evaluate(
        bundle, stan_data(bundle, rows, **given), q, toolchain, tmp_path, program.kernel
    )
    ours = np.array([-negative_log_posterior(target, torch.tensor(state)) for state in q])
    assert np.isfinite(stan.lp).all() and np.isfinite(ours).all()
    np.testing.assert_allclose(stan.lp - stan.lp[0], ours - ours[0], rtol=1e-9)
    for state, gradient in zip(q, stan.gradient, strict=True):
        expected = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
