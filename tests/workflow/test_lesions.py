"""The drawn lesions of models/lesions: a known truth, whatever the size of the pictures."""

import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit

from semistan.workflow.prepare import configure, prepare
from support.golden import MODELS

FOLDER = MODELS / "lesions"


@pytest.fixture(scope="module")
def drawn():
    return runpy.run_path(str(FOLDER / "draw.py"))


def test_the_same_lesions_are_drawn_at_every_size(drawn):
    (small, coarse), (large, fine) = (drawn["lesions"](6, size, 3) for size in (16, 32))
    assert small.equals(large)
    averaged = fine.reshape(6, 16, 2, 16, 2, 3).mean(axis=(2, 4))
    assert np.abs(averaged - coarse).mean() < 2


def test_the_response_has_the_probabilities_of_the_truth(drawn):
    frame, _ = drawn["lesions"](400, 2, 5)
    p = expit(frame["eta"])
    assert abs(frame["melanoma"].mean() - p.mean()) < 4 * np.sqrt((p * (1 - p)).mean() / 400)
    slope = frame["eta"] - frame["picture"] - drawn["AGE_EFFECT"] * frame["age"]
    assert np.ptp(slope) < 1e-9


def test_the_model_reads_what_is_drawn(tmp_path):
    command = [sys.executable, FOLDER / "draw.py", "--out", tmp_path, "--images", "20"]
    assert "20 lesions of 32 x 32" in subprocess.run(command, capture_output=True, text=True).stdout
    shutil.copy(FOLDER / "model.toml", tmp_path)
    prepared = prepare(configure(tmp_path / "model.toml"))
    assert prepared.rows.U.shape == (20, 3 * 32 * 32)
    assert prepared.model.leading.text == "3x32x32-conv8-conv16-conv32-16-16-1, tanh, 3 frozen"
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
