"""Weights of the output layer that move by themselves, whatever the subspace is.

    w = p_bar + sum_j phi_j e_(axis j) + Pi phi

The axes are unit vectors beside the directions, which lose their rows at the axes and are
orthonormalised again: with Pi_0 = Pi less those rows,

    Pi_0 = V S W',    Pi <- V,    phi = W S^-1 phi'

so that theta, where it lies in the subspace, moves with phi as before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from semistan.model.arrays import Array, Index
from semistan.model.config import Free
from semistan.model.networks.networks import Networks, output_layers
from semistan.model.trained import Trained
from semistan.subspace.span import pointing_up

SHORT = 1e-6  # length of a direction less its rows at the axes under which it is dropped


def with_axes(trained: Trained, network: Networks, free: Free) -> Trained:
    """Let the output biases or the output layers of all networks move by themselves.

    Parameters
    ----------
    trained : Trained
        As a construction hands it over.
    network : Networks
        The networks.
    free : str
        ``bias`` or ``output``; nothing moves by itself with others.

    Notes
    -----
    The subspace gets a dimension for each axis that it has not yet, and loses one for each
    direction that lies in the axes. The spread along an axis is that of the control points.
    """
    subspace = trained.subspace
    axes = np.setdiff1d(_positions(network, free), subspace.axes)
    if not len(axes):
        return trained
    points = trained.control_points - trained.control_points.mean(axis=0)
    a, spread = len(subspace.axes), trained.singular_values
    along = np.linalg.norm(points[:, axes], axis=0)
    kept, turned = _turned(subspace.Pi, axes)
    scale = _lengths(turned, subspace.phi_scale[a:])
    theta_Pi = subspace.theta_Pi
    if subspace.holds_theta:
        still = np.zeros((len(theta_Pi), len(axes)))
        theta_Pi = np.hstack([theta_Pi[:, :a], still, theta_Pi[:, a:] @ np.linalg.pinv(turned)])
    widened = replace(
        subspace,
        axes=np.concatenate([subspace.axes, axes]),
        Pi=kept,
        phi_scale=np.concatenate([subspace.phi_scale[:a], np.ones(len(axes)), scale]),
        theta_Pi=theta_Pi,
    )
    values = np.concatenate([spread[:a], along, _lengths(turned, spread[a:])])
    return replace(trained, subspace=widened, singular_values=values)


def _positions(network: Networks, free: Free) -> Index:
    """Return the positions of the weights that move by themselves."""
    if free not in ("bias", "output"):
        return np.zeros(0, dtype=np.int64)
    ends = output_layers(network)
    return np.concatenate([end[-1:] if free == "bias" else end for end in ends])


def _turned(Pi: Array, axes: Index) -> tuple[Array, Array]:
    """Return V (d, m), and S W' (m, k), which takes phi to the new coordinates."""
    if not Pi.shape[1]:
        return Pi, np.zeros((0, 0))
    less = Pi.copy()
    less[axes] = 0
    V = pointing_up(np.linalg.svd(less, full_matrices=False)[0])
    turned = V.T @ less
    long = np.linalg.norm(turned, axis=1) > SHORT
    return np.ascontiguousarray(V[:, long]), turned[long]


def _lengths(turned: Array, values: Array) -> Array:
    """Return the spread along the new directions; that of equal scales stays equal."""
    if np.all(values == 1):
        return np.ones(len(turned))
    return np.asarray(np.linalg.norm(turned * values, axis=1))
