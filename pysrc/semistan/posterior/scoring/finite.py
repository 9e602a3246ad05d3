"""A sum or mean over rows that is no number is not printed: what is said instead names the row."""

from __future__ import annotations

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array


def fault_of(name: str, values: Array) -> str:
    """Say in which row a score (N,) is no finite number and what to do; nothing if all are."""
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:
        return ""
    return (
        f"{name} is {values[bad[0]]:g} in row {bad[0] + 1} ({bad.size} of {len(values)} rows), so "
        "that no sum or mean can be given: to the model its response is impossible, or so far off "
        "that numbers overflow. Look at the row; mend it, or leave it out"
    )


def check_finite(name: str, values: Array) -> None:
    """Refuse a score (N,) that is not finite in every row.

    Raises
    ------
    InputError
        Naming the score and the first such row.
    """
    if fault := fault_of(name, values):
        raise InputError(fault)
