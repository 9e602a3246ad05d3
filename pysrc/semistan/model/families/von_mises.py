"""Angles in radians, with a von Mises distribution around a direction that depends on inputs.

As in brms, eta is the tangent of half the mean direction mu = 2 atan(eta), which Fisher and Lee
(1992, Biometrics 48) chose since it maps the line onto the circle but for one direction, pi. kappa
is the concentration: 0 of uniform angles, and about 1 / variance where it is large. With
s - eta c = sqrt(1 + eta^2) sin((y - mu) / 2) for s, c = sin(y / 2), cos(y / 2),

    log p(y) = kappa (cos(y - mu) - 1) - log(2 pi) - log(I_0(kappa) exp(-kappa))
    cos(y - mu) - 1 = -2 (s - eta c)^2 / (1 + eta^2)

Both lose no digits at concentrations of any size. Directions around pi are where eta is infinite:
such responses have to be turned first. The variance is of y's distance from mu along the circle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import Given
from semistan.model.families.family import Costly, Dispersion, Family, Predicted

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

SLACK = 1e-6  # by which pi in single precision is too large
FARTHEST = 10.0  # tangent of half a mean direction: 0.2 from pi
MOST_SPREAD = 2.0  # standard deviation of angles, of which uniform ones have no finite one
NODES, WEIGHTS = np.polynomial.legendre.leggauss(60)
REACH = 12.0  # standard deviations within which a concentrated angle lies


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    kappa = dispersion["kappa"]
    apart = (y / 2).sin() - eta * (y / 2).cos()
    normaliser = math.log(2 * math.pi) + torch.special.i0e(kappa).log()
    density: Tensor = -2 * kappa * apart**2 / (1 + eta**2) - normaliser
    return density


def _mean(eta: Array, _: Mapping[str, Array]) -> Array:
    return np.asarray(2 * np.arctan(eta))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    kappa = np.broadcast_to(dispersion["kappa"], eta.shape)
    angle = 2 * np.arctan(eta) + generator.vonmises(0.0, kappa)
    return np.asarray(np.arctan2(np.sin(angle), np.cos(angle)))


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    kappa = np.asarray(dispersion["kappa"], dtype=float)[..., None]
    farthest = np.minimum(math.pi, REACH / np.sqrt(np.maximum(kappa, 1e-9)))
    t = farthest * NODES
    weights = WEIGHTS * np.exp(-2 * kappa * np.sin(t / 2) ** 2)
    return np.asarray((weights * t**2).sum(-1) / weights.sum(-1) + 0 * eta)


def eta_units(y: Array, given: Given) -> tuple[float, float]:
    """Return the units of a predictor that is the tangent of half the mean direction.

    That of few or nearly uniform angles is known little, so that its tangent is held near 0.

    Raises
    ------
    InputError
        If the angles lie around pi.
    """
    C, S = np.cos(y).mean(), np.sin(y).mean()
    length, noise = math.hypot(C, S), 1 / math.sqrt(len(y))
    direction = math.atan2(S, C)
    if length > 3 * noise and abs(math.tan(direction / 2)) > FARTHEST:
        raise InputError(
            f"family von_mises expects angles that do not lie around pi, where the tangent of half "
            f"the mean direction is infinite, but their mean direction is {direction:.3g}. Turn "
            "them: take another direction for 0, and add or subtract 2 pi beyond -pi and pi"
        )
    location = S / max(length + C, noise)
    spread = min(math.sqrt(-2 * math.log(max(length, 1e-12))), MOST_SPREAD)
    offset = float(np.mean(given.get("offsets", 0.0)))
    return float(location) - offset, float((1 + location**2) / 2 * spread)


VON_MISES = Family(
    name="von_mises",
    link="tan_half",
    aliases=(),
    parameters=(
        Dispersion(
            "kappa", "concentration: large values are less dispersed", "gamma(2, 0.01)", start=2.0
        ),
    ),
    integer=False,
    support=lambda y: np.abs(y) <= math.pi + SLACK,
    support_text="angles in radians, from -pi to pi",
    eta_units=eta_units,
    mean=_mean,
    log_lik=_log_lik,
    rng=_rng,
    density="von_mises_tan_half_lpdf({y} | {eta}, {kappa}, {log_bessel})",
    stan_rng="von_mises_tan_half_rng({eta}, {kappa})",
    density_functions=("von_mises.stanfunctions",),
    by_row=True,
    costly=(Costly("log_bessel", "log_scaled_bessel", "kappa"),),
    variance=_variance,
    predicted=Predicted("{link} direction[y]", "mean direction of {y}"),
)
