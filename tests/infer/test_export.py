"""The exported folder runs by itself: run.sh with CmdStan alone, run.R as far as R can parse it."""

import os
import re
import shutil
import subprocess
from textwrap import indent

import numpy as np
import pandas as pd
import pytest

from semistan.bundle.bundle import write_bundle
from semistan.infer.cmdstan.toolchain import TESTED_VERSION
from semistan.infer.scripts import r_script, shell_script
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.workflow.stan import export_stan
from support.chains import complete_folder
from support.command import command_in
from support.r import plain_r, r_with, run_r, with_stub_of_cmdstanr
from support.small import small_bundle, small_frame
from support.untrained import random_bundle, tempered

OPTIONS = SampleConfig(chains=2, warmup=40, draws=30, seed=5)
SETTINGS = [
    {"kernel": "stan"},
    {"kernel": "cpp"},
    {"kernel": "stan", "metric": "dense_e"},
    {"kernel": "cpp", "metric": "diag_e", "chains": 1},
]


def exported(folder, **settings):
    bundle, rows = random_bundle("gaussian")
    options = OPTIONS.model_copy(update=settings)
    export_stan(bundle, rows, folder, options)
    return bundle, rows, options


def run_script(folder, toolchain, **settings):
    environment = os.environ | {"CMDSTAN": str(toolchain.cmdstan), "STAN_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", str(folder / "run.sh")], capture_output=True, text=True, check=False,
        env=environment, **settings,
    )  # fmt: skip


def draws(path):
    table = pd.read_csv(path, comment="#")
    return table.drop(columns=[name for name in table if name == "stepsize__"])


@pytest.mark.parametrize("kernel", ["stan", "cpp"])
def test_run_sh_has_the_draws_of_semistan_sample(kernel, toolchain, tmp_path):
    bundle, rows, options = exported(tmp_path / "a folder", kernel=kernel)
    folder = tmp_path / "moved to another place"
    shutil.move(tmp_path / "a folder", folder)
    result = run_script(folder, toolchain, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-2000:]
    assert "b_x1" in result.stdout
    starts = find_starts(bundle, rows, options)
    again = tmp_path / "again"
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns("chains", "program"))
    complete_folder(
        again, bundle, starts.resolve(options), kernel=kernel, keep_metric=starts.keeps_metric
    )
    # newer releases compile the two in ways that may differ in the last digit that is written
    digit = 0 if toolchain.version == TESTED_VERSION else 1e-8
    for chain in (1, 2):
        mine, ours = (draws(path / "chains" / f"chain-{chain}.csv") for path in (folder, again))
        assert len(mine) == options.draws
        assert np.allclose(mine, ours, rtol=digit, atol=digit)


@pytest.mark.parametrize("kernel", ["stan", "cpp"])
def test_functions_in_a_file_of_their_own_make_the_same_program(kernel, tmp_path):
    bundle, rows = random_bundle("student", formula="y ~ x1 + nn(u1), sigma ~ nn(u2)")
    options = OPTIONS.model_copy(update={"kernel": kernel})
    for include in (False, True):
        export_stan(bundle, rows, tmp_path / str(include), options, include=include)
    whole, short = ((tmp_path / str(i) / "program.stan").read_text() for i in (False, True))
    functions = indent((tmp_path / "True" / "functions.stanfunctions").read_text(), "  ")
    assert short.replace("  #include functions.stanfunctions\n", functions) == whole
    assert len(short.splitlines()) < len(whole.splitlines()) - 40


@pytest.mark.parametrize("kernel", [pytest.param("stan", marks=pytest.mark.slow), "cpp"])
def test_run_sh_compiles_a_program_that_includes_its_functions(kernel, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    options = OPTIONS.model_copy(update={"kernel": kernel, "chains": 1})
    export_stan(bundle, rows, tmp_path / "folder", options, include=True)
    result = run_script(tmp_path / "folder", toolchain)
    assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-2000:]
    assert "b_x1" in result.stdout


def test_that_the_kernel_cannot_compute_the_network_is_said(tmp_path):
    said = []

    def export(bundle, rows, kernel):
        said.clear()
        options = bundle.config.sample.model_copy(update={"kernel": kernel})
        export_stan(bundle, rows, tmp_path / "out", options, overwrite=True, say=said.append)
        assert "kernel" not in (tmp_path / "out" / "run.sh").read_text()
        return said

    residual = random_bundle("gaussian", network={"hidden": [4, 4], "skip": True})
    reason = "the C++ kernel cannot compute 3-4-4-1 (skip)"
    assert export(*residual, "cpp") == [f"pure Stan is used, because {reason}"]
    (text,) = export(*tempered("gaussian", 2.0, "subspace"), "cpp")
    assert text.endswith("because theta is integrated out")
    assert export(*residual, "auto") == export(*residual, "stan") == []


