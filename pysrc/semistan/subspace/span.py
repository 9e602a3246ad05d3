"""The affine subspace that some weight vectors span."""

from __future__ import annotations

import numpy as np

from semistan.errors import SemistanError
from semistan.model.arrays import Array
from semistan.model.subspace import Subspace, along


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
