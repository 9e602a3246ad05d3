"""The completion: closed forms where the posterior is normal, derivatives, agreement of engines."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.columns import program_columns
from semistan.density.derivatives import expansion, information_along
from semistan.density.mode import _given, normal_mean
from semistan.density.predictor import completion_output, network_inputs, network_output
from semistan.density.spread import held_coordinates
from semistan.density.target import make_target
from semistan.errors import InputError
from semistan.model import completion
from semistan.model.completion import PSI, changed
from semistan.model.config import SampleConfig
from semistan.model.names import MU
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.networks import output_and_jacobian
from semistan.posterior.draws import draws_of_columns
from semistan.posterior.engine import onnx_engine, torch_engine
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.summary import summarise
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.subspace import completion as room
from semistan.subspace import informed
from semistan.subspace.start_values import curve_states
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.columns import assert_program
from support.small import category_bundle, small_bundle, small_frame
from support.untrained import CATEGORICAL, completed_bundle, random_bundle

SIGMA = 5.0
NETWORKS = {
    **{name: {"activation": name, "hidden": (4, 3)} for name in ACTIVATIONS},
    "linear": {"hidden": ()},
    "frozen layer": {"hidden": (4, 3), "frozen": 1},
    "residual": {"network": {"hidden": (4, 4), "skip": True, "norm": True}},
    "several": {"formula": "y ~ x1 + nn(u1, u2) + nn(u3)"},
    "of sigma too": {"formula": "y ~ x1 + nn(u1, u2), sigma ~ x2 + nn(u2, u3)"},
    "multiplied": {"formula": "y ~ x1 + nn(u1, u2) + z:nn(u3)"},
    "a constant": {"formula": "y ~ x1 + z:nn(u3)"},
}


def normal_posterior(formula, monkeypatch, rows=40, **priors):
    """A model whose posterior is normal: a linear network, and all scales fixed; every direction
    outside its subspace is kept."""
    monkeypatch.setattr(room, "SHARE", 2.0)
    return small_bundle(
        formula, small_frame(rows), network={"hidden": []},
        priors={"sigma": f"constant({SIGMA})"} | priors, subspace={"k": 1},
    )  # fmt: skip


def exact(bundle, rows, Z, scales, theta_sd=None):
    """Mean and covariance of (w, theta, r) by the normal equations; Z has r's columns."""
    units, s = bundle.units, bundle.model.weight_scale
    H = (rows.U - units.u_loc) / units.u_scale
    A = np.column_stack(
        [units.eta_scale * H, np.full(len(rows), units.eta_scale), rows.X - units.x_loc, Z]
    )
    (of_theta,) = (item for item in bundle.model.priors if item.parameter == "theta")
    if theta_sd is None:
        theta_sd = [prior.values[1] for prior in of_theta.used]
    precision = np.diag(1 / np.concatenate([s, theta_sd, scales]) ** 2)
    C = np.linalg.inv(A.T @ A / SIGMA**2 + precision)
    return C @ A.T @ (rows.y - units.eta_loc) / SIGMA**2, C


def completed(bundle, rows, *names):
    """Mean and covariance of the same: a normal in the subspace, and the completion."""
    target = make_target(bundle, rows)
    mode, found = room._mode(target, rows), bundle.trained.completion

    def values(q):
        given = target.values(torch.as_tensor(q))
        made = {k: v for term in bundle.design.terms for k, v in term.made(given).items()}
        w = bundle.subspace.lift(given["phi"].numpy())
        return np.concatenate([w, *[np.ravel((given | made)[name]) for name in names]])

    at, mean = values(mode.q), values(normal_mean(target, mode))
    slopes = np.column_stack([values(mode.q + e) - at for e in np.eye(len(mode.q))])
    by = np.concatenate([found.weights, *(found.others[name] for name in names)])
    assert found.at == pytest.approx(at[: len(found.at)], rel=1e-6)
    inside = _given(mode.inv_metric, held_coordinates(target, len(mode.q)))
    return mean + by[:, 0], slopes @ inside @ slopes.T + by[:, 1:] @ by[:, 1:].T


