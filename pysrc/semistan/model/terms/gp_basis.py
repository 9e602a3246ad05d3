"""The functions by which ``gp()`` writes a Gaussian process: values at x, and frequencies.

With x in [-1/2, 1/2], a process with spectral density S is nearly

    f(x) = sum_j sqrt(S(w_j)) h_j(x) z_j,    z_j standard normal.

``boxed``: sines that are 0 at -L and L, L = c / 2, evenly spaced: the basis of a Hilbert space.

    h_j(x) = sin(w_j (x + L)) / sqrt(L),    w_j = j pi / (2 L),    j = 1 ... k

It follows length scales between two bounds, one for c and one for k:

    lscale <= (c - 1) / reach     at -L and L stand mirror images of the rows with the sign changed:
                                  c - 1 from an end of the range, over which the covariance has
                                  fallen to about 1%
    lscale >= last c / (pi k)     beyond w_k there is next to nothing of the variance

with reach and last of the covariance (``gp_covariances.py``): 3 and 4 of the squared exponential.

Long ones want frequencies close together and short ones want high ones, so that both want many.

``graded``: a cosine and a sine of each frequency, by the trapezoidal rule for the integral of
S(w) cos(w (x - x')) / pi over w > 0, whose steps D_j grow with w:

    h(x) = sqrt(D_j / pi) cos(w_j x),  sqrt(D_j / pi) sin(w_j x),    w <= last / shortest,
    D(w) = 2 pi / (c + 4 l(w)),    l(w) = longest / sqrt(1 + (w longest / last)^2)

A step D repeats the process at a distance of 2 pi / D, which must be the range of x and four
length scales. Close frequencies are only needed where those length scales have a density that are
long: l(w) is the longest of them at w.

``ringed``: the same of two columns. Half the plane of frequencies is cut into rings around 0 at the
w_j and with the steps D_j, and each ring into parts of about D_j, at every other ring moved by half
of one: for a part of area A around the frequency (a, b),

    h(x, y) = sqrt(A / (2 pi^2)) cos(a x + b y),  sqrt(A / (2 pi^2)) sin(a x + b y)

The integrand rises from 0 in proportion to w, of which the midpoint rule has D^2 / 24 too much: the
first ring counts 11/12 (Euler and Maclaurin).

Riutort-Mayol, Bürkner, Andersen, Solin and Vehtari (2023), Practical Hilbert space approximate
Bayesian Gaussian processes for probabilistic programming, Statistics and Computing 33, 17, have
lscale <= c / 6.4 and lscale >= 1.75 c / (2 k) for ``boxed``, of simulations: wider for short
length scales, where posterior means are more than a posterior sd off at these bounds if the rows
say much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from semistan.model.arrays import Array
    from semistan.model.terms.gp_covariances import Covariance

APART = 4.0  # length scales between a process and its repetition
LARGEST_SIZE, LARGEST_SIZE_OF_PLANE = 500, 1000
FINE = 100_001  # places at which the density of frequencies is summed up


def boxed_frequencies(count: int, margin: float) -> Array:
    """Return w (k,) of ``boxed``."""
    return np.asarray(np.arange(1, count + 1) * np.pi / margin, dtype=float)


def boxed_values(x: Array, count: int, margin: float) -> Array:
    """Return the functions (N, k) of ``boxed`` at x (N,)."""
    L = margin / 2
    return np.asarray(np.sin(np.outer(x + L, boxed_frequencies(count, margin))) / np.sqrt(L))


def boxed_range(of: Covariance, count: int, margin: float) -> tuple[float, float]:
    """Return the least and the largest lscale that ``boxed`` follows."""
    return of.last * margin / (np.pi * count), (margin - 1) / of.reach


def margin_for(of: Covariance, lscale: float) -> float:
    """Return the least c of ``boxed`` that follows a length scale."""
    return 1 + of.reach * lscale


def size_for(of: Covariance, margin: float, lscale: float) -> int:
    """Return the least k of ``boxed`` that follows a length scale with c = ``margin``."""
    return min(int(np.ceil(of.last * margin / (np.pi * lscale))), LARGEST_SIZE)


def graded_nodes(
    of: Covariance, shortest: float, longest: float, margin: float
) -> tuple[Array, Array]:
    """Return frequencies w and steps D, each (m,), for length scales between two.

    Parameters
    ----------
    of : Covariance
        What the process has.
    shortest, longest : float
        Length scales, in units of the range of x.
    margin : float
        c, the width of what the process is computed on.
    """
    w = np.linspace(0, of.last / shortest, FINE)
    density = (margin + APART * longest / np.hypot(1, w * longest / of.last)) / (2 * np.pi)
    before = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(w))])
    middles = np.arange(int(np.ceil(before[-1]))) + 0.5
    nodes = np.interp(middles, before, w)
    return nodes, 1 / np.interp(nodes, w, density)


def ringed_nodes(
    of: Covariance, shortest: float, longest: float, margin: float
) -> tuple[Array, Array, Array]:
    """Return frequencies w, their angles and areas of ``ringed``, each (m,).

    Parameters
    ----------
    of : Covariance
        What the process has, in two dimensions.
    shortest, longest, margin : float
        As of ``graded_nodes``, in units of the largest distance of two rows.
    """
    rings, graded = [], graded_nodes(of, shortest, longest, margin)
    for number, (w, step) in enumerate(np.transpose(graded)):
        parts = max(2, int(np.ceil(np.pi * w / step)))
        angles = np.pi * (np.arange(parts) + number % 2 / 2) / parts
        area = np.pi * w * step * (1 if number else 11 / 12)
        rings.append(np.stack([np.full(parts, w), angles, np.full(parts, area / parts)]))
    w, angles, areas = np.hstack(rings)
    return w, angles, areas


def ringed_values(x: Array, w: Array, angles: Array, areas: Array) -> Array:
    """Return the functions (N, 2 m) of ``ringed`` at x (N, 2), cosines first."""
    phases = x @ (w * np.stack([np.cos(angles), np.sin(angles)]))
    root = np.sqrt(areas / (2 * np.pi**2))
    return np.hstack([root * np.cos(phases), root * np.sin(phases)])


def graded_values(x: Array, nodes: Array, steps: Array) -> Array:
    """Return the functions (N, 2 m) of ``graded`` at x (N,), cosines first."""
    angles, root = np.outer(x, nodes), np.sqrt(steps / np.pi)
    return np.hstack([root * np.cos(angles), root * np.sin(angles)])
