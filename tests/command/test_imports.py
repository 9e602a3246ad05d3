import inspect
import json
import re
import subprocess
import sys

import pytest

import semistan
from semistan.errors import InputError

HEAVY = {
    "torch", "pandas", "pydantic", "arviz", "cmdstanpy", "matplotlib", "onnx", "onnxruntime",
    "formulaic", "scipy", "xarray", "numpy", "typer", "rich",
}  # fmt: skip
COMMANDS = (
    "new", "fit", "update", "subspace", "stan", "sample", "jobs", "reproduce", "summary", "pool",
    "priors",
    "predict", "effect", "slopes", "comparisons", "importance", "decompose", "score", "loo",
    "kfold", "compare", "pp-check", "hypothesis", "sensitivity", "terms", "baseline",
    "simulate", "sbc", "plot", "export", "report", "check", "doctor", "install-cmdstan",
)  # fmt: skip


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    ).stdout


def imported_after(statement):
    code = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    return HEAVY & set(json.loads(python("-c", code)))


def test_importing_semistan_imports_no_library():
    assert imported_after("import semistan") == set()


def test_the_command_line_imports_only_what_it_shows_itself_with():
    assert imported_after("import semistan.command.cli") == {"typer", "rich"}


def test_the_help_lists_every_command():
    text = python("-m", "semistan", "--help")
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(command, capsys):
    from semistan.command.cli import app

    with pytest.raises(SystemExit) as caught:
        app([command, "--help"])
    assert caught.value.code == 0
    assert "Usage" in capsys.readouterr().out


def test_commands_stand_in_panels(monkeypatch, capsys):
    from semistan.command.cli import app

    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        app(["--help"])
    panels = [line for line in capsys.readouterr().out.splitlines() if "─ " in line]
    titles = [line.strip("╭─╮ ") for line in panels]
    assert titles[:2] == ["Options", "Specify and fit"]
    assert "Commands" not in titles and len(titles) > 4


def test_help_shows_the_defaults(monkeypatch, capsys):
    from semistan.command.cli import app

    monkeypatch.setenv("COLUMNS", "600")
    with pytest.raises(SystemExit):
        app(["fit", "--help-all"])
    text = capsys.readouterr().out
    lines = {name: line for line in text.splitlines() for name in line.split() if name[:2] == "--"}
    shown = {"--epochs": "3000", "--hidden": "16,16", "--k": "auto", "--chains": "auto",
             "--family": "gaussian", "--prior-b": "normal(0, 2.5)", "--device": "auto"}  # fmt: skip
    for flag, default in shown.items():
        assert f"[default: ({default})]" in lines[flag], flag


def test_the_version_is_printed():
    assert python("-m", "semistan", "--version") == f"semistan {semistan.__version__}\n"


@pytest.mark.parametrize("name", semistan.__all__)
def test_every_public_name_resolves(name):
    assert getattr(semistan, name) is not None


def test_dir_lists_the_public_names_in_order():
    assert dir(semistan) == sorted(semistan.__all__)


def test_the_commands_are_these():
    from semistan.command.cli import COMMANDS as every

    assert {*every, "jobs"} == set(COMMANDS)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'semistan' has no attribute 'fti'"):
        _ = semistan.fti


def test_the_first_line_on_a_terminal_comes_before_the_heavy_imports(monkeypatch, capsys):
    """So that something is there within the first second."""
    from semistan.command.groups import model_commands
    from semistan.terminal import screen

    seen = []
    monkeypatch.setattr(screen, "is_interactive", lambda: True)

    def configure(*_):
        seen.append(capsys.readouterr().err)
        raise InputError("there is no model")

    monkeypatch.setattr("semistan.workflow.prepare.configure", configure)
    for only in (False, True):
        given = dict.fromkeys(inspect.signature(model_commands.fit).parameters)
        with pytest.raises((InputError, SystemExit)):
            model_commands.fit(**given | {"train_only": only, "as_json": False})
    assert all("reading the table" in line for line in seen) and len(seen) == 2


def test_help_names_every_family_and_every_picture():
    from semistan.command.flags import MODEL_FLAGS
    from semistan.command.groups.show_commands import plot
    from semistan.model.families.families import FAMILIES, WITH_OPTIONS
    from semistan.show.pictures import PICTURES

    def words(text):
        return set(re.findall(r"\w+", text))

    (flag,) = (flag for flag in MODEL_FLAGS if flag.name == "family")
    assert {*(family.name for family in FAMILIES), *WITH_OPTIONS} <= words(flag.help)
    option = inspect.signature(plot).parameters["kind"].annotation.__metadata__[0]
    assert {*PICTURES} <= words(option.help)
    assert {*PICTURES} <= words(semistan.plot.__doc__)
