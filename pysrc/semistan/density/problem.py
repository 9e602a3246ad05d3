"""The loss that training minimises: the mean negative log-likelihood of a weight vector.

Inputs are standardised and the linear predictor has the family's units, so that training
does not depend on the units of y, x or u:

    eta = eta_loc + eta_scale * (Z theta + other terms + f(u; w)) + offset

What the other terms are made of follows theta in the same vector. Its penalty is the prior
normal(0, 1) in these units, in place of the one whose standard deviation is sampled later. Behind
them are the same of the predictors behind commas. That of sigma is

    log sigma = log(unit of sigma) + tau + Z_sigma theta_sigma + other terms + f_sigma(u; w)

with tau left out where the network's output bias is the intercept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.inputs import Inputs, inputs_of, joined_inputs
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.family import Family
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, forward
from semistan.model.parameter import REAL
from semistan.model.priors.groups import kind_of_coefficients
from semistan.model.table.rows import Rows
from semistan.model.terms.term import TensorBlock, Term

if TYPE_CHECKING:
    from torch import Tensor

MANY_ROWS = 4096  # beyond which training is in batches, and computes networks in single precision


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A trainable state: weights (..., d), and standardised others.

    ``theta`` has, predictor by predictor, the structured coefficients and what the other terms are
    made of. ``log_dispersion`` are the intercepts of the dispersion parameters, over where they
    start.
    """

    w: Tensor
    theta: Tensor
    log_dispersion: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TensorColumns:
    """What one predictor needs of the rows: standardised X, what its terms need, its offset."""

    Z: Tensor
    blocks: tuple[TensorBlock, ...] = ()
    offset: Tensor | None = None

    def rows(self, index: Tensor) -> TensorColumns:
        """Return some rows."""
        blocks = tuple(block.rows(index) for block in self.blocks)
        offset = None if self.offset is None else self.offset[index]
        return TensorColumns(self.Z[index], blocks, offset)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Training rows as tensors, with the family and the network, or several.

    ``columns`` has what each predictor needs, ``terms`` their terms, ``given`` what is known of
    each row, ``all_rows`` counts the rows that share the terms' penalty, and ``starts`` has those
    of ``Units`` of each dispersion parameter, at which those ``fixed`` stay. ``prior_scale`` (d,)
    has the standard deviations of the weights' normal prior around 0, or nothing if phi has a prior
    of its own. ``held_out`` are the rows that an earlier stage of the training has held out, and
    ``bounds`` those of the elements of ``theta``, if some have one.
    """

    family: Family
    network: Networks
    eta_loc: float
    eta_scale: float
    y: Tensor
    columns: dict[str, TensorColumns]
    inputs: Inputs
    given: dict[str, Tensor] = field(default_factory=dict)
    terms: dict[str, tuple[Term, ...]] = field(default_factory=dict)
    all_rows: int = 0
    starts: dict[str, float] = field(default_factory=dict)
    prior_scale: Tensor | None = None
    held_out: Tensor | None = None
    fixed: frozenset[str] = frozenset()
    bounds: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def rows(self, index: Tensor) -> Problem:
        """Return the problem restricted to some rows."""
        return replace(
            self,
            y=self.y[index],
            columns={name: columns.rows(index) for name, columns in self.columns.items()},
            inputs=self.inputs.rows(index),
            given={name: values[index] for name, values in self.given.items()},
            held_out=None,
        )

    def single(self) -> Problem:
        """Return it with convolutions in single precision; as it is where there are none."""
        if not self.network.convolves:
            return self
        return replace(self, inputs=self.inputs.single())

    def for_training(self) -> Problem:
        """Return it with networks in single precision where steps are small and many.

        These are convolutions, and the networks of many rows; but no module of the user's, which
        may hold numbers in double precision. What is added to the networks stays double.
        """
        if len(self) <= MANY_ROWS or self.network.modules:
            return self.single()
        return replace(self, inputs=self.inputs.single())

    def f(self, w: Tensor, predictor: str = MU) -> Tensor:
        """Return a predictor's networks (..., N), in the precision of the inputs."""
        if not self.network.convolves:  # whose own layers see to it
            w = w.to(self.inputs.dtype or torch.float64)
        return forward(self.network, w, self.U, predictor)

    @property
    def U(self) -> Tensor:
        """The standardised inputs of the networks, (N, Q); of images, made at each call."""
        return self.inputs.values

    @property
    def Z(self) -> Tensor:
        """The mean's structured columns, standardised, (N, P)."""
        return self.columns[MU].Z

    @property
    def slices(self) -> dict[str, tuple[slice, ...]]:
        """Where ``theta`` has each predictor's coefficients, and then each of its terms."""
        found, start = {}, 0
        for name, columns in self.columns.items():
            sizes = [int(columns.Z.shape[1])]
            sizes += [term.training_size for term in self.terms.get(name, ())]
            ends = list(accumulate(sizes, initial=start))
            found[name] = tuple(map(slice, ends, ends[1:]))
            start = ends[-1]
        return found

    @property
    def others(self) -> tuple[str, ...]:
        """The predictors behind commas."""
        return tuple(name for name in self.columns if name != MU)

    @property
    def coefficients(self) -> int:
        """Number of elements of ``theta`` that are the mean's."""
        return int(self.slices[MU][-1].stop)

    @property
    def all_coefficients(self) -> int:
        """Number of elements of ``theta``."""
        return max(int(parts[-1].stop) for parts in self.slices.values())

    def mean_columns(self) -> Tensor:
        """Return what the mean's elements of ``theta`` multiply, (N, P + R); 0 if not linear."""
        blocks = self.columns[MU].blocks
        found = [
            self.y.new_zeros(len(self), term.training_size) if made is None else made
            for term, block in zip(self.terms.get(MU, ()), blocks, strict=True)
            for made in [term.training_columns(block)]
        ]
        return torch.cat([self.Z, *found], dim=1)

    def linear(self, name: str, theta: Tensor) -> Tensor:
        """Return what structured and other terms add to a predictor, in its unit."""
        columns, (own, *parts) = self.columns[name], self.slices[name]
        total = columns.Z @ theta[own]
        for term, block, part in zip(self.terms.get(name, ()), columns.blocks, parts, strict=True):
            total = total + term.training_value(theta[part], block)
        return total

    def eta(self, theta: Tensor, f: Tensor) -> Tensor:
        """Return the mean's predictor, given standardised theta and the network's output."""
        eta = self.eta_loc + self.eta_scale * (self.linear(MU, theta) + f)
        offset = self.columns[MU].offset
        return eta if offset is None else eta + offset

    def other_predictors(self, theta: Tensor, w: Tensor) -> dict[str, Tensor]:
        """Return the predictors (..., N) behind commas, without start and tau.

        They take standardised theta and the weights (..., d).
        """
        found = {}
        for name in self.others:
            value = self.linear(name, theta) + self.f(w, name)
            offset = self.columns[name].offset
            found[name] = value if offset is None else value + offset
        return found

    def dispersion(
        self, log_dispersion: Tensor, added: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the dispersion parameters in the user's units, by name.

        ``added`` is added to their predictors. Of one that has networks, the start alone is
        taken: their output biases are the rest.
        """
        others, still = added or {}, {*self.network.predictors, *self.fixed}
        return {
            item.name: item.moved(
                self.starts[item.name],
                (0 * value if item.name in still else value) + others.get(item.name, 0.0),
            )
            for item, value in zip(self.family.parameters, log_dispersion, strict=True)
        }

    def dispersion_at(self, state: Weights) -> dict[str, Tensor]:
        """Return the dispersion parameters, with values of each row where they have predictors."""
        if not self.others:
            return self.dispersion(state.log_dispersion)
        others = self.other_predictors(state.theta, state.w)
        return self.dispersion(state.log_dispersion, others)

    def log_dispersion(self, values: Mapping[str, float]) -> Array:
        """Return what ``dispersion`` maps to these values."""
        return np.array(
            [
                item.predictor(values[item.name]) - item.predictor(self.starts[item.name])
                for item in self.family.parameters
            ]
        )

    def log_lik(self, eta: Tensor, dispersion: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted log-likelihood of each row, given the linear predictor (..., N)."""
        known = {name: self.given[name] for name in self.family.given}
        log_lik = self.family.log_lik(self.y, eta, {**dispersion, **known})
        return self.given["weights"] * log_lik if "weights" in self.given else log_lik

    def row_losses(self, state: Weights) -> Tensor:
        """Return each row's negative log-likelihood and its share of the penalty, (..., N)."""
        eta = self.eta(state.theta, self.f(state.w))
        loss = -self.log_lik(eta, self.dispersion_at(state))
        for _, *parts in self.slices.values():
            if parts:
                penalised = state.theta[parts[0].start : parts[-1].stop]
                loss = loss + penalised.square().sum() / (2 * self.all_rows)
        return loss

    def loss(self, state: Weights) -> Tensor:
        """Return the mean of the rows' losses, one value per leading axis of ``w``."""
        return self.row_losses(state).mean(dim=-1)

    def objective(self, state: Weights) -> Tensor:
        """Return what training minimises: the loss, less the log prior of ``w`` over all rows."""
        loss = self.loss(state)
        if self.prior_scale is None:
            return loss
        return loss + (state.w / self.prior_scale).square().sum(dim=-1) / (2 * self.all_rows)

    @property
    def precision(self) -> Tensor:
        """Precision (d,) of the normal prior of the weights, 1 if phi has a prior of its own."""
        if self.prior_scale is None:
            return self.y.new_ones(self.network.d)
        return self.prior_scale.reciprocal().square()


def make_problem(model: Model, rows: Rows, device: str) -> Problem:
    """Standardise the rows and move them to the device as float64."""

    def tensor(array: Array) -> Tensor:
        return torch.tensor(array, dtype=torch.float64, device=device)

    def columns(name: str) -> TensorColumns:
        loc, scale = units.columns[name]
        own = rows.predictors[name]
        blocks = tuple(
            TensorBlock(tensor(block.Z), torch.tensor(block.level, device=device))
            for block in own.blocks
        )
        offset = None if own.offset is None else tensor(own.offset)
        return TensorColumns(tensor((own.X - loc) / scale), blocks, offset)

    assert rows.y is not None
    units, predictors, scale = model.units, model.design.predictors, model.weight_scale
    starts = {item.name: units.start(item) for item in model.family.parameters}
    fixed = {name: value for name, value in model.constants.items() if name in starts}
    return Problem(
        model.family,
        model.network,
        units.eta_loc,
        units.eta_scale,
        tensor(rows.y),
        {predictor.name: columns(predictor.name) for predictor in predictors},
        inputs_of(rows.U, units.u_loc, units.u_scale, device),
        {name: tensor(values) for name, values in rows.given.items()},
        {predictor.name: predictor.terms for predictor in predictors},
        len(rows),
        starts | _starts(model, rows) | fixed,
        None if scale is None else tensor(scale),
        fixed=frozenset(fixed),
        bounds=_bounds(model, device),
    )


def _bounds(model: Model, device: str) -> tuple[Tensor, Tensor] | None:
    """Return the bounds of what training moves beside the weights, over its units."""
    scalars = {item.parameter: item.kind.limits for item in model.priors if not item.size}
    parts = []
    for predictor in model.design.predictors:
        units = model.units.coefficient_scale(predictor.name)
        limits = kind_of_coefficients(model.config.priors, predictor).limits
        parts.append(np.column_stack([np.broadcast_to(each, units.shape) for each in limits])
                     / units[:, None])  # fmt: skip
        for term in predictor.terms:
            units = term.training_units(model.units.scale(predictor.name))
            own = np.tile([-np.inf, np.inf], (len(units), 1))
            real = [item.name for item in term.hyperparameters() if item.kind is REAL]
            for j, name in enumerate(real):
                own[j] = [limit / units[j] for limit in scalars[name]]
            parts.append(own)
    found = np.vstack(parts).T
    if not np.isfinite(found).any():
        return None
    low, high = (torch.tensor(each, dtype=torch.float64, device=device) for each in found)
    return low, high


def _starts(model: Model, rows: Rows) -> dict[str, float]:
    """Return where dispersion parameters start that have no slope elsewhere.

    The residuals are those of least squares by the columns of the mean, and by the networks' inputs
    where there are few of these.
    """
    if model.family.starts is None or rows.y is None:
        return {}
    own, few = rows.predictors[MU], rows.U.shape[1] < len(rows) / 4
    Z = np.column_stack([np.ones(len(rows)), own.X, rows.U if few else rows.U[:, :0]])
    y = rows.y if own.offset is None else rows.y - own.offset
    return model.family.starts(y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0])[0]


def all_rows(parts: Sequence[Problem]) -> Problem:
    """Join the rows of a problem that was split."""
    first = parts[0]

    def joined(values: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(values))

    def columns(name: str) -> TensorColumns:
        own = [part.columns[name] for part in parts]
        blocks = tuple(
            TensorBlock(joined(b.Z for b in block), joined(b.level for b in block))
            for block in zip(*(each.blocks for each in own), strict=True)
        )
        offsets = [each.offset for each in own if each.offset is not None]
        return TensorColumns(
            joined(each.Z for each in own), blocks, joined(offsets) if offsets else None
        )

    return replace(
        first,
        y=joined(part.y for part in parts),
        inputs=joined_inputs([part.inputs for part in parts]),
        columns={name: columns(name) for name in first.columns},
        given={name: joined(part.given[name] for part in parts) for name in first.given},
    )
