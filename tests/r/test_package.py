"""The R package builds and passes R CMD check, with tests that fit through this Python."""

import os
import re
import sys
from pathlib import Path

import pytest

from support.r import r_with, run_r

pytestmark = [pytest.mark.cmdstan, pytest.mark.slow]

NEEDED = (
    "bayesplot", "ggplot2", "loo", "nlme", "posterior", "reticulate", "rstantools", "testthat",
)  # fmt: skip
PACKAGE = Path(__file__).parents[2] / "r"


def test_the_package_passes_its_check(tmp_path):
    r_with(*NEEDED)
    environment = {
        "RETICULATE_PYTHON": sys.executable, "NOT_CRAN": "true",
        "_R_CHECK_FORCE_SUGGESTS_": "false", "_R_CHECK_CRAN_INCOMING_": "false",
    }  # fmt: skip
    settings = {"cwd": tmp_path, "env": os.environ | environment}
    run_r(["R", "CMD", "build", "--no-build-vignettes", PACKAGE], **settings)
    (archive,) = tmp_path.glob("semistan_*.tar.gz")
    flags = ["--no-manual", "--no-build-vignettes", "--ignore-vignettes"]
    said = run_r(["R", "CMD", "check", *flags, archive], **settings)
    assert "WARNING" not in said
    tests = (tmp_path / "semistan.Rcheck" / "tests" / "testthat.Rout").read_text("utf-8")
    found = re.search(r"FAIL 0 .* PASS (\d+)", tests)
    assert found and int(found[1]) > 100, tests
