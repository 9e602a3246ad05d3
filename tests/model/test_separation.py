"""Columns that tell categories apart are named; others are not."""

import numpy as np
import pytest

from semistan.workflow.prepare import prepare
from support.small import category_frame, small_config, small_frame


def notes(formula, frame, family="bernoulli"):
    found = prepare(small_config(formula, family=family), frame).notes
    return [note for note in found if "rises without end" in note]


def test_a_column_that_tells_1_from_0_is_named_in_either_direction():
    frame = small_frame()
    for sign in (1, -1):
        frame["far"] = sign * (frame["flag"] * 3 + frame["z"])
        (note,) = notes("flag ~ x + far + nn(u)", frame)
        assert "'far' alone tells response 1 from 0: the likelihood of b_far" in note


def test_overlapping_columns_are_not_named():
    frame = small_frame()
    frame["far"] = frame["flag"] * 3 + frame["z"]
    frame.loc[0, "far"] = 99.0
    assert notes("flag ~ x + far + nn(u)", frame) == []
    assert notes("flag ~ x + z + g + nn(u)", frame) == []


def test_a_level_with_one_response_is_named():
    frame = small_frame()
    frame.loc[frame["g"] == "b", "flag"] = 1
    (note,) = notes("flag ~ x + g + nn(u)", frame)
    assert "response 1 from 0: the likelihood of b_gb" in note


def test_rows_without_weight_do_not_count():
    frame = small_frame()
    frame["far"], frame["w"] = frame["flag"] * 3 + frame["z"], 1.0
    frame.loc[0, ["far", "w"]] = 99.0, 0.0
    assert len(notes("flag | weights(w) ~ far + nn(u)", frame)) == 1


def test_two_unordered_categories_are_told_apart():
    frame = category_frame()
    generator = np.random.default_rng(1)
    far = generator.normal(size=len(frame)) + 30 * (frame["mode"] == "train trip")
    (note,) = notes("mode ~ far + nn(u)", frame.assign(far=far), "categorical")
    assert "response train_trip from bus" in note
    assert notes("mode ~ x + nn(u)", frame, "categorical") == []


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_other_families_have_no_such_note(family):
    frame = small_frame()
    frame["far"] = frame["count"] * 3.0
    assert notes("count ~ far + nn(u)", frame, family) == []
