"""The command line from a CSV file to predictions, as a user would run it."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from support.untrained import FORMULA, random_frame

QUICK = ["--hidden", "4", "--k", "2", "--epochs", "200", "--chains", "2", "--draws", "300"]


def semistan(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "semistan", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("command line")  # a folder with a space in its name
    random_frame("gaussian", np.random.default_rng(2), n=60).to_csv(folder / "d.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(folder):
    result = semistan("fit", FORMULA, "--data", "d.csv", "--out", "run", *QUICK, cwd=folder)
    assert result.returncode in (0, 3), result.stderr
    return result


def test_fit_prints_the_table_and_the_run(fitted):
    for text in ("Estimate", "Est.Error", "l-95% CI", "u-95% CI", "Rhat", "Bulk_ESS", "Tail_ESS",
                 "b_Intercept", "b_x1", "b_x2", "sigma", "Priors as used", "Run: run"):  # fmt: skip
        assert text in fitted.stdout
    assert "Stan program with the C++ kernel" in fitted.stderr
    assert "trained" in fitted.stderr
    assert "Warning" not in fitted.stderr


def test_summary_repeats_the_table(fitted, folder):
    result = semistan("summary", "run", cwd=folder)
    assert result.returncode == fitted.returncode
    assert result.stdout == fitted.stdout


def test_summary_json_is_for_scripts(fitted, folder):
    result = semistan("summary", "run", "--json", cwd=folder)
    content = json.loads(result.stdout)
    table = pd.read_csv(folder / "run" / "summary.csv").set_index("variable")
    (line,) = (line for line in content["rows"] if line["variable"] == "b_x1")
    assert line["Estimate"] == pytest.approx(table.loc["b_x1", "Estimate"])
    assert content["priors"]["w"].startswith("normal(0, 2 / sqrt")
    assert content["passed"] == (result.returncode == 0)


def test_an_existing_run_needs_overwrite(fitted, folder):
    before = (folder / "run" / "manifest.json").read_bytes()
    again = semistan("fit", FORMULA, "--data", "d.csv", "--out", "run", *QUICK, cwd=folder)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    assert (folder / "run" / "manifest.json").read_bytes() == before


def test_the_same_seed_gives_the_same_draws_from_any_folder(fitted, folder, tmp_path):
    result = semistan(
        "fit", FORMULA, "--data", folder / "d.csv", "--out", tmp_path / "other", *QUICK,
        cwd=tmp_path,
    )  # fmt: skip
    assert "already compiled" in result.stderr
    first, second = (
        [line for line in (run / "chains" / "chain-1.csv").read_text().splitlines()
         if not line.startswith("#")]
        for run in (folder / "run", tmp_path / "other")
    )  # fmt: skip
    assert first == second


def test_a_failed_diagnostic_exits_with_3_and_advice(folder):
    result = semistan(
        "fit", FORMULA, "--data", "d.csv", "--out", "short", "--hidden", "4", "--k", "2",
        "--epochs", "50", "--chains", "2", "--warmup", "100", "--draws", "20", cwd=folder,
    )  # fmt: skip
    assert result.returncode == 3
    assert "Warning ESS of coefficients" in result.stdout
    assert "draw more (--draws)" in result.stdout


def test_new_then_train_then_stan_then_sample(fitted, folder):
    steps = [
        ("new", FORMULA, "--data", "d.csv", "--out", "model.toml", "--hidden", "4", "--k", "2",
         "--epochs", "200", "--chains", "2", "--draws", "300"),
        ("fit", "model.toml", "--train-only", "--out", "bundle"),
        ("stan", "bundle", "--out", "program", "--kernel", "cpp"),
        ("stan", "bundle", "--out", "pure"),
        ("sample", "bundle", "--out", "sampled"),
    ]  # fmt: skip
    for step in steps:
        result = semistan(*step, cwd=folder)
        assert result.returncode in (0, 3), result.stderr
    assert {path.name for path in (folder / "program").iterdir()} == {
        "program.stan", "data.json", "inits-1.json", "inits-2.json", "labels.json",
        "metric-1.json", "metric-2.json",
        "log_lik.hpp", "network_kernel.hpp", "network_vectors.hpp", "activations.hpp",
        "run.sh", "run.R",
    }  # fmt: skip
    assert "gaussian_log_lik" not in (folder / "pure" / "program.stan").read_text()
    for name in ("program.stan", "data.json", "inits-1.json", "metric-1.json"):
        assert (folder / "program" / name).read_bytes() == (folder / "run" / name).read_bytes()
    assert (folder / "sampled" / "summary.csv").read_bytes() == (
        folder / "run" / "summary.csv"
    ).read_bytes()


def test_an_interrupted_run_is_completed(fitted, folder):
    shutil.copytree(folder / "run", folder / "interrupted")
    (folder / "interrupted" / "chains" / "chain-2.csv").unlink()
    result = semistan("summary", "interrupted", cwd=folder)
    assert result.returncode == 2
    assert "semistan sample interrupted" in result.stderr
    result = semistan("sample", "interrupted", cwd=folder)
    assert result.returncode == fitted.returncode
    assert "sampling 1 chain x" in result.stderr


def test_options_of_a_run_cannot_be_changed_afterwards(fitted, folder):
    result = semistan("sample", "run", "--draws", "50", cwd=folder)
    assert result.returncode == 2
    assert "options of its own" in result.stderr


def test_predict_prints_one_line_per_row(fitted, folder):
    table = pd.read_csv(folder / "d.csv").drop(columns="y").head(4)
    table.to_csv(folder / "new.csv", index=False)
    result = semistan("predict", "run", "--newdata", "new.csv", cwd=folder)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "row,Estimate,Est.Error,Q2.5,Q97.5"
    assert len(lines) == 5


def test_predict_writes_draws_that_give_the_table(fitted, folder):
    result = semistan(
        "predict", "run", "--newdata", "d.csv", "--kind", "predict", "--interval", "0.8",
        "--out", "table.csv", "--draws", "draws.csv", cwd=folder,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    table, draws = pd.read_csv(folder / "table.csv"), pd.read_csv(folder / "draws.csv")
    assert list(draws.columns) == [".row", ".chain", ".iteration", ".draw", ".prediction"]
    assert len(draws) == 600 * 60
    values = draws.pivot(index=".draw", columns=".row", values=".prediction").to_numpy()
    assert table["Estimate"].to_numpy() == pytest.approx(values.mean(axis=0), rel=1e-8)
    assert table["Q10"].to_numpy() == pytest.approx(np.quantile(values, 0.1, axis=0), rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--newdata", "missing.csv"), "does not exist"),
        (("--newdata", "d.csv", "--kind", "mean"), "unknown kind of prediction 'mean'"),
        (("--newdata", "d.csv", "--interval", "95"), "between 0 and 1"),
        (("--newdata", "partial.csv"), "names column 'u3'"),
        (("--newdata", "holes.csv"), "--drop-missing"),
    ],
)
def test_bad_predictions_exit_with_2(fitted, folder, arguments, message):
    frame = pd.read_csv(folder / "d.csv")
    frame.drop(columns="u3").to_csv(folder / "partial.csv", index=False)
    frame.loc[3, "u1"] = np.nan
    frame.to_csv(folder / "holes.csv", index=False)
    result = semistan("predict", "run", *arguments, cwd=folder)
    assert result.returncode == 2
    assert message in result.stderr


def test_predict_drops_missing_rows_and_keeps_their_numbers(fitted, folder):
    frame = pd.read_csv(folder / "d.csv").head(6)
    frame.loc[3, "u1"] = np.nan
    frame.to_csv(folder / "holes.csv", index=False)
    result = semistan("predict", "run", "--newdata", "holes.csv", "--drop-missing", cwd=folder)
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == [
        "row", "1", "2", "3", "5", "6",
    ]  # fmt: skip


def test_a_program_that_does_not_compile_shows_the_first_error(toolchain):
    from semistan.errors import ToolchainError
    from semistan.infer.cmdstan.compile import compile_program

    with pytest.raises(ToolchainError, match=r"semicolon|expected|Syntax error"):
        compile_program("parameters { real x }", toolchain)


def test_doctor_finds_everything(folder):
    result = semistan("doctor", "--json", cwd=folder)
    assert result.returncode == 0, result.stdout
    assert {"CmdStan", "C++ compiler", "make"} <= {
        item["name"] for item in json.loads(result.stdout)["rows"]
    }


def test_install_cmdstan_uses_what_is_there(toolchain, folder):
    result = semistan("install-cmdstan", cwd=folder)
    assert result.returncode == 0
    assert str(toolchain.cmdstan) in result.stderr
