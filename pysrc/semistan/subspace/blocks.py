"""One block of the subspace for each of several networks.

A construction trains all networks together, and its directions Pi (d, k) move all of them at
once. With the spread s of what spans the subspace, the rows of Pi diag(s) that are of one network
span the directions in which this network moved; their singular value decomposition

    Pi_i diag(s) = V_i diag(s_i) W_i'

gives it orthonormal directions V_i (d_i, k) and their spread s_i. The networks then move
independently of each other, with k coordinates each, or fewer:

    w_i = p_bar_i + V_i phi_i

For a curve, whose k + 1 control points span all of Pi, these are the directions of each network's
own control points. Directions that were added to a curve, along which nothing spreads, follow in
the same way, less what lies in the span of those before. A network whose dimension the formula
gives, ``nn(u, k=3)``, keeps the leading ones. Weights that move by themselves are of one network
already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from semistan.errors import SemistanError
from semistan.model.arrays import Array
from semistan.model.networks.networks import Networks
from semistan.model.subspace import Subspace
from semistan.subspace.span import pointing_up

NEGLIGIBLE = 1e-10  # singular value, relative to all, of a direction in which nothing moves


def by_network(network: Networks, subspace: Subspace, spread: Array) -> tuple[Subspace, Array]:
    """Let each of several networks move in a subspace of its own.

    Parameters
    ----------
    network : Networks
        One network, for which nothing changes, or several.
    subspace : Subspace
        As a construction spans it.
    spread : array, shape (k,)
        Of what spans the subspace, along each direction.

    Returns
    -------
    Subspace
        The axes first, then the directions network by network, in the order of their spread.
    array
        The spread along each.

    Raises
    ------
    SemistanError
        If a network moves in fewer dimensions than it is to keep.
    """
    if len(network.parts) == 1 or not subspace.Pi.shape[1]:
        return subspace, spread
    from scipy.linalg import block_diag

    a, k = len(subspace.axes), subspace.Pi.shape[1]
    rows = np.split(subspace.Pi, np.cumsum(network.sizes)[:-1])
    own = network.dimensions or (k,) * len(rows)
    kept = [min(*each, k) for each in zip(own, network.sizes, strict=True)]
    found = [
        _directions(block, spread[a:], most, number)
        for number, (block, most) in enumerate(zip(rows, kept, strict=True), start=1)
    ]
    values = np.concatenate([values for _, values in found])
    scale = _scale(subspace.phi_scale[a:], spread[a:], values)
    scale = np.concatenate([subspace.phi_scale[:a], scale])
    Pi = np.ascontiguousarray(block_diag(*(directions for directions, _ in found)))
    return replace(subspace, Pi=Pi, phi_scale=scale), np.concatenate([spread[:a], values])


def _directions(block: Array, spread: Array, k: int, number: int) -> tuple[Array, Array]:
    """Return the leading k directions (d_i, k) of one network's rows, and their spread (k,)."""
    moved = spread > 0
    spanned, added = block[:, moved] * spread[moved], block[:, ~moved]
    first, values = _principal(spanned, k, NEGLIGIBLE * float(np.linalg.norm(spanned)))
    others, _ = _principal(added - first @ (first.T @ added), k - len(values), NEGLIGIBLE)
    rank = len(values) + others.shape[1]
    if rank < k:
        raise SemistanError(
            f"network {number} of the formula moves in {rank} dimensions, fewer than k = {k}; "
            f"choose k <= {rank}, or train longer"
        )
    return np.hstack([first, others]), np.concatenate([values, np.zeros(others.shape[1])])


def _principal(columns: Array, most: int, least: float) -> tuple[Array, Array]:
    """Return at most so many left singular vectors of columns (d_i, n), and singular values."""
    directions, values, _ = np.linalg.svd(columns, full_matrices=False)
    rank = min(most, int((values > least).sum()))
    return pointing_up(directions[:, :rank]), values[:rank]


def _scale(scale: Array, spread: Array, values: Array) -> Array:
    """Return prior scales that follow the spread where they did, else 1."""
    if np.all(scale == 1):
        return np.ones(len(values))
    return np.asarray(values * (scale[0] / spread[0]))