@pytest.mark.parametrize("settings", [{}, {"EXACT": 0}, {"CHOOSING": 20}], ids=str)
def test_a_normal_posterior_is_completed_exactly(settings, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setattr(room, name, value)
    bundle, rows = normal_posterior("y ~ x + C(g) + nn(u, v, z)", monkeypatch)
    mean, C = exact(bundle, rows, np.zeros((len(rows), 0)), [])
    got_mean, got_C = completed(bundle, rows, "theta")
    assert got_mean == pytest.approx(mean, rel=1e-5, abs=1e-7)
    assert got_C == pytest.approx(C, rel=1e-6, abs=1e-9 * np.abs(C).max())


@pytest.mark.parametrize("b", ["R2D2(0.4)", "horseshoe()"])
def test_it_is_exact_given_the_scales_of_a_joint_prior(b, monkeypatch):
    """Which are held where the trained coefficients have them."""
    bundle, rows = normal_posterior("y ~ x + C(g) + nn(u, v, z)", monkeypatch, b=b)
    target = make_target(bundle, rows)
    q = room._mode(target, rows).q
    at_scales = {**target.layout.unpack(torch.tensor(q)), "zb": torch.ones(3, dtype=torch.float64)}
    theta_sd = target.completed(at_scales)["theta"].numpy()
    mean, C = exact(bundle, rows, np.zeros((len(rows), 0)), [], theta_sd)
    got_mean, got_C = completed(bundle, rows, "theta")
    assert got_mean == pytest.approx(mean, rel=1e-5, abs=1e-7)
    assert got_C == pytest.approx(C, rel=1e-6, abs=1e-9 * np.abs(C).max())


def test_effects_of_groups_give_way_to_the_network(monkeypatch):
    frame_g = small_frame(40)["g"]
    bundle, rows = normal_posterior("y ~ x + (1 | g) + nn(u, v, z)", monkeypatch, sd="constant(3)")
    Z = np.column_stack([frame_g == level for level in "abc"]).astype(float)
    mean, C = exact(bundle, rows, Z, [3.0] * 3)
    got_mean, got_C = completed(bundle, rows, "theta", "r_1")
    assert got_mean == pytest.approx(mean, rel=1e-5, abs=1e-7)
    assert got_C == pytest.approx(C, rel=1e-6, abs=1e-9 * np.abs(C).max())


def test_the_level_of_a_network_is_as_uncertain_as_the_groups_beside_it(monkeypatch):
    """The rows know the sum of both alone, and say nothing of where one ends."""
    monkeypatch.setattr(room, "SHARE", 0.9)
    frame = small_frame(400)
    bundle, rows = small_bundle(
        "y ~ x + (1 | g) + nn(u, v, z)", frame, network={"hidden": []},
        priors={"sigma": f"constant({SIGMA})", "sd": "constant(3)"}, subspace={"k": 1},
    )  # fmt: skip
    assert bundle.config.subspace.free == "bias"
    Z = np.column_stack([frame["g"] == level for level in "abc"]).astype(float)
    (_, C), (_, got_C) = exact(bundle, rows, Z, [3.0] * 3), completed(bundle, rows)
    H = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    level = np.append(H.mean(axis=0), 1)
    got, expected = (level @ each[:4, :4] @ level for each in (got_C, C))
    assert got == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("lacking", [0.01, 2.0])
def test_coefficients_lack_nothing_where_the_network_can_say_the_same(lacking, monkeypatch):
    """x is among the network's inputs: the rows know the sum of two slopes alone."""
    monkeypatch.setattr(room, "SHARE", 0.7)
    monkeypatch.setattr(room, "LACKING", lacking)
    frame = small_frame(400).assign(t=lambda table: table["x"])
    bundle, rows = small_bundle(
        "y ~ x + nn(t, u, v, z)", frame, network={"hidden": []},
        priors={"sigma": f"constant({SIGMA})"}, subspace={"k": 1},
    )  # fmt: skip
    _, C = exact(bundle, rows, np.zeros((len(rows), 0)), [])
    _, got_C = completed(bundle, rows, "theta")
    share = got_C[-1, -1] / C[-1, -1]
    assert share == pytest.approx(1, abs=0.02) if lacking < 1 else share < 0.5


def test_the_most_informed_directions_are_kept():
    bundle, _ = small_bundle("y ~ x + nn(u, v)", small_frame(200), priors={},
                                network={"hidden": [6]}, train__epochs=50)  # fmt: skip
    found = bundle.trained.completion
    assert 0.999 <= found.share <= 1
    assert bundle.subspace.d - bundle.subspace.k > found.K
    assert (np.diff(found.information) <= 1e-12).all()
    assert found.information.max() <= 1
    assert 0 < found.stride < 3
    H = np.eye(5)
    F, information = room._complement(H + np.diag([8.0, 0, 3, 0, 0]), np.ones(5), np.eye(5)[:, :1])
    assert information == pytest.approx([0.75, 0, 0, 0])
    assert F.T @ (H + np.diag([8.0, 0, 3, 0, 0])) @ F == pytest.approx(np.eye(4))


@pytest.mark.parametrize("all_looked_at", [0, 1500])
@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli"])
def test_the_curvature_of_a_part_stands_for_that_of_all_rows(name, all_looked_at, monkeypatch):
    """Four rows of each kind, of which the part has one: no number depends on the others."""
    monkeypatch.setattr(room, "EXACT", all_looked_at)
    bundle, rows = completed_bundle(name, formula="y ~ x1 + nn(u1, u2)", hidden=(4,), k=2)
    many = rows.take(np.repeat(np.arange(len(rows)), 4))
    found = []
    for most in (len(many), len(rows)):
        monkeypatch.setattr(room, "CURVATURE", most)
        taken = many.evenly(most).index
        assert len(set(taken)) == len(rows)
        found.append(room.complete(bundle, many).completion)
    whole, part = found
    assert part.information == pytest.approx(whole.information, rel=1e-9)
    assert part.stride == pytest.approx(whole.stride, rel=1e-6)
    assert part.weights[:, 0] == pytest.approx(whole.weights[:, 0], rel=1e-6, abs=1e-9)
    one, other = (each.weights[:, 1:] @ each.weights[:, 1:].T for each in found)
    assert one == pytest.approx(other, rel=1e-6, abs=1e-9 * np.abs(other).max())


def test_levels_of_groups_keep_all_their_rows(monkeypatch):
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + (1 | g) + nn(u1, u2)", hidden=(4,), k=2
    )
    target = make_target(bundle, rows)
    monkeypatch.setattr(room, "CURVATURE", 10)
    assert room._of_a_part(target, rows) is target


