"""The contract of every construction, and the oracles of those that follow a path or a curve."""

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from semistan.density.problem import make_problem
from semistan.errors import InputError, SemistanError
from semistan.model.config import SubspaceConfig
from semistan.model.construction import CONSTRUCTIONS
from semistan.subspace import coefficients, connecting_curve, descent, pca, random_directions
from semistan.subspace.construction import construction
from semistan.subspace.descent import Parameters, losses
from semistan.subspace.pca import principal_directions
from support.small import RESPONSES, family_bundle, small_bundle, small_frame, small_prepared

NAMES = list(CONSTRUCTIONS)
CURVES = {"bezier": 3, "curve": 3, "naive": 3}  # control points of curves with k = 2
FIELDS = ("control_points", "w_frozen", "h_loc", "h_scale", "theta", "singular_values")
SETTINGS = {
    "plain": {},
    "batches": {"train__batch_size": 7},
    "frozen": {"network__hidden": [3, 2], "network__frozen": 1},
    "linear": {"network__hidden": []},
    "no validation": {"train__validation": 0.0},
}


def bundle_of(construction, name="gaussian", **settings):
    settings = {"train__epochs": 4, "subspace__snapshots": 5} | settings
    return family_bundle(name, subspace__construction=construction, **settings)[0]


def trained_of(construction, name="gaussian", **settings):
    return bundle_of(construction, name, **settings).trained


@cache
def stored(construction, setting):
    """One training for several tests; all pairs of construction, setting and family occur."""
    number = NAMES.index(construction) + list(SETTINGS).index(setting)
    return bundle_of(construction, list(RESPONSES)[number % 3], **SETTINGS[setting])


def arrays(trained):
    subspace = trained.subspace
    return {
        "p_bar": subspace.p_bar,
        "Pi": subspace.Pi,
        "phi_scale": subspace.phi_scale,
        "axes": subspace.axes,
        "theta_bar": subspace.theta_bar,
        "theta_Pi": subspace.theta_Pi,
        "dispersion": np.array(list(trained.dispersion.values())),
        **{field: getattr(trained, field) for field in FIELDS},
        **{f"history_{name}": values for name, values in trained.history.items()},
        **{f"curve_{name}": values for name, values in trained.curve.items()},
    }


def standardised_theta_Pi(bundle):
    subspace = bundle.subspace
    if not subspace.holds_theta:
        return np.zeros((0, subspace.Pi.shape[1]))
    return subspace.theta_Pi / bundle.units.theta_scale[:, None]


def as_bytes(trained):
    return {name: array.tobytes() for name, array in arrays(trained).items()}


def problem_and_units(formula="y ~ x + nn(u, v)", **settings):
    prepared = small_prepared(formula, **settings)
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    return problem, prepared.model.units, prepared.config.train


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(InputError, match=r"unknown construction 'bezir'.*bezier"):
        construction("bezir")
    with pytest.raises(InputError, match=r"unknown construction 'bezir'.*bezier"):
        small_prepared(subspace__construction="bezir")


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_handed_over_has_its_shapes_and_is_finite(construction, setting):
    bundle = stored(construction, setting)
    trained, subspace, spec = bundle.trained, bundle.trained.subspace, bundle.network
    k, a = subspace.k, len(subspace.axes)
    assert k == (spec.d if construction == "full" else 2)
    assert subspace.p_bar.shape == (spec.d,)
    assert subspace.Pi.shape == (spec.d, k - a)
    assert subspace.phi_scale.shape == trained.singular_values.shape == (k,)
    assert trained.control_points.shape == (CURVES.get(construction, 1), spec.d)
    leading = bundle.model.leading
    assert trained.w_frozen.shape == (sum(leading.sizes),)
    features = leading.heads.n_inputs * leading.any
    assert trained.h_loc.shape == trained.h_scale.shape == (features,)
    assert trained.theta.shape == (len(bundle.design.coefficients),)
    assert tuple(trained.dispersion) == bundle.family.dispersion
    assert subspace.origin == construction
    for field, array in arrays(trained).items():
        assert array.dtype == (np.int64 if field == "axes" else np.float64), field
        assert np.isfinite(array).all(), field


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_directions_are_independent_and_dense_ones_orthonormal(construction, setting):
    bundle = stored(construction, setting)
    trained, subspace = bundle.trained, bundle.subspace
    assert np.linalg.matrix_rank(subspace.matrix) == subspace.k
    dense = np.vstack([subspace.Pi, standardised_theta_Pi(bundle)])
    products = dense.T @ dense
    assert np.allclose(products, np.eye(len(products)), atol=1e-12)
    assert len(set(subspace.axes)) == len(subspace.axes)
    assert ((subspace.axes >= 0) & (subspace.axes < subspace.d)).all()
    assert (subspace.phi_scale > 0).all()
    assert (trained.singular_values > 0).all()
    assert (np.diff(trained.singular_values) <= 0).all()


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_coordinates_and_weights_map_to_each_other(construction, setting):
    trained = stored(construction, setting).trained
    subspace = trained.subspace
    phi = np.random.default_rng(0).normal(size=(2, 4, subspace.k))
    assert np.array_equal(subspace.lift(np.zeros(subspace.k)), subspace.p_bar)
    assert np.allclose(subspace.project(subspace.lift(phi)), phi, atol=1e-12)
    points = trained.control_points
    assert np.allclose(subspace.lift(subspace.project(points)), points, atol=1e-12)


