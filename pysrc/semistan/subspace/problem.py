"""The loss that training minimises: the mean negative log-likelihood of a weight vector.

Inputs are standardised and the linear predictor has the family's units, so that training
does not depend on the units of y, x or u:

    eta = eta_loc + eta_scale * (Z theta + f(u; w))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.design import Design, Rows
from semistan.model.families import Family
from semistan.model.network import Array, NetworkSpec, forward, frozen_features

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Locations and scales of X (P,), U (Q,) and the linear predictor over the training rows."""

    x_loc: Array
    x_scale: Array
    u_loc: Array
    u_scale: Array
    eta_loc: float
    eta_scale: float

    @property
    def theta_scale(self) -> Array:
        """The units of each coefficient: those of eta over those of x, shape (P,)."""
        return self.eta_scale / self.x_scale


def units_of(design: Design, family: Family, y: Array) -> Units:
    """Collect the units from the learnt design and the training response."""
    eta_loc, eta_scale = family.eta_units(y)
    return Units(
        np.array(design.x.loc),
        np.array(design.x.scale),
        np.array(design.u.loc),
        np.array(design.u.scale),
        eta_loc,
        eta_scale,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A trainable state: Bayesian weights (..., d), frozen weights, and standardised others."""

    w: Tensor
    w_frozen: Tensor
    theta: Tensor
    log_dispersion: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Training rows as tensors, with the family and the network."""

    family: Family
    network: NetworkSpec
    eta_loc: float
    eta_scale: float
    y: Tensor
    Z: Tensor
    U: Tensor

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def rows(self, index: Tensor) -> Problem:
        """Return the problem restricted to some rows."""
        return Problem(
            self.family, self.network, self.eta_loc, self.eta_scale,
            self.y[index], self.Z[index], self.U[index],
        )  # fmt: skip

    def dispersion(self, log_dispersion: Tensor) -> dict[str, Tensor]:
        """Return the dispersion parameters in the user's units, by name."""
        return {
            parameter.name: (self.eta_scale if parameter.has_units else 1.0)
            * parameter.start
            * value
            for parameter, value in zip(self.family.parameters, log_dispersion.exp(), strict=True)
        }

    def log_dispersion(self, values: Mapping[str, float]) -> Array:
        """Return what ``dispersion`` maps to these values."""
        units = [
            parameter.start * (self.eta_scale if parameter.has_units else 1.0)
            for parameter in self.family.parameters
        ]
        return np.log(np.array([values[name] for name in self.family.dispersion]) / units)

    def eta(self, theta: Tensor, f: Tensor) -> Tensor:
        """Return the linear predictor, given theta / theta_scale and the network's output."""
        return self.eta_loc + self.eta_scale * (self.Z @ theta + f)

    def loss(self, state: Weights) -> Tensor:
        """Return the mean negative log-likelihood, one value per leading axis of ``w``."""
        h = frozen_features(self.network, state.w_frozen, self.U)
        f = forward(self.network, state.w, h)
        eta = self.eta(state.theta, f)
        log_lik = self.family.log_lik(self.y, eta, self.dispersion(state.log_dispersion))
        return -log_lik.mean(dim=-1)


def make_problem(
    family: Family, network: NetworkSpec, units: Units, rows: Rows, device: str
) -> Problem:
    """Standardise the rows and move them to the device as float64."""
    import torch

    def tensor(array: Array) -> Tensor:
        return torch.tensor(array, dtype=torch.float64, device=device)

    assert rows.y is not None
    return Problem(
        family,
        network,
        units.eta_loc,
        units.eta_scale,
        tensor(rows.y),
        tensor((rows.X - units.x_loc) / units.x_scale),
        tensor((rows.U - units.u_loc) / units.u_scale),
    )
