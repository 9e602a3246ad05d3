"""Where NUTS starts: a mode inside the subspace, and the metric that fits there.

The weights at phi = 0 are no mode of the posterior of (phi, theta, dispersion) once k is large.
Some damped Gauss-Newton (Levenberg-Marquardt) steps in the program's unconstrained coordinates

    q = (phi / phi_scale, theta / theta_scale, log dispersion)

find one; the standard deviations of penalised coefficients are estimated besides, and the scales of
a joint prior held (``spread.py``).
Its curvature (``derivatives.py``) is the inverse of the posterior's covariance if that is Gaussian:
the inverse is the initial inverse metric.

Nocedal and Wright (2006), Numerical Optimization, 10.3; the damping follows Nielsen (1999), Damping
parameter in Marquardt's method, IMM-REP-1999-05.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.derivatives import Expansion, derivatives, expansion
from semistan.density.spread import held_coordinates, reestimated
from semistan.density.target import Target, negative_log_posterior
from semistan.lazy import torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

MAX_STEPS = 100
ENOUGH = 1e-2  # nats: the search ends when a step promises less
MAX_DAMPING = 1e8
ESTIMATES = 8  # of the standard deviations of penalised coefficients


@dataclass(frozen=True, slots=True, eq=False)
class Mode:
    """A mode of the posterior with the inverse of its curvature.

    Attributes
    ----------
    q : array, shape (n,)
        The mode in unconstrained coordinates: phi / phi_scale, theta / theta_scale,
        log dispersion.
    inv_metric : array, shape (n, n)
        Inverse of the generalised Gauss-Newton matrix: the covariance of the Laplace
        approximation.
    log_density : float
        Log posterior density of q, up to a constant.
    steps : int
        Accepted Gauss-Newton steps.
    """

    q: Array
    inv_metric: Array
    log_density: float
    steps: int

    @property
    def evidence(self) -> float:
        """The log integral of the Laplace approximation, up to a constant."""
        return self.log_density + float(np.linalg.slogdet(self.inv_metric)[1]) / 2


def find_mode(target: Target, start: Array) -> Mode | None:
    """Climb to a mode by damped Gauss-Newton steps.

    Parameters
    ----------
    target : Target
        The posterior.
    start : array, shape (n,)
        Where to start, in unconstrained coordinates.

    Returns
    -------
    Mode or None
        The last state that was accepted, with the metric there; None if the density or its
        curvature is not finite.
    """
    held, q, mode = held_coordinates(target, len(start)), start, None
    if not target.bundle.design.terms:
        return _climbed(target, start, held)
    for _ in range(ESTIMATES):
        mode = _climbed(target, q, held)
        if mode is None:
            return None
        q = reestimated(target, mode.q, _given(mode.inv_metric, held))
    return mode


def normal_mean(target: Target, mode: Mode) -> Array:
    """Return the mean (n,) of the normal with the density's slope and curvature at a mode.

    It is one whole Gauss-Newton step away, which is small, but for what the search left out. If
    the predictors were linear in q and the response were Gaussian, it would be the exact mean.
    The standard deviations of penalised coefficients stay at their estimates.
    """
    slope = derivatives(target, torch.tensor(mode.q))[0].numpy()
    held = held_coordinates(target, len(mode.q))
    return np.asarray(mode.q - _given(mode.inv_metric, held) @ slope)


def _given(covariance: Array, held: np.ndarray) -> Array:
    """Return the covariance given the held coordinates, which have none themselves."""
    if not held.any():
        return covariance
    across = covariance[:, held]
    given = covariance - across @ np.linalg.solve(covariance[np.ix_(held, held)], across.T)
    given[held], given[:, held] = 0, 0
    return given


def _climbed(target: Target, start: Array, held: np.ndarray) -> Mode | None:
    """Climb with some coordinates held where they are."""
    q, damping, growth, steps = torch.tensor(start), 1e-3, 2, 0
    free = torch.from_numpy(np.flatnonzero(~held))
    value = negative_log_posterior(target, q)
    around = expansion(target, q)
    slope, inner, gain = _newton(around.among(free))
    while gain > ENOUGH and steps < MAX_STEPS and damping < MAX_DAMPING:
        more = damping * inner.diagonal()
        step = -torch.linalg.solve(inner + torch.diag(more), slope)
        candidate = q.index_add(0, free, step)
        new = negative_log_posterior(target, candidate)
        if not new < value:
            damping, growth = damping * growth, 2 * growth
            continue
        promised = float(step @ (more * step - slope)) / 2
        damping *= max(1 / 3, 1 - (2 * (value - new) / promised - 1) ** 3)
        q, value, growth, steps = candidate, new, 2, steps + 1
        around = expansion(target, q)
        slope, inner, gain = _newton(around.among(free))
    factor, failed = torch.linalg.cholesky_ex(around.matrix)
    if failed or not np.isfinite(value):
        return None
    return Mode(q.numpy(), torch.cholesky_inverse(factor).numpy(), -value, steps)


def _newton(around: Expansion) -> tuple[Tensor, Tensor, float]:
    """Return slope and curvature, and what a step to where they lead would gain, in nats."""
    slope, matrix = around.gradient, around.quick
    return slope, matrix, float(slope @ torch.linalg.solve(matrix, slope)) / 2
