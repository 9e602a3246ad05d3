"""Gradient and curvature of the negative log posterior in the program's coordinates q.

The curvature H is exact in all but the network, which is taken to be linear in its weights: the
generalised Gauss-Newton matrix of all that a row's log-likelihood l_i depends on,

    H = sum_i J_i' (-d^2 l_i / d v_i^2) J_i + curvature of the priors,    J_i = d v_i / d q,

where v_i has the row's predictors and the dispersion parameters without a predictor. So it has the
cross terms of these with each other and with the coefficients and the weights. Of dispersion
parameters it takes one backward pass each through the likelihood of given predictors, none through
the network. Smooths and groups are linear in their coefficients given their standard deviations,
in which they are taken to be linear too.

The sum of the rows can bend the wrong way, as far from a mode, or for responses whose likelihood is
not log-concave. A direction in which H has less than half of the prior's curvature is given the
prior's, as if the rows said nothing of it. The directions are the eigenvectors of H relative to a
matrix S that is always positive definite: of each predictor the rows' curvatures that are
positive, or of all predictors of categories together, and of each scalar its own.

A temperature divides the likelihood's part. Where theta is integrated out to temper phi alone,
(1 / T - 1) C is added instead: C, the Schur complement of theta in H with phi's prior and those of
the dispersion left out, is the curvature of -log p(y | phi, dispersion).
Schraudolph (2002), Neural Computation 14(7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from semistan.model.families.family import Family
from semistan.model.names import MU
from semistan.model.networks.networks import derivatives_along, output_and_jacobian
from semistan.model.predictor import Predictor
from semistan.model.priors.groups import PHI
from semistan.model.terms.term import Linked, TensorBlock, Term

if TYPE_CHECKING:
    from torch import Tensor

    Predictors = Mapping[str, Tensor]


SHARE = 0.5  # of the prior's curvature that is left in every direction of H


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """The negative log posterior around a point, to second order.

    Attributes
    ----------
    gradient : torch.Tensor, shape (n,)
        Its slope.
    exact : torch.Tensor, shape (n, n)
        H as the rows and the priors have it, which need not be positive definite.
    safe : torch.Tensor, shape (n, n)
        S, which is.
    prior : torch.Tensor, shape (n,)
        What S has of the priors.
    """

    gradient: Tensor
    exact: Tensor
    safe: Tensor
    prior: Tensor

    def among(self, at: Tensor) -> Expansion:
        """Return the expansion in some coordinates, the others held."""
        exact, safe = self.exact[at][:, at], self.safe[at][:, at]
        return Expansion(self.gradient[at], exact, safe, self.prior[at])

    @property
    def bends_upwards(self) -> bool:
        """Whether H has enough of the prior's curvature in every direction."""
        return not torch.linalg.cholesky_ex(self.exact - torch.diag(SHARE * self.prior))[1]

    @property
    def quick(self) -> Tensor:
        """H, or S where H bends the wrong way: for steps on the way to a mode."""
        return self.exact if self.bends_upwards else self.safe

    @property
    def matrix(self) -> Tensor:
        """H, with the prior's curvature in directions in which it bends the wrong way."""
        root, failed = torch.linalg.cholesky_ex(self.safe)
        if self.bends_upwards or failed or not self.exact.isfinite().all():
            return self.quick
        half = torch.linalg.solve_triangular(root, self.exact, upper=False)
        inner = torch.linalg.solve_triangular(root, half.T, upper=False)
        bends, vectors = torch.linalg.eigh((inner + inner.T) / 2)
        along = torch.linalg.solve_triangular(root.T, vectors, upper=True)
        of_prior = self.prior @ along.square()
        bends = torch.where(bends < SHARE * of_prior, of_prior, bends)
        back = root @ vectors
        matrix: Tensor = (back * bends) @ back.T
        return matrix


