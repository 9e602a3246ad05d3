"""The directions in which the linearised predictions vary most.

With J = d eta / d w at some weights and the inverse curvature Psi = H^-1 (``ggn.py``),

    J Psi J' = V diag(s^2) V',    P = Psi J' V_k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from semistan.density.ggn import Precision, diagonal_ggn, kronecker_ggn, linearise
from semistan.density.problem import Problem, Weights
from semistan.errors import SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.subspace.span import pointing_up

if TYPE_CHECKING:
    from torch import Generator, Tensor

Curvature = Callable[[Problem, Weights], Precision]
CURVATURES: dict[str, Curvature] = {"diagonal": diagonal_ggn, "kronecker": kronecker_ggn}
ROWS = 2000  # rows whose predictions are looked at, or 2k of them


def leading_directions(
    problem: Problem, state: Weights, k: int, curvature: str, generator: Generator
) -> tuple[Array, Array]:
    """Return the leading k directions at a trained state.

    Parameters
    ----------
    problem : Problem
        The training rows.
    state : Weights
        Where the network is linearised.
    k : int
        Number of directions.
    curvature : str
        ``diagonal`` or ``kronecker``.
    generator : torch.Generator
        Chooses the rows whose predictions are looked at.

    Returns
    -------
    Pi : array, shape (d, k)
        Orthonormal; the entry of largest magnitude in each column is positive.
    values : array, shape (k,)
        Standard deviations of the predictions' principal components over these rows.

    Notes
    -----
    The curvature is summed over all rows. The Jacobian (n, d), whose thin singular value
    decomposition is taken, is that of 2000 random rows, or 2k where that is more, of tables
    that are longer.
    """
    precision = CURVATURES[curvature](problem, state)
    J = linearise(_some_rows(problem, max(ROWS, 2 * k), generator), state).J
    return directions_of(J, precision, k)


def directions_of(J: Tensor, precision: Precision, k: int) -> tuple[Array, Array]:
    """Span the k directions in which the predictions vary most.

    Parameters
    ----------
    J : torch.Tensor, shape (n, d)
        Derivatives of the predictions with respect to the weights.
    precision : Precision
        The inverse of the weights' posterior covariance.
    k : int
        Number of directions.

    Returns
    -------
    Pi : array, shape (d, k)
        Orthonormal; the entry of largest magnitude in each column is positive.
    values : array, shape (k,)
        Square roots of the leading eigenvalues of the epistemic predictive covariance.

    Raises
    ------
    SemistanError
        If the predictions vary in fewer than k dimensions.
    """
    _, s, rows = torch.linalg.svd(precision.root(J), full_matrices=False)
    if len(s) < k or not s[k - 1] > 1e-10 * s[0]:
        rank = int((s > 1e-10 * s[0]).sum())
        raise SemistanError(
            f"the network's predictions vary in {rank} dimensions of weight space, fewer than "
            f"k = {k}; choose k <= {rank}, or a larger network"
        )
    directions = torch.linalg.qr(precision.root(rows[:k]).T)[0].cpu().numpy()
    return pointing_up(directions), s[:k].cpu().numpy()


def _some_rows(problem: Problem, count: int, generator: Generator) -> Problem:
    """Return so many random rows, or all if there are no more."""
    if count >= len(problem):
        return problem
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    return problem.rows(order[:count])
