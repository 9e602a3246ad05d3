"""A network that predicts the rows held out far worse than the others is warned of."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.density.problem import make_problem
from semistan.subspace.descent import initial_parameters, recorded_losses, split_rows
from semistan.workflow.train import held_out, train, warn_of_overfitting
from support.command import command_in
from support.small import small_config, small_prepared


def trained_with(loss, validation, error, *, rows=200, others=0, **more):
    """Return what ``held_out`` reads of a bundle, a tenth of whose rows are held out."""
    columns = {"loss": loss, "validation_loss": validation, "validation_error": error, **more}
    history = {name: np.array(values) for name, values in columns.items()}
    return SimpleNamespace(
        trained=SimpleNamespace(
            history=history, linear={"mu": np.zeros(2)}, terms={"mu": np.zeros(others)}
        ),
        source=SimpleNamespace(rows=rows),
        config=small_config(train__validation=0.1),
    )


def said(*several):
    lines = []
    warn_of_overfitting(several, lines.append)
    return lines


NAMES = [f"u{j}" for j in range(8)]
FORMULA = f"y ~ nn({', '.join(NAMES)})"


def noisy(n, sd):
    """y is the sum of 8 inputs and of noise, which a large network can imitate."""
    generator = np.random.default_rng(5)
    frame = pd.DataFrame(generator.normal(size=(n, 8)), columns=NAMES)
    return frame.assign(y=frame.sum(axis=1) + generator.normal(0, sd, n))


def trained_on(n, sd, hidden):
    prepared = small_prepared(
        FORMULA, noisy(n, sd), network__hidden=hidden, train__epochs=400,
        train__validation=0.3, train__learning_rate=0.02, subspace__construction="full",
    )  # fmt: skip
    return train(prepared)


def test_each_figure_is_a_loop_over_the_rows():
    prepared = small_prepared()
    problem, generator = make_problem(prepared.model, prepared.rows, "cpu"), torch.Generator()
    training, validation = split_rows(problem, 0.4, generator.manual_seed(1))
    parameters = initial_parameters(problem, 1, generator)
    state = parameters.copy().at(torch.ones(1, dtype=torch.float64))
    each = [float(validation.rows(torch.tensor([i])).loss(state)) for i in range(len(validation))]
    loss, held, error = recorded_losses((training, validation), parameters)
    assert loss == pytest.approx(float(training.loss(state)))
    assert held == pytest.approx(np.mean(each))
    assert error == pytest.approx(np.std(each, ddof=1) / np.sqrt(len(each)))


def test_one_row_or_none_has_no_error():
    prepared = small_prepared()
    problem, generator = make_problem(prepared.model, prepared.rows, "cpu"), torch.Generator()
    parameters = initial_parameters(problem, 2, generator)
    assert recorded_losses((problem, problem.rows(torch.arange(1))), parameters)[2] == 0
    loss, held, error = recorded_losses((problem, problem), parameters)
    assert (held, error) == (loss, 0)


@pytest.mark.parametrize(
    ("gap", "error", "warned"),
    [
        (0.5, 0.1, True),
        (0.5, 0.2, False),  # may be chance
        (0.05, 0.001, False),  # does not matter
        (-0.5, 0.01, False),
    ],
)
def test_what_may_be_chance_or_does_not_matter_is_not_warned_of(gap, error, warned):
    assert bool(said(trained_with([1.0], [1.0 + gap], [error]))) == warned


def test_the_figures_are_those_of_the_state_that_is_kept():
    found = held_out(trained_with([1.0, 0.5, 0.1], [2.0, 1.5, 3.0], [0.3, 0.2, 0.1]))
    assert (found.loss, found.validation_loss, found.error) == (0.5, 1.5, 0.2)
    staged = trained_with([1.0, 0.5], [1.1, 2.0], [0.1, 0.1], stage=[1.0, 2.0])
    assert held_out(staged).validation_loss == 2.0


def test_group_level_effects_of_few_rows_each_are_not_blamed_on_the_network():
    assert said(trained_with([1.0], [9.0], [0.1], others=18))
    assert said(trained_with([1.0], [9.0], [0.1], others=19)) == []


def test_few_rows_tell_nothing():
    assert said(trained_with([1.0], [9.0], [0.1]))
    assert said(trained_with([1.0], [9.0], [0.1], rows=90)) == []


def test_of_several_trainings_the_worst_is_told_once():
    (line,) = said(*(trained_with([1.0], [1.0 + gap], [0.01]) for gap in (0.4, 0.9, 0.05)))
    assert "20 rows" in line
    assert "a row 1.900 (standard error 0.010) against 1.000" in line
    assert "--hidden" in line
    assert "--prior-w" in line
    assert "more rows" in line


def test_a_large_network_of_few_rows_is_warned_of_and_a_small_one_of_many_is_not():
    assert said(trained_on(150, 0.5, [30]))
    assert said(trained_on(600, 0.5, [2])) == []


def test_the_command_warns_once(tmp_path, monkeypatch, capsys):
    noisy(150, 0.5).to_csv(tmp_path / "data.csv", index=False)
    semistan = command_in(tmp_path, monkeypatch, capsys)
    options = ("--hidden", 30, "--epochs", 400, "--validation", 0.3, "--learning-rate", 0.02)
    prior = ("--construction", "full", "--k", 2, "--prior-phi", "normal(0, 5)")
    code, _, error = semistan(
        "fit", "--train-only", FORMULA, "--data", "data.csv", *options, *prior
    )
    assert code == 0
    told = "warning: the network predicts the 45 rows held out from training far worse"
    assert " ".join(error.split()).count(told) == 1
