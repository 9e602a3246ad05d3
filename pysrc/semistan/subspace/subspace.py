"""The affine subspace of weight space, the hinge of the package.

    w = p_bar + Pi phi,    phi in R^k

Every construction ends here, and nothing downstream knows which one made it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.errors import InputError, SemistanError
from semistan.model.network import Array


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """Affine subspace {p_bar + Pi @ phi : phi in R^k} of weight space."""

    p_bar: Array  # (d,)   weights at phi = 0
    Pi: Array  # (d, k) directions as columns, full column rank
    origin: str  # name of the construction, for reports only; no code branches on it

    def __post_init__(self) -> None:
        if self.Pi.ndim != 2 or self.Pi.shape[:1] != self.p_bar.shape:
            raise ValueError(f"expected Pi ({self.p_bar.size}, k), got {self.Pi.shape}")

    @property
    def d(self) -> int:
        """Number of Bayesian weights."""
        return int(self.Pi.shape[0])

    @property
    def k(self) -> int:
        """Dimension of the subspace."""
        return int(self.Pi.shape[1])

    def lift(self, phi: Array) -> Array:
        """Map coordinates (..., k) to weights (..., d)."""
        return self.p_bar + phi @ self.Pi.T

    def project(self, w: Array) -> Array:
        """Map weights (..., d) to the coordinates (..., k) of the nearest point."""
        deviations = (w - self.p_bar).reshape(-1, self.d)
        solution = np.linalg.lstsq(self.Pi, deviations.T, rcond=None)[0]
        return np.ascontiguousarray(solution.T).reshape(*w.shape[:-1], self.k)


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
    Pi = directions[:k].T
    Pi = Pi * np.sign(Pi[np.abs(Pi).argmax(axis=0), np.arange(k)])
    return Subspace(p_bar, np.ascontiguousarray(Pi), origin), singular_values[:k]


def check_dimension(k: int, d: int) -> None:
    """Refuse a subspace that is not smaller than weight space.

    Raises
    ------
    InputError
        If k >= d.
    """
    if k >= d:
        raise InputError(
            f"k must be smaller than the number of Bayesian weights d = {d}, got k = {k}; "
            "choose a smaller k or a larger network"
        )
