"""Inputs that are kept as they were read, against those that are standardised at once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.density.features import head_problem
from semistan.density.inputs import Inputs, inputs_of, joined_inputs
from semistan.density.problem import make_problem
from semistan.model.formula.images import Image
from semistan.model.table import pictures
from semistan.model.table.pictures import learn_pictures, pixels
from semistan.workflow.prepare import prepare
from support.small import small_config

IMAGE = Image("p", (4, 5), 3)


def images(dtype, n=23):
    generator = np.random.default_rng(1)
    return generator.integers(0, 256, (n, 3, 4, 5)).astype(dtype)


def frame_of(values):
    return pd.DataFrame({"p": list(values)})


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_stay_as_small_as_they_are_and_mean_the_same(dtype):
    values = images(dtype)
    learnt, U = learn_pictures(IMAGE, frame_of(values))
    double, whole = learn_pictures(IMAGE, frame_of(values.astype(float)))
    assert (U.dtype, whole.dtype) == (np.dtype(dtype), np.float64)
    assert np.array_equal(U, whole)
    assert learnt == double
    numbers = values.astype(float)
    assert learnt.means == pytest.approx(numbers.mean(axis=(0, 2, 3)))
    assert learnt.sds == pytest.approx(numbers.std(axis=(0, 2, 3), ddof=1))


def test_moments_in_pieces_are_those_of_all(monkeypatch):
    frame = frame_of(images("uint8"))
    learnt = learn_pictures(IMAGE, frame)[0]
    monkeypatch.setattr(pictures, "NUMBERS", 3 * 60)
    assert learn_pictures(IMAGE, frame)[0] == learnt


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64"])
def test_other_numbers_are_float64(dtype):
    assert pixels(IMAGE, frame_of(images("uint8").astype(dtype))).dtype == np.float64
    mixed = [*images("uint8", 2), *images("float32", 2)]
    assert pixels(IMAGE, frame_of(mixed)).dtype == np.float64
    assert pixels(IMAGE, frame_of(images("uint8").tolist())).dtype == np.float64


def both(dtype="uint8"):
    """Inputs that are standardised where they are asked for, and the numbers that they are."""
    U, generator = images(dtype).reshape(23, -1), np.random.default_rng(2)
    loc, scale = generator.normal(size=60), generator.uniform(1, 2, size=60)
    return inputs_of(U, loc, scale, "cpu"), (U - loc) / scale


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_values_are_standardised_to_the_last_bit(dtype):
    inputs, expected = both(dtype)
    assert (inputs.units is None) == (dtype == "float64")
    assert np.array_equal(inputs.values.numpy(), expected)
    assert len(inputs) == 23
    index = torch.tensor([4, 2, 2])
    assert np.array_equal(inputs.rows(index).values.numpy(), expected[[4, 2, 2]])
    assert np.array_equal(inputs.rows(slice(3, 9)).values.numpy(), expected[3:9])
    single = inputs.single()
    assert single.values.dtype == torch.float32
    assert single.values.numpy() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert torch.equal(single.rows(index).values, single.values[index])
    again = joined_inputs([inputs.rows(slice(0, 9)), inputs.rows(slice(9, 23))])
    assert np.array_equal(again.values.numpy(), expected)
    assert np.array_equal(inputs.to("cpu").values.numpy(), expected)


def test_a_problem_of_images_has_the_losses_and_features_of_their_standardised_numbers():
    frame = frame_of(images("uint8")).assign(y=np.arange(23.0) % 5)
    config = small_config(
        "y ~ nn(image(p))", network__kernel=2, network__channels=[2], network__hidden=[3]
    )
    prepared = prepare(config, frame)
    model = prepared.model
    small = make_problem(model, prepared.rows, "cpu")
    large = replace(small, inputs=Inputs(small.U))
    assert small.inputs.stored.dtype == torch.uint8
    w = torch.linspace(-1, 1, model.leading.sizes[0], dtype=torch.float64)
    assert torch.equal(
        head_problem(small, model.leading, w).problem.U,
        head_problem(large, model.leading, w).problem.U,
    )
    index = torch.tensor([3, 1])
    assert torch.equal(small.rows(index).U, large.U[index])
