"""torch = ONNX = Stan, each written by itself: the comparison."""

import numpy as np
import pytest
import torch

from semistan.bundle.onnx_graphs import predictor_graph, run_graph, save_checked
from semistan.density.features import at_features
from semistan.density.predictor import linear_predictor
from semistan.model.networks.networks import forward
from semistan.program.data import stan_data
from support.programs import evaluate

TOLERANCE = 1e-9
STATES = 3


def torch_log_density(bundle, rows, data, q):
    """Log density of unconstrained (phi, theta / theta_scale, log sigma), and eta, by hand."""
    k, P = bundle.subspace.k, rows.X.shape[1]
    tensor = lambda value: torch.as_tensor(np.array(value, dtype=float))  # noqa: E731
    phi = q[:k] * tensor(data["phi_scale"])
    inside = bundle.subspace.holds_theta
    if inside:
        theta = tensor(data["theta_bar"]) + tensor(data["theta_Pi"]) @ phi
    else:
        theta = q[k : k + P] * tensor(data["theta_scale"])
    normal = torch.distributions.Normal
    lp = (
        normal(tensor(data["prior_phi_location"]), tensor(data["prior_phi_scale"]))
        .log_prob(phi)
        .sum()
    )
    lp = lp + tensor(data["phi_scale"]).log().sum()
    if not inside:
        b = normal(tensor(data["prior_b_location"]), tensor(data["prior_b_scale"]))
        lp = lp + b.log_prob(theta).sum() + tensor(data["theta_scale"]).log().sum()
    w = tensor(data["p_bar"]) + tensor(bundle.subspace.matrix) @ phi
    Z = tensor((rows.U - bundle.units.u_loc) / bundle.units.u_scale)
    f = forward(bundle.network, w, behind_constant_layers(bundle, Z))
    eta = data["eta_loc"] + data["eta_scale"] * f
    eta = eta + tensor(rows.X - rows.X.mean(axis=0)) @ theta
    y = tensor(rows.y)
    if bundle.family.name not in ("gaussian", "poisson", "bernoulli"):
        return lp + dispersed(bundle, data, q, eta, y), eta
    if bundle.family.name == "gaussian":
        sigma = q[-1].exp()
        arguments = (tensor(data[f"prior_sigma_{name}"]) for name in ("df", "location", "scale"))
        t = torch.distributions.StudentT(*arguments)
        # location 0: half of the mass is cut off
        lp = lp + t.log_prob(sigma) + np.log(2) + q[-1]
        return lp + normal(eta, sigma).log_prob(y).sum(), eta
    if bundle.family.name == "poisson":
        return lp + torch.distributions.Poisson(eta.exp()).log_prob(y).sum(), eta
    return lp + torch.distributions.Bernoulli(logits=eta).log_prob(y).sum(), eta


def behind_constant_layers(bundle, Z):
    """Return what the heads take as inputs, given standardised inputs (N, Q) of the networks."""
    trained, leading = bundle.trained, bundle.model.leading
    if not leading.any:
        return Z
    h = leading.features(torch.tensor(trained.w_frozen), Z)
    return (h - torch.tensor(trained.h_loc)) / torch.tensor(trained.h_scale)


def dispersed(bundle, data, q, eta, y):
    """Log density of the dispersion, of its logarithm, and of y, by torch's distributions."""
    d = torch.distributions
    trials = torch.as_tensor(data.get("trials", 1), dtype=torch.float64)
    data = {
        name: torch.tensor(x, dtype=torch.float64)
        for name, x in data.items()
        if name.startswith("prior_") and np.ndim(x) == 0
    }
    names = bundle.family.dispersion
    log_values = q[len(q) - len(names) :]
    value = dict(zip(names, log_values.exp(), strict=True))
    prior = {
        "sigma": lambda: d.StudentT(3.0, 0.0, data["prior_sigma_scale"]),
        "shape": lambda: d.Exponential(data["prior_shape_rate"]),
        "precision": lambda: d.Exponential(data["prior_precision_rate"]),
        "nu": lambda: d.Gamma(data["prior_nu_shape"], data["prior_nu_rate"]),
    }
    lp = sum(prior[name]().log_prob(value[name]) for name in names) + log_values.sum()
    lp = lp + (np.log(2) if "sigma" in names else 0)
    shape, precision = value.get("shape"), value.get("precision")
    likelihood = {
        "negbinomial": lambda: d.NegativeBinomial(shape, logits=eta - shape.log()),
        "student": lambda: d.StudentT(value["nu"], eta, value["sigma"]),
        "lognormal": lambda: d.LogNormal(eta, value["sigma"]),
        "gamma": lambda: d.Gamma(shape, shape * (-eta).exp()),
        "beta": lambda: d.Beta(precision * eta.sigmoid(), precision * (-eta).sigmoid()),
        "binomial": lambda: d.Binomial(trials, logits=eta),
    }
    return lp + likelihood[bundle.family.name]().log_prob(y).sum()


def random_states(bundle):
    """Unconstrained states around the trained ones."""
    generator = np.random.default_rng(7)
    k, P, D = bundle.subspace.k, len(bundle.trained.theta), len(bundle.trained.dispersion)
    if bundle.subspace.holds_theta:
        P = 0
    centre = [np.zeros(k), bundle.trained.theta[:P] / bundle.units.theta_scale[:P]]
    centre += [np.log(list(bundle.trained.dispersion.values()))] if D else []
    return np.concatenate(centre) + 0.3 * generator.normal(size=(STATES, k + P + D))


def relative(a, b):
    return np.max(np.abs(a - b)) / np.max(np.abs(b))


def predictor_at(bundle, rows, evaluation):
    """The linear predictor (S, N) that PyTorch has at the phi and theta which a program wrote."""
    phi = evaluation.vector("phi", bundle.subspace.k)
    theta = evaluation.vector("theta", rows.X.shape[1])
    heads, rows = at_features(bundle, rows)
    arguments = (heads.network, heads.units, heads.trained, rows.X, rows.U)
    return linear_predictor(*arguments, phi, theta)


def assert_agreement(bundle, rows, kernel, toolchain, tmp_path):
    k, P = bundle.subspace.k, rows.X.shape[1]
    data = stan_data(bundle, rows)
    q = random_states(bundle)
    stan = evaluate(bundle, data, q, toolchain, tmp_path, kernel)
    phi, theta = stan.vector("phi", k), stan.vector("theta", P)
    by_torch = predictor_at(bundle, rows, stan)

    graph = predictor_graph(bundle.model.leading, bundle.units, bundle.trained)
    inputs = {"u": rows.U, "x": rows.X, "phi": phi, "theta": theta}
    save_checked(graph, tmp_path / "predictor.onnx", inputs, by_torch)
    assert relative(run_graph(tmp_path / "predictor.onnx", inputs)[0], by_torch) < TOLERANCE

    for state, lp, gradient, eta in zip(q, stan.lp, stan.gradient, by_torch, strict=True):
        leaf = torch.tensor(state, requires_grad=True)
        expected, by_hand = torch_log_density(bundle, rows, data, leaf)
        assert relative(by_hand.detach().numpy(), eta) < TOLERANCE
        expected.backward()
        assert lp == pytest.approx(expected.item(), rel=TOLERANCE)
        assert relative(gradient, leaf.grad.numpy()) < TOLERANCE
