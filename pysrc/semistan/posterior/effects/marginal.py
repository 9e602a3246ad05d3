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
    spared,
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
    contrasts = [contrast for name in names for contrast in _contrasts(predictors, name, positions)]
    values = _average_differences(posterior, predictors.frame.iloc[positions], contrasts, scale)
    labels = pd.DataFrame([(c.term, c.name) for c in contrasts], columns=["term", "contrast"])
    return estimates_table(labels, values, categories_on(posterior, scale), interval)


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


def _average_differences(
    posterior: Posterior, sample: pd.DataFrame, contrasts: Sequence[_Contrast], scale: str
) -> Array:
    """Return the weighted difference of each contrast, averaged over rows, (S, C) or (S, C, K)."""
    rows = apply_design(posterior.design, sample, response=False)
    once = {name for each in contrasts for name in spared(posterior.design, [each.term])}
    parts, start = [], 0
    for chunk in row_chunks(posterior, rows):
        at_chunk, piece = posterior.knowing(chunk, once), slice(start, start + len(chunk))
        sums = [_difference(at_chunk, contrast, piece, scale) for contrast in contrasts]
        parts.append(np.stack(sums, axis=1))
        start += len(chunk)
    return np.asarray(np.sum(parts, axis=0) / len(rows))


def _difference(posterior: Posterior, contrast: _Contrast, piece: slice, scale: str) -> Array:
    """Return the weighted difference of both versions, summed over some rows, (S,) or (S, K)."""
    above, below = (
        on_scale(posterior, apply_design(posterior.design, frame[piece], response=False), scale)
        for frame in (contrast.above, contrast.below)
    )
    return np.tensordot(above - below, contrast.weight[piece], axes=(1, 0))
