"""How well a posterior predicts rows with a known response.

With S draws, and the predictive distribution of row i being their mixture,

    lpd_i  = log (1/S) sum_s p(y_i | draw s),        LPPD = sum_i w_i lpd_i / sum_i w_i
    crps_i = E|Y - y_i| - E|Y - Y'| / 2              (Gneiting and Raftery, 2007)
    pit_i  = P(Y < y_i) + v_i P(Y = y_i),  v_i ~ U(0, 1)

LPPD is an average over rows, as in footnote 1 of Dold et al. (2024). It and all other averages have
the rows' weights w_i, which are 1 unless the formula has weights(). The randomised
probability integral transform of discrete responses is that of Czado, Gneiting and Held (2009).

With p_ik = (1/S) sum_s P(y_i = k | draw s), a response of categories has besides

    accuracy = share of rows with argmax_k p_ik = y_i, or of their trials in that category

and an unordered one, which has neither mean nor quantiles, the score of Brier (1950, Monthly
Weather Review 78), that is mean_i sum_k (p_ik - 1[y_i = k])^2, from 0 to 2. The CRPS of an ordinal
response is its ranked probability score.

The central interval of a discrete response holds at least its probability, and mostly more, since
no part of a value can be left out. What can be compared with the probability is the share of rows
whose transform pit_i, which is uniform if the model is right, lies in the central part of 0 to 1:
the randomised coverage.

A row without trials has no response, and counts 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.family import Family
from semistan.model.table.rows import Rows
from semistan.posterior.categories import observed_shares
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import distribution, log_density, row_chunks
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.ranks import central
from semistan.posterior.weighting import counting

if TYPE_CHECKING:
    import pandas as pd

RELIABILITY_BINS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """What is known of each of N rows, of shape (N,) unless said otherwise.

    Of an unordered response, ``mean``, ``crps``, ``lower``, ``upper`` and ``pit`` are NaN.

    Attributes
    ----------
    y : array
        Observed response; of shape (N, K) if it counts K categories or has their shares.
    lpd : array
        Log predictive density at ``y``.
    mean : array
        Posterior mean of mu.
    crps : array
        Continuous ranked probability score, in the units of y; smaller is better.
    lower, upper : array
        Bounds of the central predictive interval.
    pit : array
        Probability integral transform, uniform if the model is calibrated.
    p : array, shape (N, K)
        Probability of each category; K = 0 of a response without.
    weight : array
        How often the row counts in averages: its weight, which its density does not know, 1 without
        weights(), and 0 without trials.
    """

    y: Array
    lpd: Array
    mean: Array
    crps: Array
    lower: Array
    upper: Array
    pit: Array
    p: Array
    weight: Array

    def of_category(self, position: int) -> Pointwise:
        """Return share and probability of a category, by its position from 0, as y and mean."""
        return replace(self, y=self.shares[:, position], mean=self.p[:, position])

    @property
    def shares(self) -> Array:
        """The observed share (N, K) of each category."""
        return observed_shares(self.y, self.p.shape[1])


@dataclass(frozen=True, slots=True)
class Score:
    """One score with its standard error over rows.

    ``column`` is what it is called where models stand in lines, empty if it is not shown there.
    """

    name: str
    value: float
    se: float
    column: str


def pointwise(
    posterior: Posterior,
    rows: Rows,
    *,
    interval: float = 0.9,
    generator: np.random.Generator,
) -> Pointwise:
    """Judge each row, some rows at a time.

    Parameters
    ----------
    posterior : Posterior
        What predicts them.
    rows : Rows
        Rows with their response.
    interval : float
        Probability of the central predictive interval.
    generator : numpy.random.Generator
        For replicated responses, and for the transform of discrete ones.

    Raises
    ------
    InputError
        If the interval is no probability.
    """
    check_interval(interval)
    chunks = [
        _judge(posterior, chunk, interval, generator) for chunk in row_chunks(posterior, rows)
    ]
    return join(chunks)


def join(parts: list[Pointwise]) -> Pointwise:
    """Put the rows of several parts one after the other."""
    names = Pointwise.__dataclass_fields__
    return Pointwise(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def scores(family: Family, rows: Pointwise, interval: float = 0.9) -> tuple[Score, ...]:
    """Average over the rows, by their weights, what the family's response has.

    Accuracy and Brier score if it is unordered, RMSE over all categories of shares; else RMSE, MAE
    and CRPS, and AUC and Brier score of a binary response, accuracy of an ordinal one, and of all
    others the interval. Of a response
    that may be censored, LPPD alone: how far it is from a prediction is not known. There is no AUC
    of rows of one class.

    Raises
    ------
    InputError
        If no row counts, or a score of one that does is not finite, naming it.
    """
    weight, categories = rows.weight, rows.p.shape[1]
    if not weight.any():
        raise InputError(
            "no row counts: all have weight 0 or no trials; score rows with a response"
        )
    lppd = _average("LPPD", rows.lpd, weight, column="")
    accuracy = (_average("accuracy", _right(rows), weight),) if categories else ()
    if family.censored:
        return (lppd,)
    if family.composed:
        error = np.sqrt(np.square(rows.p - rows.shares).mean(axis=1))
        return lppd, _rmse(error, weight)
    if family.mean is None:
        return lppd, *accuracy, _average("Brier", _brier(rows), weight)
    error = rows.mean - rows.y
    covered = (rows.lower <= rows.y) & (rows.y <= rows.upper)
    percent = f"{100 * interval:g}%"
    if family.binary:
        of_family = (*_auc(rows), _average("Brier", error**2, weight))
    else:
        of_family = (
            _average(f"coverage of {percent} interval", covered, weight, column="coverage"),
            *_randomised(family, rows, interval, percent),
            _average(f"width of {percent} interval", rows.upper - rows.lower, weight, column=""),
        )
    return (
        lppd,
        _rmse(error, weight),
        _average("MAE", np.abs(error), weight),
        _average("CRPS", rows.crps, weight),
        *accuracy,
        *of_family,
    )


def scoring_notes(family: Family, rows: Pointwise, interval: float = 0.9) -> tuple[str, ...]:
    """Say which scores these rows cannot have, and how coverage is to be read."""
    counted = rows.weight > 0
    percent = f"{100 * interval:g}%"
    said = {
        "One row counts, so that there are no standard errors.": counted.sum() == 1,
        "There is no AUC: all rows that count are of one class.": (
            family.binary and np.unique(rows.y[counted]).size == 1
        ),
        f"An interval of a discrete response holds {percent} or more, because values have "
        f"probabilities: compare the randomised coverage with {percent}.": (
            _has_interval(family) and family.integer
        ),
    }
    return tuple(text for text, true in said.items() if true)


def _has_interval(family: Family) -> bool:
    return not (family.censored or family.mean is None or family.binary)


def _randomised(
    family: Family, rows: Pointwise, interval: float, percent: str
) -> tuple[Score, ...]:
    """Return the coverage that is ``interval`` if the model is right, of a discrete response."""
    if not family.integer:
        return ()
    inside, column = central(rows.pit, interval), "randomised coverage"
    return (_average(f"{column} of {percent} interval", inside, rows.weight, column=column),)


def reliability(rows: Pointwise, bins: int = RELIABILITY_BINS) -> pd.DataFrame:
    """Compare mean predictions with mean responses in bins of equal size.

    Returns
    -------
    pandas.DataFrame
        ``predicted``, ``observed``, ``se`` and ``rows`` of each bin; for a calibrated model
        observed and predicted agree within the standard error. Means have the rows' weights; rows
        of weight 0 are left out.
    """
    import pandas as pd

    order = np.argsort(rows.mean, kind="stable")
    order = order[rows.weight[order] > 0]
    parts = [part for part in np.array_split(order, bins) if part.size > 1]
    return pd.DataFrame(
        {
            "predicted": [_mean(rows.mean[part], rows.weight[part]) for part in parts],
            "observed": [_mean(rows.y[part], rows.weight[part]) for part in parts],
            "se": [_standard_error(rows.y[part], rows.weight[part]) for part in parts],
            "rows": [part.size for part in parts],
        }
    )


def scores_table(several: tuple[Score, ...]) -> pd.DataFrame:
    """Return one line per score: ``score``, ``Estimate``, ``SE``."""
    import pandas as pd

    return pd.DataFrame(
        [(item.name, item.value, item.se) for item in several], columns=["score", "Estimate", "SE"]
    )


def _judge(
    posterior: Posterior, rows: Rows, interval: float, generator: np.random.Generator
) -> Pointwise:
    from scipy.special import logsumexp

    assert rows.y is not None
    family, eta = posterior.family, posterior.predictor(rows)
    parameters = distribution(posterior, rows)
    density = log_density(family, rows, eta, parameters)
    lpd = logsumexp(density, axis=0) - np.log(len(eta))
    weight = counting(rows)
    probabilities = family.probabilities
    p = probabilities(eta, parameters).mean(axis=0) if probabilities else np.zeros((len(rows), 0))
    if family.mean is None:
        nothing = np.full_like(lpd, np.nan)
        return Pointwise(rows.y, lpd, nothing, nothing, nothing, nothing, nothing, p, weight)
    return Pointwise(
        y=rows.y,
        lpd=lpd,
        p=p,
        weight=weight,
        mean=family.mean(eta, parameters).mean(axis=0),
        **_replicated(family, eta, parameters, rows.y, interval, generator),
    )


def _replicated(
    family: Family,
    eta: Array,
    parameters: Mapping[str, Array],
    y: Array,
    interval: float,
    generator: np.random.Generator,
) -> dict[str, Array]:
    """Return what is judged by replicated responses: crps, lower, upper and pit."""
    replicated = np.sort(family.rng(eta, parameters, generator), axis=0, kind="stable")
    lower, upper = np.quantile(
        replicated,
        ((1 - interval) / 2, (1 + interval) / 2),
        axis=0,
        method="inverted_cdf" if family.integer else "linear",
    )
    below, at = (replicated < y).mean(axis=0), (replicated == y).mean(axis=0)
    pit = below + generator.random(len(y)) * at
    return {"crps": crps(replicated, y), "lower": lower, "upper": upper, "pit": pit}


def crps(replicated: Array, y: Array) -> Array:
    """Return the score (N,) of sorted replicated responses (S, N) for observed ones (N,).

    E|Y - Y'| is estimated without bias from the order statistics.
    """
    size = len(replicated)
    weights = (2 * np.arange(1, size + 1) - size - 1) / (size * max(1, size - 1))
    return np.asarray(np.abs(replicated - y).mean(axis=0) - weights @ replicated)


def _right(rows: Pointwise) -> Array:
    """Return the share (N,) of the most probable category: 1 where it is the observed one."""
    return np.take_along_axis(rows.shares, rows.p.argmax(axis=1)[:, None], axis=1)[:, 0]


def _brier(rows: Pointwise) -> Array:
    """Return the score (N,) of a row's trials in the mean, of a single observation otherwise."""
    return np.asarray((np.square(rows.p) - 2 * rows.p * rows.shares).sum(axis=1) + 1)