@pytest.mark.parametrize("construction", NAMES)
def test_a_single_network_is_where_the_prior_has_its_centre_but_for_the_full_space(construction):
    trained = trained_of(construction)
    mean = trained.control_points.mean(axis=0)
    expected = np.zeros_like(mean) if construction == "full" else mean
    assert np.allclose(trained.subspace.p_bar, expected, atol=1e-14)
    assert bool(trained.curve) == (trained.arc_length > 0) == (construction in CURVES)


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("setting", ["plain", "batches", "frozen"])
def test_the_seed_decides_everything_and_the_global_states_nothing(construction, setting):
    settings = SETTINGS[setting]
    torch.manual_seed(0)
    np.random.seed(0)
    first = as_bytes(trained_of(construction, **settings))
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1]
    assert as_bytes(trained_of(construction, **settings)) == first
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


@pytest.mark.parametrize("construction", NAMES)
def test_another_seed_gives_another_subspace(construction):
    first, other = (as_bytes(trained_of(construction, train__seed=seed)) for seed in (1, 2))
    dense = ["Pi"] if first["Pi"] else []
    centre = [] if construction == "full" else ["p_bar"]
    for name in ["control_points", "theta", "history_loss", *centre, *dense]:
        assert first[name] != other[name], name


@pytest.mark.parametrize("construction", NAMES)
def test_weights_frozen_weights_coefficients_and_dispersion_are_trained(monkeypatch, construction):
    monkeypatch.setattr(coefficients, "mean_theta", lambda _, left: left.theta)
    start, end = (
        trained_of(
            construction, train__learning_rate=rate, train__epochs=30, train__validation=0.0,
            **SETTINGS["frozen"],
        )
        for rate in (1e-11, 0.01)
    )  # fmt: skip
    for field in ("control_points", "w_frozen"):
        moved = np.abs(getattr(end, field) - getattr(start, field))
        assert (moved > 1e-3).mean() > 0.8, field
    assert (np.abs(end.theta) > 1e4 * np.abs(start.theta)).all()
    assert abs(np.log(end.dispersion["sigma"] / start.dispersion["sigma"])) > 1e-3
    assert end.history["loss"][-1] < start.history["loss"][-1]


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("name", RESPONSES)
def test_units_change_theta_and_dispersion_and_nothing_else(construction, name):
    frame, factors = small_frame(), {"x": 2.0**7, "u": 2.0**-9, "v": 2.0**4, "y": 2.0**5}
    scaled = frame.assign(**{column: frame[column] * f for column, f in factors.items()})
    y = factors["y"] if name == "gaussian" else 1.0
    one, two = (
        family_bundle(
            name, "x + nn(u, v)", frame=table, subspace__construction=construction,
            subspace__snapshots=5, train__epochs=4,
        )[0].trained
        for table in (frame, scaled)
    )  # fmt: skip
    units_of_values = y if construction == "low_rank_laplace" else 1.0  # its are those of eta
    assert np.allclose(two.singular_values, units_of_values * one.singular_values, rtol=1e-10)
    assert np.array_equal(one.subspace.axes, two.subspace.axes)
    for field in ("p_bar", "Pi", "phi_scale"):
        first, second = (getattr(trained.subspace, field) for trained in (one, two))
        assert np.allclose(first, second, rtol=1e-10, atol=1e-12), field
    assert np.allclose(one.control_points, two.control_points, rtol=1e-10)
    assert np.allclose(two.theta, one.theta * y / factors["x"], rtol=1e-10)
    for key, value in one.dispersion.items():
        assert two.dispersion[key] == pytest.approx(y * value, rel=1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "full"])
