"""The completion of a subspace: the normal approximation of the weights outside it.

Let H be the generalised Gauss-Newton matrix of the negative log posterior of all weights and of
what is sampled beside them, g its gradient, at a mode inside the subspace, whose directions are the
columns of T. The normal approximation at the mode falls into two independent parts,

    H^-1 = T (T'H T)^-1 T' + V,    V = H^-1 - T (T'H T)^-1 T',

along the subspace and in the complement of it that H makes orthogonal. NUTS replaces the first. The
second is the completion: a change normal(-V g, V) of the weights and of all else that is sampled,
in which the Newton step -V g leads to where the mode of all weights would be if eta were linear in
them. With H = L L' and the columns of Q an orthonormal basis of the complement of L'T,

    V = F F',    F = L'^-1 Q.

Of more weights than some thousand, only those directions are looked at about which the rows say
most (``informed.py``): in the others, prior and posterior are nearly the same.

The columns of F are turned so that the rows' information I = H - prior is diagonal: each has the
share F'IF of the variance of the linearised predictors, and those with the least are left out. Not
left out is what intercepts and coefficients would lack then: where the network can say what a
column says, the rows know the sum of both, and little of either.

Parameters with bounds, as those of dispersion and the standard deviations of other terms, are held
at the mode: NUTS samples them, and neither is normal nor linear what depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from semistan.density.derivatives import expansion
from semistan.density.mode import Mode, find_mode
from semistan.density.starts import start_state
from semistan.density.target import Target, make_target, value_and_gradient
from semistan.errors import SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.completion import Completion
from semistan.model.layout import in_file_order
from semistan.model.networks.networks import output_and_jacobian, with_multipliers
from semistan.model.parameter import REAL
from semistan.model.predictor import Predictor
from semistan.model.subspace import Subspace, along, along_axes
from semistan.model.table.rows import Rows
from semistan.subspace.informed import informed_directions
from semistan.subspace.start_values import curve_values, sides
from semistan.subspace.weight_prior import in_units_of_the_prior

if TYPE_CHECKING:
    from torch import Tensor

STARTS = 4  # places along the curve from which a mode is climbed to
CHOOSING = 20_000  # rows, evenly spaced, by which the highest of these modes is chosen
CURVATURE = 200_000  # rows, evenly spaced, whose curvature stands for that of more
EXACT = 1500  # weights, up to which all directions are looked at
SHARE = 0.999  # of the linearised predictive variance that is kept at least
MOST = 500  # directions
LACKING = 0.01  # of a coefficient's variance outside the subspace, above which it is kept too


def complete(bundle: Bundle, rows: Rows) -> Bundle:
    """Return the bundle with its completion, if its model has one.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows, with their response.

    Raises
    ------
    SemistanError
        If no mode is found inside the subspace.
    """
    sampled = _sampled_whole(bundle)
    if not sampled.model.completes:
        return bundle
    inside = make_target(sampled, rows)
    mode = _mode(inside, rows)
    if bundle.subspace.d <= EXACT:
        around, trace = _all_weights(sampled), None
    else:
        around, trace = _informed_weights(sampled, _of_a_part(inside, rows), mode)
    outside = make_target(around, rows)
    found = _completion(inside, outside, _of_a_part(outside, rows), mode, trace)
    return replace(bundle, trained=replace(bundle.trained, completion=found))


def _sampled_whole(bundle: Bundle) -> Bundle:
    """Return the bundle of a model with nothing integrated out, and not tempered."""
    update = {"integrate": "none", "temperature": 1.0, "temper": "likelihood"}
    sample = bundle.config.sample.model_copy(update=update)
    return replace(bundle, config=bundle.config.model_copy(update={"sample": sample}))


def _of_a_part(target: Target, rows: Rows) -> Target:
    """Return the posterior given a part of very many rows, each of which counts for several.

    It is that of all rows where levels of groups may have few.
    """
    part = rows if target.bundle.design.terms else rows.evenly(CURVATURE)
    if len(part) == len(rows):
        return target
    bundle = target.bundle
    sample = bundle.config.sample.model_copy(update={"temperature": len(part) / len(rows)})
    return make_target(replace(bundle, config=bundle.config.model_copy(update={"sample": sample})),
                       part)  # fmt: skip


def _all_weights(bundle: Bundle) -> Bundle:
    """Return a bundle of the same model in which every weight moves by itself."""
    d = bundle.subspace.d
    return _moving(bundle, along_axes(np.zeros(d), np.arange(d), "full"))


def _informed_weights(bundle: Bundle, inside: Target, mode: Mode) -> tuple[Bundle, float]:
    """Return one whose weights move along the subspace and what the rows inform most.

    The trace of the rows' information on all weights comes with it.
    """
    subspace, scale = bundle.subspace, bundle.model.weight_scale
    assert scale is not None
    at = subspace.lift(subspace.phi_scale * mode.q[: subspace.k])
    informed, trace = informed_directions(inside, torch.tensor(mode.q), scale, MOST)
    return _moving(bundle, along(at, np.hstack([subspace.matrix, informed]), "informed")), trace


def _moving(bundle: Bundle, subspace: Subspace) -> Bundle:
    """Return a bundle of the same model whose weights move in another subspace."""
    scale = bundle.model.weight_scale
    assert scale is not None
    own = bundle.config.subspace.model_copy(
        update={"construction": "full", "k": subspace.k, "curve": None, "free": "none"}
    )
    trained = in_units_of_the_prior(replace(bundle.trained, subspace=subspace), scale)
    config = bundle.config.model_copy(update={"subspace": own})
    return replace(bundle, config=config, trained=trained)


def _mode(target: Target, rows: Rows) -> Mode:
    """Climb from several places on the curve, and return the mode with the largest evidence.

    Of very many rows, some say which that is.
    """
    bundle = target.bundle
    some = target if len(rows) <= CHOOSING else make_target(bundle, rows.evenly(CHOOSING))
    starts = [
        start_state(bundle, values)
        for on_curve in curve_values(bundle, STARTS)
        for values in sides(some, on_curve)
    ]
    distinct = {state.tobytes(): state for state in starts}.values()
    best = _highest(some, distinct)
    return best if some is target else _highest(target, [best.q])


def _highest(target: Target, starts: Iterable[Array]) -> Mode:
    """Climb from each start, and return the mode with the largest evidence."""
    found = [mode for start in starts if (mode := find_mode(target, start))]
    if not found:
        raise SemistanError(
            "no mode was found inside the subspace, around which it could be completed; use "
            "--completion none, or another seed"
        )
    return max(found, key=lambda mode: mode.evidence)


def _completion(
    inside: Target, outside: Target, part: Target, mode: Mode, trace: float | None = None
) -> Completion:
    """Approximate what is outside the subspace at a mode in it.

    Parameters
    ----------
    inside, outside : Target
        The posterior in the subspace, and in one that contains it, of R dimensions.
    part : Target
        The second given a part of the rows, with the curvature of all.
    mode : Mode
        That in the subspace.
    trace : float, optional
        Of the rows' information on all weights in units of their prior, where ``outside`` has not
        all of them.
    """
    subspace, whole = inside.bundle.subspace, outside.bundle.subspace
    k, R, n = subspace.k, whole.k, len(mode.q)
    at = subspace.lift(subspace.phi_scale * mode.q[:k])
    ends = np.vstack([at, at + (subspace.matrix * subspace.phi_scale).T])
    start, *moved_by_one = whole.project(ends) / whole.phi_scale
    q = np.concatenate([start, mode.q[k:]])
    T = np.zeros((len(q), n))
    T[:R, :k] = np.transpose(moved_by_one) - start[:, None]
    T[R:, k:] = np.eye(n - k)
    held = np.concatenate([p.constrained for p in outside.layout.parameters])
    around = expansion(part, torch.tensor(q)).among(torch.from_numpy(np.flatnonzero(~held)))
    slope = around.gradient.numpy()
    if part is not outside:
        slope = value_and_gradient(outside, q)[1][~held]
    inner = np.concatenate([np.ones(k, dtype=bool), ~held[R:]])
    F, information = _complement(
        around.matrix.numpy(), around.prior.numpy(), T[np.ix_(~held, inner)]
    )
    total, left_out = max(information.sum(), np.finfo(float).tiny), 0.0
    if trace is not None:
        left_out = max(0.0, trace - float((around.safe.diagonal() - around.prior)[:R].sum()))
    shares = information.cumsum() / (total + left_out)
    K = min(MOST, len(shares), int(np.searchsorted(shares, SHARE)) + 1)
    step = -F.T @ slope
    stride = np.sqrt(information @ step**2 / total)
    moved = np.zeros((len(q), 1 + F.shape[1]))
    moved[~held] = np.column_stack([F @ step, F])
    weights = (whole.lift((whole.phi_scale[:, None] * moved[:R]).T) - whole.p_bar).T
    others = _others(outside, q, at, weights, moved[R:])
    names = [name for p in outside.bundle.design.predictors for name in _interpreted(p)]
    kept = _kept(np.vstack([others[name][:, 1:] for name in names]), K)
    return Completion(
        at,
        _along(weights, kept),
        {name: _along(change, kept) for name, change in others.items()},
        information @ kept**2,
        float(shares[K - 1]),
        float(stride),
    )


def _along(change: Array, kept: Array) -> Array:
    """Return a step and what is along directions (size, 1 + m), along those kept (m, r)."""
    return np.column_stack([change[:, 0], change[:, 1:] @ kept])


def _interpreted(predictor: Predictor) -> list[str]:
    """Return the names of a predictor's intercept and coefficients among what moves."""
    theta = [predictor.theta] if predictor.coefficients else []
    return [predictor.intercept, *theta, *(slope.name for slope in predictor.slopes)]


