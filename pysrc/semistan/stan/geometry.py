"""Where NUTS starts: a mode inside the subspace, and the metric that fits there.

The weights at phi = 0 are no mode of the posterior of (phi, theta, dispersion) once k is large.
A few damped Gauss-Newton (Levenberg-Marquardt) steps in the program's unconstrained coordinates

    q = (phi / phi_scale, theta / theta_scale, log dispersion)

find one. The generalised Gauss-Newton matrix of the negative log posterior there,

    H = J' diag(-d^2 log p(y_i | eta_i) / d eta_i^2) J + curvature of the priors,  J = d eta / d q,

is the inverse of the posterior's covariance if it is Gaussian: its inverse is the initial
inverse metric. Schraudolph (2002), Neural Computation 14(7); Nocedal and Wright (2006),
Numerical Optimization, 10.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.model.design import Rows
from semistan.model.network import (
    Array,
    forward,
    frozen_features,
    output_and_jacobian,
)
from semistan.model.priors import Density
from semistan.stan.priors import class_priors, prior_data, sampled_dispersion
from semistan.subspace.ggn import curvature, onto
from semistan.subspace.problem import Problem, make_problem

if TYPE_CHECKING:
    from torch import Tensor

MAX_STEPS = 100
ENOUGH = 1e-2  # nats: the search ends when a step promises less
MAX_DAMPING = 1e8
LEAST_CURVATURE = 1e-6  # of a prior, which is negative in the tails of a Student t
CHUNK = 4_000_000  # derivatives that are held at a time


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


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The negative log posterior of q as the program computes it, up to a constant."""

    bundle: Bundle
    chunks: tuple[Problem, ...]  # of the rows; U holds the first free layer's input
    priors: tuple[tuple[str, Any], ...]  # parameter and its distribution
    constants: dict[str, float]  # dispersion parameters that are not sampled
    prior_only: bool

    def split(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi, theta / theta_scale and the log of the sampled dispersion."""
        import torch

        k, P = self.bundle.subspace.k, len(self.bundle.trained.theta)
        phi_scale = torch.tensor(self.bundle.subspace.phi_scale)
        return phi_scale * q[:k], q[k : k + P], q[k + P :]


def make_target(bundle: Bundle, rows: Rows, *, prior_only: bool = False) -> Target:
    """Collect what the posterior needs from a bundle and its training rows."""
    problem = make_problem(bundle.family, bundle.network, bundle.units, rows, "cpu")
    phi_scale = bundle.subspace.phi_scale
    data = prior_data(bundle.config, bundle.family, bundle.units, phi_scale)
    classes = class_priors(bundle.config, bundle.family)
    priors = tuple(
        (item.parameter, _distribution(item.prior.density, [data[n] for n in item.data_names]))
        for item in classes
        if not item.prior.density.is_constant
    )
    constants = {p.label: data[p.data_names[0]] for p in classes if p.prior.density.is_constant}
    return Target(bundle, tuple(_chunks(bundle, problem)), priors, constants, prior_only)


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
    import torch

    q, damping, steps = torch.tensor(start), 1e-3, 0
    value = negative_log_posterior(target, q)
    gradient, matrix = derivatives(target, q)
    while steps < MAX_STEPS and damping < MAX_DAMPING and _gain(gradient, matrix) > ENOUGH:
        damped = matrix + damping * torch.diag(matrix.diagonal())
        candidate = q - torch.linalg.solve(damped, gradient)
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
    import torch

    return float(gradient @ torch.linalg.solve(matrix, gradient)) / 2


def negative_log_posterior(target: Target, q: Tensor) -> float:
    """Evaluate minus the log density that the program samples, up to a constant."""
    import torch

    phi, theta, log_dispersion = target.split(q)
    with torch.no_grad():
        value = -_log_prior(target, q)
        for chunk in target.chunks:
            if not target.prior_only:
                f = forward(target.bundle.network, _weights(target, phi), chunk.U)
                value = value - _log_lik(target, chunk, chunk.eta(theta, f), log_dispersion).sum()
    return float(value)


def derivatives(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient (n,) and Gauss-Newton matrix (n, n) of the negative log posterior at q."""
    import torch

    gradient, bend = curvature(lambda x: -_log_prior(target, x), q)
    matrix = torch.diag(bend.clamp(min=LEAST_CURVATURE))
    if target.prior_only:
        return gradient, matrix
    phi, theta, log_dispersion = target.split(q)
    m = len(phi) + len(theta)
    w, subspace = _weights(target, phi), target.bundle.subspace
    for chunk in target.chunks:
        f, J_w = output_and_jacobian(target.bundle.network, w, chunk.U)
        J_phi = torch.tensor(subspace.phi_scale) * onto(subspace, J_w)
        J = chunk.eta_scale * torch.cat([J_phi, chunk.Z], dim=1)
        by_eta, by_dispersion = _likelihood_curvature(
            target, chunk, chunk.eta(theta, f), log_dispersion
        )
        gradient[:m] += J.T @ by_eta[0]
        matrix[:m, :m] += J.T @ (by_eta[1].clamp(min=0)[:, None] * J)
        gradient[m:] += by_dispersion[0]
        matrix[m:, m:] += torch.diag(by_dispersion[1].clamp(min=0))
    return gradient, matrix


def _likelihood_curvature(
    target: Target, chunk: Problem, eta: Tensor, log_dispersion: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return slopes and bends of minus the log-likelihood in eta and in the log dispersion."""

    def of_eta(x: Tensor) -> Tensor:
        return -_log_lik(target, chunk, x, log_dispersion).sum()

    def of_dispersion(x: Tensor) -> Tensor:
        return -_log_lik(target, chunk, eta, x).sum()

    by_eta = curvature(of_eta, eta)
    if not len(log_dispersion):
        return by_eta, (log_dispersion, log_dispersion)
    return by_eta, curvature(of_dispersion, log_dispersion)


def _chunks(bundle: Bundle, problem: Problem) -> Iterator[Problem]:
    """Split the rows so that a Jacobian fits in memory; U becomes the first free layer's input."""
    import torch

    size = max(1, CHUNK // bundle.subspace.d)
    frozen = torch.tensor(bundle.trained.w_frozen)
    for start in range(0, len(problem), size):
        part = problem.rows(torch.arange(start, min(start + size, len(problem))))
        yield replace(part, U=frozen_features(bundle.network, frozen, part.U))


def _weights(target: Target, phi: Tensor) -> Tensor:
    import torch

    return torch.tensor(target.bundle.subspace.lift(phi.detach().numpy()))


def _log_lik(target: Target, chunk: Problem, eta: Tensor, log_dispersion: Tensor) -> Tensor:
    import torch

    config, family = target.bundle.config, target.bundle.family
    sampled = dict(zip(sampled_dispersion(config, family), log_dispersion.exp(), strict=True))
    fixed = {name: torch.tensor(v, dtype=eta.dtype) for name, v in target.constants.items()}
    return family.log_lik(chunk.y, eta, fixed | sampled)


def _log_prior(target: Target, q: Tensor) -> Tensor:
    """Return the log prior density of q, the Jacobian of the dispersion's log included."""
    import torch

    config, family = target.bundle.config, target.bundle.family
    phi, theta, log_dispersion = target.split(q)
    values = {"phi": phi, "theta": theta * torch.tensor(target.bundle.units.theta_scale)}
    values |= dict(zip(sampled_dispersion(config, family), log_dispersion.exp(), strict=True))
    total = log_dispersion.sum()
    for parameter, distribution in target.priors:
        total = total + distribution.log_prob(values[parameter]).sum()
    return total


def _distribution(density: Density, arguments: list[Any]) -> Any:
    """Return a prior as a torch distribution."""
    import torch

    assert density.distribution is not None
    values = [torch.as_tensor(argument, dtype=torch.float64) for argument in arguments]
    return getattr(torch.distributions, density.distribution)(*values, validate_args=False)
