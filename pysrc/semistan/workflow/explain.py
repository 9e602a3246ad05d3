"""What a finished run says of the columns: effects, marginal effects, importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table
from semistan.posterior.categories import category_position
from semistan.posterior.effects import decomposition
from semistan.posterior.effects.answers import EffectTable, importance_answer, marginal_answer
from semistan.posterior.effects.effect import Effect, conditional_effect, partial_dependence
from semistan.posterior.options import KNOWN, EffectOptions
from semistan.posterior.posterior import Posterior, read_posterior
from semistan.workflow.prepare import new_table
from semistan.workflow.runs import RunLike, opened, posterior_run

if TYPE_CHECKING:
    import pandas as pd

PAIR_DRAWS = 1000  # for a grid over two columns


def effect(
    run: RunLike,
    variables: str | Sequence[str],
    *,
    kind: str = "pd",
    at: Mapping[str, Any] | None = None,
    scale: str = "response",
    resolution: int | None = None,
    rows: int = 1000,
    curves: int = 0,
    category: str | None = None,
    seed: int = 1,
    groups: str = KNOWN,
) -> Effect:
    """Vary one or two columns of the training table.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    variables : str or sequence of str
        One or two columns.
    kind : str
        ``pd`` (partial dependence: the mean over rows) or ``conditional`` (all other columns at
        their mean or first level, or ``at`` given values).
    at : mapping, optional
        Values at which a conditional effect holds other columns.
    scale : str
        ``response`` (the mean, or the probability of each category) or ``linpred``.
    resolution : int, optional
        Points of a numeric column; 25, or 15 where two columns vary.
    rows : int
        Most rows over which partial dependence is averaged, drawn by the seed.
    curves : int
        How many of them are kept as individual curves.
    category : str, optional
        One category of the response, instead of all.
    seed : int
        Draws the rows.
    groups : str
        What the effects of groups are, as of ``predict``.

    Returns
    -------
    Effect
        Its ``table()`` has the estimates.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    run = opened(run)
    chosen = EffectOptions(kind, at or {}, scale, resolution, rows, curves, category, seed, groups)
    if chosen.category is not None:
        category_position(run.bundle.family, run.bundle.design, chosen.category)
    posterior = read_posterior(run).with_groups(groups)
    found = _effect(posterior, run.table(), variables, chosen)
    return found if chosen.category is None else found.of_category(chosen.category)


def _effect(
    posterior: Posterior,
    table: pd.DataFrame,
    variables: str | Sequence[str],
    options: EffectOptions,
) -> Effect:
    several = not isinstance(variables, str) and len(set(variables)) > 1
    if several:
        posterior = posterior.thin(PAIR_DRAWS)
    scale, resolution = options.scale, options.resolution or (15 if several else 25)
    if options.kind == "conditional":
        return conditional_effect(
            posterior, table, variables, scale=scale, at=options.at, resolution=resolution
        )
    return partial_dependence(
        posterior, table, variables, scale=scale, resolution=resolution, rows=options.rows,
        curves=options.curves, generator=np.random.default_rng(options.seed),
    )  # fmt: skip


def slopes(
    run: RunLike,
    variables: str | Sequence[str] | None = None,
    *,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
    groups: str = KNOWN,
) -> pd.DataFrame:
    """Average marginal effects over the training rows: slopes, and differences to a level.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    variables : str or sequence of str, optional
        Columns of the data; by default all but images, and those that only name groups or stand in
        an offset.
    scale : str
        ``response`` (the mean) or ``linpred``.
    interval : float
        Probability of the interval.
    rows : int, optional
        Use so many rows, drawn by the seed; all by default.
    seed : int
        Draws the rows.
    groups : str
        What the effects of groups are, as of ``predict``.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``contrast``, ``Estimate``, ``Est.Error`` and an interval, and ``category`` where
        they are on the probability of each.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    return answered_slopes(
        run, variables, scale=scale, interval=interval, rows=rows, seed=seed, groups=groups
    ).frame


def answered_slopes(
    run: RunLike,
    variables: str | Sequence[str] | None = None,
    *,
    groups: str = KNOWN,
    **options: Any,
) -> EffectTable:
    """Return what ``slopes`` does, and on which draws and rows it rests."""
    run = opened(run)
    names = [variables] if isinstance(variables, str) else variables
    posterior = read_posterior(run).with_groups(groups)
    return marginal_answer(posterior, run.table(), variables=names, **options)


def importance(
    run: RunLike,
    newdata: Table | None = None,
    *,
    variables: str | Sequence[str] | None = None,
    repeats: int = 5,
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
) -> pd.DataFrame:
    """Rank columns by what permuting them costs in mean log-likelihood.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    newdata : pandas.DataFrame or a table of another library, optional
        Rows with their response that the fit has not seen; the training rows by default.
    variables : str or sequence of str, optional
        Columns; all by default.
    repeats : int
        Permutations of each column.
    interval : float
        Probability of the interval.
    rows : int, optional
        Use so many rows, drawn by the seed; all by default.
    seed : int
        Of rows and permutations.

    Returns
    -------
    pandas.DataFrame
        A line for each column, the most important first.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    return answered_importance(
        run, newdata,
        variables=variables, repeats=repeats, interval=interval, rows=rows, seed=seed,
    ).frame  # fmt: skip


def answered_importance(
    run: RunLike,
    newdata: Table | None = None,
    *,
    variables: str | Sequence[str] | None = None,
    **options: Any,
) -> EffectTable:
    """Return what ``importance`` does, and on which draws and rows it rests."""
    run = posterior_run(run)
    names = [variables] if isinstance(variables, str) else variables
    table = run.table() if newdata is None else new_table(run.bundle, newdata, response=True)
    return importance_answer(read_posterior(run), table, variables=names, **options)


def decompose(
    run: RunLike,
    newdata: Table | None = None,
    *,
    dpar: str | None = None,
    rows: int | None = None,
    seed: int = 1,
) -> decomposition.Decomposition:
    """Say what the network found: shares of its variance by main effects and interactions.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    newdata : pandas.DataFrame or a table of another library, optional
        Rows over which components are averaged; the training rows by default.
    dpar : str, optional
        A parameter of the response's distribution, as ``sigma``, whose predictor has a network.
    rows : int, optional
        Use so many rows, drawn by the seed; all up to 10,000 by default.
    seed : int
        Draws the rows.

    Returns
    -------
    Decomposition
        ``table()`` has a line for each component, ``totals()`` their sums, ``additive()`` the
        probability that the network is additive up to a small share.

    Raises
    ------
    InputError
        If there is no such network, or rows or an option cannot be used.
    """
    run = opened(run)
    table = run.table() if newdata is None else new_table(run.bundle, newdata)
    return decomposition.decompose(
        read_posterior(run), table, dpar=dpar, rows=rows, generator=np.random.default_rng(seed)
    )