def test_some_directions_have_most_of_what_all_have(monkeypatch):
    monkeypatch.setattr(informed, "BESIDE", 10)
    found = {}
    for all_looked_at, most in ((1500, 500), (0, 20), (0, 4)):
        monkeypatch.setattr(room, "EXACT", all_looked_at)
        monkeypatch.setattr(room, "MOST", most)
        bundle, rows = small_bundle(
            "y ~ x + nn(u, v)", small_frame(200), priors={}, network={"hidden": [30, 10]},
            train__epochs=50, subspace={"k": 2},
        )  # fmt: skip
        got = bundle.trained.completion
        U = network_inputs(bundle.units, rows.U)
        J = output_and_jacobian(bundle.network, torch.tensor(got.at), U)[1].numpy()
        found[most] = got, J @ got.weights
    every, of_every = found[500]
    assert bundle.subspace.d > 400
    assert every.K < 20 + 10 + 2
    got, moved = found[20]
    assert got.share <= every.information[:20].sum() / every.information.sum() * every.share + 1e-6
    assert got.share == pytest.approx(every.share, abs=2e-3)
    assert np.corrcoef(moved[:, 0], of_every[:, 0])[0, 1] > 0.9999
    variance, of_all = ((m[:, 1:] ** 2).sum(axis=1) for m in (moved, of_every))
    assert variance == pytest.approx(of_all, rel=0.05)
    assert found[4][0].share < 0.9 * every.share


def test_few_rows_inform_few_directions_of_many(monkeypatch):
    monkeypatch.setattr(room, "EXACT", 0)
    bundle, _ = small_bundle(
        "y ~ x + nn(u, v)", small_frame(20), priors={}, network={"hidden": [40, 20]},
        train__epochs=50, subspace={"k": 2},
    )  # fmt: skip
    found = bundle.trained.completion
    assert found.K < 20
    assert 0.999 <= found.share <= 1
    assert np.isfinite(found.weights).all()


