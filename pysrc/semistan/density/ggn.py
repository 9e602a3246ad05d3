"""The curvature of the likelihood in the weights: the generalised Gauss-Newton matrix.

With J = d eta / d w (N, d) at the trained weights and h_i = -d^2 log p(y_i | eta_i) / d eta_i^2,

    H = J' diag(h) J + diag(p)

is the precision of the weights' posterior under the linearised Laplace approximation. theta and
the dispersion are held at their trained values. p is the precision of the weights' prior; where
phi has a prior of its own, it is 1, as in appendix A.4 of the low-rank paper.

    diagonal     only the diagonal of H
    kronecker    one block a layer, G x A: G is the mean over the rows of g g' h and A the sum of
                 a a', with a the layer's inputs and 1, g the derivatives of eta by its sums
    full         H itself, d x d, for small networks

In kronecker, the biases of a layer have the prior of its weights. The first two never form a d x d
matrix, and derivatives are taken in chunks of rows.

References: Schraudolph (2002), Neural Computation 14(7); Martens and Grosse (2015), ICML;
Ritter, Botev and Barber (2018), A scalable Laplace approximation for neural networks, ICLR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semistan.density.problem import Problem, Weights
from semistan.lazy import torch
from semistan.model.networks.networks import (
    layer_inputs,
    layers,
    output_and_jacobian,
)
from semistan.model.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

PRIOR_PRECISION = 1.0
CHUNK = 4_000_000  # derivatives that are held at a time


class Precision(Protocol):
    """A positive definite H (d, d) of which the inverse's symmetric root is cheap."""

    def root(self, rows: Tensor) -> Tensor:
        """Multiply rows (n, d) by H^(-1/2)."""


@dataclass(frozen=True, slots=True, eq=False)
class DiagonalPrecision:
    """A diagonal H, by its ``values`` (d,)."""

    values: Tensor

    def root(self, rows: Tensor) -> Tensor:
        """Multiply rows (n, d) by H^(-1/2)."""
        return rows * self.values.rsqrt()


