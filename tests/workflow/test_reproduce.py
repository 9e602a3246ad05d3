"""A run is run again from its folder: the same bytes, or what differs is said."""

import shutil
from dataclasses import replace

import pytest

from semistan.errors import InputError
from semistan.workflow import reproduce as module
from semistan.workflow.fit import fit_model
from semistan.workflow.reproduce import reproduce
from semistan.workflow.train import train
from support.small import small_config, small_frame

SAMPLE = {"method": "elliptical-slice", "chains": 2, "draws": 30, "warmup": 20}

pytestmark = pytest.mark.lengthy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce") / "run"
    config = small_config("y ~ x + C(g) + nn(u, v)", sample=SAMPLE)
    return fit_model(config, small_frame(), out=folder).run


def test_a_run_is_reproduced_byte_for_byte(run):
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    found = reproduce(run)
    assert found["same"].all(), found
    assert list(found["what"]) == [
        "trained arrays", "program.stan", "data.json", "draws of chain 1", "draws of chain 2",
        "table",
    ]  # fmt: skip
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_what_differs_is_said(run, monkeypatch):
    """Another training is another subspace: everything that follows from it differs."""

    def other(prepared, progress, *, backend):
        later = prepared.config.train.model_copy(update={"seed": 9})
        config = prepared.config.model_copy(update={"train": later})
        return train(replace(prepared, config=config), backend=backend)

    monkeypatch.setattr(module, "train", other)
    found = reproduce(run).set_index("what")
    assert found.loc["program.stan", "same"]
    differ = ["trained arrays", "data.json", "draws of chain 1", "draws of chain 2", "table"]
    assert not found.loc[differ, "same"].any(), found
    assert found.loc["draws of chain 1", "finding"] == "from draw 1 of 30 on"
    assert "of their Est.Error" in found.loc["table", "finding"]


def test_other_versions_are_named_but_no_failure(run, monkeypatch):
    versions = module.library_versions()
    monkeypatch.setattr(module, "library_versions", lambda: versions | {"torch": "0.1"})
    found = reproduce(run)
    assert found.iloc[0]["what"] == "version of torch"
    assert found.iloc[0]["finding"].endswith("is 0.1")
    assert found["same"].all()


def test_a_run_that_lacks_a_chain_is_refused(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "chains" / "chain-2.csv").unlink()
    with pytest.raises(InputError, match="lacks chains"):
        reproduce(tmp_path / "run")
