"""Every command that prints a table answers scripts in the same way."""

import json

import numpy as np
import pandas as pd
import pytest
import typer

from semistan.command import cli
from semistan.show.answers import Answer
from semistan.workflow.fit import fit_model
from support.command import command_in
from support.small import small_config, small_frame

NO_TABLE = {"new", "stan", "plot", "report", "export", "install-cmdstan", "simulate", "jobs"}
OWN_FOLDER = {"fit", "update", "sample", "sbc"}  # --out is the folder that they write
SAMPLE = {"method": "elliptical-slice", "chains": 2, "draws": 40, "warmup": 20}
ASKED = (
    "summary run", "summary run --mcse", "summary run --interval 0.9", "predict run",
    "predict run --newdata d.csv --kind predict", "score run --newdata d.csv", "score run --r2",
    "loo run", "compare run again", "pool run run", "effect run u", "slopes run x",
    "importance run --repeats 1", "comparisons run x", "decompose run", "pp-check run",
    "hypothesis run b_x>0", "sensitivity run", "terms grouped", "priors run",
    "subspace run", "check run",
)  # fmt: skip


def options(name):
    command = typer.main.get_command(cli.app).commands[name]
    return {text for parameter in command.params for text in parameter.opts}


@pytest.mark.parametrize("name", sorted(set(cli.COMMANDS) - NO_TABLE))
def test_a_command_that_prints_a_table_has_both_options(name):
    assert {"--json", "--out", "--overwrite"} - options(name) <= (
        {"--overwrite"} if name in OWN_FOLDER else set()
    )


def test_several_tables_are_one_with_a_column_that_names_them(tmp_path):
    tables = {
        "a": pd.DataFrame({"x": [1, 2], "value": [0.1 + 0.2, np.nan]}),
        "b": pd.DataFrame({"name": ["u"], "value": [np.inf]}),
    }
    answer = Answer(tables, {"passed": True, "rhat": np.nan})
    for ending in ("csv", "parquet", "json"):
        answer.write(tmp_path / f"f.{ending}")
    found = json.loads((tmp_path / "f.json").read_text(), parse_constant=pytest.fail)
    assert found == {
        "passed": True,
        "rhat": None,
        "rows": [
            {"table": "a", "x": 1, "value": 0.1 + 0.2, "name": None},
            {"table": "a", "x": 2, "value": None, "name": None},
            {"table": "b", "x": None, "value": None, "name": "u"},
        ],
    }
    for table in (pd.read_csv(tmp_path / "f.csv"), pd.read_parquet(tmp_path / "f.parquet")):
        assert table["table"].tolist() == ["a", "a", "b"]
        assert table["value"].tolist()[::2] == [0.1 + 0.2, np.inf]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    table = small_frame(40)
    table.to_csv(folder / "d.csv", index=False)
    for name, formula in (
        ("run", "y ~ x + nn(u, v)"),
        ("again", "y ~ x + nn(u)"),
        ("grouped", "y ~ x + s(v) + (1 | g) + nn(u)"),
    ):
        fit_model(small_config(formula, sample=SAMPLE), table, out=folder / name)
    return folder


@pytest.mark.lengthy
@pytest.mark.parametrize("asked", ASKED)
def test_json_and_files_say_the_same(asked, folder, tmp_path, monkeypatch, capsys):
    command = command_in(folder, monkeypatch, capsys)
    code, out, err = command(*asked.split(), "--json")
    assert code in (0, 3), err
    rows = json.loads(out, parse_constant=pytest.fail)["rows"]
    assert rows
    for ending in ("csv", "parquet", "json"):
        _, out, _ = command(*asked.split(), "--out", tmp_path / f"f.{ending}")
        assert out == ""
    assert json.loads((tmp_path / "f.json").read_text())["rows"] == rows
    expected = pd.DataFrame(rows)
    for table in (pd.read_csv(tmp_path / "f.csv"), pd.read_parquet(tmp_path / "f.parquet")):
        assert list(table) == list(expected)
        for name in expected.select_dtypes("number"):
            values, numbers = (t[name].astype(float).to_numpy() for t in (table, expected))
            finite = np.isfinite(numbers)
            assert values[finite] == pytest.approx(numbers[finite], rel=1e-14, abs=0), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "f.txt"), ".csv, .parquet or .json"),
        (("--out", "d.csv"), "exists"),
        (("--out", "new.json", "--json"), "give one of them"),
    ],
)
@pytest.mark.parametrize("asked", ["summary run", "predict run"])
def test_files_that_cannot_be_written_are_refused(
    asked, options, message, folder, monkeypatch, capsys
):
    code, _, err = command_in(folder, monkeypatch, capsys)(*asked.split(), *options)
    assert code == 2
    assert message in " ".join(err.split())
