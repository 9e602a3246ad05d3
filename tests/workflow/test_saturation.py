"""A network whose hidden units no longer answer to their inputs is warned of."""

from dataclasses import replace

import pytest

from semistan.workflow.saturation import saturated, warn_of_saturation
from support.command import command_in
from support.small import small_frame
from support.untrained import random_bundle


def with_weights(change, **settings):
    """Return a bundle with changed weights in the middle of its subspace, and its rows."""
    bundle, rows = random_bundle("gaussian", **settings)
    subspace = bundle.trained.subspace
    p_bar = change(subspace.p_bar.copy(), bundle.network.parts[0])
    trained = replace(bundle.trained, subspace=replace(subspace, p_bar=p_bar))
    return replace(bundle, trained=trained), rows


def larger(w, _):
    return 1e4 * w


def dead(layer):
    """Let all units of a hidden layer be 0 at every row."""

    def change(w, part):
        w[part.layers()[layer].biases] = -1e3
        return w

    return change


def said(*several, rows):
    lines = []
    warn_of_saturation(several, rows, lines.append)
    return lines


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "softplus", "identity"])
def test_ordinary_weights_are_not_warned_of(activation):
    bundle, rows = random_bundle("gaussian", activation=activation, hidden=(5, 4))
    assert said(bundle, rows=rows) == []


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_flat_activations_are_warned_of_with_what_to_do(activation):
    bundle, rows = with_weights(larger, activation=activation)
    (line,) = said(bundle, rows=rows)
    assert line.startswith("warning: hidden layer 1 is saturated: ")
    assert f"at an end of {activation}" in line
    assert "--prior-w" in line
    assert saturated(bundle, rows).share > 0.9


@pytest.mark.parametrize("layer", [0, 1])
def test_a_dead_layer_is_warned_of_with_its_number(layer):
    bundle, rows = with_weights(dead(layer), activation="relu", hidden=(4, 4))
    (line,) = said(bundle, rows=rows)
    assert f"every unit of hidden layer {layer + 1} (relu) is 0 at every row" in line


def test_one_live_unit_is_enough():
    def one_lives(w, part):
        biases = part.layers()[0].biases
        w[biases] = -1e3
        w[biases.start] = 1e3
        return w

    bundle, rows = with_weights(one_lives, activation="relu")
    assert said(bundle, rows=rows) == []


@pytest.mark.parametrize("activation", ["softplus", "identity"])
def test_unbounded_activations_do_not_saturate(activation):
    bundle, rows = with_weights(larger, activation=activation)
    assert said(bundle, rows=rows) == []


def test_layers_behind_constant_ones_are_looked_at():
    bundle, rows = with_weights(larger, hidden=(5, 4), frozen=1)
    assert saturated(bundle, rows).layer == 1


def test_of_several_trainings_the_worst_is_told_once():
    one, rows = with_weights(dead(0), activation="relu")
    other, _ = random_bundle("gaussian", activation="relu")
    assert len(said(other, one, one, rows=rows)) == 1


def test_the_command_warns_of_steps_that_take_tanh_to_its_ends(tmp_path, monkeypatch, capsys):
    small_frame().to_csv(tmp_path / "data.csv", index=False)
    semistan = command_in(tmp_path, monkeypatch, capsys)
    short = (
        "fit",
        "--train-only",
        "y ~ x + nn(u, v)",
        "--data",
        "data.csv",
        "--k",
        2,
        "--epochs",
        20,
    )
    for rate, warnings in ((0.005, 0), (30, 1)):
        code, _, error = semistan(*short, "--learning-rate", rate, "--out", f"b{rate}")
        assert code == 0, error
        assert error.count("is saturated") == warnings
