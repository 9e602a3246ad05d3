"""Where NUTS starts: a mode inside the subspace, and the metric that fits there.

The weights at phi = 0 are no mode of the posterior of (phi, theta, dispersion) once k is large.
A few damped Gauss-Newton (Levenberg-Marquardt) steps in the program's unconstrained coordinates

    q = (phi / phi_scale, theta / theta_scale, log dispersion)

find one; the standard deviations of penalised coefficients are estimated besides (``spread.py``).
The generalised Gauss-Newton matrix of the negative log posterior there,

    H = J' diag(-d^2 log p(y_i | eta_i) / d eta_i^2) J + curvature of the priors,  J = d eta / d q,

is the inverse of the posterior's covariance if it is Gaussian: its inverse is the initial inverse
metric. The predictors of dispersion parameters add such a term each, with curvatures below 0 taken
as 0; what those of positive parameters have in common with others is neglected. A temperature
divides the first term. Where theta is integrated out to temper phi alone, (1 / T - 1) S is added
instead: S, the Schur complement on phi of H less phi's prior, is the curvature of -log p(y | phi).
Schraudolph (2002), Neural Computation 14(7); Nocedal and Wright (2006), Numerical Optimization,
10.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.ggn import curvature, onto
from semistan.density.problem import Problem
from semistan.density.spread import held_coordinates, reestimated
from semistan.density.target import (
    Target,
    log_lik,
    log_marginal_likelihood,
    log_prior,
    negative_log_posterior,
    weights,
)
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.networks.networks import MU, output_and_jacobian

if TYPE_CHECKING:
    from torch import Tensor

MAX_STEPS = 100
ENOUGH = 1e-2  # nats: the search ends when a step promises less
MAX_DAMPING = 1e8
ESTIMATES = 8  # of the standard deviations of penalised coefficients
LEAST_CURVATURE = 1e-6  # of a prior, which is negative in the tails of a Student t


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
    if not target.bundle.design.penalised:
        return _climbed(target, start, np.zeros(len(start), dtype=bool))
    held, q, mode = held_coordinates(target, len(start)), start, None
    for _ in range(ESTIMATES):
        mode = _climbed(target, q, held)
        if mode is None:
            return None
        q = reestimated(target, mode.q, _given(mode.inv_metric, held))
    return mode


def _given(covariance: Array, held: np.ndarray) -> Array:
    """Return the covariance given the held coordinates, which have none themselves."""
    if not held.any():
        return covariance
    across = covariance[:, held]
    return covariance - across @ np.linalg.solve(covariance[np.ix_(held, held)], across.T)


def _climbed(target: Target, start: Array, held: np.ndarray) -> Mode | None:
    """Climb with some coordinates held where they are."""
    q, damping, steps = torch.tensor(start), 1e-3, 0
    free = torch.from_numpy(np.flatnonzero(~held))
    value = negative_log_posterior(target, q)
    gradient, matrix = derivatives(target, q)
    while steps < MAX_STEPS and damping < MAX_DAMPING:
        slope, inner = gradient[free], matrix[free][:, free]
        if not _gain(slope, inner) > ENOUGH:
            break
        damped = inner + damping * torch.diag(inner.diagonal())
        candidate = q.index_add(0, free, -torch.linalg.solve(damped, slope))
        new = negative_log_posterior(target, candidate)
        if not new < value:
            damping *= 10
            continue
        q, value, steps, damping = candidate, new, steps + 1, damping / 10
        gradient, matrix = derivatives(target, q)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed or not np.isfinite(value):
        return None
    return Mode(q.numpy(), torch.cholesky_inverse(factor).numpy(), -value, steps)


def _gain(gradient: Tensor, matrix: Tensor) -> float:
    """Return what a whole Gauss-Newton step would gain if the posterior were Gaussian, in nats."""
    return float(gradient @ torch.linalg.solve(matrix, gradient)) / 2


def derivatives(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient (n,) and Gauss-Newton matrix (n, n) of the negative log posterior at q."""
    gradient, bend = curvature(lambda x: -log_prior(target, x), q)
    bend = bend.clamp(min=LEAST_CURVATURE)
    if target.prior_only:
        return gradient, torch.diag(bend)
    slope, matrix = _by_likelihood(target, q)
    if not target.integrates_theta:
        return gradient + target.power * slope, torch.diag(bend) + target.power * matrix
    more_slope, more_matrix = _by_marginal(target, q, matrix, bend)
    return gradient + slope + more_slope, torch.diag(bend) + matrix + more_matrix


