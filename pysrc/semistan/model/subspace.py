"""The affine subspace of weight space, the hinge of the package.

    w = p_bar + Pi phi,    phi in R^k

Every construction ends here, and nothing downstream knows which one made it. The structured
coefficients are free unless the subspace holds them too, as in theta = theta_bar + theta_Pi phi.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semistan.model.arrays import Array, Index


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """Affine subspace of weight space: k coordinates phi, of which the first a are axes.

    Attributes
    ----------
    p_bar : array, shape (d,)
        Weights at phi = 0.
    Pi : array, shape (d, k - a)
        Directions as columns, full column rank.
    origin : str
        Name of the construction, for reports only; no code branches on it.
    phi_scale : array, shape (k,)
        Prior scale of each coordinate, in units of the prior that the user gives.
    axes : array of int, shape (a,)
        Weights that move by themselves: unit vectors, stored as positions.
    phi_location : array, shape (k,)
        Where the prior of the weights has its centre, w = 0, or what of it lies in the subspace.
    theta_bar : array, shape (P,)
        Coefficients at phi = 0, in the user's units; empty where theta is free.
    theta_Pi : array, shape (P, k)
        How the coefficients move with phi; empty where theta is free.
    """

    p_bar: Array
    Pi: Array
    origin: str
    phi_scale: Array
    axes: Index
    phi_location: Array = field(default_factory=lambda: np.zeros(0))
    theta_bar: Array = field(default_factory=lambda: np.zeros(0))
    theta_Pi: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.Pi.ndim != 2 or self.Pi.shape[:1] != self.p_bar.shape:
            raise ValueError(f"expected Pi ({self.p_bar.size}, k), got {self.Pi.shape}")
        if self.phi_scale.shape != (self.k,):
            raise ValueError(f"expected phi_scale ({self.k},), got {self.phi_scale.shape}")
        if not len(self.phi_location):
            object.__setattr__(self, "phi_location", np.zeros(self.k))

    @property
    def d(self) -> int:
        """Number of Bayesian weights."""
        return len(self.p_bar)

    @property
    def k(self) -> int:
        """Dimension of the subspace."""
        return len(self.axes) + int(self.Pi.shape[1])

    @property
    def holds_theta(self) -> bool:
        """Whether the structured coefficients move with phi instead of freely."""
        return len(self.theta_bar) > 0

    @property
    def matrix(self) -> Array:
        """All directions as columns, shape (d, k); large where there are many axes."""
        a = len(self.axes)
        columns = np.zeros((self.d, self.k))
        columns[self.axes, np.arange(a)] = 1.0
        columns[:, a:] = self.Pi
        return columns

    def lift(self, phi: Array) -> Array:
        """Map coordinates (..., k) to weights (..., d)."""
        a = len(self.axes)
        w = self.p_bar + phi[..., a:] @ self.Pi.T
        w[..., self.axes] += phi[..., :a]
        return w

    def project(self, w: Array) -> Array:
        """Map weights (..., d) to the coordinates (..., k) of the nearest point."""
        if not self.Pi.shape[1]:
            return (w - self.p_bar)[..., self.axes]
        deviations = (w - self.p_bar).reshape(-1, self.d)
        solution = np.linalg.lstsq(self.matrix, deviations.T, rcond=None)[0]
        return np.ascontiguousarray(solution.T).reshape(*w.shape[:-1], self.k)


def along(p_bar: Array, Pi: Array, origin: str, phi_scale: Array | None = None) -> Subspace:
    """Return the subspace along the columns of Pi (d, k), of equal prior scale by default."""
    scale = np.ones(Pi.shape[-1]) if phi_scale is None else phi_scale
    return Subspace(p_bar, Pi, origin, scale, np.zeros(0, dtype=np.int64))


def along_axes(p_bar: Array, axes: Index, origin: str) -> Subspace:
    """Return the subspace in which some weights move by themselves."""
    return Subspace(p_bar, np.zeros((len(p_bar), 0)), origin, np.ones(len(axes)), axes)
