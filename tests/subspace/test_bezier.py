import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import simpson

from semistan.density.features import at_features
from semistan.density.predictor import linear_predictor
from semistan.density.problem import Problem, make_problem
from semistan.errors import InputError, SemistanError
from semistan.model.config import SubspaceConfig
from semistan.subspace.construction import construction
from semistan.subspace.curve import arc_length, curve_points
from semistan.subspace.descent import RECORDS
from semistan.workflow.train import train
from support.small import RESPONSES, family_bundle, small_bundle, small_frame, small_prepared


def arrays(trained):
    return {
        "p_bar": trained.subspace.p_bar,
        "Pi": trained.subspace.Pi,
        "control_points": trained.control_points,
        **{name: getattr(trained, name) for name in ("w_frozen", "h_loc", "h_scale")},
        "theta": trained.theta,
        "dispersion": np.array(list(trained.dispersion.values())),
        **trained.history,
    }


def trained_bytes(**settings):
    trained = small_bundle(train__epochs=5, **settings)[0].trained
    return {name: array.tobytes() for name, array in arrays(trained).items()}


def scipy_loss(bundle, rows, t):
    """Mean negative log-likelihood at each point of the curve, by scipy."""
    bundle, rows = at_features(bundle, rows)
    trained = bundle.trained
    phi = trained.subspace.project(curve_points(trained.control_points, t))
    theta = np.tile(trained.theta, (len(t), 1))
    eta = linear_predictor(bundle.network, bundle.units, trained, rows.X, rows.U, phi, theta)
    log_density = {
        "gaussian": lambda: stats.norm(eta, trained.dispersion.get("sigma")).logpdf(rows.y),
        "poisson": lambda: stats.poisson(np.exp(eta)).logpmf(rows.y),
        "bernoulli": lambda: stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf(rows.y),
    }
    return -log_density[bundle.family.name]().mean(axis=1)


def integrated_loss(bundle, rows):
    """Mean over t ~ U(0, 1) of the loss, by Simpson's rule."""
    t = np.linspace(0, 1, 1001)
    return simpson(scipy_loss(bundle, rows, t), x=t)


@pytest.fixture
def theta_of_descent(monkeypatch):
    """Leave theta where gradient descent ends, as the loss during training knows it."""
    monkeypatch.setattr("semistan.subspace.bezier.settle", lambda _, best: best)


@pytest.mark.parametrize("settings", [{}, {"train__batch_size": 7}, {"network__frozen": 1}])
def test_the_same_seed_gives_the_same_bytes(settings):
    assert trained_bytes(**settings) == trained_bytes(**settings)


def test_of_very_many_rows_a_part_says_where_theta_starts(monkeypatch):
    settings = {"train__epochs": 5, "train__validation": 0.0}
    (whole, rows), frame = small_bundle(**settings), small_frame()
    monkeypatch.setattr("semistan.subspace.coefficients.MOST_ROWS", len(rows) // 2)
    part, _ = small_bundle(**settings)
    assert np.array_equal(part.trained.control_points, whole.trained.control_points)
    error = np.std(frame["y"]) / np.sqrt(len(rows) / 2) / whole.units.x_scale
    gap = np.abs(part.trained.theta - whole.trained.theta)
    assert np.all((gap > 0) & (gap < 4 * error))


def test_another_seed_gives_another_curve():
    first, other = trained_bytes(train__seed=1), trained_bytes(train__seed=2)
    assert all(first[name] != other[name] for name in ("Pi", "p_bar", "theta", "loss"))


def test_the_global_random_states_are_neither_read_nor_changed():
    torch.manual_seed(0)
    np.random.seed(0)
    first = trained_bytes(train__batch_size=7)
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1]
    assert trained_bytes(train__batch_size=7) == first
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


