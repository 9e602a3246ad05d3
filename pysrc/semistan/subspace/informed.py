"""The directions of weight space about which the rows say most, relative to the prior.

With s the standard deviations of the weights' prior, J_i the derivatives of a row's predictors by
the weights and W_i minus the second derivatives of its log-likelihood in them,

    B = diag(s) (sum_i J_i' W_i J_i) diag(s)

has an eigenvalue of 1 where rows and prior say as much of a direction. The leading eigenvectors are
found without B itself, which has d x d elements: random directions are multiplied by B and made
orthogonal a few times. Halko, Martinsson and Tropp (2011), SIAM Review 53(2), algorithm 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.derivatives import information_along
from semistan.density.target import Target
from semistan.lazy import torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

ROUNDS = 3  # of multiplying by B
BESIDE = 50  # further random directions, which the last of the leading ones need


def informed_directions(
    target: Target, q: Tensor, scale: Array, number: int
) -> tuple[Array, float]:
    """Return directions that hold the leading ones, and the trace of B.

    Parameters
    ----------
    target : Target
        The posterior.
    q : torch.Tensor, shape (n,)
        Where its rows are linearised.
    scale : array, shape (d,)
        s.
    number : int
        How many leading directions are wanted.

    Returns
    -------
    array, shape (d, r)
        In the units of the weights, ``diag(s)`` times orthonormal columns.
    float
        Trace of B: the sum of all eigenvalues.
    """
    s = torch.tensor(scale)
    r = min(number + BESIDE, len(s))
    generator = torch.Generator().manual_seed(1)
    found = torch.randn(len(s), r, dtype=s.dtype, generator=generator)
    for _ in range(ROUNDS):
        found = torch.linalg.qr(found).Q
        found, trace = information_along(target, q, s, found)
    return (s[:, None] * torch.linalg.qr(found).Q).numpy(), trace
