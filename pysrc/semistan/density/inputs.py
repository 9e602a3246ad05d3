"""The networks' inputs of some rows, standardised where a network asks for them.

Numbers of a table are standardised once. Pixels stay as they were read, in one byte or four each:
they are standardised batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs (N, Q).

    Attributes
    ----------
    stored : torch.Tensor, shape (N, Q)
        Standardised, or in the user's units.
    units : tuple of torch.Tensor, shape (Q,), optional
        Locations and scales that standardise them, where that is not done.
    dtype : torch.dtype, optional
        That of ``values``, where it is not float64.
    """

    stored: Tensor
    units: tuple[Tensor, Tensor] | None = None
    dtype: torch.dtype | None = None

    def __len__(self) -> int:
        return int(self.stored.shape[0])

    @property
    def values(self) -> Tensor:
        """The standardised inputs (N, Q)."""
        dtype = self.dtype or torch.float64
        found = self.stored.to(dtype)
        if self.units is not None:
            loc, scale = (unit.to(dtype) for unit in self.units)
            found = (found - loc) / scale
        return found

    def rows(self, index: Tensor | slice) -> Inputs:
        """Return those of some rows."""
        return replace(self, stored=self.stored[index])

    def single(self) -> Inputs:
        """Return them with values in single precision."""
        stored = self.stored if self.units else self.stored.to(torch.float32)
        return replace(self, stored=stored, dtype=torch.float32)

    def to(self, device: str) -> Inputs:
        """Return them on a device."""
        units = None if self.units is None else (self.units[0].to(device), self.units[1].to(device))
        return replace(self, stored=self.stored.to(device), units=units)


def inputs_of(U: Array, loc: Array, scale: Array, device: str) -> Inputs:
    """Return inputs U (N, Q) in the user's units, with locations and scales (Q,)."""
    if U.dtype == np.float64:
        return Inputs(torch.tensor((U - loc) / scale, device=device))
    units = torch.tensor(loc, device=device), torch.tensor(scale, device=device)
    return Inputs(torch.tensor(U, device=device), units)


def joined_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Join the rows of inputs that were split."""
    return replace(parts[0], stored=torch.cat([part.stored for part in parts]))
