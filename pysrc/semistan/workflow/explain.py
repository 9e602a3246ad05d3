"""What a finished run says of the columns: effects, marginal effects, importance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.posterior.categories import category_position
from semistan.posterior.effects.answers import Answer, importance_answer, marginal_answer
from semistan.posterior.effects.effect import Effect, conditional_effect, partial_dependence
from semistan.posterior.options import EffectOptions
from semistan.posterior.posterior import Posterior, read_posterior
from semistan.workflow.frames import Table
from semistan.workflow.prepare import new_table
from semistan.workflow.runs import RunLike, opened, posterior_run

if TYPE_CHECKING:
    import pandas as pd

PAIR_DRAWS = 1000  # for a grid over two columns


def effect(run: RunLike, variables: str | Sequence[str], **options: Any) -> Effect:
    """Vary one or two columns of the training table.

    Parameters
    ----------
    run : Run or path
        A finished run.
    variables : str or sequence of str
        One or two columns.
    **options
        Those of ``EffectOptions``: ``kind``, ``at``, ``scale``, ``resolution``, ``rows``,
        ``curves``, ``category`` and ``seed``.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    run, chosen = opened(run), EffectOptions.of(options)
    if chosen.category is not None:
        category_position(run.bundle.family, run.bundle.design, chosen.category)
    found = _effect(read_posterior(run), run.table(), variables, chosen)
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


def marginal_effects(
    run: RunLike, variables: Sequence[str] | None = None, **options: Any
) -> pd.DataFrame:
    """Average marginal effects over the training rows: slopes, and differences to a level.

    Parameters
    ----------
    run : Run or path
        A finished run.
    variables : sequence of str, optional
        Columns of the data; by default all but images, and those that only name groups or stand in
        an offset.
    **options
        ``scale``, ``interval``, ``rows`` and ``seed``, as of the command.

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
    return marginal(run, variables, **options).frame


def marginal(
    run: RunLike,
    variables: Sequence[str] | None = None,
    *,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
) -> Answer:
    """Return what ``marginal_effects`` does, and on which draws and rows it rests."""
    run = opened(run)
    return marginal_answer(
        read_posterior(run), run.table(), variables=variables, scale=scale,
        interval=interval, rows=rows, seed=seed,
    )  # fmt: skip


def importance(run: RunLike, frame: Table | None = None, **options: Any) -> pd.DataFrame:
    """Rank columns by what permuting them costs in mean log-likelihood.

    Parameters
    ----------
    run : Run or path
        A finished run.
    frame : pandas.DataFrame or a table of another library, optional
        Rows with their response that the fit has not seen; the training rows by default.
    **options
        ``variables``, ``repeats``, ``interval``, ``rows`` and ``seed``, as of the command.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    return importance_of(run, frame, **options).frame


def importance_of(
    run: RunLike,
    frame: Table | None = None,
    *,
    variables: Sequence[str] | None = None,
    repeats: int = 5,
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
) -> Answer:
    """Return what ``importance`` does, and on which draws and rows it rests."""
    run = posterior_run(run)
    table = run.table() if frame is None else new_table(run.bundle, frame, response=True)
    return importance_answer(
        read_posterior(run), table,
        variables=variables, repeats=repeats, interval=interval, rows=rows, seed=seed,
    )  # fmt: skip
