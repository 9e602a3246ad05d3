"""Survival functions: what the posterior says of times, and Kaplan and Meier's estimate of them.

Rows that entered late, at e_i, were at risk from then on, until their time y_i. With H_i the
cumulative hazard of row i and Y(t) the number of rows that were at risk at t,

    exp(-(sum_i integral over t of 1[e_i < t <= y_i] dH_i(t) / Y(t)))

is what Kaplan and Meier's estimate is expected to be, given who was at risk when (Aalen, 1978,
Annals of Statistics 6). So it is where a subject has several rows, one after the other.
"""

from __future__ import annotations

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.family import Tails
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import distribution


def survival(posterior: Posterior, rows: Rows, times: Array) -> Array:
    """Return the share of some rows that is expected to survive each time, draw by draw.

    Parameters
    ----------
    posterior : Posterior
        What was learnt, of S draws.
    rows : Rows
        The rows; a share counts them by their weights. One row gives its own curve.
    times : array, shape (T,)
        Times, in units of the response.

    Returns
    -------
    array, shape (S, T)
        The mean over the rows of P(Y > t).

    Raises
    ------
    InputError
        For a family whose survival function is not known here.
    """
    tails, eta = _tails(posterior), torch.from_numpy(posterior.predictor(rows))
    values = {name: torch.tensor(x) for name, x in distribution(posterior, rows).items()}
    weight = rows.given.get("weights", np.ones(len(rows)))
    share = torch.from_numpy(weight / weight.sum())
    curves = [
        tails.log_above(torch.full_like(eta, float(time)), eta, values).exp() @ share
        for time in times
    ]
    return np.asarray(torch.stack(curves, dim=1).numpy())


def survival_at_risk(posterior: Posterior, rows: Rows, times: Array) -> Array:
    """Return what Kaplan and Meier's estimate of some rows is expected to be, draw by draw.

    A row that enters or leaves between two times is at risk for its part of that interval.

    Parameters
    ----------
    posterior : Posterior
        What was learnt, of S draws.
    rows : Rows
        Rows with their response and a lower bound, when they entered; they count by their weights.
    times : array, shape (T,)
        Times in increasing order, in units of the response.

    Returns
    -------
    array, shape (S, T)
        The share that survives each time.

    Raises
    ------
    InputError
        For a family whose survival function is not known here.
    """
    assert rows.y is not None
    log_above, eta = _tails(posterior).log_above, torch.from_numpy(posterior.predictor(rows))
    values = {name: torch.tensor(x) for name, x in distribution(posterior, rows).items()}
    weight = rows.given.get("weights", np.ones(len(rows)))

    def hazard(at: Array) -> Array:
        return -np.asarray(log_above(torch.tensor(at).expand_as(eta), eta, values).numpy())

    total, before, found = np.zeros(len(eta)), 0.0, []
    for time in times:
        start, end = np.maximum(rows.given["lb"], before), np.minimum(rows.y, time)
        at_risk = end > start
        if at_risk.any():
            events = np.where(at_risk, hazard(end) - hazard(np.minimum(start, end)), 0) @ weight
            exposed = weight[at_risk] @ (end - start)[at_risk] / (time - before)
            total = total + events / exposed
        found.append(np.exp(-total))
        before = time
    return np.stack(found, axis=1)


def _tails(posterior: Posterior) -> Tails:
    tails = posterior.family.tails
    if tails is None:
        raise InputError(
            f"the survival function of family {posterior.family.name} is not known; it is of "
            "gaussian, lognormal, weibull, exponential, cox and poisson"
        )
    return tails


def kaplan_meier(
    y: Array, ended: Array, weight: Array, entry: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return the estimate of Kaplan and Meier (1958, JASA 53) of the survival function.

    Parameters
    ----------
    y : array, shape (N,)
        Times.
    ended : array of bool, shape (N,)
        Which of them were observed; the others are censored to the right.
    weight : array, shape (N,)
        Of each row.
    entry : array, shape (N,), or float
        From when on a row was observed: it is at risk after that time.

    Returns
    -------
    times, share : array, shape (T,)
        The times at which it falls, from the first, and what survives each of them.
    """
    times = np.unique(y[ended])
    at_risk = np.array([weight[(y >= time) & (entry < time)].sum() for time in times])
    events = np.array([weight[ended & (y == time)].sum() for time in times])
    return times, np.cumprod(1 - events / at_risk)