def derivatives(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient (n,) and curvature (n, n), positive definite, at q."""
    found = expansion(target, q)
    return found.gradient, found.matrix


def expansion(target: Target, q: Tensor) -> Expansion:
    """Expand the negative log posterior at q (n,)."""
    gradient, bend = _prior_curvature(target, q)
    prior = bend.clamp(min=LEAST_CURVATURE)
    if target.prior_only:
        return Expansion(gradient, torch.diag(bend), torch.diag(prior), prior)
    slope, exact, safe = _by_likelihood(target, q)
    if not target.integrates_theta:
        exact, safe = (target.power * matrix for matrix in (exact, safe))
        gradient = gradient + target.power * slope
    else:
        exact, safe = (
            matrix + (target.power - 1) * _without_theta(target, matrix, prior)
            for matrix in (exact, safe)
        )
        gradient = gradient + slope + (1 - target.power) * _marginal_slope(target, q)
    return Expansion(gradient, exact + torch.diag(bend), safe + torch.diag(prior), prior)


def _prior_curvature(target: Target, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return slopes and bends (n,) of minus the log prior.

    The density of coordinates whose units depend on standard deviations is not that of independent
    parameters: each kind is moved with the other one held. So is each standard deviation that an
    R2D2 prior is of.
    """
    explained, positions = target.bundle.model.explained, target.layout.positions
    partly = positions([p.name for p in target.layout.centred])
    kinds = [partly, *positions(explained.sizes if explained else ())[:, None]]
    masks = torch.zeros(len(kinds), len(q), dtype=torch.bool)
    for mask, kind in zip(masks, kinds, strict=True):
        mask[kind] = True
    slope, bend = q.new_zeros(len(q)), q.new_zeros(len(q))
    for moving in (~masks.any(dim=0), *masks[masks.any(dim=1)]):

        def minus_log_prior(x: Tensor, moving: Tensor = moving) -> Tensor:
            return -log_prior(target, torch.where(moving, x, q))

        more_slope, more_bend = curvature(minus_log_prior, q)
        slope, bend = slope + more_slope, bend + more_bend
    return slope, bend


def _by_likelihood(target: Target, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of minus the log-likelihood as it is, not tempered, with its H and S."""
    n, values = len(q), target.values(q)
    gradient, exact, safe = q.new_zeros(n), q.new_zeros(n, n), q.new_zeros(n, n)
    w = weights(target, values[PHI])
    held = _held_by_theta(target, w)
    names = [item.name for item in target.scalars]
    scalars = torch.from_numpy(target.layout.positions(names))
    across, own = q.new_zeros(len(scalars), n), q.new_zeros(len(scalars), len(scalars))
    for chunk, predictors in zip(target.chunks, target.predictors(values), strict=True):
        along = {
            p.name: _by_q(target, q, w, chunk, p, held) for p in target.bundle.design.predictors
        }
        rows = _row_curvature(target, chunk, predictors, values, q[scalars])
        for name, J in along.items():
            gradient += J.T @ rows.slopes[name]
            across += rows.across[name] @ J
        gradient[scalars] += rows.slope
        own += rows.own
        _add_blocks(exact, safe, along, rows, target.bundle.family)
    exact[scalars] += across
    exact[:, scalars] += across.T
    exact[scalars[:, None], scalars] += own
    safe[scalars, scalars] += own.diagonal().clamp(min=0)
    return gradient, exact, safe


def _add_blocks(
    exact: Tensor, safe: Tensor, along: Predictors, rows: RowCurvature, family: Family
) -> None:
    """Add the predictors' parts of some rows to H and S."""
    upwards = _safe_bends(rows.bends, family)
    for pair, bend in rows.bends.items():
        block = _block(along, pair, bend)
        exact += block
        if pair in upwards:
            safe += block if upwards[pair] is bend else _block(along, pair, upwards[pair])


def _block(along: Predictors, pair: tuple[str, str], bend: Tensor) -> Tensor:
    """Return what second derivatives (rows,) in a pair of predictors are in q, (n, n)."""
    a, b = pair
    block = along[a].T @ (bend[:, None] * along[b])
    return block if a == b else block + block.T


def _safe_bends(
    bends: Mapping[tuple[str, str], Tensor], family: Family
) -> dict[tuple[str, str], Tensor]:
    """Return the second derivatives that S has: positive own ones, of categories mixed ones too."""
    if family.levels and not family.is_concave:
        return _projected(bends)
    together = {MU, *family.dispersion} if family.is_concave else set()
    return {
        (a, b): bend.clamp(min=0) if a == b and (bend < 0).any() else bend
        for (a, b), bend in bends.items()
        if a == b or together >= {a, b}
    }


def _projected(bends: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
    """Return the nearest second derivatives by which each row bends upwards in all directions."""
    names = [a for a, b in bends if a == b]
    pairs = {**bends, **{(b, a): bend for (a, b), bend in bends.items()}}
    full = torch.stack([torch.stack([pairs[a, b] for b in names], -1) for a in names], -2)
    values, vectors = torch.linalg.eigh(full)
    upwards = (vectors * values.clamp(min=0).unsqueeze(-2)) @ vectors.mT
    return {(a, b): upwards[:, names.index(a), names.index(b)] for a, b in bends}


def information_along(
    target: Target, q: Tensor, scale: Tensor, directions: Tensor
) -> tuple[Tensor, float]:
    """Multiply the rows' part of S in the weights, in units ``scale`` (d,), by directions (d, r).

    Returns
    -------
    torch.Tensor, shape (d, r)
        The product, of which no matrix (d, d) is made.
    float
        The trace of the matrix.
    """
    values, total, trace = target.values(q), torch.zeros_like(directions), 0.0
    w, units, network = weights(target, values[PHI]), target.bundle.units, target.bundle.network
    scalars = q[torch.from_numpy(target.layout.positions([s.name for s in target.scalars]))]
    for chunk, predictors in zip(target.chunks, target.predictors(values), strict=True):
        along = {
            name: units.scale(name) * scale
            * output_and_jacobian(network, w, chunk.U, name)[1]
            for name in predictors
            if name in network.predictors
        }  # fmt: skip
        moved = {name: J @ directions for name, J in along.items()}
        bends = _row_curvature(target, chunk, predictors, values, scalars).bends
        for (a, b), bend in _safe_bends(bends, target.bundle.family).items():
            if not along.keys() >= {a, b}:
                continue
            for one, other in dict.fromkeys([(a, b), (b, a)]):
                total += along[one].T @ (bend[:, None] * moved[other])
                trace += float(bend @ (along[one] * along[other]).sum(dim=1))
    return target.power * total, target.power * trace


def _without_theta(target: Target, matrix: Tensor, prior: Tensor) -> Tensor:
    """Return the curvature (n, n) of -log p(y | phi, dispersion), as the Schur complement of theta.

    It is made from those of the likelihood (n, n) and of the priors (n,). What the integral takes
    from the curvature by its own width is neglected.
    """
    theta = target.layout.slices["theta"]
    inner = matrix[theta, theta] + torch.diag(prior[theta])
    found: Tensor = matrix - matrix[:, theta] @ torch.linalg.solve(inner, matrix[theta])
    found[theta], found[:, theta] = 0, 0
    return found


def _marginal_slope(target: Target, q: Tensor) -> Tensor:
    """Return the slope (n,) of log p(y | phi, dispersion)."""
    x = q.detach().clone().requires_grad_()
    value = log_marginal_likelihood(target, target.values(x))
    (slope,) = torch.autograd.grad(value, x)
    return slope


def _by_phi(target: Target, w: Tensor, chunk: Problem, predictor: str = MU) -> Tensor:
    """Return the derivatives (n, k) of the output of a predictor's networks by phi."""
    network, subspace = target.bundle.network, target.bundle.subspace
    if len(subspace.axes):
        return onto(subspace, output_and_jacobian(network, w, chunk.U, predictor)[1])
    return derivatives_along(network, w, chunk.U, torch.from_numpy(subspace.Pi), predictor)


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
        own = layout.slices[predictor.theta]
        J[:, own] = scale * columns.Z * _slopes_of_theta(target, q[own], predictor)
    elif predictor.is_mean and target.made_of:
        names = {parameter.name for parameter in target.made_of}
        at = layout.positions(names)

        def coefficients(x: Tensor, names: set[str] = names) -> Tensor:
            made = target.completed({PHI: q[layout.slices[PHI]], **layout.values_at(names, x)})
            return target.coefficients(made, predictor)

        J[:, at] = scale * columns.Z @ torch.func.jacrev(coefficients)(q[at])
    if predictor.tau in layout:
        J[:, layout.slices[predictor.tau]] = scale
    for term, block in zip(predictor.terms, columns.blocks, strict=True):
        names = {p.name for p in term.parameters(target.bundle.config.priors)}
        names |= {item.name for item in term.hyperparameters()}
        if isinstance(term, Linked):
            names |= {*term.depends_on}
        at = layout.positions(names)

        def value(
            x: Tensor, term: Term = term, block: TensorBlock = block, names: set[str] = names
        ) -> Tensor:
            own = layout.values_at(names, x)
            return term.value({**target.fixed(x), **own}, block)

        J[:, at] += _jacobian(value, q[at])
    return J


def _slopes_of_theta(target: Target, x: Tensor, predictor: Predictor) -> Tensor:
    """Return how a predictor's coefficients over their units move with their coordinates (P,)."""

    def summed(x: Tensor) -> Tensor:
        values = target.layout.values_at([predictor.theta], x)
        return target.coefficients(values, predictor).sum()

    slopes: Tensor = torch.func.grad(summed)(x)
    return slopes


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


@dataclass(frozen=True, slots=True, eq=False)
class RowCurvature:
    """Derivatives of minus the log-likelihood of some rows in what it depends on.

    Attributes
    ----------
    slopes : dict of torch.Tensor, shape (rows,)
        By the predictors.
    bends : dict of torch.Tensor, shape (rows,)
        Second derivatives by pairs of predictors.
    slope : torch.Tensor, shape (m,)
        By the coordinates of the parameters without a predictor, summed.
    across : dict of torch.Tensor, shape (m, rows)
        Mixed second derivatives by these and a predictor.
    own : torch.Tensor, shape (m, m)
        Second derivatives by these, summed.
    """

    slopes: Predictors
    bends: dict[tuple[str, str], Tensor]
    slope: Tensor
    across: Predictors
    own: Tensor


def _row_curvature(
    target: Target, chunk: Problem, predictors: Predictors, values: Values, at: Tensor
) -> RowCurvature:
    """Differentiate a chunk twice, at coordinates ``at`` (m,) of the scalars."""
    scalars, names = [item.name for item in target.scalars], list(predictors)
    leaves = [x.detach().clone().requires_grad_() for x in (*predictors.values(), at)]
    moved = {**values, **target.layout.values_at(scalars, leaves[-1])}
    given = dict(zip(names, leaves, strict=False))
    value = -log_lik(target, chunk, given, moved).sum()
    slopes = _gradients(value, leaves, create_graph=True)
    bends = {
        (a, b): bend
        for i, a in enumerate(names)
        for b, bend in zip(names, _gradients(slopes[i].sum(), leaves[: i + 1]), strict=False)
    }
    across = [leaf.new_zeros(len(at), *leaf.shape) for leaf in leaves]
    for j, slope in enumerate(slopes[-1]):
        for found, derivative in zip(across, _gradients(slope, leaves), strict=True):
            found[j] = derivative
    slopes = [slope.detach() for slope in slopes]
    return RowCurvature(
        dict(zip(names, slopes, strict=False)), bends, slopes[-1],
        dict(zip(names, across, strict=False)), across[-1],
    )  # fmt: skip


def _gradients(value: Tensor, leaves: list[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Return the derivatives of a number, 0 where it does not depend on a leaf."""
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(
        value, leaves, retain_graph=True, create_graph=create_graph, materialize_grads=True
    )
    return list(found)
