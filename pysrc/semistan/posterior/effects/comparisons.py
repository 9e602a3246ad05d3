"""Comparisons of predictions: what a change of a column changes in the mean, averaged over rows.

    difference  h - l      ratio  h / l      lnratio  log(h / l)      lift  (h - l) / l
    lnor        log(h / (1 - h)) - log(l / (1 - l))

with h and l the averages, over the rows or over those of each group, of the predictions after and
before the change, in every posterior draw. A contrast says how a column changes.

    of a number   a step, as 1 (the default), added to each row's value; sd and 2sd, around the
                  mean; iqr, from the first to the third quartile; minmax; or two values, from,to
    of a factor   reference (the default), each level against the first; sequential, against the
                  one before; pairwise; or two levels, from,to

Names are those of R's marginaleffects (``avg_comparisons``; Arel-Bundock, Greifer and Heiss, 2024,
Journal of Statistical Software 111(9)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.posterior.effects.averages import Change, averages, changing
from semistan.posterior.effects.columns import (
    FEW_VALUES,
    Predictors,
    predictors_of,
    sample_positions,
)
from semistan.posterior.effects.estimates import (
    apart,
    categories_on,
    check_scale,
    estimates_table,
)
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.weighting import row_weights

if TYPE_CHECKING:
    import pandas as pd


def _log_odds(p: Array) -> Array:
    return np.asarray(np.log(p) - np.log1p(-p))


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "difference": lambda high, low: high - low,
    "ratio": lambda high, low: high / low,
    "lnratio": lambda high, low: np.log(high / low),
    "lift": lambda high, low: (high - low) / low,
    "lnor": lambda high, low: _log_odds(high) - _log_odds(low),
}
OF_NUMBERS = ("sd", "2sd", "iqr", "minmax")
OF_FACTORS = ("reference", "sequential", "pairwise")


def average_comparisons(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: str | Sequence[str] | None = None,
    contrast: str | None = None,
    comparison: str = "difference",
    by: str | None = None,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    generator: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Compare predictions before and after changes of columns.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The rows over which to average; by their weights, if the table has those of the formula.
    variables : str or sequence of str, optional
        Columns that change, one at a time; by default all of the formula but images, offsets,
        whose effect is known, and those that only name the levels of groups.
    contrast : str, optional
        As this module says; by default a step of 1, and each level against the first.
    comparison : str
        ``difference``, ``ratio``, ``lnratio``, ``lift`` or ``lnor``.
    by : str, optional
        A factor of the formula, or a number with few values: averages are of each of its levels.
    scale : str
        ``response`` or ``linpred``.
    interval : float
        Probability of the interval.
    rows, generator : int and numpy.random.Generator, optional
        Average over this many rows, which the generator draws; over all by default.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``contrast``, the groups' column, ``Estimate``, ``Est.Error`` and the interval, in
        a block for each category. Names that the groups' column has stand behind a dot: ``.term``.

    Raises
    ------
    InputError
        For unknown names, contrasts that a column cannot have, and comparisons that do not exist.
    """
    check_options(comparison, scale, interval)
    predictors = predictors_of(posterior, table)
    positions = sample_positions(len(table), rows, generator)
    changes = changes_of(posterior, predictors, variables, contrast, positions)
    sample = predictors.frame.iloc[positions]
    weight = row_weights(posterior.config, table)[positions]
    groups, shares = _groups(predictors, sample, by, weight)
    found = averages(posterior, sample, changes, [shares] * len(changes), scale)
    values = np.concatenate([COMPARISONS[comparison](*pair) for pair in found], axis=1)
    check_finite(values, comparison)
    labels = _labels(changes, groups, by)
    return estimates_table(labels, values, categories_on(posterior, scale), interval)


def check_options(comparison: str, scale: str, interval: float) -> None:
    """Refuse unknown comparisons and scales, and intervals that have no probability.

    Raises
    ------
    InputError
        Naming the nearest that there is.
    """
    check_scale(scale)
    check_interval(interval)
    if comparison not in COMPARISONS:
        raise InputError(
            f"unknown comparison '{comparison}'.{did_you_mean(comparison, COMPARISONS)}"
        )


def check_finite(values: Array, comparison: str) -> None:
    """Refuse comparisons that do not exist, as the ratio of means that are 0.

    Raises
    ------
    InputError
        If some value is not finite.
    """
    if not np.isfinite(values).all():
        raise InputError(
            f"the {comparison} does not exist in every draw: a mean of 0 or less, or a probability "
            "of 0 or 1; use --comparison difference"
        )