@pytest.mark.parametrize(
    "model",
    [
        lambda: small_bundle("y ~ x + nn(u, v)", family="student", priors={}),
        lambda: small_bundle(
            "count ~ x + nn(u, v), shape ~ nn(v)", family="negbinomial", priors={}
        ),
        lambda: category_bundle(predictors="x + nn(u, v)", priors={}),
    ],
    ids=["student", "shape too", "categories"],
)
def test_what_rows_say_of_directions_is_that_of_the_curvature(model):
    bundle, rows = model()
    scale, k = bundle.model.weight_scale, bundle.subspace.k
    inside, outside = (make_target(each, rows) for each in (bundle, room._all_weights(bundle)))
    q = torch.full((bundle.layout.size,), 0.1, dtype=torch.float64)
    w = bundle.subspace.lift(bundle.subspace.phi_scale * q[:k].numpy())
    around = expansion(outside, torch.cat([torch.tensor(w / scale), q[k:]]))
    d = len(scale)
    expected = (around.safe - torch.diag(around.prior))[:d, :d].numpy()
    eye = torch.eye(d, dtype=torch.float64)
    got, trace = information_along(inside, q, torch.tensor(scale), eye)
    assert got.numpy() == pytest.approx(expected, rel=1e-8, abs=1e-8 * np.abs(expected).max())
    assert trace == pytest.approx(np.trace(expected), rel=1e-8)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"subspace": {"k": 2, "completion": "none"}}, "completion is 'none'"),
        ({"subspace": {"k": "auto"}}, "all weights"),
        ({"priors": {"phi": "normal(0, 5)"}}, "prior phi"),
        ({"subspace": {"construction": "naive", "k": 2}}, "holds the coefficients"),
    ],
)
def test_models_without_a_completion_say_why(settings, why):
    bundle, _ = small_bundle("y ~ x + nn(u, v)", **({"priors": {}} | settings))
    assert bundle.trained.completion is None
    if settings.get("subspace", {}).get("k") != "auto":
        assert why in bundle.model.not_completed
    assert "psi" not in bundle_program(bundle)


def test_so_many_weights_are_not_completed(monkeypatch):
    monkeypatch.setattr(completion, "MOST_WEIGHTS", 12)
    bundle, _ = small_bundle("y ~ x + nn(u, v)", priors={})
    assert bundle.model.not_completed == "it has 13 weights, more than 12"
    assert bundle.trained.completion is None


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_the_network_is_followed_to_first_order(settings, tmp_path):
    bundle, rows = completed_bundle("gaussian", **settings)
    found, network = bundle.completion, bundle.model.network
    psi = np.random.default_rng(1).normal(size=(4, found.K))
    heads, behind = semistan.density.features.at_features(bundle, rows)
    for predictor in dict.fromkeys(network.predictors):
        got = completion_output(network, heads.units, found, behind.U, psi, predictor)
        step = 1e-5 * changed(found.weights, psi)
        up, down = (
            network_output(network, heads.units, found.at + sign * step, behind.U, predictor)
            for sign in (1, -1)
        )
        assert got == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-8), predictor
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert again.sha256 == bundle.sha256
    phi = np.random.default_rng(2).normal(size=(4, bundle.subspace.k))
    theta = np.random.default_rng(3).normal(size=(4, rows.X.shape[1]))
    given = (phi, theta, psi)
    of_graph = onnx_engine(tmp_path / "bundle" / "predictor.onnx")(rows.X, rows.U, *given)
    of_torch = torch_engine(heads)(behind.X, behind.U, *given)
    assert of_graph == pytest.approx(of_torch, rel=1e-9)


