"""The affine subspace of weight space, the hinge of the package.

    w = p_bar + Pi phi,    phi in R^k

Every construction ends here, and nothing downstream knows which one made it. The structured
coefficients are free unless the subspace holds them too, as in theta = theta_bar + theta_Pi phi.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError, SemistanError
from semistan.model.config import SubspaceConfig
from semistan.model.network import Array

Index = npt.NDArray[np.int64]


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
    theta_bar: Array = field(default_factory=lambda: np.zeros(0))
    theta_Pi: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.Pi.ndim != 2 or self.Pi.shape[:1] != self.p_bar.shape:
            raise ValueError(f"expected Pi ({self.p_bar.size}, k), got {self.Pi.shape}")
        if self.phi_scale.shape != (self.k,):
            raise ValueError(f"expected phi_scale ({self.k},), got {self.phi_scale.shape}")

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
        return np.hstack([np.eye(self.d)[:, self.axes], self.Pi])

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


def span(points: Array, k: int, origin: str) -> tuple[Subspace, Array]:
    """Span the affine subspace of given weight vectors.

    ``p_bar`` is their mean, and the columns of ``Pi`` are the first k principal directions
    of the centred points (section 3.2 of Dold et al., 2024); the entry of largest magnitude
    in each direction is positive.

    Parameters
    ----------
    points : array, shape (m, d)
        Weight vectors, m > k.
    k : int
        Dimension of the subspace.
    origin : str
        Name of the construction.

    Returns
    -------
    Subspace
        With orthonormal ``Pi``.
    array, shape (k,)
        Singular values of the centred points.

    Raises
    ------
    SemistanError
        If the points are not finite or span fewer than k dimensions.
    """
    if not np.isfinite(points).all():
        raise SemistanError("the weight vectors are not finite; lower learning_rate")
    p_bar = points.mean(axis=0)
    _, singular_values, directions = np.linalg.svd(points - p_bar, full_matrices=False)
    if not singular_values[k - 1] > 1e-10 * singular_values[0]:
        raise SemistanError(
            f"the weight vectors span fewer than k = {k} dimensions "
            f"(singular values {singular_values[0]:.3g} to {singular_values[k - 1]:.3g}); "
            "choose a smaller k or train longer"
        )
    return along(p_bar, pointing_up(directions[:k].T), origin), singular_values[:k]


def pointing_up(directions: Array) -> Array:
    """Turn columns (d, k) so that the entry of largest magnitude in each is positive."""
    peaks = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
    return np.ascontiguousarray(directions * np.sign(peaks))


def check_dimension(config: SubspaceConfig, *sizes: int) -> None:
    """Refuse a subspace that its construction cannot have in networks of these many weights.

    Raises
    ------
    InputError
        If k >= d for one of them, if a subnetwork has more weights than there are, if ``pca`` has
        no more snapshots than k, a ``curve`` is not of k = 2, or theta is to lie in one subspace
        with several networks.
    """
    name, k, several = config.construction, config.k, len(sizes) > 1
    d = min(sizes) if config.by_network else sum(sizes)
    if name == "full" or (name == "subnetwork" and k <= d):
        return
    if config.holds_theta and several:
        raise InputError(
            f"the construction '{name}' has one subspace for the coefficients and a network, and "
            f"cannot have {len(sizes)} networks; write one nn(), or use --construction bezier"
        )
    if name == "pca" and k >= config.snapshots:
        raise InputError(
            f"k must be smaller than the number of snapshots of the path, {config.snapshots}, "
            f"got k = {k}; choose a smaller k or more snapshots"
        )
    if name == "curve" and k != 2:
        raise InputError(f"a curve between two networks has k = 2, got k = {k}; use --k 2")
    if k >= d:
        raise InputError(
            f"k must be smaller than the number of Bayesian weights d = {d}"
            f"{' of the smallest network' * (several and config.by_network)}, got k = {k}; "
            "choose a smaller k or a larger network"
        )
