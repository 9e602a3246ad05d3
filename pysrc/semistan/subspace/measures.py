"""How much of the predictive uncertainty a subspace keeps.

The network is linearised at w*, J = d eta / d w, and H is the precision of the weights'
posterior (``ggn.py``). The epistemic covariance of the linear predictor over some rows is, in
the whole weight space and in a subspace with directions P,

    Sigma = J H^-1 J',    Sigma_P = J P (P' H P)^-1 P' J'

Sigma - Sigma_P is positive semi-definite. Two measures compare them:

    relative error    |Sigma - Sigma_P| / |Sigma| in the Frobenius norm (eq. 20): 0 is best
    trace criterion   trace Sigma_P (eq. 25): larger is better, at most trace Sigma

With L L' = H, Sigma_P = J L'^-1 Q Q' L^-1 J' with Q an orthonormal basis of L' P, so that the
error is a projection of L^-1 J' J L'^-1 (d, d), and nothing of size N x N is formed.

Reference: Faller and Martin (2025), Low Rank Based Subspace Inference for the Laplace
Approximation of Bayesian Neural Networks, arXiv:2502.02345.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.ggn import full_ggn, linearised_chunks, onto
from semistan.density.problem import Problem, Weights
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.subspace import Subspace
from semistan.model.trained import Trained
from semistan.model.units import Units

if TYPE_CHECKING:
    from torch import Tensor

MOST = 3000  # d and k up to which matrices of their squared size are formed


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """A subspace, measured.

    Attributes
    ----------
    relative_error : float
        Of the epistemic predictive covariance, between 0 and 1; nan if d > 3000.
    trace : float
        Of the subspace's epistemic predictive covariance, in squared units of eta; nan if
        k > 3000.
    full_trace : float
        That of the whole weight space, its upper limit; nan if d > 3000.
    singular_values : array, shape (k,)
        Spread of what spans the subspace along each direction.
    arc_length : float
        Of the trained curve; 0 for a single network.
    """

    relative_error: float
    trace: float
    full_trace: float
    singular_values: Array
    arc_length: float


def measure(
    problem: Problem,
    units: Units,
    trained: Trained,
    *,
    rows: Problem | None = None,
    w: Array | None = None,
) -> Measures:
    """Measure a trained subspace.

    Parameters
    ----------
    problem : Problem
        The training rows, standardised: they decide the posterior.
    units : Units
        The user's units, in which ``trained`` holds theta and dispersion.
    trained : Trained
        What a construction handed over.
    rows : Problem, optional
        Rows whose predictions are compared; the training rows by default.
    w : array, shape (d,), optional
        Where the network is linearised, w*. By default the trained network, and ``p_bar``
        where a curve was trained. To compare subspaces, give them all the same.

    Notes
    -----
    The posterior is that of the linearised network with theta and dispersion as trained. The
    subspace is taken through w*, wherever its own ``p_bar`` is. Networks of dispersion parameters,
    which do not move eta, have no error of theirs.
    """
    state = state_of(problem, units, trained, w)
    at = problem if rows is None else rows
    given = (problem, at, state, trained.subspace)
    trace = trace_criterion(*given) if trained.subspace.k <= MOST else np.nan
    error, full_trace = relative_error(*given) if trained.subspace.d <= MOST else (np.nan, np.nan)
    return Measures(error, trace, full_trace, trained.singular_values, trained.arc_length)


def state_of(problem: Problem, units: Units, trained: Trained, w: Array | None = None) -> Weights:
    """Return the state at which a trained network is linearised, in standardised units."""
    if w is None:
        points = trained.control_points
        w = points[0] if len(points) == 1 else trained.subspace.p_bar
    log_dispersion = problem.log_dispersion(trained.dispersion)
    parts = []
    for name in problem.columns:
        terms = problem.terms.get(name, ())
        scales = [term.training_units(units.scale(name)) for term in terms]
        parts.append(trained.linear[name] / units.coefficient_scale(name))
        parts.append(trained.terms.get(name, np.zeros(0)) / np.concatenate([np.zeros(0), *scales]))
    theta = np.concatenate(parts)
    arrays = (w, theta, log_dispersion)
    return Weights(*(torch.tensor(array, device=problem.y.device) for array in arrays))


def trace_criterion(
    problem: Problem,
    rows: Problem,
    state: Weights,
    subspace: Subspace,
) -> float:
    """Return trace Sigma_P, for any d: only k x k matrices are formed."""
    H_P = _prior_on(subspace, problem.precision)
    for part in linearised_chunks(problem, state):
        J_P = onto(subspace, part.J)
        H_P += J_P.T @ (part.h[:, None] * J_P)
    factor, total = torch.linalg.cholesky(H_P), 0.0
    for part in linearised_chunks(rows, state):
        J_P = onto(subspace, part.J)
        root = torch.linalg.solve_triangular(factor, J_P.T, upper=False)
        total += float(root.square().sum())
    return total


def relative_error(
    problem: Problem,
    rows: Problem,
    state: Weights,
    subspace: Subspace,
) -> tuple[float, float]:
    """Return |Sigma - Sigma_P| / |Sigma| and trace Sigma; d x d matrices are formed."""
    L, gram = whitened(problem, rows, state)
    Q = torch.linalg.qr(L.T @ torch.as_tensor(subspace.matrix, device=L.device))[0]
    left = gram - Q @ (Q.T @ gram)
    left = left - (left @ Q) @ Q.T
    error = torch.linalg.matrix_norm(left) / torch.linalg.matrix_norm(gram)
    return float(error), float(gram.trace())


def whitened(problem: Problem, rows: Problem, state: Weights) -> tuple[Tensor, Tensor]:
    """Return L with L L' = H, and G = L^-1 J' J L'^-1 over some rows, both of shape (d, d)."""
    L = torch.linalg.cholesky(full_ggn(problem, state))
    gram = torch.zeros_like(L)
    for part in linearised_chunks(rows, state):
        root = torch.linalg.solve_triangular(L, part.J.T, upper=False)
        gram += root @ root.T
    return L, gram


def _prior_on(subspace: Subspace, precision: Tensor) -> Tensor:
    """Return P' diag(precision) P, shape (k, k), without the axes as columns."""
    axes, Pi = (torch.tensor(a, device=precision.device) for a in (subspace.axes, subspace.Pi))
    weighted = precision[:, None] * Pi
    across = weighted[axes]
    return torch.cat(
        [
            torch.cat([torch.diag(precision[axes]), across], dim=1),
            torch.cat([across.T, Pi.T @ weighted], dim=1),
        ]
    )