@pytest.mark.parametrize("name", RESPONSES)
def test_the_loss_decreases(name):
    bundle, _ = family_bundle(name, train__epochs=50, train__learning_rate=0.02)
    loss = bundle.trained.history["loss"]
    assert loss[-1] < loss[0]


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("settings", [{}, {"network__frozen": 1}, {"network__hidden": []}])
def test_the_loss_along_the_curve_is_scipys(name, settings):
    bundle, rows = family_bundle(name, **settings)
    curve = bundle.trained.curve
    assert (curve["t"][0], curve["t"][-1]) == (0, 1)
    assert np.allclose(curve["loss"], scipy_loss(bundle, rows, curve["t"]), rtol=1e-10)


@pytest.mark.parametrize("validation", [0.0, 0.3])
@pytest.mark.parametrize("rate", [0.001, 1.0, 5.0])
def test_the_best_state_is_the_one_of_least_validation_loss(validation, rate):
    bundle, _ = small_bundle(
        train__epochs=60, train__validation=validation, train__learning_rate=rate
    )
    trained = bundle.trained
    best = trained.history["validation_loss"].argmin()
    assert trained.history["arc_length"][best] == trained.arc_length


def test_without_validation_the_training_rows_decide(theta_of_descent):
    bundle, rows = small_bundle(train__epochs=60, train__validation=0.0, train__learning_rate=1.0)
    history = bundle.trained.history
    assert np.array_equal(history["loss"], history["validation_loss"])
    assert history["loss"].argmin() < 59, "the best state is to be an earlier one"
    assert integrated_loss(bundle, rows) == pytest.approx(history["loss"].min(), rel=2e-4)


def test_held_out_rows_are_not_trained_on(theta_of_descent):
    bundle, rows = small_bundle(train__epochs=1, train__validation=0.2, train__learning_rate=1e-12)
    history = bundle.trained.history
    total = 0.8 * history["loss"] + 0.2 * history["validation_loss"]
    assert history["loss"][0] != history["validation_loss"][0]
    assert total[0] == pytest.approx(integrated_loss(bundle, rows), rel=1e-8)


@pytest.mark.parametrize(("rows", "validation"), [(2, 0.8), (3, 0.85), (4, 0.89)])
def test_some_rows_are_always_left_for_training(rows, validation):
    bundle, _ = small_bundle(
        "y ~ nn(u)", small_frame(rows), train__validation=validation, subspace__k=1
    )
    assert np.isfinite(bundle.trained.history["loss"]).all()


def test_the_history_has_one_record_for_each_epoch_and_reports_progress():
    prepared, seen = small_prepared(train__epochs=7), []
    trained = train(prepared, lambda *record: seen.append(record)).trained
    columns = [trained.history[name] for name in ("epoch", "loss", "validation_loss")]
    assert seen == list(zip(*columns, strict=True))
    assert np.array_equal(trained.history["epoch"], np.arange(1, 8))


@pytest.mark.parametrize("epochs", [1, 250])
def test_a_long_history_is_thinned_and_ends_with_the_last_epoch(epochs):
    history = small_bundle("y ~ nn(u)", train__epochs=epochs)[0].trained.history
    assert history["epoch"][-1] == epochs
    assert len(history["epoch"]) <= RECORDS + 1


def test_the_arc_length_is_that_of_the_control_points():
    trained = small_bundle()[0].trained
    assert trained.arc_length == arc_length(trained.control_points)
    assert (trained.history["arc_length"] > 0).all()


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_plus_one_control_points_lie_in_the_subspace(k):
    trained = small_bundle(subspace__k=k)[0].trained
    subspace, points = trained.subspace, trained.control_points
    assert (subspace.k, points.shape) == (k, (k + 1, subspace.d))
    assert trained.singular_values.shape == (k,)
    assert np.allclose(subspace.lift(subspace.project(points)), points, atol=1e-12)
    assert np.allclose(subspace.p_bar, points.mean(axis=0), rtol=1e-14)


def test_every_control_point_and_the_coefficients_are_trained(theta_of_descent):
    start, end = (
        small_bundle(train__learning_rate=rate, train__epochs=30, train__validation=0.0)[0].trained
        for rate in (1e-12, 0.01)
    )
    moved = np.linalg.norm(end.control_points - start.control_points, axis=1)
    assert (moved > 0.01).all()
    assert (end.theta != 0).all()
    assert end.dispersion["sigma"] < 0.999 * start.dispersion["sigma"]