def _kept(slopes: Array, K: int) -> Array:
    """Return what is kept of m directions, (m, K + r): the first, and others of which much lacks.

    Parameters
    ----------
    slopes : array, shape (quantities, m)
        How each quantity moves along each direction.
    K : int
        How many directions are kept anyway.
    """
    m = slopes.shape[1]
    whole = np.linalg.norm(slopes, axis=1, keepdims=True)
    lacking = slopes[:, K:] / np.where(whole > 0, whole, 1)
    _, lengths, turned = np.linalg.svd(lacking, full_matrices=False)
    further = np.zeros((m, int(np.sum(lengths**2 > LACKING))))
    further[K:] = turned[: further.shape[1]].T
    return np.hstack([np.eye(m, K), further])


def _complement(H: Array, prior: Array, T: Array) -> tuple[Array, Array]:
    """Factor the covariance outside the columns of T: V = F F', with diagonal information.

    Parameters
    ----------
    H : array, shape (n, n)
        The curvature.
    prior : array, shape (n,)
        What the prior has of it, on the diagonal.
    T : array, shape (n, m)
        Directions of the subspace.

    Returns
    -------
    F : array, shape (n, n - m)
        The most informed directions first.
    array, shape (n - m,)
        The rows' information on each, from 1 to 0.
    """
    L = np.linalg.cholesky(H)
    Q = np.linalg.qr(L.T @ T, mode="complete")[0][:, T.shape[1] :]
    F = solve_triangular(L, Q, trans=1, lower=True)
    of_prior, turned = np.linalg.eigh(F.T @ (prior[:, None] * F))
    return F @ turned, np.clip(1 - of_prior, 0, 1)


