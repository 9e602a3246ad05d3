"""What each further direction of a subspace adds to the predictive uncertainty that it keeps.

In the notation of ``measures.py``, with Q an orthonormal basis of L' P and G = L^-1 J' J L'^-1,
the first j columns of Q span the first j directions of the subspace, so that their relative
error is

    |(I - Q_j Q_j') G (I - Q_j Q_j')| / |G|

No j directions at all have a smaller error than the leading eigenvectors of G, by the theorem of
Eckart and Young:

    best_j = (sum_{i > j} g_i^2 / sum_i g_i^2)^(1/2),    g_1 >= g_2 >= ... the eigenvalues of G
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.density.problem import Problem, Weights
from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.subspace import Subspace
from semistan.subspace.measures import whitened

MOST_SIZES = 40  # of which the error is computed


@dataclass(frozen=True, slots=True, eq=False)
class NestedErrors:
    """Relative errors of the first j directions.

    Attributes
    ----------
    j : array of int, shape (n,)
        Numbers of directions, from 1 to k.
    error : array, shape (n,)
        Relative error of the epistemic covariance (eq. 20) that the first j keep.
    best : array, shape (n,)
        The least error that any j directions can have.
    """

    j: Index
    error: Array
    best: Array


def nested_errors(
    problem: Problem,
    state: Weights,
    subspace: Subspace,
) -> NestedErrors:
    """Measure the first j directions for at most 40 values of j; d x d matrices are formed.

    Parameters
    ----------
    problem : Problem
        The training rows, standardised, whose predictions are compared.
    state : Weights
        Where the network is linearised, as ``measures.state_of`` returns it.
    subspace : Subspace
        Its directions, the axes first.

    Notes
    -----
    Faller and Martin (2025), arXiv:2502.02345, eq. (20).
    """
    L, gram = whitened(problem, problem, state)
    directions = torch.as_tensor(subspace.matrix, device=L.device)
    # The complete basis, in which what j directions leave is a block: nothing cancels.
    basis = torch.linalg.qr(L.T @ directions, mode="complete")[0]
    left = basis.T @ gram @ basis
    whole = torch.linalg.matrix_norm(gram)
    sizes = np.unique(np.linspace(1, subspace.k, min(subspace.k, MOST_SIZES)).round().astype(int))
    errors = [float(left[j:, j:].square().sum().sqrt() / whole) for j in sizes]
    squares = torch.linalg.eigvalsh(gram).square()  # ascending
    best = [float((squares[: len(squares) - j].sum() / squares.sum()).sqrt()) for j in sizes]
    return NestedErrors(sizes, np.array(errors), np.array(best))
