"""Networks whose hidden layers several predictors share: an output for each."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.onnx_graphs import run_graph
from semistan.density.problem import make_problem
from semistan.errors import InputError
from semistan.model.design import design_from_plain, design_to_plain
from semistan.model.formula.formula import parse_formula, with_predictors
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import (
    Networks,
    forward,
    layers,
    output_and_jacobian,
    output_layers,
    outputs,
    prior_scales,
)
from semistan.posterior.predictive import posterior_linpred, posterior_predict
from semistan.program.data import stan_data
from semistan.program.program import stan_program
from semistan.subspace.coefficients import theta_at
from semistan.subspace.descent import initial_parameters
from semistan.workflow.fit import fit_model
from support.by_hand import naive_networks, naive_outputs
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import CATEGORICAL, random_bundle

SMALL = "y ~ x + nn(u, v, shared='f') + nn(z), sigma ~ nn(u, v, shared='f')"
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def shared(*, activation="tanh"):
    """Three networks, the second of which has outputs for all predictors."""
    parts = (
        FullyConnected(2, (4,), activation),
        FullyConnected(3, (5, 2), activation, outputs=3),
        FullyConnected(1, (), activation),
    )
    return Networks(parts, ("mu", "mu", "sigma", "nu", "sigma"))


def case(spec, n=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(spec.d, generator=generator, dtype=torch.float64),
        torch.randn(n, spec.n_inputs, generator=generator, dtype=torch.float64),
    )


# ------------------------------------------------------------------------------- the networks


@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus"])
def test_each_predictor_has_its_own_output_of_naive_loops(activation):
    spec = shared(activation=activation)
    w, u = case(spec)
    naive = np.array([naive_outputs(spec, w.tolist(), row) for row in u.tolist()])
    assert np.allclose(outputs(spec, w, u).T, naive, **EXACT)
    expected = {"mu": naive[:, 0] + naive[:, 1], "sigma": naive[:, 2] + naive[:, 4]}
    for name, sums in (expected | {"nu": naive[:, 3], "shape": np.zeros(6)}).items():
        assert np.allclose(forward(spec, w, u, name), sums, **EXACT), name


@pytest.mark.parametrize("predictor", ["mu", "sigma", "nu", "shape"])
def test_the_derivatives_are_autograds(predictor):
    spec = shared()
    w, u = case(spec)
    f, J = output_and_jacobian(spec, w, u, predictor)
    assert torch.equal(f, forward(spec, w, u, predictor))
    expected = torch.func.jacrev(lambda at: forward(spec, at, u, predictor))(w)
    assert torch.allclose(J, expected, **EXACT)
    linear = replace(spec, around=w.numpy())
    moved = w + 0.3
    assert torch.allclose(forward(linear, moved, u, predictor), f + 0.3 * J.sum(dim=1), **EXACT)


def test_sharing_is_two_networks_with_equal_hidden_layers():
    one = Networks((FullyConnected(3, (4,), outputs=2),), ("mu", "sigma"))
    w, u = case(one)
    first, second = output_layers(one)
    hidden = w[: 4 * 4]
    assert len(w) == len(hidden) + len(first) + len(second)
    two = Networks((FullyConnected(3, (4,)),) * 2, ("mu", "sigma"))
    apart = torch.cat([hidden, w[first], hidden, w[second]])
    for name in ("mu", "sigma"):
        twice = forward(two, apart, torch.cat([u, u], dim=1), name)
        assert torch.allclose(forward(one, w, u, name), twice, **EXACT)


def test_the_prior_of_each_output_is_that_of_one():
    spec = Networks((FullyConnected(3, (4,), outputs=2),), ("mu", "sigma"))
    scales = prior_scales(spec, 2.0, 5.0)
    ((first, last),) = layers(spec)
    assert (last.m, last.n, spec.d) == (4, 2, 16 + 10)
    assert np.array_equal(scales[first.weights], np.full(12, 2 / np.sqrt(3)))
    assert np.array_equal(scales[last.weights], np.full(8, 1.0))
    assert np.array_equal(scales[last.biases], np.full(2, 5.0))


def test_a_convolutional_network_has_several_outputs_too():
    one = Convolutional((1, 6, 6), (2,), (3,))
    two = replace(one, outputs=2)
    spec = Networks((two,), ("mu", "sigma"))
    w, u = case(spec, n=4)
    for output, name in enumerate(spec.predictors):
        own = torch.cat([w[: -2 * 4], w[output_layers(spec)[output]]])
        assert torch.allclose(forward(spec, w, u, name), one.forward(own, u)[:, 0], **EXACT)
        f, J = output_and_jacobian(spec, w, u, name)
        naive = torch.func.jacrev(lambda at, of=name: forward(spec, at, u, of))(w)
        assert torch.allclose(f, forward(spec, w, u, name), **EXACT)
        assert torch.allclose(J, naive, **EXACT)
    batch = torch.stack([w, 2 * w])
    assert torch.allclose(forward(spec, batch, u, "sigma")[1], forward(spec, 2 * w, u, "sigma"))
    assert two.head(1) == FullyConnected(8, (3,), outputs=2)
    assert two.text.endswith("-3-2")


# ------------------------------------------------------------------------------- the formula


def test_a_shared_network_is_there_once():
    formula = parse_formula(SMALL)
    assert [network.arguments for network in formula.networks] == [("u", "v"), ("z",)]
    assert [network.of for network in formula.networks] == [("mu", "sigma"), ("mu",)]
    assert [network.layers for network in formula.networks] == [{}, {}]
    assert [len(part.networks) for part in formula.predictors] == [2, 1]


def test_categories_share_the_network_of_the_second_one():
    text = with_predictors("y ~ x + nn(u, shared='f', hidden=[3])", ["mub", "muc"])
    (network,) = parse_formula(text).networks
    assert (network.of, network.layers) == (("mu", "mub", "muc"), {"hidden": [3]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ nn(u, v, shared='f'), sigma ~ nn(v, u, shared='f')", "shared='f' .* differ; give"),
        ("y ~ nn(u, shared='f', hidden=[3]), sigma ~ nn(u, shared='f')", "the same options"),
        ("y ~ nn(u, shared='f') + nn(v, shared='f')", "differ"),
        ("y ~ nn(u, shared=f)", "a name for predictors that share"),
        ("y ~ nn(u, shared=1)", "a name for predictors that share"),
    ],
)
def test_what_cannot_be_shared_is_said(text, message):
    with pytest.raises(InputError, match=message):
        parse_formula(text)


def test_a_network_cannot_be_added_to_itself():
    with pytest.raises(InputError, match="same arguments"):
        parse_formula("y ~ nn(u, shared='f') + nn(u, shared='f', hidden=[3])")


# --------------------------------------------------------------------------------- the model


def test_the_inputs_are_learnt_once_and_go_through_json():
    prepared = small_prepared(SMALL)
    design, network = prepared.design, prepared.model.network
    assert [terms.columns for terms in design.networks] == [("u", "v"), ("z",)]
    assert network.of == ("mu", "sigma", "mu")
    assert [part.outputs for part in network.parts] == [2, 1]
    assert network.n_inputs == prepared.rows.U.shape[1] == 3
    assert design_from_plain(design_to_plain(design)) == design
    assert not any(design.predictor(name).has_tau for name in ("mu", "sigma"))


def test_the_data_say_how_many_outputs_each_network_has():
    bundle, rows = random_bundle("gaussian", formula="y ~ x1 + nn(u1, u2, shared='f') + nn(v), "
                                 "sigma ~ nn(u1, u2, shared='f')")  # fmt: skip
    data = stan_data(bundle, rows)
    assert (data["n_networks"], data["widths"]) == (2, [[2, 4, 2], [1, 4, 1]])
    bundle, rows = random_bundle(CATEGORICAL, formula="y ~ x1 + nn(u1, u2, shared='f')")
    data = stan_data(bundle, rows)
    assert (data["n_networks"], data["widths"], data["Q"]) == (1, [[2, 4, 2]], 2)
    assert "networks_of" not in stan_program(bundle.model)


def test_a_bundle_and_its_graphs_have_the_means_output(tmp_path):
    bundle, rows = small_bundle(SMALL, network__frozen=1, network__hidden=[3, 2])
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert (again.sha256, again.network) == (bundle.sha256, bundle.network)
    assert "2-3-2-2 + 1-3-2-1, tanh, 1 frozen" in repr(again)
    w = bundle.subspace.lift(np.ones(bundle.subspace.k))
    (f,) = run_graph(tmp_path / "bundle" / "network.onnx", {"u": rows.U, "w": w})
    each = naive_networks(bundle, rows.U, w)
    assert np.allclose(f, each[:, 0] + each[:, 2], rtol=1e-10, atol=1e-12)


def test_theta_given_the_hidden_layers_is_that_of_a_network_of_its_own():
    together, alone = (
        small_prepared(f"y ~ x + {network}, sigma ~ {network}")
        for network in ("nn(u, shared='f')", "nn(u)")
    )
    assert torch.allclose(theta_of(together), theta_of(alone), rtol=1e-9)


def theta_of(prepared):
    """theta where the first network's hidden units are known and all other weights are 0."""
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    parameters = initial_parameters(problem, 1, torch.Generator().manual_seed(1)).copy()
    state = parameters.at(torch.ones(1, dtype=torch.float64))
    w = torch.zeros_like(state.w)
    (hidden, *_), *_ = layers(problem.network)
    w[hidden.weights] = torch.linspace(-1, 1, hidden.m * hidden.n, dtype=torch.float64)
    return theta_at(problem, replace(state, w=w))


def test_a_fit_finds_mean_and_spread_from_shared_layers(toolchain, tmp_path):
    generator = np.random.default_rng(3)
    frame = small_frame(400)
    u = generator.uniform(-2, 2, 400)
    truth = np.sin(1.5 * u)
    frame = frame.assign(u=u, y=truth + np.exp(-1 + 0.7 * truth) * generator.normal(size=400))
    fit = fit_model(
        "y ~ nn(u, shared='f'), sigma ~ nn(u, shared='f')", frame, out=tmp_path / "run",
        overrides={"network.hidden": [6], "sample.chains": 2, "sample.warmup": 300,
                   "sample.draws": 300, "subspace.k": 8, "train.epochs": 1000},
    )  # fmt: skip
    mean = posterior_linpred(fit.posterior, fit.run.rows()).mean(axis=0)
    assert np.corrcoef(mean, truth)[0, 1] > 0.97
    drawn = posterior_predict(fit.posterior, fit.run.rows(), generator)
    assert np.corrcoef(np.log(drawn.std(axis=0)), truth)[0, 1] > 0.9
