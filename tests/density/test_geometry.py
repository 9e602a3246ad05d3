"""The mode inside the subspace and its metric, against the program and a closed form."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from semistan.density import mode as geometry
from semistan.density.derivatives import derivatives
from semistan.density.features import at_features
from semistan.density.mode import Mode, find_mode
from semistan.density.predictor import linear_predictor
from semistan.density.target import make_target, negative_log_posterior
from semistan.infer.starts import NORMAL, Starts, departure, find_starts, worth_sampling
from semistan.infer.trees import STRAIGHT
from semistan.model.config import SampleConfig
from semistan.model.networks.activations import ACTIVATIONS
from semistan.program.data import stan_data
from semistan.subspace.curve import curve_points
from semistan.subspace.start_values import curve_states
from support.small import small_bundle, small_frame
from support.untrained import random_bundle, states

FAMILIES = ("gaussian", "poisson", "bernoulli")
NAIVE = {"subspace": {"construction": "naive", "k": 3}}


@pytest.mark.parametrize("hidden", ([], [4], [3, 5]), ids=str)
@pytest.mark.parametrize("frozen", (0, 1))
@pytest.mark.parametrize("activation", [a for a in ACTIVATIONS if a != "relu"])
def test_the_matrix_is_gauss_newtons(activation, frozen, hidden):
    if frozen and not hidden:
        pytest.skip("the output layer is never frozen")
    bundle, rows = random_bundle(
        "poisson", activation=activation, hidden=hidden, frozen=frozen,
        subspace={"free": "bias", "k": 3},
    )  # fmt: skip
    q, k, phi_scale = states(bundle)[0], bundle.subspace.k, bundle.subspace.phi_scale
    heads, head_problem = at_features(bundle, rows)
    arguments = (heads.network, heads.units, heads.trained, head_problem.X, head_problem.U)

    def eta(q):
        theta = bundle.units.theta_scale * q[k:]
        return linear_predictor(*arguments, phi_scale * q[None, :k], theta[None])[0]

    steps = 1e-6 * np.eye(len(q))
    J = np.column_stack([(eta(q + step) - eta(q - step)) / 2e-6 for step in steps])
    data = stan_data(bundle, rows)
    b_scale = data["prior_b_scale"] / bundle.units.theta_scale
    prior = np.concatenate([data["prior_phi_scale"] / phi_scale, b_scale]) ** -2.0
    expected = J.T @ (np.exp(eta(q))[:, None] * J) + np.diag(prior)
    matrix = derivatives(make_target(bundle, rows), torch.tensor(q))[1].numpy()
    assert np.max(np.abs(matrix - expected)) < 1e-6 * np.max(np.abs(expected))


def test_the_matrix_is_gauss_newtons_where_theta_lies_in_the_subspace():
    bundle, rows = random_bundle("poisson", **NAIVE)
    q, subspace = states(bundle)[0], bundle.subspace

    def eta(phi):
        theta = subspace.theta_bar + subspace.theta_Pi @ phi
        arguments = (bundle.network, bundle.units, bundle.trained, rows.X, rows.U)
        return linear_predictor(*arguments, phi[None], theta[None])[0]

    steps = 1e-6 * np.eye(3)
    J = np.column_stack([(eta(q + step) - eta(q - step)) / 2e-6 for step in steps])
    prior = stan_data(bundle, rows)["prior_phi_scale"] ** -2.0
    expected = J.T @ (np.exp(eta(q))[:, None] * J) + np.diag(prior)
    matrix = derivatives(make_target(bundle, rows), torch.tensor(q))[1].numpy()
    assert np.max(np.abs(matrix - expected)) < 1e-6 * np.max(np.abs(expected))


def test_rows_in_pieces_give_the_same(monkeypatch):
    bundle, rows = random_bundle("gaussian")
    q = torch.tensor(states(bundle)[0])
    target = make_target(bundle, rows)
    whole = [negative_log_posterior(target, q), *(x.numpy() for x in derivatives(target, q))]
    monkeypatch.setattr("semistan.density.target.CHUNK", 7 * bundle.subspace.d)
    target = make_target(bundle, rows)
    assert len(target.chunks) == 5
    pieces = [negative_log_posterior(target, q), *(x.numpy() for x in derivatives(target, q))]
    for one, other in zip(whole, pieces, strict=True):
        assert np.max(np.abs(one - other)) < 1e-12 * np.max(np.abs(one))


def test_a_linear_model_has_its_exact_mean_and_covariance():
    bundle, rows = random_bundle(
        "gaussian", activation="identity", hidden=[], priors={"sigma": "constant(0.7)"}
    )
    units, subspace, data = bundle.units, bundle.subspace, stan_data(bundle, rows)
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    X = (rows.X - units.x_loc) * units.theta_scale
    G = np.column_stack([units.eta_scale * inputs @ subspace.Pi, X])
    sigma = data["prior_sigma_value"]
    scale = np.concatenate([data["prior_phi_scale"], data["prior_b_scale"] / units.theta_scale])
    covariance = np.linalg.inv(G.T @ G / sigma**2 + np.diag(scale**-2.0))
    residual = rows.y - units.eta_loc - units.eta_scale * inputs @ subspace.p_bar
    mean = covariance @ G.T @ residual / sigma**2

    for start in curve_states(bundle, 3):
        mode = find_mode(make_target(bundle, rows), start)
        sd = np.sqrt(np.diag(covariance))
        assert np.max(np.abs(mode.q - mean) / sd) < np.sqrt(2 * geometry.ENOUGH)
        assert mode.inv_metric == pytest.approx(covariance, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("prior_only", (False, True))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_mode_is_one(family, prior_only):
    bundle, rows = random_bundle(family)
    target = make_target(bundle, rows, prior_only=prior_only)
    mode = find_mode(target, curve_states(bundle, 1)[0])
    gradient = derivatives(target, torch.tensor(mode.q))[0].numpy()
    assert gradient @ mode.inv_metric @ gradient < 0.02


def test_an_infinite_density_has_no_mode():
    bundle, rows = random_bundle("poisson")
    start = np.full(bundle.subspace.k + 2, 1e200)
    assert find_mode(make_target(bundle, rows), start) is None


def test_without_a_mode_the_chains_start_on_the_curve_and_the_metric_is_adapted(monkeypatch):
    monkeypatch.setattr("semistan.infer.starts.find_mode", lambda *_: None)
    bundle, rows = random_bundle("gaussian")
    starts = find_starts(bundle, rows, SampleConfig())
    points = curve_points(bundle.trained.control_points, np.array([0.125, 0.375, 0.625, 0.875]))
    for values, point in zip(starts.values, points, strict=True):
        assert bundle.subspace.lift(values["phi"]) == pytest.approx(point)
        assert values["sigma"] == pytest.approx(bundle.trained.dispersion["sigma"])
    resolved = starts.resolve(SampleConfig())
    assert (resolved.metric, resolved.warmup, starts.one_mode) == ("dense_e", 1000, False)


def test_warm_up_is_short_only_if_several_chains_agree():
    bundle, rows = random_bundle("gaussian", activation="identity")
    starts = find_starts(bundle, rows, SampleConfig(chains=3))
    assert starts.one_mode
    assert starts.resolve(SampleConfig()).warmup == 150
    assert replace(starts, trees=STRAIGHT).resolve(SampleConfig()).warmup == 100
    assert starts.resolve(SampleConfig(warmup=77)).warmup == 77
    assert not find_starts(bundle, rows, SampleConfig(chains=1)).one_mode
    mode = starts.found[0]
    lower, far = replace(mode, log_density=mode.log_density - 3), replace(mode, q=mode.q + 9)
    assert not replace(starts, found=(mode, mode, lower)).one_mode
    assert not replace(starts, found=(mode, mode, far)).one_mode


def test_a_metric_is_adapted_where_the_posterior_is_bent(monkeypatch):
    bundle, rows = random_bundle("gaussian", activation="identity")
    options = SampleConfig(chains=3)
    starts = find_starts(bundle, rows, options)
    assert starts.one_mode and starts.departure < NORMAL
    mode = replace(starts.found[0], q=np.zeros(2), inv_metric=np.eye(2))
    layout, model = SimpleNamespace(sampled=np.arange(2)), SimpleNamespace(integral=None)
    target = SimpleNamespace(layout=layout, bundle=SimpleNamespace(model=model))

    monkeypatch.setattr("semistan.infer.starts.negative_log_posterior", lambda _, q: q @ q / 2)
    assert departure(target, (mode, mode)) == pytest.approx(0, abs=1e-12)
    monkeypatch.setattr("semistan.infer.starts.negative_log_posterior", lambda _, q: 2 * q @ q)
    found = departure(target, (mode, mode))
    assert found == pytest.approx(3, rel=0.5)  # of (1 - 4) chi^2 / 2 with 2 degrees of freedom
    bent = replace(starts, departure=found)
    assert bent.one_mode and not bent.keeps_metric
    resolved = bent.resolve(options)
    assert resolved.warmup == 1000
    assert "do not find it normal" in bent.text(resolved, with_metric=True)


@pytest.mark.parametrize(
    ("dimensions", "nats", "warmup"),
    [(76, 4.4, 150), (76, 4.6, 500), (75, 4.4, 150), (75, 4.6, 1000)],
)
def test_where_the_posterior_narrows_a_metric_of_many_dimensions_is_kept(dimensions, nats, warmup):
    mode = Mode(np.zeros(dimensions), np.eye(dimensions), 0.0, 1)
    starts = Starts(
        (), (mode, mode), narrows=True, penalised=71, dimensions=dimensions, departure=nats
    )
    near = nats < np.sqrt(1.5**2 + 71 / 4)
    assert starts.is_near_normal == near
    assert starts.keeps_metric == (near or dimensions > 75)
    assert starts.resolve(SampleConfig()).warmup == warmup
    other = replace(mode, q=mode.q + 9)
    assert replace(starts, found=(mode, other)).keeps_metric == (dimensions > 75)


def test_effects_of_many_levels_keep_the_metric_of_their_mode():
    generator = np.random.default_rng(2)
    frame = small_frame(400).assign(g=[f"level {i % 80}" for i in range(400)])
    frame["y"] += 7 * np.resize(generator.normal(size=80), 400)
    bundle, rows = small_bundle("y ~ x + (1 | g) + nn(u, v)", frame, priors={},
                                sample={"integrate": "none"})  # fmt: skip
    options, said = SampleConfig(chains=2), []
    starts = find_starts(bundle, rows, options, say=said.append)
    assert starts.dimensions > 80
    assert starts.keeps_metric
    resolved = starts.resolve(options)
    assert (resolved.metric, resolved.warmup) == ("ggn", 150)
    assert "its metric is kept" in starts.text(resolved, with_metric=True)


@pytest.mark.parametrize(("dimensions", "warmup"), [(7, 300), (40, 600), (75, 1000)])
def test_warm_up_is_shorter_where_coefficients_are_integrated_out(dimensions, warmup):
    mode = Mode(np.zeros(dimensions), np.eye(dimensions), 0.0, 1)
    starts = Starts((), (mode, mode), dimensions=dimensions, integrated=True, departure=9.0)
    assert starts.resolve(SampleConfig()).warmup == warmup
    assert replace(starts, integrated=False).resolve(SampleConfig()).warmup == 1000


def test_what_is_integrated_out_does_not_narrow_the_posterior():
    formula = "y ~ x1 + s(v, k=4) + (1 | g) + nn(u1)"
    for integrate, narrows in (("auto", False), ("none", True)):
        bundle, rows = random_bundle("gaussian", formula=formula, sample={"integrate": integrate})
        starts = find_starts(bundle, rows, SampleConfig(chains=2))
        assert starts.narrows == narrows
        assert starts.integrated != narrows
        assert starts.dimensions == len(bundle.layout.sampled)
        assert np.isfinite(starts.departure) == starts.one_mode


def test_a_metric_too_narrow_to_be_learnt_is_kept():
    bundle, rows = random_bundle("gaussian", activation="identity")
    starts = find_starts(bundle, rows, SampleConfig(chains=2))
    mode = starts.found[0]
    lower = replace(mode, log_density=mode.log_density - 50)
    two = replace(starts, found=(mode, lower))
    assert not two.one_mode and not two.keeps_metric
    assert two.resolve(SampleConfig()).warmup == 1000
    share = 1e-6 / np.linalg.eigvalsh(mode.inv_metric)[0]
    narrow = [replace(each, inv_metric=each.inv_metric * share) for each in (mode, lower)]
    two = replace(starts, found=tuple(narrow))
    assert not two.one_mode and two.keeps_metric
    assert two.resolve(SampleConfig()).warmup == 150
    assert two.text(two.resolve(SampleConfig()), with_metric=True).endswith("metrics are kept")
    assert not replace(two, narrows=True).keeps_metric
    assert not replace(starts, found=()).keeps_metric


def test_a_mode_without_mass_is_left_for_the_best():
    bundle, rows = random_bundle("gaussian", activation="identity")
    best = find_starts(bundle, rows, SampleConfig(chains=3)).found[0]
    poor = replace(best, q=best.q + 9, log_density=best.log_density - 50)
    assert worth_sampling((poor, best, poor)) == (best, best, best)
    starts = Starts(({"phi": np.zeros(3)},) * 3, (poor, best, best))
    assert starts.one_mode
    assert "1 without mass" in starts.text(SampleConfig(metric="ggn"), with_metric=True)
    assert not replace(starts, found=(poor, best, poor)).one_mode  # nobody else found the best
    wide = replace(poor, inv_metric=best.inv_metric * 1e12)
    assert worth_sampling((wide, best))[0] is wide  # low but wide: it has mass
