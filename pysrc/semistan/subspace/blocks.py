"""One block of the subspace for each of several networks.

A construction trains all networks together, and its directions Pi (d, k) move all of them at
once. With the spread s of what spans the subspace, the rows of Pi diag(s) that are of one network
span the directions in which this network moved; their singular value decomposition

    Pi_i diag(s) = V_i diag(s_i) W_i'

gives it orthonormal directions V_i (d_i, k) and their spread s_i. The networks then move
independently of each other, with k coordinates each:

    w_i = p_bar_i + V_i phi_i

For a curve, whose k + 1 control points span all of Pi, these are the directions of each network's
own control points. Weights that move by themselves are of one network already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from semistan.errors import SemistanError
from semistan.model.arrays import Array
from semistan.model.networks.networks import Networks
from semistan.model.subspace import Subspace
from semistan.subspace.span import pointing_up


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
        If a network moves in fewer than k dimensions.
    """
    if len(network.parts) == 1 or not subspace.Pi.shape[1]:
        return subspace, spread
    from scipy.linalg import block_diag

    a = len(subspace.axes)
    rows = np.split(subspace.Pi * spread[a:], np.cumsum(network.sizes)[:-1])
    found = [_directions(block, number) for number, block in enumerate(rows, start=1)]
    values = np.concatenate([values for _, values in found])
    scale = _scale(subspace.phi_scale[a:], spread[a:], values)
    scale = np.concatenate([subspace.phi_scale[:a], scale])
    Pi = np.ascontiguousarray(block_diag(*(directions for directions, _ in found)))
    return replace(subspace, Pi=Pi, phi_scale=scale), np.concatenate([spread[:a], values])


def _directions(block: Array, number: int) -> tuple[Array, Array]:
    """Return the directions (d_i, k) of one network's rows, and their spread (k,)."""
    directions, values, _ = np.linalg.svd(block, full_matrices=False)
    k, rank = block.shape[1], int((values > 1e-10 * values[0]).sum())
    if rank < k:
        raise SemistanError(
            f"network {number} of the formula moves in {rank} dimensions, fewer than k = {k}; "
            f"choose k <= {rank}, or train longer"
        )
    return pointing_up(directions), values


def _scale(scale: Array, spread: Array, values: Array) -> Array:
    """Return prior scales that follow the spread where they did, else 1."""
    if np.all(scale == 1):
        return np.ones(len(values))
    return np.asarray(values * (scale[0] / spread[0]))
