"""R of the tests: Rscript, its packages, and a stub of cmdstanr, which Debian does not have."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STUB = Path(__file__).with_name("cmdstanr")


def plain_r():
    """Path of Rscript; tests without it are skipped."""
    path = shutil.which("Rscript")
    if path is None:
        pytest.skip("Rscript is not installed")
    return path


def r_with(*packages):
    """Path of an Rscript that has these packages; tests without them are skipped."""
    path = plain_r()
    found = run_r([path, "-e", "cat(rownames(installed.packages()))"]).split()
    if absent := sorted(set(packages) - set(found)):
        pytest.skip(f"R lacks the packages {', '.join(absent)}")
    return path


def run_r(command, **settings):
    """What R prints; the test fails with its message if it ends with an error."""
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **settings
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def with_stub_of_cmdstanr(folder):
    """Install the stub of cmdstanr into a library in this folder; return R's environment."""
    library = folder / "library"
    library.mkdir()
    run_r(["R", "CMD", "INSTALL", "--no-docs", f"--library={library}", STUB])
    return os.environ | {"R_LIBS": str(library)}