def test_too_large_a_k_is_refused_before_training(name):
    problem, units, options = problem_and_units()
    k = problem.network.d + (name == "subnetwork")
    config = SubspaceConfig(construction=name, k=k, snapshots=k + 1)

    def never(*_):
        raise AssertionError("trained")

    with pytest.raises(InputError, match=f"got k = {k}"):
        construction(name)(problem, units, config, options, torch.Generator(), never)


@pytest.mark.parametrize("construction", NAMES)
@pytest.mark.parametrize("rate", [1e4, 1e6])
def test_training_that_diverges_is_an_error(construction, rate):
    with pytest.raises(SemistanError):
        bundle_of(construction, "poisson", train__learning_rate=rate)


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_that_of_the_history_and_only_goes_on(name):
    problem, units, options = problem_and_units(train__epochs=4)
    config, seen = SubspaceConfig(construction=name, k=2, snapshots=5), []
    trained = construction(name)(
        problem, units, config, options, torch.Generator(), lambda *record: seen.append(record)
    )
    columns = [trained.history[name] for name in ("epoch", "loss", "validation_loss")]
    assert seen == list(zip(*columns, strict=True))
    assert (np.diff(columns[0]) > 0).all()
    assert len(trained.history["arc_length"]) == len(seen)


def spied(monkeypatch, module, name):
    """Record what a function of a module returns."""
    returned, function = [], getattr(module, name)

    def spy(*arguments, **options):
        returned.append(function(*arguments, **options))
        return returned[-1]

    monkeypatch.setattr(module, name, spy)
    return returned


def signed(directions):
    k = directions.shape[1]
    return directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(k)])


@pytest.mark.parametrize("k", [1, 3, 5])
def test_pca_is_scikit_learns_of_the_snapshots(monkeypatch, k):
    paths = spied(monkeypatch, pca, "train_and_average")
    trained = trained_of("pca", subspace__k=k, subspace__snapshots=9)
    snapshots = paths[0].w + paths[0].deviations
    oracle, subspace = PCA(k, svd_solver="full").fit(snapshots), trained.subspace
    assert np.allclose(subspace.p_bar, oracle.mean_, atol=1e-14)
    assert np.allclose(subspace.Pi, signed(oracle.components_.T), atol=1e-10)
    assert np.allclose(subspace.phi_scale**2, oracle.explained_variance_, rtol=1e-9)
    assert np.allclose(trained.singular_values, oracle.singular_values_, rtol=1e-9)


def test_standard_normal_phi_reproduce_the_covariance_of_the_path(monkeypatch):
    paths = spied(monkeypatch, pca, "train_and_average")
    subspace = trained_of("pca", subspace__k=6, subspace__snapshots=7).subspace
    directions = subspace.Pi * subspace.phi_scale
    covariance = np.cov((paths[0].w + paths[0].deviations).T)
    assert np.allclose(directions @ directions.T, covariance, atol=1e-12 * covariance.max())


def test_pca_is_around_the_average_of_all_epochs(monkeypatch):
    paths = spied(monkeypatch, pca, "train_and_average")
    subspace = trained_of("pca", subspace__snapshots=4, train__epochs=120).subspace
    A = paths[0].deviations
    assert np.abs(A.mean(axis=0)).max() > 1e-6, "epochs between the snapshots are to count"
    eigenvalues, vectors = np.linalg.eigh(A.T @ A / 3)
    assert np.array_equal(subspace.p_bar, paths[0].w)
    assert np.allclose(subspace.phi_scale**2, eigenvalues[:-3:-1], rtol=1e-8)
    assert np.allclose(subspace.Pi, signed(vectors[:, :-3:-1]), atol=1e-7)


def test_pca_needs_more_snapshots_than_dimensions():
    with pytest.raises(InputError, match="number of snapshots of the path, 5, got k = 5"):
        trained_of("pca", subspace__k=5, subspace__snapshots=5)
    assert trained_of("pca", subspace__k=4, subspace__snapshots=5).subspace.k == 4


