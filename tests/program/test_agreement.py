"""torch = ONNX = Stan: linear predictor, log density and gradient, to 1e-9 relative."""

import numpy as np
import pytest
import torch
from semistan.model.terms.names import spread_names

from semistan.bundle.onnx_graphs import predictor_graph, run_graph, save_checked
from semistan.density.mode import derivatives
from semistan.density.predictor import linear_predictor
from semistan.density.target import make_target, negative_log_posterior
from semistan.infer.starts import curve_states
from semistan.model.networks.mlp import ACTIVATIONS
from semistan.model.networks.networks import forward, frozen_features
from semistan.program.data import stan_data
from semistan.program.program import has_log_lik
from support.programs import evaluate
from support.small import MORE_RESPONSES, further_bundle
from support.untrained import random_bundle

TOLERANCE = 1e-9
LAYERS = ((4,), (4, 3), (4, 3, 5, 3))
FAMILIES = ("gaussian", "poisson", "bernoulli")
STATES = 3


def torch_log_density(bundle, rows, data, q):
    """The log density of unconstrained (phi, theta / theta_scale, log sigma), by hand."""
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
    f = forward(bundle.network, w, frozen_features(bundle.network, tensor(data["w_frozen"]), Z))
    eta = data["eta_loc"] + data["eta_scale"] * f
    eta = eta + tensor(rows.X - rows.X.mean(axis=0)) @ theta
    y = tensor(rows.y)
    if bundle.family.name not in ("gaussian", "poisson", "bernoulli"):
        return lp + dispersed(bundle, data, q, eta, y)
    if bundle.family.name == "gaussian":
        sigma = q[-1].exp()
        arguments = (tensor(data[f"prior_sigma_{name}"]) for name in ("df", "location", "scale"))
        t = torch.distributions.StudentT(*arguments)
        # location 0: half of the mass is cut off
        return lp + t.log_prob(sigma) + np.log(2) + q[-1] + normal(eta, sigma).log_prob(y).sum()
    if bundle.family.name == "poisson":
        return lp + torch.distributions.Poisson(eta.exp()).log_prob(y).sum()
    return lp + torch.distributions.Bernoulli(logits=eta).log_prob(y).sum()


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


@pytest.mark.parametrize("frozen", (0, 1))
@pytest.mark.parametrize("hidden", LAYERS, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_torch_onnx_stan_and_the_kernel_agree(
    kernel, family, activation, hidden, frozen, toolchain, tmp_path
):
    bundle, rows = random_bundle(family, hidden=hidden, activation=activation, frozen=frozen)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


@pytest.mark.parametrize("family", MORE_RESPONSES)
def test_families_without_a_kernel_agree_too(family, toolchain, tmp_path):
    bundle, rows = random_bundle(family)
    assert_agreement(bundle, rows, "stan", toolchain, tmp_path)


@pytest.mark.parametrize("axes", (0, 1, 3))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_they_agree_along_axes_of_uneven_scale(kernel, family, axes, toolchain, tmp_path):
    bundle, rows = random_bundle(family, axes=axes)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_they_agree_where_theta_lies_in_the_subspace(kernel, family, toolchain, tmp_path):
    bundle, rows = random_bundle(family, subspace={"construction": "naive", "k": 3})
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


def assert_agreement(bundle, rows, kernel, toolchain, tmp_path):
    k, P = bundle.subspace.k, rows.X.shape[1]
    data = stan_data(bundle, rows)
    q = random_states(bundle)
    stan = evaluate(bundle, data, q, toolchain, tmp_path, kernel)
    phi, theta = stan.vector("phi", k), stan.vector("theta", P)
    eta = stan.vector("eta", len(rows))

    by_torch = linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi, theta
    )
    assert relative(eta, by_torch) < TOLERANCE

    graph = predictor_graph(bundle.network, bundle.units, bundle.trained)
    inputs = {"u": rows.U, "x": rows.X, "phi": phi, "theta": theta}
    save_checked(graph, tmp_path / "predictor.onnx", inputs, by_torch)
    assert relative(run_graph(tmp_path / "predictor.onnx", inputs)[0], eta) < TOLERANCE

    for state, lp, gradient in zip(q, stan.lp, stan.gradient, strict=True):
        leaf = torch.tensor(state, requires_grad=True)
        expected = torch_log_density(bundle, rows, data, leaf)
        expected.backward()
        assert lp == pytest.approx(expected.item(), rel=TOLERANCE)
        assert relative(gradient, leaf.grad.numpy()) < TOLERANCE