def drawn(bundle, rows, chains=2, size=60, apart=0.0):
    """Draws around the curve, read from the columns that a program would write."""
    target, generator = make_target(bundle, rows), np.random.default_rng(4)
    columns = []
    for chain in range(chains):
        q = curve_states(bundle, 1) + 0.1 * generator.normal(size=(size, bundle.layout.size))
        q[:, : bundle.subspace.k] += chain * apart
        psi = generator.normal(size=(size, bundle.completion.K))
        both = [program_columns(target, q, each) for each in (psi, None)]
        columns.append(tuple({**each, "lp__": np.zeros(size)} for each in both))
    options = SampleConfig(method="mclmc-torch")
    return [
        draws_of_columns(
            bundle, [{**each[i], "energy_error__": np.zeros(size)} for each in columns], options
        )
        for i in (0, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "gaussian", "formula": "y ~ x1 + s(z) + (1 + x1 | g) + nn(u1, u2)"},
        {
            "name": "gaussian",
            "formula": "y ~ x1 + mi(e) + nn(u1), sigma ~ x2 + (1 | g), e | mi() ~ 1",
        },
        {"name": "cumulative(4)"},
        {"name": "gaussian", "priors": {"b": "R2D2()"}},
    ],
    ids=["terms", "sigma", "thresholds", "joint prior"],
)
def test_draws_are_completed_by_name(settings):
    bundle, rows = completed_bundle(**settings)
    got, sampled = drawn(bundle, rows)
    change = {name: bundle.completion.change(name, got.psi) for name in bundle.completion.others}
    sign = -1 if bundle.family.categories else 1
    for p in bundle.design.predictors:
        level = sign * change[p.intercept][..., 0] if p.is_mean else change[p.intercept][..., 0]
        for name in (name for name in sampled.coefficients if name.startswith(p.intercept)):
            moved = got.coefficients[name] - sampled.coefficients[name]
            assert moved == pytest.approx(level, abs=1e-9), name
        for j, name in enumerate(p.coefficients):
            moved = got.coefficients[name] - sampled.coefficients[name]
            assert moved == pytest.approx(change[p.theta][..., j], abs=1e-9), name
    for name, values in sampled.terms.items():
        flat = np.swapaxes(got.terms[name] - values, 2, -1).reshape(change[name].shape)
        assert flat == pytest.approx(change[name], abs=1e-9), name
    assert got.theta - sampled.theta == pytest.approx(change["theta"], abs=1e-9)
    assert got.dispersion.keys() == sampled.dispersion.keys()
    thinned = got.thin(20)
    assert thinned.size == len(thinned.flat(thinned.psi))


def test_the_intercept_is_the_mean_of_the_completed_predictor():
    bundle, rows = completed_bundle("gaussian")
    units, found = bundle.units, bundle.completion
    J = semistan.model.networks.networks.output_and_jacobian(
        bundle.network, torch.tensor(found.at), network_inputs(units, rows.U)
    )[1].numpy()
    level = units.eta_scale * J.mean(axis=0) @ found.weights
    moved = level - units.x_loc @ found.others["theta"]
    found = replace(found, others=found.others | {"b_Intercept": moved.reshape(1, -1)})
    bundle = replace(bundle, trained=replace(bundle.trained, completion=found))
    draws, _ = drawn(bundle, rows)
    eta = SubspacePosterior(bundle, draws).predictor(rows)
    at_mean = draws.flat(draws.coefficients["b_Intercept"] + draws.theta @ units.x_loc)
    assert eta.mean(axis=1) == pytest.approx(at_mean, rel=1e-9)
    assert bundle.completion.others[bundle.design.mean.intercept].shape == (1, 1 + found.K)


def test_a_far_step_out_of_the_subspace_is_a_finding():
    bundle, rows = completed_bundle("gaussian")
    draws, _ = drawn(bundle, rows)
    for stride, passed in ((1.9, True), (2.1, False)):
        found = replace(bundle.completion, stride=stride)
        own = replace(bundle, trained=replace(bundle.trained, completion=found))
        (check,) = (
            item
            for item in summarise(SubspacePosterior(own, draws), rows).checks
            if "step" in item.name
        )
        assert check.passed == passed
        assert f"{stride:.1f} standard deviations (limit 2.0)" in check.finding


def test_a_step_of_several_subspaces_is_judged_by_what_they_say_together():
    bundle, rows = completed_bundle("gaussian")
    found = replace(bundle.completion, stride=2.1)
    own = replace(bundle, trained=replace(bundle.trained, completion=found))
    one, other = (SubspacePosterior(own, drawn(own, rows, apart=apart)[0]) for apart in (0, 4.0))
    summary = summarise(Mixture((one, other)), rows)
    (check,) = (item for item in summary.checks if "step" in item.name)
    expected = 2.1 * np.sqrt(1 - summary.agreement.eta)
    assert 0.1 < summary.agreement.eta < 1
    assert f"{expected:.1f} standard deviations" in check.finding


