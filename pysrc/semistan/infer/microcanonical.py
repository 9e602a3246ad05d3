"""What microcanonical Langevin Monte Carlo is in both its forms: compiled, and in PyTorch."""

from __future__ import annotations

from semistan.errors import InputError

TEXT = "microcanonical Langevin Monte Carlo"
STEPS = 5  # between draws that are kept
GRADIENTS = 2  # of a step
ENERGY_VARIANCE = 5e-4  # of a step's error for each coordinate
COLUMNS = {"lp": "lp__", "energy_error": "energy_error__"}


def check_dimensions(n: int, *, integrated: bool = False) -> None:
    """Refuse a single coordinate, in which a velocity has nowhere to turn.

    ``integrated`` says whether others are integrated out.

    Raises
    ------
    InputError
        Naming another method.
    """
    if n < 2:
        other = "integrate = 'none'" if integrated else "method = 'nuts'"
        raise InputError(
            f"method = 'mclmc' needs at least two parameters to sample, got one; use {other}"
        )