@pytest.mark.parametrize("frozen", [1, 2])
def test_frozen_layers_are_trained(frozen):
    start, end = (
        small_bundle(
            network__hidden=[3, 2], network__frozen=frozen, train__learning_rate=rate,
            train__epochs=30, train__validation=0.0,
        )[0].trained.w_frozen
        for rate in (1e-12, 0.01)
    )  # fmt: skip
    assert (np.abs(end - start) > 1e-3).mean() > 0.9


@pytest.mark.parametrize(("size", "sizes"), [(0, [30]), (7, [7, 7, 7, 7, 2]), (99, [30])])
def test_an_epoch_uses_every_row_once(monkeypatch, size, sizes):
    batches, loss = [], Problem.loss

    def spy(problem, state):
        if torch.is_grad_enabled():
            batches.append(problem.y.tolist())
        return loss(problem, state)

    monkeypatch.setattr(Problem, "loss", spy)
    _, rows = small_bundle(train__batch_size=size, train__epochs=2, train__validation=0.0)
    assert [len(batch) for batch in batches] == sizes * 2
    first, second = (
        [y for batch in part for y in batch]
        for part in (batches[: len(sizes)], batches[len(sizes) :])
    )
    assert sorted(first) == sorted(second) == sorted(rows.y)
    assert (first == second) == (len(sizes) == 1)


def test_the_trained_linear_model_is_least_squares(theta_of_descent):
    # Without hidden layers and on average over the curve the model is y ~ x + u: its
    # coefficient must approach that of least squares.
    frame = small_frame(60)
    bundle, rows = small_bundle(
        "y ~ x + nn(u)", frame, network__hidden=[], subspace__k=1, train__epochs=800,
        train__learning_rate=0.02, train__validation=0.0,
    )  # fmt: skip
    A = np.column_stack([np.ones(60), rows.X, rows.U])
    covariance = np.linalg.inv(A.T @ A)[1, 1]
    solution, rss, *_ = np.linalg.lstsq(A, rows.y, rcond=None)
    error = np.sqrt(covariance * rss[0] / 57)
    assert abs(bundle.trained.theta[0] - solution[1]) < 0.2 * error


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("frozen", [0, 1])
def test_powers_of_two_of_the_units_change_theta_and_nothing_else(name, frozen):
    frame, factors = small_frame(), {"x": 2.0**7, "u": 2.0**-9, "v": 2.0**4, "y": 2.0**5}
    scaled = frame.assign(**{column: frame[column] * f for column, f in factors.items()})
    y = factors["y"] if name == "gaussian" else 1.0
    one, two = (
        family_bundle(name, "x + nn(u, v)", frame=table, network__frozen=frozen)[0].trained
        for table in (frame, scaled)
    )
    for field in ("control_points", "w_frozen", "h_loc", "h_scale", "singular_values"):
        assert np.array_equal(getattr(one, field), getattr(two, field)), field
    assert np.array_equal(one.subspace.Pi, two.subspace.Pi)
    assert np.array_equal(one.subspace.p_bar, two.subspace.p_bar)
    assert np.array_equal(two.theta, one.theta * y / factors["x"])
    assert two.dispersion == {key: y * value for key, value in one.dispersion.items()}


def test_k_must_be_smaller_than_d():
    prepared = small_prepared("y ~ nn(u)", network__hidden=[], subspace__k=1)
    problem, units = make_problem(prepared.model, prepared.rows, "cpu"), prepared.model.units
    with pytest.raises(InputError, match="d = 2, got k = 2"):
        construction("bezier")(
            problem, units, SubspaceConfig(k=2), prepared.config.train, torch.Generator()
        )


def test_training_that_diverges_is_an_error_and_no_silent_start_values():
    with pytest.raises(SemistanError):
        family_bundle("poisson", train__learning_rate=1e6, train__epochs=4)
