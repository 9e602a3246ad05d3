"""Gradient and curvature of the negative log posterior in the program's coordinates q.

The generalised Gauss-Newton matrix is

    H = J' diag(-d^2 log p(y_i | eta_i) / d eta_i^2) J + curvature of the priors,  J = d eta / d q.

The predictors of dispersion parameters add such a term each, with curvatures below 0 taken
as 0; what those of positive parameters have in common with others is neglected. A temperature
divides the first term. Where theta is integrated out to temper phi alone, (1 / T - 1) S is added
instead: S, the Schur complement on phi of H less phi's prior, is the curvature of -log p(y | phi).
Schraudolph (2002), Neural Computation 14(7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from semistan.density.ggn import curvature, onto
from semistan.density.marginal import LEAST_CURVATURE
from semistan.density.problem import Problem
from semistan.density.target import (
    Target,
    Values,
    log_lik,
    log_marginal_likelihood,
    log_prior,
    weights,
)
from semistan.lazy import torch
from semistan.model.names import MU
from semistan.model.networks.networks import output_and_jacobian
from semistan.model.predictor import Predictor
from semistan.model.priors.prior import PHI
from semistan.model.terms.term import TensorBlock, Term

if TYPE_CHECKING:
    from torch import Tensor

    Predictors = Mapping[str, Tensor]


def derivatives(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient (n,) and Gauss-Newton matrix (n, n) of the negative log posterior at q."""
    gradient, bend = _prior_curvature(target, q)
    bend = bend.clamp(min=LEAST_CURVATURE)
    if target.prior_only:
        return gradient, torch.diag(bend)
    slope, matrix = _by_likelihood(target, q)
    if not target.integrates_theta:
        return gradient + target.power * slope, torch.diag(bend) + target.power * matrix
    more_slope, more_matrix = _by_marginal(target, q, matrix, bend)
    return gradient + slope + more_slope, torch.diag(bend) + matrix + more_matrix


