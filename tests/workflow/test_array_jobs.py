"""Chains as jobs of their own: commands, files, and what is taken into the run."""

import json
import shlex
import shutil

import pytest

from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.workflow.array_jobs import collect, task, tasks
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample as sample_run
from support.command import command_in
from support.small import small_config, small_frame
from support.untrained import random_bundle

pytestmark = pytest.mark.lengthy

OPTIONS = SampleConfig(method="elliptical-slice", chains=3, warmup=10, draws=20, seed=7)


@pytest.fixture
def runs(tmp_path):
    """A run without draws, and the same run, sampled."""
    bundle, rows = random_bundle("gaussian")
    names = ("empty", "whole")
    empty, whole = (new_run(bundle, rows, tmp_path / name, OPTIONS, None) for name in names)
    return empty, sample_run(whole).run


def chains_of(run):
    return {path.name: path.read_bytes() for path in (run.path / "chains").glob("*.csv")}


def test_jobs_on_copies_of_the_run_give_its_draws(runs, tmp_path):
    empty, whole = runs
    out, said = tmp_path / "out", []
    commands = [shlex.split(line) for line in tasks(empty.path, out).values()]
    assert [words[:4] for words in commands] == [["semistan", "jobs", "run", str(empty.path)]] * 3
    for *_, name, _, to in commands[:2]:
        shutil.copytree(empty.path, tmp_path / name)
        assert task(tmp_path / name, name, to).is_file()
    assert collect(empty.path, out, say=said.append) is None
    assert said[-1] == "still missing: chains/chain-3.csv"
    assert len(tasks(empty.path)) == 1
    task(empty.path, "chains/chain-3.csv", out)
    fit = collect(empty.path, out)
    assert chains_of(fit.run) == chains_of(whole)
    assert (fit.run.path / "summary.csv").read_bytes() == (whole.path / "summary.csv").read_bytes()
    assert tasks(empty.path) == {}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[:-1], "cut off"),
        (lambda text: "".join(text.splitlines(keepends=True)[:-8]), "has .* draws, expected 20"),
        (lambda text: text.replace("id = 1", "id = 2"), "says that it is chain 2"),
    ],
)
def test_a_file_that_is_no_whole_chain_is_not_taken_in(runs, tmp_path, spoil, message):
    empty, whole = runs
    path = tmp_path / "jobs" / "chains" / "chain-1.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spoil((whole.path / "chains" / "chain-1.csv").read_text()))
    with pytest.raises(InputError, match=f"{message}.*semistan jobs run .* chains/chain-1.csv"):
        collect(empty.path, tmp_path / "jobs")
    assert len(tasks(empty.path)) == 3


def test_what_is_not_missing_is_not_drawn(runs):
    _, whole = runs
    with pytest.raises(InputError, match=r"does not lack 'chains/chain-1\.csv'; it lacks no chain"):
        task(whole.path, "chains/chain-1.csv")
    with pytest.raises(InputError, match="is no folder"):
        collect(whole.path, whole.path / "nowhere")


def test_the_commands_draw_each_subspaces_chains(tmp_path, monkeypatch, capsys):
    config = small_config(
        "y ~ x + nn(u, v)", train__epochs=20, subspace__subspaces=2,
        sample=OPTIONS.model_dump() | {"chains": 2},
    )  # fmt: skip
    run = fit_model(config, small_frame(24), out=tmp_path / "run").run
    before = [chains_of(member) for member in run.members]
    for member in run.members:
        shutil.rmtree(member.path / "chains")
        (member.path / "chains").mkdir()
    command = command_in(tmp_path, monkeypatch, capsys)
    code, out, _ = command("jobs", "list", "run")
    lines = out.splitlines()
    assert code == 0
    name = "subspaces/2/chains/chain-1.csv"
    assert lines[2] == f"semistan jobs run run {name} --out jobs"
    asked = json.loads(command("jobs", "list", "run", "--json")[1])
    assert asked["rows"][2] == {"chain": name, "command": lines[2]}
    for line in lines:
        assert command(*shlex.split(line)[1:])[0] == 0
    code, out, err = command("jobs", "collect", "run")
    assert code in (0, 3), err
    assert "b_Intercept" in out
    assert [chains_of(member) for member in run.members] == before


def test_a_run_without_draws_is_made_for_jobs(tmp_path, monkeypatch, capsys):
    small_frame().to_csv(tmp_path / "d.csv", index=False)
    command = command_in(tmp_path, monkeypatch, capsys)
    model = ("y ~ x + nn(u, v)", "--data", "d.csv", "--epochs", "20", "--hidden", "3", "--k", "2")
    assert command("fit", "--train-only", *model, "--out", "bundle")[0] == 0
    code, _, err = command(
        "sample", "bundle", "--out", "run", "--method", "elliptical-slice", "--no-draws"
    )
    assert code == 0, err
    assert "semistan jobs list run" in " ".join(err.split())
    assert len(command("jobs", "list", "run")[1].splitlines()) == 4