def _others(outside: Target, q: Array, at: Array, weights: Array, rest: Array) -> dict[str, Array]:
    """Return how all but the weights move, by name and as (size, 1 + K).

    Parameters
    ----------
    outside : Target
        The posterior of all weights.
    q : array, shape (n,)
        Where: R coordinates of the weights, and the others.
    at, weights : arrays, shapes (d,) and (d, 1 + K)
        The weights there, and how they move.
    rest : array, shape (n - R, 1 + K)
        How the other coordinates move.
    """
    design, units = outside.bundle.design, outside.bundle.units
    R = len(q) - len(rest)
    start, tail = torch.tensor(q[:R]), torch.tensor(q[R:])
    linear = {name for term in design.terms for name in term.reported}
    linear &= {p.name for p in outside.layout.parameters if p.kind is REAL}
    linear |= {name for p in design.predictors for name in (p.theta, p.tau)}

    def quantities(x: Tensor) -> dict[str, Tensor]:
        values = outside.values(torch.cat([start, x]))
        found = {name: value for name, value in values.items() if name in linear}
        for term in design.terms:
            found |= term.made(values)
        return {name: in_file_order(value) for name, value in found.items()}

    found = {
        name: slopes.numpy() @ rest for name, slopes in torch.func.jacrev(quantities)(tail).items()
    }
    for predictor in design.predictors:
        level = (
            found[predictor.tau]
            if predictor.has_tau
            else _mean_slopes(outside, at, predictor.name) @ weights
        )
        moved = units.scale(predictor.name) * level
        if predictor.coefficients:
            moved = moved - units.columns[predictor.name][0] @ found[predictor.theta]
        found[predictor.intercept] = moved.reshape(1, -1)
        for slope in predictor.slopes:
            unit, plain = units.scale(predictor.name) / slope.scale, predictor.name
            one = _mean_slopes(outside, at, plain, slope.network) - _mean_slopes(outside, at, plain)
            found[slope.name] = (unit * (one @ weights)).reshape(1, -1)
    return found


def _mean_slopes(outside: Target, at: Array, predictor: str, one: int | None = None) -> Array:
    """Return the mean over the rows of the derivatives (d,) of a predictor's networks.

    What networks multiply is 0, or 1 of the network ``one``.
    """
    spec, w, total = outside.bundle.network, torch.tensor(at), np.zeros(len(at))
    for chunk in outside.chunks:
        _, J = output_and_jacobian(spec, w, with_multipliers(spec, chunk.U, one), predictor)
        total += J.sum(dim=0).numpy()
    return total / sum(map(len, outside.chunks))
