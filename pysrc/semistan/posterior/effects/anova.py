"""Functional analysis of variance of functions that are known at weighted rows.

For inputs u of any joint distribution and f in L2, Stone (1994) approximates f by a sum over
single inputs and pairs,

    f = f_0 + sum_j f_j(u_j) + sum_jk f_jk(u_j, u_k) + rest,

the orthogonal projection, whose summands are unique where a component is orthogonal to every
function of a part of its inputs: E f_j = 0, E[f_jk g(u_j)] = E[f_jk g(u_k)] = 0 for all g (Hooker,
2007). With independent inputs these are the terms of Sobol's decomposition. A component has the
share Cov(f_j, f) / Var(f) of the variance; the shares sum to 1, and may be negative where inputs
are correlated (Li et al., 2010; Chastaing, Gamboa and Prieur, 2012). The expectations are weighted
means over rows, the functions splines and indicators, and the projection is by least squares.

Where there are p functions for N rows, least squares makes what it explains too large, by p/N of
the rest if that is like noise. A share is therefore computed with components that are fitted
without the row at which they are evaluated, which the row's leverage gives in closed form (Kline,
Saggio and Soelvsten, 2020). What functions of single inputs take of those of pairs is given back in
the same way.

Where inputs nearly determine one another, components that are large and cancel fit as well as small
ones. A ridge decides for the small ones. It is applied to f and then to what is left of it, TIMES
times in all (iterated Tikhonov regularisation): what functions of variance v tell apart loses a
share of (RIDGE / (RIDGE + v))^TIMES, 1e-8 where v is 1 and most where v is far below RIDGE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from semistan.density.pieces import pieces_of
from semistan.model.arrays import Array, Index
from semistan.posterior.effects.input_basis import Basis

TINY = 1e-9  # keeps moments of functions that depend on each other invertible
RIDGE, TIMES = 1e-2, 4  # of moments with unit diagonal; divides what can hardly be told apart
VANISHED = 1e-8  # share of a product's variance below which nothing of it is left
MOST_LEVERAGE = 0.95  # beyond which a row is counted as if it had this
CHUNK = 2_000_000  # residuals held at a time


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The functions that components are made of, at weighted rows.

    The columns of Z are a constant, the functions of each input, and the products of those of each
    pair of inputs.

    Attributes
    ----------
    singles : tuple of Basis
        Functions of each input.
    factors : tuple of Basis
        Those of which products are made; fewer.
    pairs : tuple of (int, int)
        The pairs of inputs.
    """

    singles: tuple[Basis, ...]
    factors: tuple[Basis, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Number p of functions, with the constant."""
        products = sum(self.factors[j].size * self.factors[k].size for j, k in self.pairs)
        return 1 + sum(basis.size for basis in self.singles) + products

    @property
    def places(self) -> list[slice]:
        """The columns of each component: single inputs first, then pairs."""
        sizes = [basis.size for basis in self.singles]
        sizes += [self.factors[j].size * self.factors[k].size for j, k in self.pairs]
        ends = np.cumsum([1, *sizes])
        return [slice(int(first), int(last)) for first, last in pairwise(ends)]

    def below(self, pair: int) -> Index:
        """Return the columns to which a pair's component is orthogonal."""
        j, k = self.pairs[pair]
        own = [np.arange(self.places[i].start, self.places[i].stop) for i in (j, k)]
        return np.concatenate([[0], *own])

    def of_pair(self, pair: int) -> slice:
        """Return the columns of a pair's products."""
        return self.places[len(self.singles) + pair]

    def columns(self, values: Sequence[Array]) -> Array:
        """Return Z (n, p) at the inputs' values, (n,) each."""
        Z = np.empty((len(values[0]), self.size))
        Z[:, 0] = 1
        for place, basis, x in zip(self.places, self.singles, values, strict=False):
            Z[:, place] = basis.columns(x)
        small = [basis.columns(x) for basis, x in zip(self.factors, values, strict=True)]
        for pair, (j, k) in enumerate(self.pairs):
            Z[:, self.of_pair(pair)] = products(small[j], small[k])
        return Z


def products(a: Array, b: Array) -> Array:
    """Return the products (n, p q) of each column of (n, p) with each of (n, q)."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Least squares on functions that are orthogonal to those of a part of their inputs.

    Attributes
    ----------
    space : Space
        The components' functions Z.
    lift : array, shape (p, p)
        What makes the products of a pair orthogonal to the functions of each of its inputs.
    inverse : array, shape (p, p)
        The regularised inverse of the moments of Z lift; 0 of products of which nothing is left.
    """

    space: Space
    lift: Array
    inverse: Array


def project(space: Space, moments: Array) -> Projection:
    """Prepare least squares from the moments E[Z' Z] (p, p)."""
    from scipy.linalg import cho_factor, cho_solve

    lift = np.eye(len(moments))
    for pair in range(len(space.pairs)):
        below, own = space.below(pair), space.of_pair(pair)
        block = moments[np.ix_(below, below)] + TINY * np.eye(len(below))
        lift[below, own] = -cho_solve(cho_factor(block, lower=True), moments[below, own])
    lifted = lift.T @ moments @ lift
    variance = np.diag(lifted)
    kept = variance > VANISHED * np.diag(moments)
    scale = np.where(kept, 1 / np.sqrt(np.where(kept, variance, 1.0)), 0.0)
    unit = scale[:, None] * lifted * scale
    np.fill_diagonal(unit, 1)
    v, Q = np.linalg.eigh(unit)
    v, Q = np.maximum(v, TINY), scale[:, None] * Q
    regularised = (1 - (RIDGE / (RIDGE + v)) ** TIMES) / v
    return Projection(space, lift, Q * regularised @ Q.T)


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """Components of S functions.

    Attributes
    ----------
    projection : Projection
        What the components are made of.
    coefficients : array, shape (p, S)
        Of Z lift.
    variance : array, shape (S,)
        Of each function over the rows.
    shares : array, shape (components, S)
        Of single inputs first, then of pairs.
    rest : array, shape (S,)
        The share of what no sum of functions of pairs of inputs follows.
    beyond : array, shape (S,)
        The share of what no sum of functions of single inputs follows.
    deviations : array, shape (components, S)
        Each component's standard deviation over the rows.
    """

    projection: Projection
    coefficients: Array
    variance: Array
    shares: Array
    rest: Array
    beyond: Array
    deviations: Array

    def component(self, number: int, values: Sequence[Array]) -> Array:
        """Return draws (S, n) of a component at values (n,) of each of its inputs."""
        space, place = self.projection.space, self.projection.space.places[number]
        b = self.coefficients[place]
        if number < len(space.singles):
            return np.asarray((space.singles[number].columns(values[0]) @ b).T)
        pair = number - len(space.singles)
        j, k = space.pairs[pair]
        below = [space.singles[i].columns(x) for i, x in zip((j, k), values, strict=True)]
        above = products(
            *(space.factors[i].columns(x) for i, x in zip((j, k), values, strict=True))
        )
        Z = np.hstack([np.ones((len(above), 1)), *below, above])
        columns = np.concatenate([space.below(pair), np.arange(place.start, place.stop)])
        return np.asarray((Z @ self.projection.lift[columns, place] @ b).T)


def analyse(space: Space, values: Sequence[Array], weights: Array, F: Array) -> Analysis:
    """Decompose functions.

    Parameters
    ----------
    space : Space
        Of which functions components are made.
    values : sequence of array, shape (N,)
        The inputs.
    weights : array, shape (N,)
        The rows' weights, which sum to 1.
    F : array, shape (N, S)
        S functions at the rows.
    """
    F = F - weights @ F
    Z = space.columns(values)
    moments, cross, variance = _moments(Z, weights, F)
    alone = additive(space)
    singles = project(alone, moments[: alone.size, : alone.size])
    b, shares = _fitted(singles, Z, weights, F, cross, variance)
    beyond = rest = np.where(variance > 0, 1 - shares.sum(axis=0), 0.0)
    every = singles
    if space.pairs:
        every = project(space, moments)
        b, shares = _fitted(every, Z, weights, F, cross, variance)
        _give_back(every, Z, weights, b, variance, shares)
        rest = np.where(variance > 0, 1 - shares.sum(axis=0), 0.0)
    return Analysis(every, b, variance, shares, rest, beyond, _deviations(every, moments, b))


def additive(space: Space) -> Space:
    """Return the functions of single inputs."""
    return Space(space.singles, space.factors, ())


def left_out_errors(
    others: Array, candidates: Sequence[Array], weights: Array, f: Array
) -> list[float]:
    """Return the mean square of what functions miss of f (N,) in rows that they are not fitted to.

    By least squares on ``others`` (N, p) and one of the candidates (N, m) after the other, whose
    leverages give the fit without a row in closed form.
    """
    root = np.sqrt(weights)[:, None]
    Q, _ = np.linalg.qr(root * others)
    residual = root[:, 0] * f
    residual = residual - Q @ (Q.T @ residual)
    errors = []
    for candidate in candidates:
        own = root * candidate
        q, _ = np.linalg.qr(own - Q @ (Q.T @ own))
        lever = np.square(Q).sum(axis=1) + np.square(q).sum(axis=1)
        missed = (residual - q @ (q.T @ residual)) / (1 - np.minimum(lever, MOST_LEVERAGE))
        errors.append(float(np.square(missed).sum()))
    return errors


def _moments(Z: Array, weights: Array, F: Array) -> tuple[Array, Array, Array]:
    """Return E[Z' Z] (p, p), and of centred f E[Z' f] (p, S) and Var f (S,)."""
    weighted = weights[:, None] * Z
    return weighted.T @ Z, weighted.T @ F, weights @ np.square(F)


def _fitted(
    projection: Projection, Z: Array, weights: Array, F: Array, cross: Array, variance: Array
) -> tuple[Array, Array]:
    """Return coefficients (p, S) and the components' shares."""
    size, places = projection.space.size, projection.space.places
    cross = projection.lift.T @ cross[:size]
    b = projection.inverse @ cross
    lifted = Z[:, :size] @ projection.lift
    lever = _levers(projection, lifted, weights)
    explained = np.stack([(b[place] * cross[place]).sum(axis=0) for place in places])
    for draws in pieces_of(F.shape[1], len(F), CHUNK):
        explained[:, draws] -= lever @ (F[:, draws] * (F[:, draws] - lifted @ b[:, draws]))
    return b, explained / np.where(variance > 0, variance, 1.0)


def _levers(projection: Projection, lifted: Array, weights: Array) -> Array:
    """Return what each component's value in a row owes to a residual there (components, N)."""
    turned = weights[:, None] * lifted * (lifted @ projection.inverse)
    lever = np.stack([turned[:, place].sum(axis=1) for place in projection.space.places])
    return np.asarray(lever * weights / (1 - np.minimum(turned.sum(axis=1), MOST_LEVERAGE)))


def _give_back(
    projection: Projection, Z: Array, weights: Array, b: Array, variance: Array, shares: Array
) -> None:
    """Add to the share of each pair what functions of its single inputs took of it."""
    space, whole = projection.space, np.where(variance > 0, variance, 1.0)
    for pair, (j, k) in enumerate(space.pairs):
        two = Space((space.singles[j], space.singles[k]), (), ())
        below, own = Z[:, space.below(pair)], space.of_pair(pair)
        lever = _levers(project(two, below.T @ (weights[:, None] * below)), below, weights)
        lifted = below @ projection.lift[space.below(pair), own] + Z[:, own]
        for draws in pieces_of(b.shape[1], len(Z), CHUNK):
            residual = lifted @ b[own, draws]
            taken = (
                lever @ (residual * (residual + below @ b[space.below(pair), draws])) / whole[draws]
            )
            shares[[j, k], draws] -= taken
            shares[len(space.singles) + pair, draws] += taken.sum(axis=0)


def _deviations(projection: Projection, moments: Array, b: Array) -> Array:
    """Return the standard deviation of each component over the rows, (components, S)."""
    lift, found = projection.lift, []
    for place in projection.space.places:
        own = lift[:, place].T @ moments[: len(lift), : len(lift)] @ lift[:, place]
        found.append(np.sqrt(np.maximum((b[place] * (own @ b[place])).sum(axis=0), 0.0)))
    return np.stack(found)
