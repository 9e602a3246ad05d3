"""torch = ONNX = Stan: linear predictor, log density and gradient, to 1e-9 relative."""

import numpy as np
import pytest
import torch

from semistan.density.derivatives import derivatives
from semistan.density.target import make_target, negative_log_posterior
from semistan.model.networks.activations import ACTIVATIONS
from semistan.program.data import stan_data
from semistan.program.parts import has_log_lik
from semistan.subspace.start_values import curve_states
from support.agreement import (
    STATES,
    TOLERANCE,
    assert_agreement,
    predictor_at,
    random_states,
    relative,
)
from support.catalogue import PROGRAMS
from support.programs import evaluate
from support.small import MORE_RESPONSES, further_bundle
from support.untrained import random_bundle

LAYERS = ((4,), (4, 3), (4, 3, 5, 3))
FAMILIES = ("gaussian", "poisson", "bernoulli")


@pytest.mark.parametrize("hidden", LAYERS, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_torch_onnx_stan_and_the_kernel_agree(
    kernel, family, activation, hidden, toolchain, tmp_path
):
    bundle, rows = random_bundle(family, hidden=hidden, activation=activation)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


@pytest.mark.parametrize("hidden", LAYERS, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", ("stan", "cpp"))
def test_they_agree_behind_a_constant_layer(kernel, activation, hidden, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", hidden=hidden, activation=activation, frozen=1)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


@pytest.mark.parametrize("family", MORE_RESPONSES)
def test_families_without_a_kernel_agree_too(family, toolchain, tmp_path):
    bundle, rows = random_bundle(family)
    assert_agreement(bundle, rows, "stan", toolchain, tmp_path)


@pytest.mark.parametrize(
    "name",
    (
        "gaussian, kernel", "poisson, kernel", "bernoulli, kernel", "naive", "naive, kernel",
        "coefficients that are networks, kernel",
        "a constant and a coefficient that is a network, kernel",
    ),
)  # fmt: skip
def test_they_agree_where_other_subspaces_move_the_weights(name, toolchain, tmp_path):
    program = next(program for program in PROGRAMS if program.name == name)
    assert_agreement(*program.make(), program.kernel, toolchain, tmp_path)


@pytest.mark.parametrize(
    ("family", "further"),
    [("gaussian", "everything"), ("binomial", "everything"), ("poisson", "an offset")],
)
def test_the_kernel_agrees_with_pure_stan_on_further_terms(family, further, toolchain, tmp_path):
    bundle, rows = further_bundle(family, further)
    q = 0.3 * np.random.default_rng(7).normal(size=(STATES, len(bundle.layout.sampled)))
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


@pytest.mark.parametrize("kernel", ("stan", "cpp"))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_intercept_is_the_mean_predictor_moved_to_x_zero(kernel, family, toolchain, tmp_path):
    bundle, rows = random_bundle(family)
    data = stan_data(bundle, rows)
    stan = evaluate(bundle, data, random_states(bundle), toolchain, tmp_path, kernel)
    eta, theta = predictor_at(bundle, rows, stan), stan.vector("theta", 2)
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
