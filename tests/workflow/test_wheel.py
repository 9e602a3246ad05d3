"""The wheel, installed in a fresh environment with its declared dependencies."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory, toolchain):
    folder = tmp_path_factory.mktemp("wheel")
    run = {"check": True, "capture_output": True, "text": True, "cwd": folder}
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], **run)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([python, *install, "-c", ROOT / "constraints.txt", wheel], **run)
    return python


def test_the_installed_wheel_writes_a_stan_program(python, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-m", "semistan"]
    run = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path}
    run["env"] = environment
    model = ROOT / "models" / "closed_form" / "model.toml"
    subprocess.run([*command, "fit", model, "--train-only", "--epochs", "20"], **run)
    subprocess.run([*command, "stan", "bundle"], **run)
    program = (tmp_path / "stan-model" / "program.stan").read_text()
    assert "vector network(matrix H, vector w" in program
    found = subprocess.run([python, "-c", "import semistan; print(semistan.__file__)"], **run)
    assert str(python.parents[1]) in found.stdout


def test_the_installed_wheel_finds_the_toolchain(python):
    subprocess.run([python, "-m", "semistan", "doctor"], check=True, capture_output=True)
