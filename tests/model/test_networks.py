"""Several nn() terms: networks that are added, each with its own block of the subspace."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.onnx_graphs import run_graph
from semistan.density.ggn import kronecker_ggn
from semistan.density.inputs import Inputs
from semistan.density.predictor import network_inputs
from semistan.density.problem import make_problem
from semistan.errors import InputError, SemistanError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.model import network_spec
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.multiplied import Multiplied
from semistan.model.networks.networks import (
    Networks,
    derivatives_along,
    forward,
    layers,
    output_and_jacobian,
    output_layers,
    outputs,
)
from semistan.model.networks.residual import Residual
from semistan.model.orthogonal import orthogonal_columns
from semistan.model.subspace import along, along_axes
from semistan.posterior.predictive import posterior_linpred
from semistan.program.data import stan_data
from semistan.program.parts import has_log_lik
from semistan.subspace.blocks import by_network
from semistan.subspace.coefficients import settle, theta_at
from semistan.subspace.descent import initial_parameters
from semistan.workflow.fit import fit_model
from support.agreement import assert_agreement, predictor_at, random_states, relative
from support.by_hand import naive_network, naive_networks, naive_outputs
from support.golden import MODELS
from support.programs import evaluate
from support.small import small_bundle, small_config, small_frame, small_prepared
from support.tables import read_back
from support.untrained import random_bundle

FORMULA = "y ~ x1 + x2 + nn(u1, u3) + nn(u2) + nn(u3, u2)"
SMALL = "y ~ x + nn(u, v) + nn(z) + nn(z, g)"


def networks(*inputs, hidden=(4, 3), activation="tanh"):
    return Networks(tuple(FullyConnected(n, hidden, activation) for n in inputs))


@pytest.mark.parametrize("inputs", [(2,), (2, 1), (1, 3, 2)], ids=str)
def test_the_output_is_the_sum_of_naive_loops(inputs):
    spec, generator = networks(*inputs), np.random.default_rng(0)
    w, u = generator.normal(size=(2, spec.d)), generator.normal(size=(5, sum(inputs)))
    expected = np.array([[naive_outputs(spec, one, row) for row in u] for one in w])
    each = outputs(spec, torch.tensor(w), torch.tensor(u)).numpy()
    assert each.shape == (2, len(inputs), 5)
    assert np.allclose(each, expected.transpose(0, 2, 1), rtol=1e-12, atol=1e-13)
    total = forward(spec, torch.tensor(w), torch.tensor(u)).numpy()
    assert np.allclose(total, expected.sum(axis=-1), rtol=1e-12, atol=1e-13)


def test_one_network_is_what_it_is_alone():
    spec, generator = networks(3), np.random.default_rng(0)
    w, u = (torch.tensor(generator.normal(size=size)) for size in (spec.d, (5, 3)))
    (alone,) = spec.parts
    assert torch.equal(alone.forward(w, u)[..., 0], forward(spec, w, u))
    assert (spec.d, spec.n_inputs) == (alone.d, 3)


def test_the_jacobian_is_that_of_finite_differences():
    spec, generator, step = networks(2, 1), np.random.default_rng(1), 1e-5
    w, h = generator.normal(size=spec.d), torch.tensor(generator.normal(size=(6, 3)))
    f, J = output_and_jacobian(spec, torch.tensor(w), h)
    up, down = (
        torch.stack([forward(spec, torch.tensor(w + way * e), h) for e in np.eye(spec.d)], dim=1)
        for way in (step, -step)
    )
    assert torch.equal(f, forward(spec, torch.tensor(w), h))
    # a central difference errs by step^2 times a third derivative, and by rounding over step
    assert np.allclose(J, (up - down) / (2 * step), rtol=1e-7, atol=1e-8)


ALONG = {
    "one network": networks(2, hidden=(8, 8)),
    "two networks": networks(2, 1, hidden=(8, 8)),
    "with skip and norm": Networks((Residual(2, (8, 8), skip=True, norm=True),)),
    "a column multiplies one": Networks(
        (FullyConnected(2, (8,)), Multiplied(FullyConnected(1, (8,))))
    ),
    "convolutions": Networks((Convolutional((1, 6, 6), (2,), (3,)),)),
    "of two predictors": Networks((FullyConnected(2, (8, 8), outputs=2),), ("mu", "sigma")),
}


@pytest.mark.parametrize("k", [1, 2, 30], ids=lambda k: f"{k} directions")
@pytest.mark.parametrize("spec", ALONG.values(), ids=ALONG)
def test_the_derivatives_along_directions_are_those_by_all_weights(spec, k):
    generator = np.random.default_rng(2)
    sizes = (spec.d, (6, spec.n_inputs), (spec.d, k))
    w, u, V = (torch.tensor(generator.normal(size=size)) for size in sizes)
    for predictor in ("mu", "sigma"):
        expected = torch.func.jacrev(lambda at, of=predictor: forward(spec, at, u, of))(w) @ V
        found = derivatives_along(spec, w, u, V, predictor)
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12), predictor


def test_layers_lie_one_behind_the_other():
    spec = networks(2, 1, hidden=(3,))
    places = [i for part in layers(spec) for w, b, *_ in part for s in (w, b)
              for i in range(s.start, s.stop)]  # fmt: skip
    assert places == list(range(spec.d))
    assert spec.sizes == (2 * 3 + 3 + 3 + 1, 3 + 3 + 3 + 1)
    assert np.array_equal(output_layers(spec), [range(9, 13), range(19, 23)])
    assert spec.text == "2-3-1 + 1-3-1"
    assert spec.widest == 3


def test_there_is_at_least_one_network():
    with pytest.raises(ValueError, match="at least one network"):
        Networks(())


@pytest.mark.parametrize("layers", ["[1000000000]", "[4000, 4000]", "[9999999999999999999999]"])
def test_networks_that_fit_in_no_memory_are_refused_at_once(layers):
    with pytest.raises(InputError, match=r"weights, and at most 10,000,000 can be trained"):
        small_prepared(f"y ~ x + nn(u, v, hidden={layers})")


@pytest.mark.parametrize("name", ["", "rleu"])
def test_an_activation_that_there_is_not_is_refused(name):
    with pytest.raises(InputError, match=f"unknown activation '{name}'"):
        small_prepared(f"y ~ x + nn(u, v, activation='{name}')")


def test_each_network_may_have_layers_of_its_own():
    formula = "y ~ nn(u, v, hidden=[4, 3], activation='relu') + nn(u), sigma ~ nn(v, hidden=[])"
    design, _ = learn_design(parse_formula(formula), small_frame())
    spec = network_spec(small_config(formula, network__hidden=[2]), design)
    assert [part.widths for part in spec.parts] == [(2, 4, 3, 1), (1, 2, 1), (1, 1)]
    assert spec.activation == "relu + tanh + tanh"
    assert spec.stan_sizes == {
        "n_networks": 3,
        "n_layers": 3,
        "widths": [[2, 4, 3, 1], [1, 2, 1, 0], [1, 1, 0, 0]],
        "activation": [2, 1, 1],
    }
    generator = np.random.default_rng(1)
    w, h = generator.normal(size=spec.d), generator.normal(size=(5, 4))
    first, second = w[: spec.sizes[0]], w[spec.sizes[0] : sum(spec.sizes[:2])]
    expected = [
        naive_network((2, 4, 3, 1), first, row[:2], "relu")
        + naive_network((1, 2, 1), second, row[2:3], "tanh")
        for row in h
    ]
    found = forward(spec, torch.tensor(w), torch.tensor(h))
    assert found.numpy() == pytest.approx(np.array(expected))


def test_inputs_stand_side_by_side_network_by_network():
    frame = small_frame()
    design, rows = learn_design(parse_formula("y ~ x + nn(v, u) + nn(g) + nn(u)"), frame)
    one_hot = np.column_stack([frame["g"] == level for level in "abc"])
    assert np.array_equal(rows.U, np.column_stack([frame[["v", "u"]], one_hot, frame["u"]]))
    assert [len(terms.columns) for terms in design.networks] == [2, 3, 1]
    assert design.u.columns == ("v", "u", "g[a]", "g[b]", "g[c]", "u")
    assert np.allclose(design.u.scale, rows.U.std(axis=0, ddof=1))
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design))))
    assert again == design
    some = frame.iloc[[4, 2]]
    assert np.array_equal(apply_design(again, some, response=False).U, rows.U[[4, 2]])
    spec = network_spec(small_config(design.formula), design)
    assert [part.widths for part in spec.parts] == [(2, 3, 1), (3, 3, 1), (1, 3, 1)]


def test_a_constant_input_of_any_network_is_refused():
    with pytest.raises(InputError, match="column 'c' is constant"):
        small_prepared("y ~ x + nn(u) + nn(c, v)", small_frame().assign(c=1.0))


@pytest.mark.parametrize(
    ("formula", "positions"),
    [
        ("y ~ x + z + nn(u) + nn(v)", ()),
        ("y ~ x + z + nn(u, x) + nn(v)", (0,)),
        ("y ~ x + z + nn(x) + nn(v, z)", (0, 1)),
        ("y ~ x + z + x:z + nn(x) + nn(z)", (0, 1)),
        ("y ~ x + z + x:z + nn(x) + nn(z, log(z), x)", (0, 1, 2)),
        ("y ~ {x + z} + nn(x) + nn(z)", (0,)),
    ],
)
def test_terms_are_imitated_by_the_sum_and_interactions_by_one_network(formula, positions):
    prepared = small_prepared(formula)
    assert orthogonal_columns(prepared.config, prepared.design) == positions


def blocks_of(bundle):
    """The rows of Pi, p_bar and control points (m, d_i) of each network."""
    ends = np.cumsum(bundle.network.sizes)
    return [slice(end - size, end) for end, size in zip(ends, bundle.network.sizes, strict=True)]


@pytest.mark.parametrize(
    "construction", ["bezier", "curve", "pca", "random", "low_rank_laplace", "subnetwork", "full"]
)
def test_each_network_moves_in_directions_of_its_own(construction):
    bundle, _ = small_bundle(
        SMALL, subspace__construction=construction, subspace__snapshots=6, train__epochs=30
    )
    subspace, blocks, spread = bundle.subspace, blocks_of(bundle), bundle.trained.singular_values
    matrix = subspace.matrix
    moved = [np.abs(matrix[block]).max(axis=0) > 0 for block in blocks]
    assert np.array_equal(np.sum(moved, axis=0), np.ones(subspace.k))
    assert np.allclose(matrix.T @ matrix, np.eye(subspace.k), atol=1e-12)
    if construction in ("subnetwork", "full"):
        assert subspace.k == (2 if construction == "subnetwork" else subspace.d)
        return
    assert subspace.k == 2 * len(blocks)
    assert np.all(np.diff(spread.reshape(-1, 2), axis=1) <= 0)
    assert np.all(matrix[np.abs(matrix).argmax(axis=0), np.arange(subspace.k)] > 0)
    followed = spread / np.sqrt(6 - 1) if construction == "pca" else np.ones(subspace.k)
    assert np.allclose(subspace.phi_scale, followed, rtol=1e-12)


@pytest.mark.parametrize("construction", ["bezier", "curve"])
def test_a_curve_lies_in_the_subspace_and_the_spread_is_that_of_each_networks_points(construction):
    bundle, _ = small_bundle(SMALL, subspace__construction=construction, train__epochs=30)
    points, subspace = bundle.trained.control_points, bundle.subspace
    assert np.allclose(subspace.lift(subspace.project(points)), points, atol=1e-10)
    for number, block in enumerate(blocks_of(bundle)):
        own = points[:, block] - points[:, block].mean(axis=0)
        values = np.linalg.svd(own, compute_uv=False)[:2]
        assert np.allclose(bundle.trained.singular_values[2 * number :][:2], values, rtol=1e-9)


def test_no_networks_weights_move_with_anothers_coordinates():
    bundle, _ = small_bundle(SMALL, train__epochs=30)
    for number, block in enumerate(blocks_of(bundle)):
        phi = np.zeros(bundle.subspace.k)
        phi[2 * number : 2 * number + 2] = 1.0, -2.0
        moved = np.flatnonzero(bundle.subspace.lift(phi) != bundle.subspace.p_bar)
        assert len(moved)
        assert block.start <= moved.min() <= moved.max() < block.stop


def test_a_scale_along_shared_directions_becomes_one_for_each_network():
    generator = np.random.default_rng(2)
    spec = networks(2, 1, hidden=(3,))
    Pi = np.linalg.qr(generator.normal(size=(spec.d, 3)))[0]
    values = np.array([5.0, 2.0, 0.5])
    shared = along(np.zeros(spec.d), Pi, "test", values / 4)
    split, spread = by_network(spec, shared, values)
    for number, block in enumerate(np.split(Pi, np.cumsum(spec.sizes)[:-1])):
        own = slice(3 * number, 3 * number + 3)
        V = split.Pi[sum(spec.sizes[:number]) :][: spec.sizes[number], own]
        covariance = V @ np.diag(split.phi_scale[own] ** 2) @ V.T
        assert np.allclose(covariance, block @ np.diag((values / 4) ** 2) @ block.T, atol=1e-12)
        assert np.allclose(spread[own], 4 * split.phi_scale[own], rtol=1e-12)


def test_one_network_and_axes_are_left_as_they_are():
    spec = networks(2, 1, hidden=(3,))
    axes = along_axes(np.zeros(spec.d), np.array([3, 20, 1]), "test")
    assert by_network(spec, axes, np.ones(3))[0] is axes
    one = along(np.zeros(13), np.eye(13)[:, :3], "test")
    assert by_network(networks(2, hidden=(3,)), one, np.ones(3))[0] is one


def test_a_network_that_moves_in_too_few_dimensions_is_named():
    spec = networks(2, 1, hidden=(3,))
    Pi = np.eye(spec.d)[:, [0, 1, 15]]
    with pytest.raises(SemistanError, match=r"network 1 .* in 2 dimensions, fewer than k = 3"):
        by_network(spec, along(np.zeros(spec.d), Pi, "test"), np.ones(3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subspace__construction": "naive"}, "'naive' .* cannot have 3 networks"),
        ({"subspace__k": 10}, "d = 10 of the smallest network, got k = 10"),
        ({"subspace__k": 200, "subspace__construction": "subnetwork"}, "d = 39, got k = 200"),
    ],
)
def test_a_subspace_that_the_networks_cannot_have_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        small_prepared("y ~ x + nn(u, v) + nn(z) + nn(g)", **settings)


def test_a_subnetwork_may_have_more_weights_than_the_smallest_network():
    bundle, _ = small_bundle(
        "y ~ x + nn(u, v) + nn(z)", subspace__construction="subnetwork", subspace__k=12
    )
    assert bundle.subspace.k == 12


def test_the_last_layers_of_all_networks_are_chosen_from():
    bundle, _ = small_bundle(
        "y ~ x + nn(u, v) + nn(z)", subspace__construction="subnetwork", subspace__k=8,
        subspace__select="last_layer",
    )  # fmt: skip
    assert sorted(bundle.subspace.axes) == [9, 10, 11, 12, 19, 20, 21, 22]


@pytest.fixture
def problem():
    """A problem with two networks, and where its training starts."""
    prepared = small_prepared("y ~ x + nn(u, v) + nn(z)")
    made = make_problem(prepared.model, prepared.rows, "cpu")
    return made, initial_parameters(made, 1, torch.Generator().manual_seed(3)).copy()


def test_kronecker_blocks_are_those_of_each_network_alone(problem):
    made, parameters = problem
    state = parameters.at(torch.ones(1, dtype=torch.float64))
    together, start, column = kronecker_ggn(made, state), 0, 0
    for part in made.network.parts:
        alone = replace(
            made,
            network=Networks((part,)),
            inputs=Inputs(made.U[:, column : column + part.n_inputs]),
        )
        own = replace(state, w=state.w[start : start + part.d])
        rows = torch.tensor(np.random.default_rng(0).normal(size=(4, part.d)))
        padded = torch.zeros(4, made.network.d, dtype=torch.float64)
        padded[:, start : start + part.d] = rows
        # a gaussian's curvature does not depend on f, so that the other network does not matter
        expected, found = kronecker_ggn(alone, own).root(rows), together.root(padded)
        assert torch.allclose(found[:, start : start + part.d], expected, rtol=1e-9)
        assert float(found.square().sum()) == pytest.approx(float(expected.square().sum()))
        start, column = start + part.d, column + part.n_inputs


def test_theta_is_solved_for_with_all_output_layers_free(problem):
    made, parameters = problem
    state = parameters.at(torch.ones(1, dtype=torch.float64))
    # with a gaussian response the solution is that of ridge regression on Z, h_1, 1, h_2, 1
    features, start, column, P = [made.Z.numpy()], 0, 0, made.Z.shape[1]
    for part in made.network.parts:
        w, m, n = state.w[start : start + part.d].numpy(), part.n_inputs, part.hidden[0]
        u = made.U[:, column : column + m].numpy()
        h = np.tanh(u @ w[: m * n].reshape(n, m).T + w[m * n : m * n + n])
        features += [h, np.ones((len(made), 1))]
        start, column = start + part.d, column + m
    A = made.eta_scale * np.hstack(features)
    output = np.concatenate([state.w[part] for part in output_layers(made.network)])
    centre = np.concatenate([np.zeros(P), output])
    penalty = np.diag([2.5**-2] * P + [1.0] * len(output))
    precision = float(made.dispersion(state.log_dispersion)["sigma"]) ** -2
    right = precision * A.T @ (made.y.numpy() - made.eta_loc) + penalty @ centre
    solution = np.linalg.solve(precision * A.T @ A + penalty, right)
    assert np.allclose(theta_at(made, state), solution[:P], rtol=1e-8)
    assert torch.equal(settle(made, parameters).theta, theta_at(made, state))


@pytest.mark.parametrize(("kernel", "frozen"), [("stan", 0), ("stan", 1), ("cpp", 0), ("cpp", 1)])
def test_torch_onnx_and_stan_agree_on_the_sum(kernel, frozen, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", formula=FORMULA, frozen=frozen, hidden=(4, 3))
    assert len(bundle.network.parts) == 3
    assert has_log_lik(bundle.family, bundle.design)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


def test_the_intercept_is_the_mean_of_the_sum(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    stan = evaluate(bundle, stan_data(bundle, rows), random_states(bundle), toolchain, tmp_path)
    eta, theta = predictor_at(bundle, rows, stan), stan.vector("theta", 2)
    assert relative(stan.written["b_Intercept"], (eta - theta @ rows.X.T).mean(axis=1)) < 1e-9


@pytest.mark.slow
def test_each_network_recovers_its_own_part_of_an_additive_truth(toolchain, tmp_path):
    settings = {"sample.chains": 2, "sample.warmup": 300, "sample.draws": 300}
    folder = MODELS / "additive"
    fit = fit_model(folder / "model.toml", out=tmp_path / "run", overrides=settings)
    bundle, rows = fit.run.bundle, fit.run.rows()
    data = pd.read_csv(folder / "data.csv")
    truth = np.stack([data["u1"] * data["u2"], np.sin(2 * data["v"])])
    known = np.column_stack([np.ones(len(data)), data["x"], *truth])
    (_, b, *_), (total,), *_ = np.linalg.lstsq(known, data["y"], rcond=None)
    spread = total / len(data) * np.linalg.inv(known.T @ known)[1, 1]
    # as close to the regression on the true functions as that is to the true coefficient
    assert abs(fit.posterior.draws.coefficients["b_x"].mean() - b) < 2 * np.sqrt(spread)
    h = network_inputs(bundle.units, rows.U)
    w = torch.tensor(bundle.subspace.lift(fit.posterior.draws.flat(fit.posterior.draws.phi)))
    each = outputs(bundle.network, w, h).mean(dim=0).numpy()
    shared = np.corrcoef(each, truth)[:2, 2:] ** 2
    assert np.all(np.diag(shared) > 0.8)
    assert np.all(shared[~np.eye(2, dtype=bool)] < 0.1)
    eta = posterior_linpred(fit.posterior, rows)
    parts = bundle.units.eta_loc + bundle.units.eta_scale * each.sum(axis=0)
    theta = fit.posterior.draws.flat(fit.posterior.draws.theta).mean(axis=0)
    whole = parts + (rows.X - bundle.units.x_loc) @ theta
    assert np.allclose(eta.mean(axis=0), whole, rtol=1e-10)


@pytest.mark.parametrize("of", [(), ("mu", "sigma", "mu")])
def test_networks_are_linear_around_some_weights(of, monkeypatch):
    parts = tuple(FullyConnected(m, (4,), "tanh") for m in (2, 1, 3))
    plain, generator = Networks(parts, of), np.random.default_rng(0)
    w, around = torch.tensor(generator.normal(size=(2, 5, plain.d)))
    h = torch.tensor(generator.normal(size=(7, 6)))
    linear = replace(plain, around=around[0].numpy())
    assert linear == plain
    monkeypatch.setattr("semistan.model.networks.networks.DERIVATIVES", 3 * plain.d)
    for predictor in dict.fromkeys(linear.predictors):
        f, J = output_and_jacobian(plain, around[0], h, predictor)
        with torch.no_grad():
            found = forward(linear, w, h, predictor)
        assert torch.allclose(found, f + (w - around[0]) @ J.T, rtol=1e-13)
        value, slopes = output_and_jacobian(linear, w[1], h, predictor)
        assert torch.allclose(value, found[1], rtol=1e-13)
        assert torch.equal(slopes, J)


def test_rows_are_read_back_from_the_table(tmp_path):
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    data = stan_data(bundle, rows)
    assert (data["n_networks"], data["widths"]) == (3, [[2, 4, 1], [1, 4, 1], [2, 4, 1]])
    assert np.array_equal(read_back(bundle, rows, tmp_path).U, rows.U)


def test_a_bundle_goes_through_its_files(tmp_path):
    bundle, rows = small_bundle(SMALL, network__frozen=1, network__hidden=[3, 2])
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert (again.sha256, again.network) == (bundle.sha256, bundle.network)
    assert "2-3-2-1 + 1-3-2-1 + 4-3-2-1, tanh, 1 frozen" in repr(again)
    w = bundle.subspace.lift(np.ones(bundle.subspace.k))
    (f,) = run_graph(tmp_path / "bundle" / "network.onnx", {"u": rows.U, "w": w})
    expected = naive_networks(bundle, rows.U, w).sum(axis=1)
    assert np.allclose(f, expected, rtol=1e-10, atol=1e-12)
