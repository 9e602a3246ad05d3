import json
import subprocess
import sys

import pytest

import semistan

HEAVY = {
    "torch", "pandas", "pydantic", "arviz", "cmdstanpy", "matplotlib", "onnx", "onnxruntime",
    "formulaic", "scipy", "xarray", "numpy", "typer", "rich",
}  # fmt: skip
COMMANDS = (
    "new", "fit", "train", "subspace", "stan", "sample", "summary", "predict", "score", "loo",
    "kfold", "compare", "effect", "marginal", "importance", "hypothesis", "r2",
    "sensitivity", "plot", "draws", "generate", "r-script",
    "report", "doctor", "install-cmdstan",
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


def test_the_version_is_printed():
    assert python("-m", "semistan", "--version") == f"semistan {semistan.__version__}\n"


@pytest.mark.parametrize("name", semistan.__all__)
def test_every_public_name_resolves(name):
    assert getattr(semistan, name) is not None


def test_dir_lists_the_public_names_in_order():
    assert dir(semistan) == sorted(semistan.__all__)


def test_the_verbs_of_the_design_are_public():
    verbs = {
        "fit", "stan_code", "stan_data", "posterior_epred", "posterior_linpred",
        "posterior_predict", "log_lik",
    }  # fmt: skip
    assert verbs <= set(semistan.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'semistan' has no attribute 'fti'"):
        _ = semistan.fti