def test_the_command_says_it_too(tmp_path, monkeypatch, capsys):
    small_frame().to_csv(tmp_path / "d.csv", index=False)
    bundle, _ = small_bundle("y ~ x + nn(u, v)", network__hidden=[3, 3], network__skip=True)
    write_bundle(bundle, tmp_path / "bundle")
    command = command_in(tmp_path, monkeypatch, capsys)
    code, _, err = command("stan", "bundle", "--data", "d.csv", "--kernel", "cpp")
    assert code == 0, err
    assert "the C++ kernel cannot compute 2-3-3-1 (skip)" in " ".join(err.split())


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_folder_names_no_place_outside(settings, tmp_path):
    exported(tmp_path / "folder", **settings)
    for path in (tmp_path / "folder").iterdir():
        text = path.read_text()
        assert str(tmp_path) not in text
        if path.suffix in (".sh", ".R"):
            assert not re.search(
                r"(?<!\$PWD)(?<!\$CMDSTAN)(?<!#!)(?<![\w.*\-/])/(?!path/to|bin/sh)\w", text
            )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_files_that_the_scripts_name_are_there(settings, tmp_path):
    _, _, options = exported(tmp_path / "folder", **settings)
    present = {path.name for path in (tmp_path / "folder").iterdir()}
    for name in ("run.sh", "run.R"):
        text = (tmp_path / "folder" / name).read_text()
        assert ("log_lik.hpp" in text) == (settings["kernel"] == "cpp")
        assert ("metric-" in text) == (options.metric in ("auto", "ggn"))
        for chain in range(1, options.chains + 1):
            named = re.findall(r"[\w%$-]+\.(?:json|hpp|stan)\b", text)
            files = {re.sub(r"%d|\$i", str(chain), name) for name in named}
            assert files <= present


@pytest.mark.parametrize("keep_metric", [False, True])
@pytest.mark.parametrize("kernel", ["stan", "cpp"])
def test_the_scripts_are_short(kernel, keep_metric):
    options = OPTIONS.model_copy(update={"metric": "ggn"})
    shell, r = (
        make(options, keep_metric=keep_metric, kernel=kernel) for make in (shell_script, r_script)
    )
    commands = shell.replace("\\\n", "").splitlines()
    assert len([line for line in commands if not line.startswith("#")]) <= 13
    assert len(r.splitlines()) <= 15
    assert max(len(line) for line in (shell + r).splitlines()) <= 100


def test_run_sh_says_what_is_missing(tmp_path):
    exported(tmp_path / "folder", kernel="stan")
    environment = {name: value for name, value in os.environ.items() if name != "CMDSTAN"}
    result = subprocess.run(
        ["sh", "run.sh"], cwd=tmp_path / "folder", env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert "CMDSTAN: must name the folder of CmdStan" in result.stderr
    assert not (tmp_path / "folder" / "chains").exists()


def test_run_sh_fails_with_a_chain(toolchain, tmp_path):
    exported(tmp_path / "folder", kernel="stan")
    (tmp_path / "folder" / "inits-2.json").write_text("{}")
    (tmp_path / "folder" / "metric-2.json").write_text("no JSON")
    result = run_script(tmp_path / "folder", toolchain)
    assert result.returncode != 0
    assert "b_x1" not in result.stdout
    assert (tmp_path / "folder" / "chains" / "chain-1.csv").is_file()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_run_r_can_be_parsed(settings, tmp_path):
    exported(tmp_path / "folder", **settings)
    run_r([plain_r(), "-e", "parse('run.R')"], cwd=tmp_path / "folder")


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_run_r_asks_a_stub_of_cmdstanr_for_what_run_sh_asks_cmdstan(settings, tmp_path):
    folder = tmp_path / "folder"
    exported(folder, **settings)
    printed = run_r([r_with("posterior"), "run.R"], cwd=folder, env=with_stub_of_cmdstanr(tmp_path))
    asked = dict(line.split(" = ") for line in printed.splitlines() if " = " in line)
    asked = {name: value.strip() for name, value in asked.items()}
    shell = (folder / "run.sh").read_text()
    words = {  # CmdStan's names of what cmdstanr calls otherwise
        "iter_warmup": "num_warmup", "iter_sampling": "num_samples", "adapt_delta": "delta",
        "max_treedepth": "max_depth",
    }  # fmt: skip
    assert asked.pop("chains") == str(len(re.search(r"for i in (.*);", shell)[1].split()))
    for name, value in asked.items():
        found = re.search(rf"[ ]{words.get(name, name)}=(\S+)", shell)
        assert (found[1] if found else "NULL") == value, name