def _prior_curvature(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return slopes and bends (n,) of minus the log prior.

    The density of coordinates whose units depend on standard deviations is not that of independent
    parameters: each kind is moved with the other one held.
    """
    partly = torch.zeros(len(q), dtype=torch.bool)
    partly[target.layout.positions([p.name for p in target.layout.centred])] = True
    slope, bend = q.new_zeros(len(q)), q.new_zeros(len(q))
    for moving in (partly, ~partly) if partly.any() else (~partly,):

        def minus_log_prior(x: Tensor, moving: Tensor = moving) -> Tensor:
            return -log_prior(target, torch.where(moving, x, q))

        more_slope, more_bend = curvature(minus_log_prior, q)
        slope, bend = slope + more_slope, bend + more_bend
    return slope, bend


def _by_likelihood(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return both derivatives of minus the log-likelihood as it is, not tempered."""
    gradient, matrix = _zeros(q)
    values = target.values(q)
    w = weights(target, values[PHI])
    held = _held_by_theta(target, w)
    scalars = target.layout.positions([item.name for item in target.scalars])
    for chunk, predictors in zip(target.chunks, target.predictors(values), strict=True):
        along = {
            p.name: _by_q(target, q, w, chunk, p, held) for p in target.bundle.design.predictors
        }
        for name, J in along.items():
            slope, bend = predictor_curvature(target, chunk, predictors, values, name)
            gradient += J.T @ slope
            matrix += J.T @ (bend.clamp(min=0)[:, None] * J)
        if len(scalars):
            slope, bend = _scalar_curvature(target, chunk, predictors, values, q)
            gradient[scalars] += slope
            matrix[scalars, scalars] += bend.clamp(min=0)
        for (a, b), bend in _common_curvatures(target, chunk, predictors, values):
            block = along[a].T @ (bend[:, None] * along[b])
            matrix += block + block.T
    return gradient, matrix


def _zeros(q: Tensor) -> tuple[Tensor, Tensor]:
    """Return a gradient and a matrix of zeros for q."""
    return q.new_zeros(len(q)), q.new_zeros(len(q), len(q))


def _by_marginal(target: Target, q: Tensor, matrix: Tensor, bend: Tensor) -> tuple[Tensor, Tensor]:
    """Return both derivatives of -(1 / T - 1) log p(y | phi); the second is Gauss-Newton's.

    It is made from those of the likelihood (n, n) and of the priors (n,): integrating theta out
    leaves the Schur complement on phi. What the integral takes from the curvature in the
    dispersion is neglected.
    """
    phi, theta = (target.layout.slices[name] for name in (PHI, "theta"))
    rest = slice(theta.stop, None)
    x = q.detach().clone().requires_grad_()
    value = log_marginal_likelihood(target, target.values(x))
    (slope,) = torch.autograd.grad(value, x)
    inner = matrix[theta, theta] + torch.diag(bend[theta])
    schur = matrix[phi, phi] - matrix[phi, theta] @ torch.linalg.solve(inner, matrix[theta, phi])
    of_phi = torch.zeros_like(matrix)
    of_phi[phi, phi], of_phi[rest, rest] = schur, matrix[rest, rest]
    return (1 - target.power) * slope, (target.power - 1) * of_phi


def _by_phi(target: Target, w: Tensor, chunk: Problem, predictor: str = MU) -> Tensor:
    """Return the derivatives (n, k) of the output of a predictor's networks by phi."""
    _, J_w = output_and_jacobian(target.bundle.network, w, chunk.U, predictor)
    return onto(target.bundle.subspace, J_w)


def _held_by_theta(target: Target, w: Tensor) -> Tensor:
    """Return the derivatives (p, k) by phi of what of the network theta holds."""
    held = w.new_zeros(())
    if target.shear:
        start = 0
        for chunk in target.chunks:
            A = target.shear.along[:, start : start + len(chunk)]
            held, start = held + A @ _by_phi(target, w, chunk), start + len(chunk)
    return held


def _by_q(
    target: Target, q: Tensor, w: Tensor, chunk: Problem, predictor: Predictor, held: Tensor
) -> Tensor:
    """Return the derivatives (rows, n) of a predictor of a chunk's rows by q."""
    layout, subspace, units = target.layout, target.bundle.subspace, target.bundle.units
    J, columns = q.new_zeros(len(chunk), len(q)), chunk.columns[predictor.name]
    by_phi = _by_phi(target, w, chunk, predictor.name)
    if predictor.is_mean and target.shear:
        by_phi = by_phi - columns.Z[:, target.shear.columns] @ held
    if predictor.is_mean and subspace.holds_theta:
        of_theta = torch.from_numpy(subspace.theta_Pi / units.theta_scale[:, None])
        by_phi = by_phi + columns.Z @ of_theta
    scale = units.scale(predictor.name)
    J[:, layout.slices[PHI]] = scale * torch.from_numpy(subspace.phi_scale) * by_phi
    if predictor.theta in layout:
        J[:, layout.slices[predictor.theta]] = scale * columns.Z
    if predictor.tau in layout:
        J[:, layout.slices[predictor.tau]] = scale
    for term, block in zip(predictor.terms, columns.blocks, strict=True):
        names = {p.name for p in term.parameters(target.bundle.config.priors)}
        names |= {item.name for item in term.hyperparameters()}
        at = layout.positions(names)

        def value(
            x: Tensor, term: Term = term, block: TensorBlock = block, names: set[str] = names
        ) -> Tensor:
            own = layout.values_at(names, x)
            return term.value({**target.fixed(x), **own}, block)

        J[:, at] += _jacobian(value, q[at])
    return J


def _jacobian(of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the derivatives (n, m) of ``of`` (n,) by x (m,), for m that is less than n.

    The derivative of v -> J' v is J': so it takes m backward passes, not n. PyTorch's forward mode,
    which would take m too, loads code of its own that is deprecated.
    """
    value, back = torch.func.vjp(of, x)[:2]
    along = torch.func.vjp(lambda v: back(v)[0], torch.zeros_like(value))[1]
    columns: Tensor = torch.func.vmap(lambda e: along(e)[0])(torch.eye(len(x), dtype=x.dtype))
    return columns.T


def predictor_curvature(
    target: Target, chunk: Problem, predictors: Predictors, values: Values, name: str
) -> tuple[Tensor, Tensor]:
    """Return slopes and bends (rows,) of minus the log-likelihood in one predictor."""

    def minus_log_lik(x: Tensor) -> Tensor:
        return -log_lik(target, chunk, {**predictors, name: x}, values).sum()

    return curvature(minus_log_lik, predictors[name])


def _scalar_curvature(
    target: Target, chunk: Problem, predictors: Predictors, values: Values, q: Tensor
) -> tuple[Tensor, Tensor]:
    """Return slopes and bends of minus the log-likelihood in the scalars' coordinates."""
    names = [item.name for item in target.scalars]

    def minus_log_lik(x: Tensor) -> Tensor:
        moved = {**values, **target.layout.values_at(names, x)}
        return -log_lik(target, chunk, predictors, moved).sum()

    return curvature(minus_log_lik, q[target.layout.positions(names)])


def _common_curvatures(
    target: Target, chunk: Problem, predictors: Predictors, values: Values
) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield mixed second derivatives (rows,) of minus the log-likelihood in pairs of predictors.

    Only of those with which it is convex: eta and the predictors of unordered categories.
    """
    family = target.bundle.family
    names = [MU, *(name for name in family.dispersion if family.levels and name in predictors)]
    if len(names) == 1:
        return
    leaves = {name: x.detach().clone().requires_grad_() for name, x in predictors.items()}
    value = -log_lik(target, chunk, leaves, values).sum()
    for i, a in enumerate(names):
        (slope,) = torch.autograd.grad(value, leaves[a], create_graph=True)
        for b in names[:i]:
            (bend,) = torch.autograd.grad(slope.sum(), leaves[b], retain_graph=True)
            yield (a, b), bend
