"""The scripts of ``benchmarks/`` find what they import, but for packages that are theirs alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(
    str(path.relative_to(BENCHMARKS).with_suffix("")).replace("/", ".")
    for path in BENCHMARKS.rglob("*.py")
)


@pytest.mark.lengthy
def test_every_script_is_imported():
    code = f"""
import importlib
for name in {SCRIPTS}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert not error.name.startswith("semistan"), (name, error)
    except ImportError as error:
        raise AssertionError(name) from error
"""
    path = os.pathsep.join([str(BENCHMARKS), *sys.path])
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
