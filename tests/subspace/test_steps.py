"""The bound on a training's optimiser steps."""

import numpy as np
import pytest

from semistan.model.config import ModelConfig, with_overrides
from semistan.subspace.steps import with_rate, within_steps
from semistan.workflow.prepare import prepare
from semistan.workflow.train import train
from support.small import small_frame

FORMULA = "y ~ x + nn(u)"


@pytest.mark.parametrize(
    ("rows", "overrides", "expected"),
    [
        (4096, {}, 3000),
        (6000, {}, 3000),  # 6 batches of 1024 of the 5,400 that are trained on
        (20_000, {}, 1111),  # 18 batches
        (50_000, {}, 1136),  # 44 batches, and as many steps as rows
        (1_000_000, {}, 68),  # 879 batches
        (1_000_000, {"train.steps": 20_000}, 22),
        (1_000_000, {"train.batch_size": 4096}, 272),  # 220 batches
        (1_000_000, {"train.steps": 10}, 1),
        (1_000_000, {"train.epochs": 20}, 20),
        (1000, {"train.steps": 700}, 700),
        (1000, {"train.steps": 700, "train.batch_size": 100}, 77),
    ],
)
def test_epochs_fit_the_steps(rows, overrides, expected):
    config = with_overrides(ModelConfig(formula=FORMULA), overrides)
    fewer, said = within_steps(config, rows)
    assert fewer.train.epochs == expected
    assert (said is not None) == (expected < config.train.epochs)
    assert within_steps(fewer, rows) == (fewer, None) or expected == 1
    assert with_overrides(fewer, {"train.epochs": config.train.epochs}) == config


def test_images_have_no_more_steps_where_there_are_more_of_them():
    few, _ = within_steps(ModelConfig(formula=FORMULA), 50_000, of_images=True)
    assert few.train.epochs == 454  # of 44 batches, within 20,000 steps


@pytest.mark.parametrize(
    ("rows", "overrides", "of_images", "expected"),
    [
        (1000, {}, False, 0.005),
        (1000, {"train.batch_size": 100}, False, 0.01),
        (20_000, {}, False, 0.01),
        (20_000, {}, True, 0.005),
        (20_000, {"train.learning_rate": 0.003}, False, 0.003),
    ],
)
def test_the_rate_is_that_of_batches_or_of_all_rows(rows, overrides, of_images, expected):
    config = with_overrides(ModelConfig(formula=FORMULA), overrides)
    assert with_rate(config, rows, of_images=of_images).train.learning_rate == expected


def test_all_stages_of_a_construction_count():
    config = with_overrides(
        ModelConfig(formula=FORMULA), {"subspace.construction": "curve", "train.steps": 500}
    )
    from semistan.subspace.construction import construction

    fewer, _ = within_steps(config, 100)
    total = construction("curve").epochs(fewer.subspace, fewer.train)
    assert 400 < total <= 500


def test_a_training_takes_no_more_steps_and_says_so():
    options = {
        "train.steps": 40, "train.batch_size": 9, "train.epochs": 200, "subspace.k": 2,
        "network.hidden": (3,),
    }  # fmt: skip
    config = with_overrides(ModelConfig(formula=FORMULA), options)
    prepared = prepare(config, small_frame())
    assert "13 of 200 epochs: each is 3 optimiser steps" in " ".join(prepared.notes)
    bundle = train(prepared)
    assert bundle.config.train.epochs == 13
    np.testing.assert_array_equal(bundle.trained.history["epoch"], np.arange(1, 14))
