"""What the tests of faults share: a small finished run that no compiler is needed for.

A short part of each kind belongs to ``make test``; the full ones are marked ``faults``.
"""

import pytest

from semistan.workflow.fit import fit_model
from support.small import small_config, small_frame

FORMULA = "y ~ x + nn(u, v)"
SAMPLE = {"method": "elliptical-slice", "chains": 2, "draws": 30, "warmup": 20}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run, to be copied before it is broken; PyTorch draws its chains in a second."""
    out = tmp_path_factory.mktemp("faults") / "run"
    fit_model(small_config(FORMULA, sample=SAMPLE), small_frame(), out=out)
    return out
