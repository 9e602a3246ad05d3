"""The order of the unconstrained coordinates q, and of the columns of a CSV file, said once.

q has the coordinates of all parameters one after the other, in the order in which the program
declares them. The columns of Stan's CSV files have the same order; the elements of a matrix are
numbered with the first index running fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.parameter import Parameter, Shape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """The parameters of a model in their order.

    Attributes
    ----------
    parameters : tuple of Parameter
        All of them, whether a program samples them or draws them afterwards.
    integrated : array of int
        Where q has what a program integrates out, and draws in its generated quantities.
    """

    parameters: tuple[Parameter, ...]
    integrated: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where q has each parameter's coordinates."""
        ends = list(accumulate((p.size for p in self.parameters), initial=0))
        return {
            p.name: slice(start, end)
            for p, start, end in zip(self.parameters, ends, ends[1:], strict=False)
        }

    @property
    def size(self) -> int:
        """Number of coordinates n."""
        return sum(parameter.size for parameter in self.parameters)

    @property
    def sampled(self) -> Index:
        """Where q has the coordinates in which a chain moves."""
        return np.setdiff1d(np.arange(self.size), self.integrated)

    def __contains__(self, name: str) -> bool:
        return name in self.slices

    def unpack(self, q: Tensor) -> dict[str, Tensor]:
        """Return the parameters at q (n,) by name, as the program has them."""
        return self.values_at(self.slices, q)

    def values_at(self, names: Iterable[str], x: Tensor) -> dict[str, Tensor]:
        """Return some parameters by name, given their coordinates one after the other.

        Standard deviations that units depend on must be among them.
        """
        found: dict[str, Tensor] = {}
        start = 0
        for p in self.parameters:
            if p.name in names:
                value = p.kind.value(x[start : start + p.size], p.shape)
                found[p.name] = value * p.unit_at(found)
                start += p.size
        return found

    def positions(self, names: Iterable[str]) -> np.ndarray:
        """Return where q has some parameters' coordinates, in the layout's order."""
        ranges = [
            np.arange(self.slices[p.name].start, self.slices[p.name].stop)
            for p in self.parameters
            if p.name in names
        ]
        return np.concatenate([np.zeros(0, dtype=int), *ranges])

    def unpack_draws(self, q: Array) -> dict[str, Array]:
        """Return the parameters (S, ...) at draws (S, n) by name, as the program has them."""
        values = torch.func.vmap(self.unpack)(torch.tensor(q))
        return {name: value.numpy() for name, value in values.items()}

    def pack(self, values: Mapping[str, Any]) -> Array:
        """Return q (n,) at the parameters' values, the inverse of ``unpack``."""
        parts = [
            p.kind.coordinates(
                np.asarray(values[p.name], dtype=float) / np.asarray(p.unit_at(values))
            )
            for p in self.parameters
        ]
        return np.concatenate([np.zeros(0), *parts])

    def log_jacobian(self, q: Tensor) -> Tensor:
        """Return log |d value / d q| of the constraints, without that of the constant units."""
        total, values = q.new_zeros(()), self.unpack(q) if self.centred else {}
        for p in self.parameters:
            total = total + p.kind.log_jacobian(q[self.slices[p.name]], p.shape)
            if p.centring:
                total = total + p.centring.unit(values).log().sum()
        return total

    @cached_property
    def centred(self) -> tuple[Parameter, ...]:
        """The parameters whose units depend on standard deviations."""
        return tuple(p for p in self.parameters if p.centring)

    @cached_property
    def log_unit(self) -> Array:
        """The logarithm (n,) of the constant unit of each coordinate."""
        each = [np.log(np.broadcast_to(np.ravel(p.unit), (p.size,))) for p in self.parameters]
        return np.concatenate([np.zeros(0), *each])

    @property
    def log_units(self) -> float:
        """The logarithms of all constant units, summed: the rest of the log Jacobian."""
        return float(self.log_unit.sum())

    def columns(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the columns (S,) of the file by name, given the parameters (S, ...)."""
        return {
            name: column
            for p in self.parameters
            for name, column in numbered(p.name, values[p.name]).items()
        }


def numbered(name: str, values: Array) -> dict[str, Array]:
    """Number the elements of values (S, ...) as Stan does, the first index running fastest."""
    positions = column_names(name, values.shape[1:])
    every: tuple[Any, ...] = (slice(None),)
    return {column: values[every + index] for column, index in positions.items()}


def in_file_order(value: Tensor) -> Tensor:
    """Return a parameter's elements (size,) in the order of its columns."""
    return value.permute(tuple(reversed(range(value.ndim)))).flatten()


def column_names(name: str, shape: Shape) -> dict[str, Shape]:
    """Return the names of a parameter's elements in Stan's CSV with their positions."""
    if not shape:
        return {name: ()}
    positions = (index[::-1] for index in np.ndindex(shape[::-1]))
    return {".".join([name, *(str(i + 1) for i in index)]): index for index in positions}
