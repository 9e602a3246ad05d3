"""The loss that training minimises: the mean negative log-likelihood of a weight vector.

Inputs are standardised and the linear predictor has the family's units, so that training
does not depend on the units of y, x or u:

    eta = eta_loc + eta_scale * (Z theta + f(u; w)) + offsets

Penalised coefficients, of smooths and groups, follow theta in the same vector. Their penalty is the
prior normal(0, 1) in these units, in place of the one whose standard deviation is sampled later.
Behind them are the coefficients of dispersion parameters that have a predictor. That of sigma is

    log sigma = log(unit of sigma) + tau + Z_sigma theta_sigma + f_sigma(u; w)

with tau left out where the network's output bias is the intercept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.families import Family
from semistan.model.networks.networks import Networks, forward, frozen_features
from semistan.model.table.rows import Rows
from semistan.model.units import Units

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A trainable state: Bayesian weights (..., d), frozen weights, and standardised others.

    ``theta`` has the structured coefficients, then the penalised ones, then those of dispersion
    parameters. ``log_dispersion`` are the intercepts of these, over where they start.
    """

    w: Tensor
    w_frozen: Tensor
    theta: Tensor
    log_dispersion: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TensorBlock:
    """The columns Z (N, m) of one penalised term, standardised, and the level of each row."""

    Z: Tensor
    level: Tensor
    levels: int

    @property
    def coefficients(self) -> int:
        """Levels times columns."""
        return self.levels * int(self.Z.shape[1])

    def rows(self, index: Tensor) -> TensorBlock:
        """Return some rows."""
        return TensorBlock(self.Z[index], self.level[index], self.levels)

    def product(self, r: Tensor) -> Tensor:
        """Return what coefficients r, level by level, add to each row."""
        if self.levels == 1:
            return self.Z @ r
        return (self.Z * r.reshape(self.levels, -1)[self.level]).sum(dim=1)

    def columns(self) -> Tensor:
        """Return what each coefficient multiplies, (N, levels * m)."""
        n, m = self.Z.shape
        spread = self.Z.new_zeros(n, self.levels, m)
        spread[range(n), self.level] = self.Z
        return spread.flatten(1)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Training rows as tensors, with the family and the network, or several.

    ``given`` has what is known of each row: offsets, weights, trials. ``blocks`` has the columns of
    penalised terms, ``all_rows`` counts the rows that share their penalty, ``starts`` has those of
    ``Units`` of each dispersion parameter, and ``further`` the standardised columns (N, P_s) of
    those that have a predictor.
    """

    family: Family
    network: Networks
    eta_loc: float
    eta_scale: float
    y: Tensor
    Z: Tensor
    U: Tensor
    given: dict[str, Tensor] = field(default_factory=dict)
    blocks: tuple[TensorBlock, ...] = ()
    all_rows: int = 0
    starts: dict[str, float] = field(default_factory=dict)
    further: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def rows(self, index: Tensor) -> Problem:
        """Return the problem restricted to some rows."""
        return Problem(
            self.family, self.network, self.eta_loc, self.eta_scale,
            self.y[index], self.Z[index], self.U[index],
            {name: values[index] for name, values in self.given.items()},
            tuple(block.rows(index) for block in self.blocks), self.all_rows,
            self.starts, {name: Z[index] for name, Z in self.further.items()},
        )  # fmt: skip

    @property
    def coefficients(self) -> int:
        """Number of the mean's structured and penalised coefficients, P + R."""
        return int(self.Z.shape[1]) + sum(block.coefficients for block in self.blocks)

    @property
    def further_coefficients(self) -> dict[str, slice]:
        """Where ``theta`` has the coefficients of each parameter that has a predictor."""
        found, start = {}, self.coefficients
        for name, Z in self.further.items():
            found[name] = slice(start, start + int(Z.shape[1]))
            start = found[name].stop
        return found

    @property
    def all_coefficients(self) -> int:
        """Number of the coefficients of all predictors."""
        return self.coefficients + sum(int(Z.shape[1]) for Z in self.further.values())

    def columns(self) -> Tensor:
        """Return what the structured and the penalised coefficients multiply, (N, P + R)."""
        return torch.cat([self.Z, *(block.columns() for block in self.blocks)], dim=1)

    def dispersion(
        self, log_dispersion: Tensor, further: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the dispersion parameters in the user's units, by name.

        ``further`` is added to their predictors. Of one that has networks, the start alone is
        taken: their output biases are the rest.
        """
        added, own = further or {}, self.network.predictors
        return {
            item.name: item.moved(
                self.starts[item.name],
                (value.new_zeros(()) if item.name in own else value) + added.get(item.name, 0.0),
            )
            for item, value in zip(self.family.parameters, log_dispersion, strict=True)
        }

    def further_predictors(self, theta: Tensor, w: Tensor, h: Tensor) -> dict[str, Tensor]:
        """Return the predictors (..., N) of dispersion parameters, without start and tau.

        They take standardised theta, the Bayesian weights (..., d) and their layers' input.
        """
        parts = self.further_coefficients
        return {
            name: Z @ theta[parts[name]] + forward(self.network, w, h, name)
            for name, Z in self.further.items()
        }

    def dispersion_at(self, state: Weights) -> dict[str, Tensor]:
        """Return the dispersion parameters, with values of each row where they have predictors."""
        if not self.further:
            return self.dispersion(state.log_dispersion)
        h = frozen_features(self.network, state.w_frozen, self.U)
        further = self.further_predictors(state.theta, state.w, h)
        return self.dispersion(state.log_dispersion, further)

    def log_dispersion(self, values: Mapping[str, float]) -> Array:
        """Return what ``dispersion`` maps to these values."""
        return np.array(
            [
                item.predictor(values[item.name]) - item.predictor(self.starts[item.name])
                for item in self.family.parameters
            ]
        )

    def eta(self, theta: Tensor, f: Tensor) -> Tensor:
        """Return the linear predictor, given standardised theta and the network's output."""
        P = self.Z.shape[1]
        linear = self.Z @ theta[:P] if self.blocks or self.further else self.Z @ theta
        for block in self.blocks:
            linear = linear + block.product(theta[P : P + block.coefficients])
            P += block.coefficients
        eta = self.eta_loc + self.eta_scale * (linear + f)
        return eta + self.given["offsets"] if "offsets" in self.given else eta

    def log_lik(self, eta: Tensor, dispersion: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted log-likelihood of each row, given the linear predictor (..., N)."""
        known = {name: self.given[name] for name in self.family.given}
        log_lik = self.family.log_lik(self.y, eta, {**dispersion, **known})
        return self.given["weights"] * log_lik if "weights" in self.given else log_lik

    def loss(self, state: Weights) -> Tensor:
        """Return the mean negative log-likelihood, one value per leading axis of ``w``."""
        h = frozen_features(self.network, state.w_frozen, self.U)
        f = forward(self.network, state.w, h)
        eta = self.eta(state.theta, f)
        loss = -self.log_lik(eta, self.dispersion_at(state)).mean(dim=-1)
        if not self.blocks:
            return loss
        penalised = state.theta[self.Z.shape[1] : self.coefficients]
        return loss + penalised.square().sum() / (2 * self.all_rows)


def make_problem(
    family: Family, network: Networks, units: Units, rows: Rows, device: str
) -> Problem:
    """Standardise the rows and move them to the device as float64."""

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
        {name: tensor(values) for name, values in rows.given.items()},
        tuple(
            TensorBlock(tensor(block.Z / units), torch.tensor(block.level, device=device), levels)
            for block, units, levels in zip(
                rows.blocks, units.block_units, units.block_levels, strict=True
            )
        ),
        len(rows),
        {item.name: units.start(item) for item in family.parameters},
        {
            name: tensor((rows.further[name] - loc) / scale)
            for name, (loc, scale) in units.further.items()
        },
    )


def all_rows(parts: Sequence[Problem]) -> Problem:
    """Join the rows of a problem that was split."""
    first = parts[0]
    y, Z, U = (torch.cat([getattr(part, name) for part in parts]) for name in ("y", "Z", "U"))
    given = {name: torch.cat([part.given[name] for part in parts]) for name in first.given}
    blocks = tuple(
        TensorBlock(
            torch.cat([part.Z for part in block]), torch.cat([part.level for part in block]),
            block[0].levels,
        )
        for block in zip(*(part.blocks for part in parts), strict=True)
    )  # fmt: skip
    return replace(first, y=y, Z=Z, U=U, given=given, blocks=blocks)
