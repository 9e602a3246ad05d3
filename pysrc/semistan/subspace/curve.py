"""Bézier curves through weight space, eq. (2) of Dold et al. (2024).

b(t) = sum_l C(k, l) (1 - t)^(k - l) t^l p_l,    t in [0, 1]
"""

from __future__ import annotations

from math import comb

import numpy as np

from semistan.model.networks.mlp import Array


def bernstein(t: Array, k: int) -> Array:
    """Return the weights of k + 1 control points at each t, shape (..., k + 1)."""
    t = np.asarray(t, dtype=float)[..., None]
    order = np.arange(k + 1)
    binomial = np.array([comb(k, i) for i in range(k + 1)], dtype=float)
    return np.asarray(binomial * (1 - t) ** (k - order) * t**order)


def curve_points(control_points: Array, t: Array) -> Array:
    """Return the curve's points (..., d) at each t, given control points (k + 1, d)."""
    return bernstein(t, len(control_points) - 1) @ control_points


def uniform_nodes(size: int) -> tuple[Array, Array]:
    """Return t (size,) and shares (size,) with which values at t average over t ~ U(0, 1).

    By Gauss-Legendre quadrature; the shares differ, because the nodes crowd at both ends.
    """
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return (nodes + 1) / 2, weights / 2


def arc_length(control_points: Array) -> float:
    """Return the curve's length, by Gauss-Legendre quadrature of the speed |b'(t)|."""
    k = len(control_points) - 1
    if k == 0:
        return 0.0
    t, shares = uniform_nodes(max(32, 2 * k))
    velocity = k * bernstein(t, k - 1) @ np.diff(control_points, axis=0)
    return float(shares @ np.linalg.norm(velocity, axis=-1))
