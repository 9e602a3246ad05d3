"""Where training and the climb to a mode start: where the likelihood has a slope."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats

from semistan.density.problem import make_problem
from semistan.model.config import parse_config
from semistan.model.families.families import family
from semistan.model.families.skew_normal import SKEW_NORMAL, starts
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import prepare
from support.small import MORE_RESPONSES, RARER_RESPONSES, small_config, small_frame

RESPONSES = {"gaussian": "y", **MORE_RESPONSES, **RARER_RESPONSES}
RESPONSES["zero_one_inflated_beta"] = "share"


@pytest.mark.parametrize("name", [name for name in RESPONSES if family(name).parameters])
def test_no_family_starts_where_the_likelihood_is_flat_whatever_the_response(name):
    table = small_frame().assign(share=lambda t: ((t["z"] - 1.2) / 0.6).clip(0, 1))
    prepared = prepare(small_config(f"{RESPONSES[name]} ~ x + nn(u)", family=name), table)
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    leaf = {
        item.name: torch.full_like(problem.y, problem.starts[item.name]).requires_grad_()
        for item in problem.family.parameters
    }
    eta = torch.full_like(problem.y, problem.eta_loc)
    problem.log_lik(eta, leaf).sum().backward()
    for parameter, values in leaf.items():
        assert values.grad.abs().max() > 1e-6, parameter


@pytest.mark.parametrize("alpha", [-8.0, -2.5, 1.5, 4.0])
def test_the_slant_starts_at_the_skewness_of_the_residuals(alpha):
    z = stats.skewnorm(alpha).ppf((np.arange(20_000) + 0.5) / 20_000)
    likely, other = starts(5 + 3 * z)
    assert likely["alpha"] == pytest.approx(alpha, rel=0.05)
    assert other["alpha"] == -likely["alpha"]


@pytest.mark.parametrize("residuals", [[-1.0, 0, 1], [0.0, 0, 0, 1e6], [-1e6, 0.0, 0, 0]])
def test_the_slant_starts_within_bounds_whatever_the_residuals(residuals):
    assert 1 <= abs(starts(np.array(residuals))[0]["alpha"]) < 20


@pytest.mark.lengthy
@pytest.mark.parametrize("sign", [1, -1])
def test_laplace_finds_the_slant_on_either_side(sign, tmp_path):
    generator = np.random.default_rng(1)
    x, u = generator.normal(size=(2, 300))
    e = sign * stats.skewnorm(4).rvs(300, random_state=2)
    frame = pd.DataFrame({"x": x, "u": u, "y": 1 + 0.5 * x - 0.8 * sign * np.exp(x) + e})
    frame = frame.assign(v=np.exp(x))  # which skews the response to the other side
    config = parse_config(
        {
            "formula": "y ~ x + v + nn(u)", "family": "skew_normal",
            "network": {"hidden": []}, "subspace": {"construction": "full"},
            "train": {"epochs": 100, "device": "cpu"}, "priors": {"w": "normal(0, 0.1)"},
            "sample": {"method": "laplace", "chains": 1, "draws": 100},
        },
        "test",
    )  # fmt: skip
    found = fit_model(config, frame, out=tmp_path / "run").posterior.interpreted["alpha"]
    Z = np.column_stack([np.ones(300), x, frame["v"]])

    def loss(q):
        given = {"sigma": torch.tensor(np.exp(q[3])), "alpha": torch.tensor(q[4])}
        y, eta = torch.tensor(frame["y"].to_numpy()), torch.tensor(Z @ q[:3])
        return -float(SKEW_NORMAL.log_lik(y, eta, given).sum())

    exact = optimize.minimize(loss, [1, 0.5, -0.8 * sign, 0, 3 * sign], method="Nelder-Mead",
                              options={"maxiter": 5000, "maxfev": 5000})  # fmt: skip
    assert exact.success and sign * exact.x[4] > 2
    assert found.mean() == pytest.approx(exact.x[4], abs=1.0)