def test_without_a_likelihood_nothing_moves():
    bundle, rows = completed_bundle("gaussian", formula="y ~ x1 + (1 | g) + nn(u1)")
    data = stan_data(bundle, rows, prior_only=True)
    assert not any(np.any(value) for name, value in data.items() if name.startswith("shift_"))
    assert data["w_mode"] == pytest.approx(bundle.completion.at)
    target = make_target(bundle, rows, prior_only=True)
    psi, q = np.ones((3, bundle.completion.K)), np.repeat(curve_states(bundle, 1), 3, axis=0)
    assert target.outside(3, np.random.default_rng(1)) is None
    assert program_columns(target, q, psi).keys() == program_columns(target, q).keys()


def test_a_graph_of_the_completed_subspace_takes_no_other_draws():
    bundle, rows = completed_bundle("gaussian")
    completed, sampled = drawn(bundle, rows)
    engine = torch_engine(bundle)
    expected = SubspacePosterior(bundle, completed).predictor(rows)
    assert SubspacePosterior(bundle, completed, engine).predictor(rows) == pytest.approx(
        expected, rel=1e-9
    )
    with pytest.raises(InputError, match="not completed; use --engine torch"):
        SubspacePosterior(bundle, sampled, engine)


def test_a_bundle_without_its_completion_is_refused():
    bundle, rows = completed_bundle("gaussian")
    bundle = replace(bundle, trained=replace(bundle.trained, completion=None))
    with pytest.raises(InputError, match="trained without a completion"):
        stan_data(bundle, rows)


PROGRAMS = {
    "terms": {"name": "gaussian", "formula": "y ~ x1 + s(z) + (1 + x1 | g) + nn(u1, u2)"},
    "shared": {
        "name": "negbinomial", "network": {"hidden": (4, 4), "norm": True},
        "formula": "y ~ x1 + nn(u1, u2), shape ~ x2 + nn(u2, u3)",
    },
    "thresholds": {"name": "cumulative(4)"},
    "sigma, missing values": {
        "name": "gaussian",
        "formula": "y ~ x1 + mi(e) + nn(u1) + nn(u2, u3), sigma ~ x2 + (1 | g), e | mi() ~ x1",
    },
    "multiplied": {
        "name": "gaussian", "formula": "y ~ x1 + z:nn(u1, u2), sigma ~ x2 + z:nn(u3)", "k": 2,
    },
    "a joint prior": {
        "name": "gaussian", "formula": "y ~ x1 + x2 + (1 | g) + nn(u1, u2)",
        "priors": {"b": "R2D2(0.4)", "sd": "R2D2()"},
    },
    "a level alone": {"name": CATEGORICAL, "formula": "y ~ x1 + nn(u1), mutrain ~ 1"},
}  # fmt: skip


@pytest.mark.cmdstan
@pytest.mark.parametrize("settings", PROGRAMS.values(), ids=PROGRAMS)
def test_the_program_completes_as_we_do(settings, toolchain, tmp_path):
    bundle, rows = completed_bundle(**settings)
    assert_program(bundle, rows, toolchain, tmp_path)


@pytest.mark.cmdstan
@pytest.mark.parametrize("settings", PROGRAMS.values(), ids=PROGRAMS)
def test_the_likelihood_of_each_row_is_completed_in_stan(settings, toolchain, tmp_path):
    bundle, rows = completed_bundle(**settings)
    options = SampleConfig(chains=2, warmup=50, draws=30, seed=5, kernel="stan")
    fit = sample(new_run(bundle, rows, tmp_path / "run", options, toolchain), toolchain)
    assert fit.posterior.draws.psi.shape == (2, 30, bundle.completion.K)
    assert f"{PSI}.1" in (tmp_path / "run" / "chains" / "chain-1.csv").read_text()
    generate_quantities(fit.run, toolchain)
    ours = log_lik(fit.posterior, rows)
    assert read_generated(fit.run).log_lik == pytest.approx(ours, rel=1e-6, abs=1e-6)
    assert MU not in bundle.design.varying