@pytest.mark.parametrize(
    ("family", "further"),
    [("gaussian", "everything"), ("binomial", "everything"), ("poisson", "an offset")],
)
def test_the_kernel_agrees_with_pure_stan_on_further_terms(family, further, toolchain, tmp_path):
    bundle, rows = further_bundle(family, further)
    q = 0.3 * np.random.default_rng(7).normal(size=(STATES, unconstrained_size(bundle)))
    by_stan = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path, "stan")
    data = stan_data(bundle, rows, grainsize=4)  # slices begin anywhere
    by_kernel = evaluate(bundle, data, q, toolchain, tmp_path, "cpp")
    assert by_kernel.lp == pytest.approx(by_stan.lp, rel=TOLERANCE)
    for got, expected in zip(by_kernel.gradient, by_stan.gradient, strict=True):
        assert np.min(np.abs(expected)) > 1e-6 * np.max(np.abs(expected))
        assert got == pytest.approx(expected, rel=TOLERANCE, abs=1e-13 * np.max(np.abs(expected)))


@pytest.mark.parametrize(
    ("family", "formula", "settings"),
    [
        ("negbinomial", "y ~ x1 + nn(u1, u2, u3)", {"frozen": 1}),
        ("gaussian", "y ~ x1 + nn(u1, u2) + nn(v), sigma ~ z + nn(u2, u3)", {}),
    ],
    ids=["one network", "several"],
)
def test_the_network_alone_in_cpp_agrees_with_pytorch(
    family, formula, settings, toolchain, tmp_path
):
    bundle, rows = random_bundle(family, formula=formula, **settings)
    assert not has_log_lik(bundle.family, bundle.design)
    target, q = make_target(bundle, rows), curve_states(bundle, 4)
    q += 0.1 * np.random.default_rng(7).normal(size=q.shape)
    data = stan_data(bundle, rows, grainsize=4)  # slices begin anywhere
    by_kernel = evaluate(bundle, data, q, toolchain, tmp_path, "cpp")
    ours = np.array([-negative_log_posterior(target, torch.tensor(state)) for state in q])
    assert np.ptp(by_kernel.lp - ours) < TOLERANCE * np.max(np.abs(ours))
    for state, found in zip(q, by_kernel.gradient, strict=True):
        gradient = -derivatives(target, torch.tensor(state))[0].numpy()
        assert relative(found, gradient) < TOLERANCE


def unconstrained_size(bundle):
    """Number of unconstrained coordinates, those of smooths and groups included."""
    further = sum(
        len(term.levels) * term.size + len(spread_names(term)) for term in bundle.design.penalised
    )
    return bundle.subspace.k + len(bundle.trained.theta) + len(bundle.trained.dispersion) + further


@pytest.mark.parametrize("kernel", ("stan", "cpp"))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_intercept_is_the_mean_predictor_moved_to_x_zero(kernel, family, toolchain, tmp_path):
    bundle, rows = random_bundle(family)
    data = stan_data(bundle, rows)
    stan = evaluate(bundle, data, random_states(bundle), toolchain, tmp_path, kernel)
    eta, theta = stan.vector("eta", len(rows)), stan.vector("theta", 2)
    expected = (eta - theta @ rows.X.T).mean(axis=1)
    assert stan.written["b_Intercept"] == pytest.approx(expected, rel=1e-9)
    assert stan.written["b_x1"] == pytest.approx(theta[:, 0], rel=1e-15)


@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_threads_and_grain_size_do_not_change_the_density(kernel, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    states = random_states(bundle)
    whole = stan_data(bundle, rows)
    split = whole | {"grainsize": 1}
    one = evaluate(bundle, whole, states, toolchain, tmp_path, kernel)
    many = evaluate(bundle, split, states, toolchain, tmp_path, kernel)
    assert relative(many.lp, one.lp) < 1e-12
    assert relative(many.gradient, one.gradient) < 1e-12
