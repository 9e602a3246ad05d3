"""Average marginal effects: by how much the mean changes, per unit of a column, on average.

For a numeric column x, and for a level b of a factor with reference a,

    sum_i a_i d mu_i / d x_i      and      sum_i a_i (mu_i(b) - mu_i(a)),

both for every posterior draw, over the rows of a table (as in Arel-Bundock, Greifer and Heiss,
2024, Journal of Statistical Software 111(9)), with a_i = 1/n, or in proportion to the rows'
weights. Derivatives are central differences, through which networks are straight; at the ends of
the observed range they are one-sided, since a spline is not defined beyond it. In place of mu, a
response of categories has a probability of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.posterior.effects.averages import Change, averages, changing
from semistan.posterior.effects.columns import Predictors, predictors_of, sample_positions
from semistan.posterior.effects.estimates import categories_on, check_scale, estimates_table
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.weighting import row_weights

if TYPE_CHECKING:
    import pandas as pd

# A row's step is STEP |x|, but at least SMALLEST and at most STEP times the column's sd. Rounding
# errs by 1e-16 / step; truncation by the step's square, and by the step at the ends.
STEP = 1e-6
SMALLEST = 1e-9


def average_marginal_effects(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: str | Sequence[str] | None = None,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    generator: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Average each column's marginal effect over rows.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The rows over which to average, for example the training rows; by their weights, if the
        formula has some and the table their columns.
    variables : str or sequence of str, optional
        Columns of the user's table; by default all that the formula uses, but images,
        offsets, whose effect is known, and columns that only name the levels of groups.
    scale : str
        ``response``: in units of y per unit of x, ``linpred``: of eta.
    interval : float
        Probability of the interval.
    rows : int, optional
        Average over this many rows, drawn from the table; over all by default.
    generator : numpy.random.Generator, optional
        Draws them.

    Returns
    -------
    pandas.DataFrame
        One line per numeric column (contrast ``dY/dX``) and per level (``b - a``): ``term``,
        ``contrast``, ``Estimate``, ``Est.Error``, ``l-95% CI``, ``u-95% CI``. With categories,
        one such block for each, named in the column ``category``.

    Raises
    ------
    InputError
        For unknown columns or scales, columns that do not vary, or unsuitable numbers.
    """
    import pandas as pd

    check_scale(scale)
    check_interval(interval)
    predictors = predictors_of(posterior, table)
    names = changing(posterior, predictors, variables)
    positions = sample_positions(len(table), rows, generator)
    changes = [change for name in names for change in _changes(predictors, name, positions)]
    sample, weight = (
        predictors.frame.iloc[positions],
        row_weights(posterior.config, table)[positions],
    )
    shares = [_shares(change, weight, predictors) for change in changes]
    both = averages(posterior, sample, changes, shares, scale)
    values = np.concatenate([after - before for after, before in both], axis=1)
    labels = pd.DataFrame([(c.term, c.name) for c in changes], columns=["term", "contrast"])
    return estimates_table(labels, values, categories_on(posterior, scale), interval)


def _changes(
    predictors: Predictors, name: str, positions: npt.NDArray[np.intp]
) -> Iterator[Change]:
    if name in predictors.levels:
        reference, *others = predictors.levels[name]
        for level in others:
            yield Change(name, f"{level} - {reference}", reference, level)
    else:
        lower, upper = _around(name, predictors.frame[name].to_numpy(dtype=float), positions)
        yield Change(name, "dY/dX", lower, upper, is_slope=True)


def _shares(change: Change, weight: Array, predictors: Predictors) -> Array:
    """Return what each row adds to the average (n, 1): per unit of a numeric column."""
    shares = weight / weight.sum()
    if change.term not in predictors.levels:
        shares = shares / (change.high - change.low)
    return np.asarray(shares)[:, None]


def _around(name: str, x: Array, positions: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Return points just below and above the chosen values, within the observed range."""
    if np.ptp(x) == 0:
        raise InputError(
            f"column '{name}' is constant in these rows ({x[0]:g}): its marginal effect needs a "
            "range of values"
        )
    at, sd = x[positions], x.std()
    step = np.clip(STEP * np.abs(at), SMALLEST * sd, STEP * sd)
    return np.maximum(at - step, x.min()), np.minimum(at + step, x.max())