@dataclass(frozen=True, slots=True, eq=False)
class KroneckerBlock:
    """One layer's block G x A + precision I, in the eigenvectors of G (n, n) and A (m+1, m+1).

    ``values`` (n, m+1) are its eigenvalues; ``weights`` and ``biases`` say where the layer is.
    """

    weights: slice
    biases: slice
    G_vectors: Tensor
    A_vectors: Tensor
    values: Tensor

    def root(self, rows: Tensor) -> Tensor:
        """Multiply the layer's part of rows (n, d) by the block's inverse root."""
        units, inputs = self.values.shape
        by_unit = rows[:, self.weights].reshape(-1, units, inputs - 1)
        block = torch.cat([by_unit, rows[:, self.biases, None]], dim=2)
        block = (self.G_vectors.T @ block @ self.A_vectors) * self.values.rsqrt()
        block = self.G_vectors @ block @ self.A_vectors.T
        return torch.cat([block[:, :, :-1].flatten(1), block[:, :, -1]], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class KroneckerPrecision:
    """A block diagonal H with one Kronecker product a layer."""

    blocks: tuple[KroneckerBlock, ...]

    def root(self, rows: Tensor) -> Tensor:
        """Multiply rows (n, d) by H^(-1/2)."""
        return torch.cat([block.root(rows) for block in self.blocks], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Linearised:
    """Some rows, linearised in the weights.

    Attributes
    ----------
    inputs : torch.Tensor, shape (n, Q)
        Of the networks, standardised.
    J : torch.Tensor, shape (n, d)
        Derivatives of eta with respect to the Bayesian weights.
    h : torch.Tensor, shape (n,)
        Curvature of minus the log-likelihood in eta, at least 0.
    """

    inputs: Tensor
    J: Tensor
    h: Tensor


def linearise(problem: Problem, state: Weights) -> Linearised:
    """Take the derivatives of all rows of a problem at once, at weights ``state.w`` (d,)."""
    f, J = output_and_jacobian(problem.network, state.w, problem.U)
    return Linearised(problem.U, problem.eta_scale * J, likelihood_curvature(problem, state, f))


def linearised_chunks(problem: Problem, state: Weights) -> Iterator[Linearised]:
    """Take the derivatives of a few rows at a time, to bound memory."""
    rows, size = torch.arange(len(problem)), max(1, CHUNK // problem.network.d)
    for start in range(0, len(problem), size):
        yield linearise(problem.rows(rows[start : start + size].to(problem.y.device)), state)


def likelihood_curvature(problem: Problem, state: Weights, f: Tensor) -> Tensor:
    """Return -d^2 log p(y_i | eta_i) / d eta_i^2 given f (n,), or 0 where it is negative."""
    dispersion = problem.dispersion_at(state)

    def minus_log_lik(eta: Tensor) -> Tensor:
        return -problem.log_lik(eta, dispersion).sum()

    return curvature(minus_log_lik, problem.eta(state.theta, f))[1].clamp(min=0)


def curvature(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and second derivatives of a sum of functions of one element each."""
    x = at.detach().clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x), x, create_graph=True)
    if not first.requires_grad:
        return first.detach(), torch.zeros_like(first)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


def diagonal_ggn(problem: Problem, state: Weights) -> DiagonalPrecision:
    """Return the diagonal of H.

    Parameters
    ----------
    problem : Problem
        The rows over which the curvature is summed.
    state : Weights
        The trained state, with weights (d,).
    """
    values = problem.precision.clone()
    for part in linearised_chunks(problem, state):
        values += part.h @ part.J.square()
    return DiagonalPrecision(values)


def kronecker_ggn(problem: Problem, state: Weights) -> KroneckerPrecision:
    """Return the Kronecker-factored H; parameters as ``diagonal_ggn``.

    Notes
    -----
    Exact where a layer has one unit and all h_i are equal, as in a linear network with a
    Gaussian response. The prior is added to the products' eigenvalues, not to the factors.
    """
    every = [layer for part in layers(problem.network) for layer in part]
    G = [state.w.new_zeros(n, n) for *_, n in every]
    A = [state.w.new_zeros(m + 1, m + 1) for *_, m, _ in every]
    for part in linearised_chunks(problem, state):
        for i, a in enumerate(_layer_inputs(problem, state, part.inputs)):
            g = part.J[:, every[i][1]]  # a bias moves its unit's sum
            G[i] += g.T @ (part.h[:, None] * g) / len(problem)
            A[i] += a.T @ a
    blocks = []
    for (weights, biases, *_), (G_values, G_vectors), (A_values, A_vectors) in zip(
        every, map(torch.linalg.eigh, G), map(torch.linalg.eigh, A), strict=True
    ):
        products = torch.outer(G_values.clamp(min=0), A_values.clamp(min=0))
        values = products + problem.precision[weights].mean()
        blocks.append(KroneckerBlock(weights, biases, G_vectors, A_vectors, values))
    return KroneckerPrecision(tuple(blocks))


def full_ggn(problem: Problem, state: Weights) -> Tensor:
    """Return H itself, shape (d, d), for small networks; parameters as ``diagonal_ggn``."""
    H = torch.diag(problem.precision)
    for part in linearised_chunks(problem, state):
        H += part.J.T @ (part.h[:, None] * part.J)
    return H


def onto(subspace: Subspace, J: Tensor) -> Tensor:
    """Turn derivatives with respect to w (n, d) into those with respect to phi (n, k)."""
    axes, Pi = (torch.tensor(array, device=J.device) for array in (subspace.axes, subspace.Pi))
    return torch.cat([J[:, axes], J @ Pi], dim=1)


def _layer_inputs(problem: Problem, state: Weights, h: Tensor) -> Iterator[Tensor]:
    """Yield each Bayesian layer's inputs and a column of ones, shape (n, m + 1)."""
    for part in layer_inputs(problem.network, state.w, h):
        for a in part:
            yield torch.cat([a, torch.ones_like(a[:, :1])], dim=1)
