"""The R package builds and passes R CMD check, with tests that fit through this Python."""

import os
import sys
from pathlib import Path

import pytest

from support.r import r_with, run_r

pytestmark = [pytest.mark.cmdstan, pytest.mark.slow]

PACKAGE = Path(__file__).parents[2] / "r"


def test_the_package_passes_its_check(tmp_path):
    r_with("reticulate", "rstantools", "testthat", "loo", "nlme", "posterior")
    settings = {
        "cwd": tmp_path,
        "env": os.environ | {"RETICULATE_PYTHON": sys.executable, "NOT_CRAN": "true"},
    }
    run_r(["R", "CMD", "build", PACKAGE], **settings)
    (archive,) = tmp_path.glob("semistan_*.tar.gz")
    said = run_r(["R", "CMD", "check", "--no-manual", "--no-build-vignettes", archive], **settings)
    assert "WARNING" not in said
