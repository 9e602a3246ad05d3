"""Convolutions in single precision: where chains move and where networks are trained."""

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.density import features
from semistan.density.inputs import Inputs
from semistan.density.predictor import network_output
from semistan.density.problem import Problem, make_problem
from semistan.density.target import make_target, negative_log_posterior, value_and_gradient
from semistan.infer.starts import find_starts
from semistan.infer.task import all_bits
from semistan.model.config import SampleConfig
from semistan.model.names import MU
from semistan.model.networks.networks import layer_inputs
from semistan.subspace import coefficients, descent
from semistan.subspace.descent import Parameters
from semistan.subspace.start_values import curve_states
from semistan.workflow.prepare import prepare
from semistan.workflow.train import train
from support.chains import draw_chains
from support.small import small_config
from support.untrained import random_bundle

ROWS = 40


def of_images(formula="y ~ x + nn(image(p))", **settings):
    """A trained bundle of images, all of whose layers are Bayesian, and its rows."""
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (ROWS, 3, 9, 9)).astype("uint8")
    x = generator.normal(size=ROWS)
    y = x + images[:, 0].mean(axis=(1, 2)) / 10 + generator.normal(size=ROWS)
    frame = pd.DataFrame({"p": list(images), "x": x, "v": generator.normal(size=ROWS), "y": y})
    plain = {
        "network__frozen": 0, "network__channels": [3], "network__hidden": [4], "subspace__k": 2,
        "train__epochs": 8,
    }  # fmt: skip
    prepared = prepare(small_config(formula, **(plain | settings)), frame)
    return train(prepared), prepared.rows


@pytest.fixture(scope="module")
def trained():
    return of_images()


@pytest.mark.parametrize("formula", ["y ~ x + nn(image(p))", "y ~ x + nn(image(p)) + nn(v)"])
def test_the_density_and_its_gradient_are_those_of_double_precision(formula):
    target = make_target(*of_images(formula))
    single, precise = target.single(), target.chunks[0].inputs.values
    for q in curve_states(target.bundle, 3):
        value, gradient = value_and_gradient(target, q)
        rounded, slopes = value_and_gradient(single, q)
        assert rounded == pytest.approx(value, rel=1e-6)
        assert rounded != value
        assert slopes == pytest.approx(gradient, rel=1e-4, abs=1e-5 * np.abs(gradient).max())
        assert negative_log_posterior(single, torch.tensor(q)) == pytest.approx(rounded)
    assert {chunk.inputs.values.dtype for chunk in single.chunks} == {torch.float32}
    assert precise.dtype == torch.float64


def test_networks_without_convolutions_stay_as_they_are():
    target = make_target(*random_bundle("gaussian"))
    pairs = zip(target.chunks, target.single().chunks, strict=True)
    assert all(one is other for one, other in pairs)


def test_draws_are_predicted_in_it_where_that_is_asked_for(trained):
    bundle, rows = trained
    arguments = bundle.network, bundle.units, bundle.trained.control_points, rows.U
    double, single = network_output(*arguments), network_output(*arguments, single=True)
    assert double.dtype == single.dtype == np.float64
    assert single == pytest.approx(double, rel=1e-5, abs=1e-6)
    assert not np.array_equal(single, double)
    one = network_output(bundle.network, bundle.units, bundle.trained.control_points[1], rows.U)
    assert np.array_equal(one, double[1])


METHODS = ["elliptical-slice", "nuts-torch", "mclmc-torch"]


@pytest.mark.parametrize("warmup", [1, 2, 5])
@pytest.mark.parametrize("method", METHODS)
def test_chains_move_in_it_however_short_their_warmup(
    method, warmup, trained, tmp_path, monkeypatch
):
    seen, found = [], Problem.log_lik

    def spy(problem, *arguments):
        seen.append(problem.inputs.values.dtype)
        return found(problem, *arguments)

    bundle, rows = trained
    options = SampleConfig(method=method, chains=1, warmup=warmup, draws=2, seed=1)
    starts = find_starts(bundle, rows, options)
    monkeypatch.setattr(Problem, "log_lik", spy)
    draw_chains(bundle, rows, tmp_path, starts.resolve(options), starts)
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("there_is_one", [False, True])
def test_a_gpu_convolves_with_all_bits_of_it_while_chains_move(there_is_one, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_is_one)
    before = torch.backends.cudnn.allow_tf32
    assert before
    with pytest.raises(KeyboardInterrupt), all_bits():
        assert torch.backends.cudnn.allow_tf32 != there_is_one
        raise KeyboardInterrupt
    assert torch.backends.cudnn.allow_tf32 == before


def test_training_steps_are_taken_in_it_and_fewer_rows_looked_at(monkeypatch):
    looked_at, taken, found, loss = [], [], descent.recorded_losses, Problem.loss

    def spy(rows, parameters):
        looked_at.append(tuple(map(len, rows)))
        return found(rows, parameters)

    def spied_loss(problem, state):
        taken.append((problem.U.dtype, state.w.dtype))
        return loss(problem, state)

    monkeypatch.setattr(descent, "recorded_losses", spy)
    monkeypatch.setattr(Problem, "loss", spied_loss)
    of_images(train__validation=0.2)
    assert set(looked_at) == {(8, 8)}
    assert set(taken) == {(torch.float32, torch.float64)}
    looked_at.clear()
    of_images(train__validation=0.0)
    assert set(looked_at) == {(ROWS, ROWS)}


def test_what_the_output_layer_takes_is_computed_some_rows_at_a_time(trained, monkeypatch):
    """And once for all of Newton's steps, which solve for theta given the network."""
    bundle, rows = trained
    problem = make_problem(bundle.model, rows, "cpu")
    points = torch.tensor(bundle.trained.control_points)
    theta = torch.zeros(1, dtype=torch.float64)
    state = Parameters(points, theta, theta).at(torch.tensor([0.2, 0.3, 0.5]).double())
    expected = coefficients._output_inputs(problem, state)
    (layers,) = layer_inputs(problem.network, state.w, problem.U, MU)
    assert expected[:, :-1].numpy() == pytest.approx(layers[-1].numpy(), rel=1e-5, abs=1e-6)
    assert torch.all(expected[:, -1] == 1)
    pieces, values = [], Inputs.values

    def spy(inputs):
        pieces.append(len(inputs))
        return values.fget(inputs)

    monkeypatch.setattr(Inputs, "values", property(spy))
    monkeypatch.setattr(features, "NUMBERS", 7 * problem.network.widest)
    coefficients.theta_at(problem, state)
    assert pieces == [7, 7, 7, 7, 7, 5]
    assert torch.allclose(coefficients._output_inputs(problem, state), expected, rtol=1e-5)
