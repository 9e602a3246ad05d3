"""Average marginal effects: by how much the mean changes, per unit of a column, on average.

For a numeric column x, and for a level b of a factor with reference a,

    (1/n) sum_i d mu_i / d x_i      and      (1/n) sum_i (mu_i(b) - mu_i(a)),

both for every posterior draw, over the rows of a table (as in Arel-Bundock, Greifer and Heiss,
2024, Journal of Statistical Software 111(9)). Derivatives are central differences; at the ends
of the observed range they are one-sided, since a spline is not defined beyond it. In place of mu, a
response of categories has a probability of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.posterior.draws import Array
from semistan.posterior.effects.columns import (
    Predictors,
    check_no_images,
    check_variables,
    predictors_of,
    sample_positions,
)
from semistan.posterior.effects.estimates import (
    categories_on,
    check_scale,
    estimates_table,
    on_scale,
)
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import row_chunks

if TYPE_CHECKING:
    import pandas as pd

# A row's step is STEP |x|, but at least SMALLEST and at most STEP times the column's sd. Rounding
# errs by 1e-16 / step; truncation by the step's square, and by the step at the ends.
STEP = 1e-6
SMALLEST = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Contrast:
    """Two versions of the same n rows, and the weight (n,) of each row's difference."""

    term: str
    name: str
    above: pd.DataFrame
    below: pd.DataFrame
    weight: Array


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
        The rows over which to average, for example the training rows.
    variables : str or sequence of str, optional
        Columns of the user's table; all that the formula uses by default.
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
    predictors = predictors_of(posterior.design, table)
    columns = map(str, predictors.frame.columns)
    everything = [name for name in columns if name not in predictors.images]
    asked = [variables] if isinstance(variables, str) else variables
    names = check_variables(posterior.design, everything if asked is None else asked)
    check_no_images(predictors, names)
    positions = sample_positions(len(table), rows, generator)
    effects = [
        (contrast.term, contrast.name, _average_difference(posterior, contrast, scale))
        for name in names
        for contrast in _contrasts(predictors, name, positions)
    ]
    terms, contrasts, values = zip(*effects, strict=True)
    labels = pd.DataFrame({"term": terms, "contrast": contrasts})
    categories = categories_on(posterior, scale)
    return estimates_table(labels, np.stack(values, axis=1), categories, interval)


def _contrasts(
    predictors: Predictors, name: str, positions: npt.NDArray[np.intp]
) -> Iterator[_Contrast]:
    sample = predictors.frame.iloc[positions]
    if name in predictors.levels:
        reference, *others = predictors.levels[name]
        below, equal = sample.assign(**{name: reference}), np.ones(len(sample))
        for level in others:
            above = sample.assign(**{name: level})
            yield _Contrast(name, f"{level} - {reference}", above, below, equal)
    else:
        lower, upper = _around(name, predictors.frame[name].to_numpy(dtype=float), positions)
        above, below = sample.assign(**{name: upper}), sample.assign(**{name: lower})
        yield _Contrast(name, "dY/dX", above, below, 1 / (upper - lower))


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


def _average_difference(posterior: Posterior, contrast: _Contrast, scale: str) -> Array:
    """Return the weighted difference of both versions, averaged over rows, (S,) or (S, K)."""
    above, below = (
        apply_design(posterior.design, frame, response=False)
        for frame in (contrast.above, contrast.below)
    )
    parts, start = [], 0
    chunks = (row_chunks(posterior, rows) for rows in (above, below))
    for upper, lower in zip(*chunks, strict=True):
        difference = on_scale(posterior, upper, scale) - on_scale(posterior, lower, scale)
        weight = contrast.weight[start : start + len(upper)]
        parts.append(np.tensordot(difference, weight, axes=(1, 0)))
        start += len(upper)
    return np.asarray(np.sum(parts, axis=0) / len(above))
