"""Moment matching: PSIS-LOO of rows with a high Pareto k, from draws that are moved towards it.

The draws q of the posterior are moved by an affine map to the moments that their importance weights
say the posterior without the row has, first means, then variances, then covariances, as long as
Pareto k falls. At the end the first half of the draws is moved and the second half is not, and all
have the weights of this mixture,

    w_s = p(q_s) p(y_i | q_s)^(-1/T) / (p(q_s) + p(T^-1 q_s) |det T^-1|),

p being the unnormalised posterior density and T the map (Paananen, Piironen, Bürkner and Vehtari,
2021, Statistics and Computing 31). The densities are those of q, so that it is for one subspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from semistan.density.target import Target, evaluated, log_likelihood, log_posteriors, make_target
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.layout import column_names
from semistan.model.table.rows import Rows
from semistan.posterior.draws import read_chains
from semistan.posterior.psis import pareto_smoothed
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import Loo, Matched

MOST_STEPS = 30  # moves of a row's draws, each of which lowers Pareto k
DRAWS_PER_COORDINATE = 10  # below which covariances are not matched

LogDensity = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """The map q -> A q + b."""

    A: Array
    b: Array

    def __call__(self, q: Array) -> Array:
        """Map points (S, n)."""
        return np.asarray(q @ self.A.T + self.b)

    def inverse(self, q: Array) -> Array:
        """Map points (S, n) back."""
        return np.asarray(np.linalg.solve(self.A, (q - self.b).T).T)

    def then(self, M: Array, centre: Array, target: Array) -> Affine:
        """Return this map and then q -> M (q - centre) + target."""
        return Affine(M @ self.A, M @ (self.b - centre) + target)

    @property
    def log_det(self) -> float:
        """Log of the absolute determinant."""
        return float(np.linalg.slogdet(self.A)[1])


def unconstrained(run: Run) -> Array:
    """Return the draws (S, n) of a run of one subspace as coordinates q of its program."""
    layout = run.bundle.layout
    chains = read_chains(run)
    columns = {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}
    size = len(columns["lprior"])
    values = {p.name: np.empty((size, *p.shape)) for p in layout.parameters}
    for parameter in layout.parameters:
        for column, index in column_names(parameter.name, parameter.shape).items():
            position: tuple[slice | int, ...] = (slice(None), *index)
            values[parameter.name][position] = columns[column]
    return np.stack([layout.pack({name: x[s] for name, x in values.items()}) for s in range(size)])


def match_moments(found: Loo, q: Array, bundle: Bundle, rows: Rows) -> Loo:
    """Improve the rows whose Pareto k is above the limit.

    Parameters
    ----------
    found : Loo
        By PSIS.
    q : array, shape (S, n)
        The draws of ``unconstrained``.
    bundle : Bundle
        The trained model, of one subspace.
    rows : Rows
        The training rows.

    Raises
    ------
    InputError
        If coefficients are orthogonalised in the model, whose density of a row needs all others.
    """
    if bundle.model.samples_orthogonal:
        raise InputError(
            "moment matching needs the density of a row alone, but with orthogonalise_in = 'model' "
            "coefficients hold what the network says at all rows; use --reloo"
        )
    target = make_target(bundle, rows)
    matched = dict(_matched(found, q, target, rows, lambda x: log_posteriors(target, x)))
    return found.with_rows(matched, "by moment matching")


def _matched(
    found: Loo, q: Array, target: Target, rows: Rows, log_density: LogDensity
) -> Iterator[tuple[int, Matched]]:
    for i in found.unreliable:
        alone = make_target(target.bundle, rows.take(np.array([i])))

        def log_lik(points: Array, alone: Target = alone) -> Array:
            """Return the log-likelihood of the row, not tempered."""
            return evaluated(lambda x: log_likelihood(alone, x), points, alone) / alone.power

        yield int(i), match_row(q, log_density, log_lik, found.limit, target.power)


def match_row(
    q: Array, log_density: LogDensity, log_lik: LogDensity, limit: float, power: float = 1.0
) -> Matched:
    """Leave one row out by moved draws.

    Parameters
    ----------
    q : array, shape (S, n)
        Draws from the posterior.
    log_density, log_lik : callable
        Map points (S, n) to the log posterior density, up to a constant, and to the row's
        log-likelihood.
    limit : float
        Pareto k at which to stop.
    power : float
        Of the likelihood in the posterior.

    Returns
    -------
    Matched
        Its elpd and Pareto k.
    """
    at_draws = log_density(q)
    moved = _Moved(Affine(np.eye(q.shape[1]), np.zeros(q.shape[1])), *_psis(-power * log_lik(q)))
    for _ in range(MOST_STEPS):
        if moved.k <= limit:
            break
        better = _better(moved, q, log_density, log_lik, power, at_draws)
        if better is None:
            break
        moved = better
    elpd = _split(moved.map, q, log_density, log_lik, power)
    return Matched(elpd, moved.k)


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """A map of the draws, their log weights (S,) there, which sum to 1, and Pareto k."""

    map: Affine
    weights: Array
    k: float


def _better(
    moved: _Moved,
    q: Array,
    log_density: LogDensity,
    log_lik: LogDensity,
    power: float,
    at_draws: Array,
) -> _Moved | None:
    """Return the first further map under which Pareto k is lower, if there is one."""
    for candidate in _candidates(moved.map, moved.map(q), np.exp(moved.weights)):
        points = candidate(q)
        ratios = log_density(points) - power * log_lik(points) - at_draws
        if np.isfinite(ratios).all():
            weights, k = _psis(ratios)
            if k < moved.k:
                return _Moved(candidate, weights, k)
    return None


def _candidates(map: Affine, at: Array, weights: Array) -> Iterator[Affine]:
    """Yield further maps to the weighted means, then variances, then covariances."""
    n = at.shape[1]
    centre, target = at.mean(axis=0), weights @ at
    yield map.then(np.eye(n), centre, target)
    variance = weights @ np.square(at - target)
    if (variance > 0).all():
        yield map.then(np.diag(np.sqrt(variance / at.var(axis=0))), centre, target)
    if len(at) < DRAWS_PER_COORDINATE * n:
        return
    deviations = at - target
    try:
        wanted = np.linalg.cholesky((weights[:, None] * deviations).T @ deviations)
        had = np.linalg.cholesky(np.atleast_2d(np.cov(at.T, ddof=0)))
    except np.linalg.LinAlgError:
        return
    yield map.then(np.linalg.solve(had.T, wanted.T).T, centre, target)


def _split(
    map: Affine, q: Array, log_density: LogDensity, log_lik: LogDensity, power: float
) -> float:
    """Return elpd from draws of which the first half is moved."""
    from scipy.special import logsumexp

    half = len(q) // 2
    points = np.concatenate([map(q[:half]), q[half:]])
    here, back = log_density(points), log_density(map.inverse(points)) - map.log_det
    row = log_lik(points)
    weights, _ = _psis(here - power * row - np.logaddexp(here, back))
    return float(logsumexp(row + weights))


def _psis(log_ratios: Array) -> tuple[Array, float]:
    weights, k = pareto_smoothed(log_ratios[None])
    return weights[0], float(k[0])
