"""Programs and PyTorch agree where the linear predictor is far out."""

import numpy as np
import pytest
import torch

from semistan.density.mode import derivatives, negative_log_posterior
from semistan.density.target import make_target
from semistan.program.data import stan_data
from support.catalogue import PROGRAMS
from support.columns import states
from support.programs import evaluate

FAR = {
    "gaussian, kernel": (-800, 800),
    "poisson, kernel": (-800, 300),  # whose logarithm has no double beyond 709
    "bernoulli, kernel": (-800, 800),
    "binomial": (-800, 800),
    "negbinomial": (-800, 300),
    "student": (-800, 800),
    "gamma": (-300, 800),
    "every term, cloglog": (-800, 300),
}


@pytest.mark.cmdstan
@pytest.mark.parametrize("name", FAR)
def test_density_and_gradient_are_pytorchs_far_out(name, toolchain, tmp_path):
    (program,) = (program for program in PROGRAMS if program.name == name)
    bundle, rows = program.make()
    target, q = make_target(bundle, rows), states(bundle, 2)
    k, X = bundle.subspace.k, rows.X - rows.X.mean(axis=0)
    scale = bundle.units.theta_scale[0]
    for state, far in zip(q, FAR[name], strict=True):
        ends = X[:, 0].min() if np.sign(far) < 0 else X[:, 0].max()
        state[k : k + X.shape[1]] = 0
        state[k] = far / (ends * scale) * np.sign(far) * np.sign(ends)
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
