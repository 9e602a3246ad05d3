"""The covariances that ``gp()`` can have, by their spectral densities: a line each.

With r the distance over the length scale, and draws of the process as smooth as they say,

    exp_quad   exp(-r^2 / 2)                                  infinitely often differentiable
    matern25   (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)    twice
    matern15   (1 + sqrt(3) r) exp(-sqrt(3) r)                once

under brms's names. Their spectral densities at frequency w over sdgp^2 are, in one dimension,

    exp_quad   sqrt(2 pi) l exp(-(l w)^2 / 2)
    matern25   400 sqrt(5) / 3 l / (5 + (l w)^2)^3
    matern15   12 sqrt(3) l / (3 + (l w)^2)^2

and in two

    exp_quad   2 pi l^2 exp(-(l w)^2 / 2)
    matern25   250 sqrt(5) pi l^2 / (5 + (l w)^2)^(7/2)
    matern15   18 sqrt(3) pi l^2 / (3 + (l w)^2)^(5/2)

(Rasmussen and Williams, 2006, Gaussian Processes for Machine Learning, equation 4.15). The rougher
a process is, the higher frequencies it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Covariance:
    """One covariance.

    Attributes
    ----------
    name : str
        How users write it.
    root : callable
        Maps lscale and w, numbers, arrays or tensors, to the root of the spectral density at an
        sdgp of 1.
    front, back : str
        The same in the program: the factor that has ``{lscale}`` alone, and that of ``{lw}``, the
        product of both.
    last : float
        lscale times the highest frequency that a basis needs. In one dimension, of 200 rows with a
        noise of 0.3 sdgp, posterior means are within a tenth of their sd of those of the exact
        process; in two, 1% of the variance is beyond it.
    reach : float
        Length scales over which the covariance has fallen to about 1%.
    """

    name: str
    root: Callable[[Any, Any], Any]
    front: str
    back: str
    last: float
    reach: float


def _exp(x: Any) -> Any:
    return x.exp() if hasattr(x, "exp") else np.exp(x)


COVARIANCES = {
    item.name: item
    for item in (
        Covariance(
            "exp_quad",
            lambda lscale, w: (sqrt(2 * pi) * lscale) ** 0.5 * _exp(-0.25 * (lscale * w) ** 2),
            "sqrt(sqrt(2 * pi()) * {lscale})",
            "exp(-0.25 * square({lw}))",
            last=4.0, reach=3.0,
        ),
        Covariance(
            "matern25",
            lambda lscale, w: (400 * sqrt(5) / 3 * lscale) ** 0.5 * (5 + (lscale * w) ** 2) ** -1.5,
            "sqrt(400 * sqrt(5) / 3 * {lscale})",
            "(5 + square({lw})) .^ -1.5",
            last=9.0, reach=4.0,
        ),
        Covariance(
            "matern15",
            lambda lscale, w: (12 * sqrt(3) * lscale) ** 0.5 / (3 + (lscale * w) ** 2),
            "sqrt(12 * sqrt(3) * {lscale})",
            "inv(3 + square({lw}))",
            last=16.0, reach=4.0,
        ),
    )
}  # fmt: skip
COVARIANCES_OF_PLANE = {
    item.name: item
    for item in (
        Covariance(
            "exp_quad",
            lambda lscale, w: sqrt(2 * pi) * lscale * _exp(-0.25 * (lscale * w) ** 2),
            "{lscale} * sqrt(2 * pi())",
            "exp(-0.25 * square({lw}))",
            last=3.5, reach=3.0,
        ),
        Covariance(
            "matern25",
            lambda lscale, w: (
                sqrt(250 * sqrt(5) * pi) * lscale * (5 + (lscale * w) ** 2) ** -1.75
            ),
            "{lscale} * sqrt(250 * sqrt(5) * pi())",
            "(5 + square({lw})) .^ -1.75",
            last=5.5, reach=4.0,
        ),
        Covariance(
            "matern15",
            lambda lscale, w: sqrt(18 * sqrt(3) * pi) * lscale * (3 + (lscale * w) ** 2) ** -1.25,
            "{lscale} * sqrt(18 * sqrt(3) * pi())",
            "(3 + square({lw})) .^ -1.25",
            last=8.0, reach=4.0,
        ),
    )
}  # fmt: skip
