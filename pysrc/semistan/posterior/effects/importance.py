"""Permutation importance: how much worse the model explains y when a column is shuffled.

For every posterior draw, and a permutation p of the rows (Breiman, 2001; Fisher, Rudin and
Dominici, 2019),

    (1/n) sum_i [log p(y_i | z_i, r_i) - log p(y_i | z_p(i), r_i)],

averaged over some permutations. It says what the model uses, not what causes y; of columns
that are correlated, each can stand in for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semistan.model.arrays import Array
from semistan.model.design import Design, apply_design
from semistan.model.formula.formula import parse_formula
from semistan.model.table.rows import Rows
from semistan.posterior.effects.columns import (
    check_at_least,
    check_variables,
    sample_positions,
    spared,
)
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import log_lik, row_chunks

if TYPE_CHECKING:
    import pandas as pd


def permutation_importance(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    variables: str | Sequence[str] | None = None,
    repeats: int = 5,
    interval: float = 0.95,
    rows: int | None = None,
    generator: np.random.Generator,
) -> pd.DataFrame:
    """Rank columns by the loss of mean log-likelihood when each is permuted among the rows.

    All columns meet the same permutations, so a line does not depend on which others are
    asked for. The interval is that of the posterior, given the permutations.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        Rows with their response; rows that were held back give a more honest picture.
    variables : str or sequence of str, optional
        Columns of the user's table; by default all that the formula uses, but for bounds of the
        response and its number of trials, with which others' responses cannot be.
    repeats : int
        Number of permutations.
    interval : float
        Probability of the interval.
    rows : int, optional
        Use this many rows, drawn from the table; all by default.
    generator : numpy.random.Generator
        Draws rows and permutations.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``Estimate``, ``Est.Error``, ``l-95% CI``, ``u-95% CI`` (nats per row) and
        ``Relative`` (to the largest estimate), the most important column first.

    Raises
    ------
    InputError
        For unknown columns, a table without the response, or unsuitable numbers.
    """
    import pandas as pd

    check_interval(interval)
    check_at_least("repeats", repeats, 1)
    formula = parse_formula(posterior.design.formula)
    predictors = tuple(
        name for name in formula.columns if name not in {*formula.limiting, *formula.imputing}
    )
    asked = [variables] if isinstance(variables, str) else variables
    names = check_variables(posterior.design, predictors if asked is None else asked)
    sample = table.iloc[sample_positions(len(table), rows, generator)]
    losses = _losses(posterior, sample, names, repeats, generator)
    result = pd.DataFrame({"term": names} | estimates(losses, interval))
    largest = result["Estimate"].max()
    result["Relative"] = result["Estimate"] / largest if largest > 0 else np.nan
    return result.sort_values("Estimate", ascending=False, kind="stable", ignore_index=True)


def _losses(
    posterior: Posterior,
    sample: pd.DataFrame,
    names: tuple[str, ...],
    repeats: int,
    generator: np.random.Generator,
) -> Array:
    """Return the loss of each draw for each column, shape (S, number of names)."""
    intact = apply_design(posterior.design, sample, response=True)
    orders = [generator.permutation(len(intact)) for _ in range(repeats)]
    once = {predictor for name in names for predictor in spared(posterior.design, [name])}
    total, start = np.zeros((posterior.size, len(names))), 0
    for chunk in row_chunks(posterior, intact):
        at_chunk, piece = posterior.knowing(chunk, once), slice(start, start + len(chunk))
        baseline = log_lik(at_chunk, chunk).sum(axis=1)
        for j, name in enumerate(names):
            for order in orders:
                permuted = _permuted(posterior.design, intact, chunk, name, order[piece])
                total[:, j] += baseline - log_lik(at_chunk, permuted).sum(axis=1)
        start += len(chunk)
    weight = float(intact.given.get("weights", np.ones(len(intact))).sum())
    return total / (repeats * weight)


def _permuted(
    design: Design, intact: Rows, chunk: Rows, name: str, order: npt.NDArray[np.intp]
) -> Rows:
    """Return some rows with one column's values from other rows; y and what limits it stay."""
    assert intact.frame is not None
    assert chunk.frame is not None
    frame = chunk.frame.assign(**{name: intact.frame[name].to_numpy()[order]})
    shuffled = apply_design(design, frame, response=False)
    return replace(shuffled, y=chunk.y, given=chunk.given)
