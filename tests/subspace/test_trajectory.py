import numpy as np
import pytest
import torch

from semistan.density.problem import Problem, make_problem
from semistan.errors import SemistanError
from semistan.subspace import trajectory
from semistan.subspace.descent import initial_parameters
from semistan.subspace.trajectory import (
    after,
    continue_training,
    joined,
    path_batch_size,
    path_spacing,
    replica,
    train_and_average,
)
from support.small import RESPONSES, small_frame, small_prepared


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def problem_of(formula="y ~ x + nn(u, v)", frame=None, name="gaussian", **settings):
    """A problem and its options of training."""
    prepared = small_prepared(formula, frame, family=name, **settings)
    return make_problem(prepared.model, prepared.rows, "cpu"), prepared.config.train


def recorded_steps(monkeypatch):
    """Record all parameters after each step of the path."""
    states, step = [], trajectory.step

    def spy(batch, parameters, optimiser, *rest):
        step(batch, parameters, optimiser, *rest)
        states.append([tensor.detach().numpy().copy() for tensor in parameters.tensors()])

    monkeypatch.setattr(trajectory, "step", spy)
    return states


def recorded_rows(monkeypatch):
    """Record the responses of each gradient step, in training and on the path."""
    seen, loss = [], Problem.loss

    def spy(problem, state):
        if torch.is_grad_enabled():
            seen.append(problem.y.tolist())
        return loss(problem, state)

    monkeypatch.setattr(Problem, "loss", spy)
    return seen


@pytest.mark.parametrize(("epochs", "snapshots"), [(3, 4), (90, 3)])
def test_averages_and_variance_are_those_of_a_naive_loop(monkeypatch, epochs, snapshots):
    states = recorded_steps(monkeypatch)
    problem, options = problem_of(train__epochs=epochs)
    start = initial_parameters(problem, 1, generator())
    path = continue_training((problem, problem), start, snapshots, options, generator())
    every, batches = path_spacing(snapshots, epochs), 10
    assert len(states) == snapshots * every * batches
    ends = states[batches - 1 :: batches]
    for i, average in enumerate(path.parameters.tensors()):
        assert np.allclose(average, np.mean([state[i] for state in ends], axis=0), rtol=1e-12)
    w = np.array([state[0][0] for state in ends])
    assert np.allclose(path.variance, w.var(axis=0), rtol=1e-10)
    assert np.allclose(path.deviations, (w - w.mean(axis=0))[every - 1 :: every], atol=1e-14)
    assert np.array_equal(path.w, path.parameters.control_points[0].numpy())


def test_the_variance_does_not_cancel_far_from_zero(monkeypatch):
    states = recorded_steps(monkeypatch)
    problem, options = problem_of()
    start = initial_parameters(problem, 1, generator())
    with torch.no_grad():
        start.control_points.add_(1e7)
    path = continue_training((problem, problem), start, 5, options, generator())
    w = np.array([state[0][0] for state in states[9::10]])
    assert np.allclose(path.variance, w.var(axis=0), rtol=1e-6, atol=1e-16)


def test_the_rate_is_constant_and_the_start_is_left_alone(monkeypatch):
    rates, step = [], trajectory.step

    def spy(batch, parameters, optimiser, *rest):
        rates.append(optimiser.param_groups[0]["lr"])
        step(batch, parameters, optimiser, *rest)

    monkeypatch.setattr(trajectory, "step", spy)
    problem, options = problem_of(train__learning_rate=0.03)
    start = initial_parameters(problem, 1, generator())
    before = [tensor.detach().clone() for tensor in start.tensors()]
    continue_training((problem, problem), start, 4, options, generator())
    assert np.allclose(rates, 0.1 * 0.03)
    assert len(rates) == 40
    assert all(map(torch.equal, start.tensors(), before))


@pytest.mark.parametrize(
    ("n", "size", "expected"),
    [(30, 0, 3), (31, 0, 4), (5, 0, 1), (1000, 0, 100), (50_000, 0, 1024), (1000, 32, 32),
     (1000, 999, 100)],
)  # fmt: skip
def test_batches_are_a_tenth_of_the_rows_or_smaller(n, size, expected):
    assert path_batch_size(n, size) == expected


@pytest.mark.parametrize(
    ("snapshots", "epochs", "expected"), [(20, 3000, 15), (20, 3, 1), (5, 100, 2), (5, 49, 1)]
)
def test_the_path_takes_a_tenth_of_trainings_epochs(snapshots, epochs, expected):
    assert path_spacing(snapshots, epochs) == expected


def test_the_path_uses_the_rows_of_training_and_no_others(monkeypatch):
    seen = recorded_rows(monkeypatch)
    problem, options = problem_of(train__epochs=2, train__validation=0.3)
    train_and_average(problem, 3, options, generator())
    training, path = seen[:2], seen[2:]
    assert [len(batch) for batch in path] == [3] * 7 * 3
    assert all(len(batch) == 21 for batch in training)
    for epoch in range(3):
        batches = path[7 * epoch : 7 * (epoch + 1)]
        assert sorted(y for batch in batches for y in batch) == sorted(training[0])


