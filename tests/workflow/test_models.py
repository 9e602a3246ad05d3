"""The worked models: golden programs, convergence, and the figures of a long run."""

import json

import numpy as np
import pytest

from semistan.workflow.fit import fit_model
from support.assertions import Z, mcse
from support.golden import CASES, TERMS, case_program, golden_files, golden_program, model_folders
from support.programs import stanc_output
from support.toolchain import compile_as_users_do

# Training rounds differently on another processor, which moves the subspace a little: a
# coefficient's posterior mean may move by this share of its posterior sd.
TRAINING_NOISE = 0.2
# Where several trainings are pooled, their number is small and half of the variance between them.
TRAININGS_NOISE = 2.0

EVERYDAY = "diabetes"  # the model that `make test` fits; `make test-all` fits all
folders = pytest.mark.parametrize("folder", model_folders(), ids=lambda folder: folder.name)


@folders
def test_the_program_is_the_golden_one(folder):
    assert golden_program(folder) == (folder / "program.stan").read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_program_of_other_terms_is_the_golden_one(name):
    assert case_program(name) == (TERMS / f"{name}.stan").read_text()


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_stanc_accepts_the_golden_program_without_a_warning(path, toolchain, tmp_path):
    assert stanc_output(path.read_text(), toolchain, tmp_path) == ""


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id=folder.name, marks=[pytest.mark.slow] * (folder.name != EVERYDAY))
        for folder in model_folders()
    ],
)
def test_the_model_converges_to_its_reference(folder, toolchain, tmp_path, monkeypatch):
    if folder.name != EVERYDAY:
        compile_as_users_do(monkeypatch)
    fit = fit_model(folder / "model.toml", out=tmp_path / "run")
    failed = [check.finding for check in fit.summary.checks if not check.passed]
    assert not failed
    reference = json.loads((folder / "reference.json").read_text())
    assert list(fit.posterior.interpreted) == list(reference)
    for name, draws in fit.posterior.interpreted.items():
        expected = reference[name]
        if expected["sd"] == 0:
            assert np.all(draws == expected["mean"])
            continue
        limit = Z * np.hypot(mcse(draws, "mean"), expected["mcse"])
        limit += (TRAININGS_NOISE if fit.run.parts else TRAINING_NOISE) * expected["sd"]
        assert abs(draws.mean() - expected["mean"]) < limit, name


@folders
def test_the_readme_shows_the_models_own_table(folder):
    text = (folder / "README.md").read_text()
    reference = json.loads((folder / "reference.json").read_text())
    for name in reference:
        assert name in text
