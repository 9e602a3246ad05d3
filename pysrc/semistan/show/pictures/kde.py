"""Kernel density estimates of draws, by ArviZ."""

from __future__ import annotations

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.arviz import kde


def density(values: Array, *, bounded: bool = True) -> tuple[Array, Array]:
    """Return a grid and the density there; a constant has a spike of height 1.

    With ``bounded`` no value is held to be possible beyond the smallest and the largest one: the
    density is reflected there. Without, it fades out, as that of R's ``density``.
    """
    flat = np.ravel(values)
    if np.ptp(flat) == 0:
        return np.repeat(flat[:1], 2), np.array([0.0, 1.0])
    beyond = {} if bounded else {"bound_correction": False, "extend": True, "extend_fct": 1.0}
    grid, pdf = kde(flat, **beyond)
    return np.asarray(grid), np.asarray(pdf)