def test_snapshots_on_a_line_span_no_plane():
    with pytest.raises(SemistanError, match="fewer than k = 2 dimensions"):
        principal_directions(np.outer(np.arange(-2.0, 3), np.ones(6)), 2)


def gram_schmidt(vectors):
    basis = []
    for v in vectors:
        for q in basis:
            v = v - (q @ v) * q
        basis.append(v / np.linalg.norm(v))
    return np.array(basis).T


@pytest.mark.parametrize("k", [1, 4, 12])
def test_random_directions_are_gram_schmidt_of_normal_draws(k):
    Pi = trained_of("random", subspace__k=k, train__seed=3).subspace.Pi
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn((13, k), generator=generator, dtype=torch.float64).numpy()
    assert np.allclose(Pi, gram_schmidt(normal.T), atol=1e-10)


def test_random_directions_depend_on_the_seed_only():
    one = trained_of("random")
    two = trained_of("random", "poisson", frame=small_frame(50, seed=9), train__epochs=7)
    assert np.array_equal(one.subspace.Pi, two.subspace.Pi)
    assert not np.allclose(one.subspace.p_bar, two.subspace.p_bar)


def test_random_directions_are_around_the_average_of_the_path(monkeypatch):
    paths = spied(monkeypatch, random_directions, "train_and_average")
    trained = trained_of("random")
    assert np.array_equal(trained.subspace.p_bar, paths[0].w)
    assert (trained.subspace.phi_scale == 1).all()


@pytest.mark.parametrize("setting", ["plain", "frozen", "batches"])
def test_a_curves_ends_are_two_networks_trained_alone(monkeypatch, setting):
    stages = spied(monkeypatch, connecting_curve, "descend")
    trained = trained_of("curve", train__epochs=30, **SETTINGS[setting])
    one, two, bent = (best for best, _ in stages)
    assert len(one.control_points) == len(two.control_points) == 1
    assert np.array_equal(trained.control_points[0], one.control_points[0])
    assert np.array_equal(trained.control_points[2], two.control_points[0])
    middle = trained.control_points[[0, 2]].mean(axis=0)
    assert np.abs(trained.control_points[1] - middle).max() > 1e-3
    assert np.linalg.norm(np.diff(trained.control_points[[0, 2]], axis=0)) > 0.5
    assert not torch.equal(bent.theta, (one.theta + two.theta) / 2)


def test_a_curves_networks_hold_out_the_same_rows(monkeypatch):
    problems, found = [], descent.recorded_losses

    def spy(rows, parameters):
        problems.extend(tuple(problem.y.tolist()) for problem in rows)
        return found(rows, parameters)

    monkeypatch.setattr(descent, "recorded_losses", spy)
    trained_of("curve", train__epochs=2, train__validation=0.3)
    assert len(problems) == 12
    assert len(set(problems)) == 2


@pytest.mark.lengthy
def test_bending_lowers_the_loss_between_two_networks():
    frame = small_frame(60)
    frame = frame.assign(y=50 + 7 * np.sin(2 * (frame["u"] - 3) / 0.1) + 0.02 * frame["v"])
    settings = {"train__epochs": 600, "train__learning_rate": 0.02, "train__validation": 0.0}
    bundle, rows = small_bundle(
        "y ~ x + nn(u, v)", frame, subspace__construction="curve", network__hidden=[5], **settings
    )
    trained, units = bundle.trained, bundle.units
    problem = make_problem(bundle.model, rows, "cpu")

    def mean_loss(points):
        theta = trained.theta / units.theta_scale
        log_sigma = np.log(trained.dispersion["sigma"] / units.eta_scale)
        values = (points, theta, np.array([log_sigma]))
        return losses(problem, Parameters(*map(torch.tensor, values)), np.linspace(0, 1, 41)).mean()

    p_0, _, p_2 = trained.control_points
    straight = np.array([p_0, (p_0 + p_2) / 2, p_2])
    assert mean_loss(trained.control_points) < mean_loss(straight) - 0.1
    assert trained.history["stage"].tolist() == sorted(trained.history["stage"].tolist())


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [("student", "nu", 4.0), ("asym_laplace", "quantile", 0.9), ("gaussian", "sigma", 13.0)],
)
def test_a_parameter_that_a_prior_fixes_is_fixed_in_training_too(family, name, value):
    bundle, _ = small_bundle(f"y ~ x + nn(u, v), {name} = {value}", family=family)
    assert bundle.trained.dispersion[name] == pytest.approx(value, rel=1e-12)