def test_the_validation_loss_is_that_of_the_rows_held_out():
    problem, options = problem_of(
        train__epochs=1, train__validation=0.3, train__learning_rate=1e-13
    )
    history = train_and_average(problem, 3, options, generator()).history
    assert np.allclose(history["validation_loss"], history["validation_loss"][0], rtol=1e-9)
    assert np.allclose(history["loss"], history["loss"][0], rtol=1e-9)
    assert abs(history["loss"] - history["validation_loss"]).min() > 1e-3


def test_the_history_goes_on_and_reports_progress():
    seen = []
    problem, options = problem_of(train__epochs=90)
    path = train_and_average(problem, 3, options, generator(), lambda *record: seen.append(record))
    history = path.history
    assert np.array_equal(history["epoch"], [*range(1, 91), 93, 96, 99])
    assert np.array_equal(history["stage"], [1] * 90 + [2] * 3)
    columns = [history[name] for name in ("epoch", "loss", "validation_loss")]
    assert seen == list(zip(*columns, strict=True))


def test_the_average_of_a_linear_model_is_least_squares():
    frame = small_frame(60)
    prepared = small_prepared("y ~ x + nn(u)", frame)
    problem, options = problem_of(
        "y ~ x + nn(u)", frame, network__hidden=[], subspace__k=1, train__epochs=800,
        train__learning_rate=0.02, train__validation=0.0,
    )  # fmt: skip
    path = train_and_average(problem, 80, options, generator())
    A = np.column_stack([np.ones(60), prepared.rows.X, prepared.rows.U])
    covariance = np.linalg.inv(A.T @ A)[1, 1]
    solution, rss, *_ = np.linalg.lstsq(A, prepared.rows.y, rcond=None)
    scale = problem.eta_scale / prepared.design.x.scale[0]
    theta = float(path.parameters.theta[0]) * scale
    assert abs(theta - solution[1]) < 0.3 * np.sqrt(covariance * rss[0] / 57)


@pytest.mark.parametrize("name", RESPONSES)
def test_the_average_is_better_than_the_path(name):
    problem, options = problem_of(
        f"{RESPONSES[name]} ~ x + nn(u, v)", small_frame(80), name,
        train__epochs=300, train__learning_rate=0.05, train__validation=0.0,
    )  # fmt: skip
    path = train_and_average(problem, 20, options, generator())
    loss = float(problem.loss(path.parameters.at(torch.ones(1, dtype=torch.float64))))
    assert loss < path.history["loss"][path.history["stage"] == 2].mean()


@pytest.mark.parametrize("rate", [1e5, 1e7])
def test_a_path_that_diverges_is_an_error(rate):
    problem, options = problem_of("count ~ x + nn(u, v)", name="poisson")
    start = initial_parameters(problem, 1, generator())
    options = options.model_copy(update={"learning_rate": rate})
    with pytest.raises(SemistanError, match="lower learning_rate"):
        continue_training((problem, problem), start, 4, options, generator())


def test_a_replica_draws_the_same_and_leaves_the_original_alone():
    original = generator(7)
    torch.rand(3, generator=original)
    drawn = torch.rand(5, generator=replica(original))
    assert torch.equal(drawn, torch.rand(5, generator=original))


def test_stages_are_joined_in_order():
    first = {"epoch": np.array([1.0, 3.0]), "loss": np.array([5.0, 4.0])}
    other = {"epoch": np.array([2.0]), "loss": np.array([3.0])}
    history = joined(first, other, first)
    assert history["epoch"].tolist() == [1, 3, 5, 6, 8]
    assert history["loss"].tolist() == [5, 4, 3, 5, 4]
    assert history["stage"].tolist() == [1, 1, 2, 3, 3]
    assert first["epoch"].tolist() == [1, 3]


def test_progress_counts_on_from_the_stage_before():
    seen = []
    after(lambda *record: seen.append(record), 10)(2, 0.5, 0.6)
    assert seen == [(12, 0.5, 0.6)]
    assert after(None, 10) is None


def test_the_prior_holds_the_weights_back_and_nothing_else(monkeypatch):
    seen, step = [], trajectory.step

    def spy(batch, parameters, optimiser, *rest):
        seen.append(optimiser.param_groups)
        step(batch, parameters, optimiser, *rest)

    monkeypatch.setattr(trajectory, "step", spy)
    problem, options = problem_of()
    start = initial_parameters(problem, 1, generator())
    continue_training((problem, problem), start, 2, options, generator())
    weights, others = seen[0]
    assert weights["weight_decay"] == 1 / len(problem)
    assert [tuple(tensor.shape) for tensor in weights["params"]] == [start.control_points.shape]
    assert others["weight_decay"] == 0
