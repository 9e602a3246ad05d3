"""Coefficients that the program samples orthogonalised to the network.

The program's theta, with its prior, is the identified effect; what multiplies x beside the network
as it is, is

    theta_raw = theta - gamma(phi)  at some columns s,    gamma = A f,    A = (X_s' X_s)^-1 X_s'

over the training rows, so that eta = x' theta + (f - x_s' gamma). (phi, theta) -> (phi, theta_raw)
is a shear: its Jacobian is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.model import Model
from semistan.model.orthogonal import least_squares

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Shear:
    """What of the network some coefficients hold, in standardised units.

    Attributes
    ----------
    columns : torch.Tensor of int, shape (p,)
        Positions of the structured columns.
    along : torch.Tensor, shape (p, N)
        The matrix A of all training rows.
    """

    columns: Tensor
    along: Tensor

    def raw(self, theta: Tensor, gamma: Tensor) -> Tensor:
        """Return theta (P,) less gamma (p,) at the columns."""
        return theta.index_add(0, self.columns, -gamma)


def shear_of(model: Model, Z: Tensor) -> Shear | None:
    """Return a model's shear, given the standardised columns (N, P); None if it has none."""
    if not model.samples_orthogonal:
        return None
    columns = torch.tensor(model.orthogonal)
    return Shear(columns, torch.from_numpy(least_squares(Z[:, columns].numpy())))
