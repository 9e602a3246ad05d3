"""The penalised coefficients as a function of the program's unconstrained coordinates.

After (phi / phi_scale, theta / theta_scale), q has zs for each smooth, and for each group z, one
effect after the other, and the coordinates of the Cholesky factor L of its correlations; the logs
of the dispersion and of the standard deviations come last. The coefficients are

    s = sds zs,            r = z (diag(sd) L)'.

L's coordinates are the inverse hyperbolic tangents of its canonical partial correlations, as Stan
and PyTorch have them (Lewandowski, Kurowicka and Joe, 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.terms.group import Group
from semistan.model.terms.smooth import Smooth

if TYPE_CHECKING:
    from torch import Tensor

LEAST_SPREAD = 0.01  # of a standard deviation, in units of eta over those of what it multiplies


@dataclass(frozen=True, slots=True)
class Part:
    """One term's coordinates: its number in the program, and how many are z's and L's."""

    term: Smooth | Group
    number: int

    @property
    def effects(self) -> int:
        """Effects with a standard deviation of their own: one for a smooth."""
        return len(self.term.spread)

    @property
    def rows(self) -> int:
        """Coefficients of each: the levels, or the coefficients of a smooth."""
        return self.z // self.effects

    @property
    def z(self) -> int:
        """Standardised coefficients."""
        return len(self.term.levels) * self.term.size

    @property
    def L(self) -> int:
        """Coordinates of the Cholesky factor."""
        correlated = isinstance(self.term, Group) and self.term.correlated
        return self.term.size * (self.term.size - 1) // 2 if correlated else 0

    @property
    def names(self) -> tuple[str, str]:
        """The names of z and L in the program."""
        if isinstance(self.term, Smooth):
            return f"zs_{self.number}", ""
        return f"z_{self.number}", f"L_{self.number}" if self.L else ""


def parts_of_design(design: Design) -> tuple[Part, ...]:
    """Return the terms in the program's order."""
    smooths = [Part(term, i) for i, term in enumerate(design.smooths, start=1)]
    groups = [Part(term, i) for i, term in enumerate(design.groups, start=1)]
    return (*smooths, *groups)


def penalised_coordinates(design: Design) -> int:
    """Return how many coordinates the terms have besides their standard deviations."""
    return sum(part.z + part.L for part in parts_of_design(design))


def coefficients(bundle: Bundle, x: Tensor, spread: Mapping[str, Tensor | float]) -> Tensor:
    """Return r / r_scale (R,), level by level, as ``Problem.eta`` takes it.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    x : torch.Tensor, shape (n,)
        The terms' coordinates.
    spread : mapping
        Their standard deviations by name, in the user's units.
    """
    found = []
    for part, z, L in _split(bundle.design, x):
        sd = torch.stack(
            [torch.as_tensor(spread[name], dtype=x.dtype) for name in part.term.spread]
        )
        made = z.reshape(part.effects, part.rows).T
        made = made @ _factor(L, part.effects).T if part.L else made
        found.append((sd * made).flatten())
    return torch.cat(found) / torch.from_numpy(bundle.units.r_scale)


def log_slope(design: Design, x: Tensor) -> Tensor:
    """Return the log Jacobian determinant of the Cholesky factors at their coordinates."""
    total = x.new_zeros(())
    for part, _, L in _split(design, x):
        if part.L:
            total = total + _log_slope(L, _factor(L, part.effects))
    return total


def log_prior(design: Design, x: Tensor, shape: float) -> Tensor:
    """Return the log density of the coordinates: standard normal z, and LKJ with its Jacobian."""
    total = x.new_zeros(())
    for part, z, L in _split(design, x):
        total = total + _log_density(torch.distributions.Normal(0.0, 1.0), z)
        if part.L:
            factor = _factor(L, part.effects)
            lkj = torch.distributions.LKJCholesky(part.effects, shape, validate_args=False)
            total = total + _log_density(lkj, factor) + _log_slope(L, factor)
    return total