def _average(
    name: str, values: npt.NDArray[Any], weight: Array, column: str | None = None
) -> Score:
    counted = np.where(weight > 0, values, 0.0)
    check_finite(name, counted)
    found = _mean(counted, weight), _standard_error(counted, weight)
    return Score(name, *found, name if column is None else column)


def _rmse(error: Array, weight: Array) -> Score:
    """Return the root mean square with the standard error of the delta method."""
    with np.errstate(over="ignore"):
        square = np.where(weight > 0, np.square(error), 0.0)
    check_finite("the squared error", square)
    rmse = float(np.sqrt(_mean(square, weight)))
    se = _standard_error(square, weight) / (2 * rmse) if rmse else 0.0
    return Score("RMSE", rmse, se, "RMSE")


def _auc(rows: Pointwise) -> tuple[Score, ...]:
    """Return the area under the ROC curve with the standard error of DeLong et al. (1988), if any.

    Rows of one class have none.
    """
    positive = rows.y == 1
    (up, w_up), (down, w_down) = (
        (rows.mean[part], rows.weight[part]) for part in (positive, ~positive)
    )
    if not w_up.sum() or not w_down.sum():
        return ()
    # The share of the other class that each row is ranked right against.
    of_up, of_down = _share_below(up, down, w_down), _share_below(-down, -up, w_up)
    se = np.hypot(_standard_error(of_up, w_up), _standard_error(of_down, w_down))
    return (Score("AUC", _mean(of_up, w_up), float(se), "AUC"),)


def _share_below(values: Array, others: Array, weight: Array) -> Array:
    """Return the share of the weight of ``others`` that is below each value; ties count half."""
    order = np.argsort(others, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    left, right = (np.searchsorted(others[order], values, side) for side in ("left", "right"))
    return np.asarray((total[left] + total[right]) / (2 * total[-1]))


def _mean(values: Array, weight: Array) -> float:
    return float(np.average(values, weights=weight))


def _standard_error(values: Array, weight: Array) -> float:
    """Return the standard error of the weighted mean of independent values, weights being fixed."""
    n = np.count_nonzero(weight)
    if n < 2:
        return np.nan
    shares = weight / weight.sum()
    deviations = shares * (values - _mean(values, weight))
    return float(np.sqrt(n / (n - 1) * np.square(deviations).sum()))
