"""ArviZ, imported where it is used and without the notice it prints about its next version."""

import warnings
from typing import Any


def quiet_arviz() -> Any:
    """Import ArviZ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
