"""A run that was written once stays readable, and says what it said then.

The folder ``sealed`` is a run as it was written (see ``make.py``) with ``expected.json``: what was
read from it then. Only public functions and the command line are used.
"""

import json
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.bundle.bundle import read_bundle
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik as log_lik_of
from semistan.posterior.run import read_run
from semistan.workflow.check import check
from semistan.workflow.prepare import new_rows
from semistan.workflow.sample import read_fitted

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))
RELATIVE = 1e-9

folders = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture
def command(monkeypatch):
    """Run ``semistan`` and return its exit code."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["semistan", *map(str, arguments)])
        try:
            runpy.run_module("semistan", run_name="__main__")
        except SystemExit as finished:
            return finished.code or 0
        return 0

    return run


def expected(folder):
    return json.loads((folder / "expected.json").read_text())


def assert_same(values, numbers):
    """Compare with the numbers of JSON, where a NaN is null."""
    values, numbers = (np.array(array, dtype=float) for array in (values, numbers))
    assert values.shape == numbers.shape
    size = np.nanmax(np.abs(numbers), initial=0)
    np.testing.assert_allclose(values, numbers, rtol=RELATIVE, atol=RELATIVE * 1e-3 * size)


def by_draw(path, shape):
    """Read the predictions of ``predict --draws``, of rows, categories and draws."""
    table = pd.read_parquet(path)
    keys = [name for name in (".row", ".category") if name in table]
    wide = table.pivot(index=".draw", columns=keys, values=table.columns[-1])
    return wide.to_numpy().reshape(shape)


def test_there_is_a_run_to_read():
    assert [folder.name for folder in FOLDERS] == ["sealed"]


@folders
def test_draws_are_those_that_were_read_then(folder):
    then = expected(folder)
    draws = read_posterior(read_run(folder)).draws
    assert_same(draws.phi, then["phi"])
    assert_same(draws.theta, then["theta"])


@folders
def test_coefficients_are_in_the_table_of_draws(folder, command, tmp_path):
    then = expected(folder)["coefficients"]
    assert command("export", folder, "--to", "draws", "--out", tmp_path / "draws.parquet") == 0
    table = pd.read_parquet(tmp_path / "draws.parquet")
    for name, values in then.items():
        assert_same(table[name], np.ravel(np.array(values, dtype=float)))


@folders
def test_the_summary_is_the_one_of_then(folder, command, capsys):
    then = expected(folder)["summary"]
    table = read_fitted(folder).summary.table()
    assert list(table.index) == then["index"]
    assert list(table.columns) == then["columns"]
    assert_same(table, then["data"])
    assert command("summary", folder, "--json") in (0, 3)
    shown = json.loads(capsys.readouterr().out)["rows"]
    assert [line.pop("variable") for line in shown] == then["index"]
    assert_same([list(line.values()) for line in shown], then["data"])


@folders
def test_predictions_are_those_of_then(folder, command, tmp_path):
    then = expected(folder)
    epred = np.array(then["posterior_epred"])
    rows = pd.DataFrame(then["rows"])
    rows.to_parquet(tmp_path / "new.parquet")
    files = "--out", tmp_path / "table.csv", "--draws", tmp_path / "draws.parquet"
    assert command("predict", folder, "--newdata", tmp_path / "new.parquet", *files) == 0
    assert_same(by_draw(tmp_path / "draws.parquet", epred.shape), epred)
    table = semistan.predict(folder, rows)
    assert_same(table["Estimate"], epred.mean(axis=0).ravel())
    assert_same(table["Est.Error"], epred.std(axis=0, ddof=1).ravel())
    assert_same(table["Q2.5"], np.quantile(epred, 0.025, axis=0).ravel())


@folders
def test_log_likelihoods_of_rows_are_those_of_then(folder):
    then, run = expected(folder), read_run(folder)
    rows = new_rows(run.bundle, pd.DataFrame(then["rows"]), response=True)
    assert_same(log_lik_of(read_posterior(run), rows), then["log_lik"])


@folders
def test_the_bundle_is_read_by_itself_and_its_onnx_graph_predicts(folder):
    then, rows = expected(folder), pd.DataFrame(expected(folder)["rows"])
    bundle, run = read_bundle(folder / "bundle"), read_run(folder)
    assert np.array_equal(bundle.subspace.p_bar, run.bundle.subspace.p_bar)
    assert bundle.subspace.k == np.shape(then["phi"])[-1]
    by_torch = semistan.predict(folder, rows, kind="linpred")
    by_onnx = semistan.predict(folder, rows, kind="linpred", engine="onnx")
    assert_same(by_onnx["Estimate"], by_torch["Estimate"])


def test_every_file_of_a_sealed_run_is_what_was_written(tmp_path):
    run = shutil.copytree(Path(__file__).parent / "sealed", tmp_path / "run")
    (run / "expected.json").unlink()  # which was put beside it afterwards
    found = check(run)
    assert found.passed
    assert {item.state for item in found.files} == {"unchanged"}
    assert "kfold/fold-2/pointwise.parquet" in {item.file for item in found.files}


def test_a_cross_validation_is_the_one_of_then(tmp_path):
    """Its folds are there, so that nothing is fitted."""
    folder = Path(__file__).parent / "sealed"
    then = expected(folder)["kfold"]
    found = semistan.kfold(shutil.copytree(folder, tmp_path / "run"), folds=2)
    assert found.fold.tolist() == then["fold"]
    table = found.table()
    assert list(table.columns) == then["columns"]
    for name, values in table.items():
        numbers = [line[then["columns"].index(name)] for line in then["data"]]
        if pd.api.types.is_numeric_dtype(values):
            assert_same(values, numbers)
        else:
            assert list(values) == numbers