def changes_of(
    posterior: Posterior,
    predictors: Predictors,
    variables: str | Sequence[str] | None,
    contrast: str | None,
    positions: np.ndarray,
) -> list[Change]:
    """Return what is compared: the changes of each column, one after the other.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    predictors : Predictors
        The columns of the table.
    variables : str or sequence of str, optional
        Columns that change; all that explain the response by default.
    contrast : str, optional
        How they change, as ``average_comparisons`` takes it.
    positions : array of int, shape (n,)
        The rows in which they change.

    Raises
    ------
    InputError
        For unknown names, and contrasts that a column cannot have.
    """
    names = changing(posterior, predictors, variables)
    return [c for name in names for c in _of_column(predictors, name, contrast, positions)]


def _of_column(
    predictors: Predictors, name: str, contrast: str | None, positions: np.ndarray
) -> Iterator[Change]:
    if name in predictors.levels:
        for low, high in _levels(name, predictors.levels[name], contrast or "reference"):
            yield Change(name, f"{high} - {low}", low, high)
        return
    x = predictors.frame[name].to_numpy(dtype=float)
    yield _numeric(name, x, contrast or "1", positions)


def _levels(name: str, levels: tuple[Any, ...], contrast: str) -> list[tuple[Any, Any]]:
    """Return pairs of levels, before and after."""
    if contrast == "reference":
        return [(levels[0], level) for level in levels[1:]]
    if contrast == "sequential":
        return list(pairwise(levels))
    if contrast == "pairwise":
        return list(combinations(levels, 2))
    by_text = {str(level): level for level in levels}
    ends = [text.strip() for text in contrast.split(",")]
    if len(ends) != 2:
        raise InputError(
            f"--contrast of the factor '{name}' is {', '.join(OF_FACTORS)} or two of its levels, "
            f"FROM,TO, got '{contrast}'"
        )
    for text in ends:
        if text not in by_text:
            raise InputError(f"column '{name}' has no level '{text}'.{did_you_mean(text, by_text)}")
    return [(by_text[ends[0]], by_text[ends[1]])]


def _numeric(name: str, x: Array, contrast: str, positions: np.ndarray) -> Change:
    mean, sd = x.mean(), x.std(ddof=1) if len(x) > 1 else 0.0
    words = {
        "sd": (mean - sd / 2, mean + sd / 2),
        "2sd": (mean - sd, mean + sd),
        "iqr": tuple(np.quantile(x, (0.25, 0.75))),
        "minmax": (x.min(), x.max()),
    }
    if contrast in words:
        low, high = words[contrast]
        return Change(name, f"{high:.4g} - {low:.4g} ({contrast})", low, high)
    numbers = _numbers(name, contrast)
    if len(numbers) == 1:
        at = x[positions]
        return Change(name, f"{numbers[0]:+g}", at, at + numbers[0])
    low, high = numbers
    return Change(name, f"{high:g} - {low:g}", low, high)


def _numbers(name: str, contrast: str) -> list[float]:
    try:
        numbers = [float(part) for part in contrast.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not np.isfinite(numbers).all() or numbers == [0]:
        raise InputError(
            f"--contrast of the number '{name}' is a step, {', '.join(OF_NUMBERS)} or two values, "
            f"FROM,TO, got '{contrast}'"
        )
    return numbers


def _groups(
    predictors: Predictors, sample: pd.DataFrame, by: str | None, weight: Array
) -> tuple[list[tuple[Any, ...]], Array]:
    """Return the groups' labels, and each row's share (n, G) in each group's average."""
    if by is None:
        return [()], (weight / weight.sum())[:, None]
    levels = _levels_of_groups(predictors, by)
    column = sample[by].to_numpy()
    inside = {level: (column == level) * weight for level in levels}
    inside = {level: part for level, part in inside.items() if part.any()}
    shares = np.column_stack([part / part.sum() for part in inside.values()])
    return [(level,) for level in inside], shares


def _labels(changes: list[Change], groups: list[tuple[Any, ...]], by: str | None) -> pd.DataFrame:
    """Return what each estimate is of: the column, its change, and the group."""
    import pandas as pd

    grouping = [by] if by else []
    return pd.DataFrame(
        [(c.term, c.name, *group) for c in changes for group in groups],
        columns=[*(apart(name, grouping) for name in ("term", "contrast")), *grouping],
    )


def _levels_of_groups(predictors: Predictors, by: str) -> Sequence[Any]:
    """Return the values of a column that are groups: a factor's levels, or a few numbers."""
    known = [str(name) for name in predictors.frame.columns if name not in predictors.own]
    if by not in known:
        raise InputError(f"--by names a column of the formula.{did_you_mean(by, known)}")
    if by in predictors.levels:
        return predictors.levels[by]
    values: list[Any] = np.unique(predictors.frame[by].to_numpy()).tolist()
    if len(values) > FEW_VALUES:
        raise InputError(
            f"--by takes a factor, or a number with at most {FEW_VALUES} values: '{by}' has "
            f"{len(values)}"
        )
    return values