def values_of(design: Design, x: Array) -> dict[str, Any]:
    """Return z and L by their names in the program."""
    values: dict[str, Any] = {}
    for part, z, L in _split(design, torch.tensor(x)):
        name_z, name_L = part.names
        matrix = z.reshape(part.effects, part.rows).T
        values[name_z] = (z if isinstance(part.term, Smooth) else matrix).numpy()
        if part.L:
            values[name_L] = _factor(L, part.effects).numpy()
    return values


def factor_of(x: Array, size: int) -> Array:
    """Return the Cholesky factor L (size, size) at its coordinates; 1 if there are none."""
    return _factor(torch.tensor(x), size).numpy() if len(x) else np.eye(size)


def partial_correlations(correlation: Array) -> Array:
    """Return the coordinates of a correlation matrix (m, m), row by row of the lower triangle."""
    transform: Any = torch.distributions.transforms.CorrCholeskyTransform()
    return np.asarray(transform.inv(torch.linalg.cholesky(torch.tensor(correlation))).numpy())


def coordinates_of(design: Design, values: Mapping[str, Any]) -> Array:
    """Return the coordinates at z and L by their names in the program."""
    found = [np.zeros(0)]
    for part in parts_of_design(design):
        name_z, name_L = part.names
        found.append(np.asarray(values[name_z], dtype=float).T.ravel())
        if part.L:
            L = np.asarray(values[name_L], dtype=float)
            found.append(partial_correlations(L @ L.T))
    return np.concatenate(found)


def penalised_starts(bundle: Bundle) -> dict[str, Any]:
    """Return initial values at the trained coefficients, with their own spread and uncorrelated."""
    r, values = bundle.trained.r, {}
    for part in parts_of_design(bundle.design):
        trained, r = r[: part.z].reshape(part.rows, part.effects), r[part.z :]
        least = LEAST_SPREAD * bundle.units.eta_scale / part.term.units
        sd = np.maximum(np.sqrt((trained**2).mean(axis=0)), least)
        z, (name_z, name_L) = trained / sd, part.names
        values[name_z] = z[:, 0] if isinstance(part.term, Smooth) else z
        values |= {name_L: np.eye(part.effects)} if part.L else {}
        values |= dict(zip(part.term.spread, sd.tolist(), strict=True))
    return values


def starting_point(bundle: Bundle) -> tuple[Array, dict[str, float]]:
    """Return the coordinates and the standard deviations at the trained coefficients."""
    values, design = penalised_starts(bundle), bundle.design
    spread = {name: values[name] for term in design.penalised for name in term.spread}
    return coordinates_of(design, values), spread


def _split(design: Design, x: Tensor) -> Iterator[tuple[Part, Tensor, Tensor]]:
    start = 0
    for part in parts_of_design(design):
        middle, end = start + part.z, start + part.z + part.L
        yield part, x[start:middle], x[middle:end]
        start = end


def _factor(x: Tensor, size: int) -> Tensor:
    """Return L (size, size) at its coordinates; vmap refuses PyTorch's own transformation."""
    rows = [torch.cat([x.new_ones(1), x.new_zeros(size - 1)])]
    partial, start = x.tanh(), 0
    for i in range(1, size):
        z = partial[start : start + i]
        left = torch.cat([x.new_ones(1), (1 - z.square()).cumprod(dim=0)]).sqrt()
        rows.append(torch.cat([z * left[:-1], left[-1:], x.new_zeros(size - 1 - i)]))
        start += i
    return torch.stack(rows)


def _log_slope(x: Tensor, factor: Tensor) -> Tensor:
    """Return the log of the Jacobian determinant of ``_factor``."""
    transform: Any = torch.distributions.transforms.CorrCholeskyTransform()
    slope: Tensor = transform.log_abs_det_jacobian(x, factor)
    return slope


def _log_density(distribution: Any, value: Tensor) -> Tensor:
    total: Tensor = distribution.log_prob(value).sum()
    return total