def _by_likelihood(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return both derivatives of minus the log-likelihood as it is, not tempered."""
    gradient, matrix = torch.zeros_like(q), q.new_zeros(len(q), len(q))
    phi, _, log_dispersion = target.split(q)
    w, P = weights(target, phi), len(target.bundle.design.coefficients)
    held = _held_by_theta(target, w)
    made = _by_penalised(target, q)
    predictors = target.predictors(phi, target.linear(q))
    further_predictors = target.further_predictors(q)
    for chunk, eta, added in zip(target.chunks, predictors, further_predictors, strict=True):
        J_phi = _by_phi(target, w, chunk)
        if target.shear:
            J_phi = J_phi - chunk.Z[:, target.shear.columns] @ held
        J = _by_q(target, J_phi, chunk.Z)
        further = chunk.columns()[:, P:] @ made if len(made) else J.new_zeros(len(J), made.shape[1])
        J = chunk.eta_scale * torch.cat([J, further], dim=1)
        along = {MU: J}
        by_eta, by_dispersion = _likelihood_curvature(target, chunk, eta, log_dispersion, added)
        rest = slice(len(q) - len(log_dispersion), None)
        gradient += J.T @ by_eta[0]
        matrix += J.T @ (by_eta[1].clamp(min=0)[:, None] * J)
        gradient[rest] += by_dispersion[0]
        matrix[rest, rest] += torch.diag(by_dispersion[1].clamp(min=0))
        for name in added:
            slope, bend = _further_curvature(target, chunk, eta, log_dispersion, added, name)
            J = along[name] = _by_further(target, w, chunk, name, len(q))
            gradient += J.T @ slope
            matrix += J.T @ (bend.clamp(min=0)[:, None] * J)
        for (a, b), bend in _common_curvatures(target, chunk, eta, log_dispersion, added):
            block = along[a].T @ (bend[:, None] * along[b])
            matrix += block + block.T
    return gradient, matrix


def _by_penalised(target: Target, q: Tensor) -> Tensor:
    """Return the derivatives (R, n - m) of the penalised coefficients by q after phi and theta."""
    m, P = target.coordinates, len(target.bundle.design.coefficients)
    if not target.bundle.design.penalised:
        return q.new_zeros(0, len(q) - m)

    def made(x: Tensor) -> Tensor:
        return target.linear(torch.cat([q[:m], x]))[P:]

    derivatives: Tensor = torch.func.jacrev(made)(q[m:])
    return derivatives


def _by_marginal(target: Target, q: Tensor, matrix: Tensor, bend: Tensor) -> tuple[Tensor, Tensor]:
    """Return both derivatives of -(1 / T - 1) log p(y | phi); the second is Gauss-Newton's.

    It is made from those of the likelihood (n, n) and of the priors (n,): integrating theta out
    leaves the Schur complement on phi. What the integral takes from the curvature in the
    dispersion is neglected.
    """
    k, m = target.bundle.subspace.k, target.coordinates
    phi, theta = slice(0, k), slice(k, m)
    x = q.detach().clone().requires_grad_()
    coordinates, _, log_dispersion = target.split(x)
    value = log_marginal_likelihood(target, coordinates, log_dispersion)
    (slope,) = torch.autograd.grad(value, x)
    inner = matrix[theta, theta] + torch.diag(bend[theta])
    schur = matrix[phi, phi] - matrix[phi, theta] @ torch.linalg.solve(inner, matrix[theta, phi])
    of_phi = torch.zeros_like(matrix)
    of_phi[phi, phi], of_phi[m:, m:] = schur, matrix[m:, m:]
    return (1 - target.power) * slope, (target.power - 1) * of_phi


def _by_phi(target: Target, w: Tensor, chunk: Problem, predictor: str = MU) -> Tensor:
    """Return the derivatives (n, k) of the output of a predictor's networks by phi."""
    _, J_w = output_and_jacobian(target.bundle.network, w, chunk.U, predictor)
    return onto(target.bundle.subspace, J_w)


def _by_further(target: Target, w: Tensor, chunk: Problem, name: str, size: int) -> Tensor:
    """Return the derivatives (n, size) of a dispersion parameter's predictor by q."""
    J, k = w.new_zeros(len(chunk), size), target.bundle.subspace.k
    J[:, :k] = torch.from_numpy(target.bundle.subspace.phi_scale) * _by_phi(target, w, chunk, name)
    start = target.further.start
    for item in target.bundle.design.parameters:
        if item.name == name:
            J[:, start : start + item.has_tau] = 1
            J[:, start + item.has_tau : start + item.size] = chunk.further[name]
        start += item.size
    return J


def _held_by_theta(target: Target, w: Tensor) -> Tensor:
    """Return the derivatives (p, k) by phi of what of the network theta holds."""
    held = w.new_zeros(())
    if target.shear:
        start = 0
        for chunk in target.chunks:
            A = target.shear.along[:, start : start + len(chunk)]
            held, start = held + A @ _by_phi(target, w, chunk), start + len(chunk)
    return held


def _by_q(target: Target, J_phi: Tensor, Z: Tensor) -> Tensor:
    """Return the derivatives (n, m) of the standardised predictor by phi's and theta's q."""
    subspace = target.bundle.subspace
    scale = torch.from_numpy(subspace.phi_scale)
    if not subspace.holds_theta:
        return torch.cat([scale * J_phi, Z], dim=1)
    by_phi = subspace.theta_Pi / target.bundle.units.theta_scale[:, None]
    return scale * (J_phi + Z @ torch.from_numpy(by_phi))


def _likelihood_curvature(
    target: Target,
    chunk: Problem,
    eta: Tensor,
    log_dispersion: Tensor,
    further: Mapping[str, Tensor],
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return slopes and bends of minus the log-likelihood in eta and in the log dispersion."""

    def of_eta(x: Tensor) -> Tensor:
        return -log_lik(target, chunk, x, log_dispersion, further).sum()

    def of_dispersion(x: Tensor) -> Tensor:
        return -log_lik(target, chunk, eta, x, further).sum()

    by_eta = curvature(of_eta, eta)
    if not set(target.sampled) & set(target.bundle.family.dispersion):
        return by_eta, (torch.zeros_like(log_dispersion), torch.zeros_like(log_dispersion))
    return by_eta, curvature(of_dispersion, log_dispersion)


def _further_curvature(
    target: Target,
    chunk: Problem,
    eta: Tensor,
    log_dispersion: Tensor,
    further: Mapping[str, Tensor],
    name: str,
) -> tuple[Tensor, Tensor]:
    """Return slopes and bends (n,) of minus the log-likelihood in a parameter's predictor."""

    def minus_log_lik(x: Tensor) -> Tensor:
        return -log_lik(target, chunk, eta, log_dispersion, {**further, name: x}).sum()

    return curvature(minus_log_lik, further[name])


def _common_curvatures(
    target: Target,
    chunk: Problem,
    eta: Tensor,
    log_dispersion: Tensor,
    further: Mapping[str, Tensor],
) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield what minus the log-likelihood bends (n,) in two predictors at once.

    Only of those with which it is convex: eta and the predictors of unordered categories.
    """
    convex = [p.name for p in target.bundle.family.parameters if p.link == "identity"]
    leaves = {MU: eta, **further}
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    names = [MU, *(name for name in convex if name in further)]
    if len(names) == 1:
        return
    rest = {name: x for name, x in leaves.items() if name != MU}
    value = -log_lik(target, chunk, leaves[MU], log_dispersion, rest).sum()
    for i, a in enumerate(names):
        (slope,) = torch.autograd.grad(value, leaves[a], create_graph=True)
        for b in names[:i]:
            (bend,) = torch.autograd.grad(slope.sum(), leaves[b], retain_graph=True)
            yield (a, b), bend
