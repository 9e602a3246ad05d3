"""What a finished run says of hypotheses, explained variance, its prior, and the data's looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.posterior import hypothesis as judging
from semistan.posterior.checks import Checks, predictive_checks
from semistan.posterior.effects.answers import EffectTable, comparisons_answer
from semistan.posterior.options import KNOWN
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import Run
from semistan.posterior.scoring.r2 import R2, r2
from semistan.posterior.sensitivity import sensitivity as power_scaling
from semistan.workflow.prepare import new_table
from semistan.workflow.runs import RunLike, opened, posterior_run
from semistan.workflow.whole_table import column_of

MOST_VALUES, QUARTERS = 10, 4  # numbers that are groups by themselves, and parts of more

if TYPE_CHECKING:
    import pandas as pd


def hypothesis(
    run: RunLike,
    hypotheses: str | Sequence[str],
    *,
    interval: float = 0.95,
    rope: tuple[float, float] | None = None,
    seed: int = 1,
) -> judging.Hypotheses:
    """Judge hypotheses about parameters, as ``b_x > 0``, ``b_x / b_z = 1`` or ``exp(b_x) < 2``.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    hypotheses : str or sequence of str
        Two expressions of the table's names and one of >, < and = between them.
    interval : float
        Probability p of the interval; that of a one-sided hypothesis has 2 p - 1, as in brms.
    rope : tuple of float, optional
        Range of the difference of both sides that is as good as 0.
    seed : int
        Seed of draws from the prior, for hypotheses with =.

    Returns
    -------
    Hypotheses
        Its ``table`` and ``notes``.

    Raises
    ------
    InputError
        If a hypothesis cannot be read, or a number is out of its range.
    """
    run = opened(run)
    texts = [hypotheses] if isinstance(hypotheses, str) else list(hypotheses)
    return judging.hypotheses(
        read_posterior(run), run.rows(), texts,
        interval=interval, rope=rope, generator=np.random.default_rng(seed),
    )  # fmt: skip


def bayes_r2(run: RunLike, *, interval: float = 0.95, seed: int = 1) -> R2:
    """Compute R2, LOO-R2, and the shares of the structured and the network part.

    Raises
    ------
    InputError
        If the run draws from the prior, its response has categories, or the interval is no
        probability.
    """
    run = posterior_run(run)
    return r2(
        read_posterior(run), run.rows(), interval=interval, generator=np.random.default_rng(seed)
    )


def sensitivity(run: RunLike, prior: str | Sequence[str] = ()) -> pd.DataFrame:
    """Say how sensitive each parameter is to the prior and to the likelihood, by power-scaling.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    prior : str or sequence of str, optional
        Keys of ``[priors]``, as ``b``, or names of the table, as ``b_age,sigma``, whose priors
        alone are scaled (priorsense's ``prior_selection``); the whole prior by default.

    Returns
    -------
    pandas.DataFrame
        ``variable``, ``prior``, ``likelihood`` and ``diagnosis``.

    Raises
    ------
    InputError
        If the run draws from the prior or an approximation, p(y | phi) is tempered, or the model
        has no such prior.
    """
    run = posterior_run(run)
    names = prior.split(",") if isinstance(prior, str) else prior
    chosen = [name.strip() for name in names]
    try:
        return power_scaling(read_posterior(run), run.rows(), chosen)
    except InputError as error:
        raise InputError(f"'{run.path}': {error}") from None


def pp_check(
    run: RunLike,
    stat: str | Sequence[str] = "mean,sd",
    *,
    by: str | None = None,
    data: str | Path | None = None,
    seed: int = 1,
) -> Checks:
    """Compare statistics of the response with those of replicated responses.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run; one that draws from the prior is checked before its data are seen.
    stat : str or sequence of str
        ``mean``, ``sd``, ``min``, ``max``, ``median``, ``zeros`` (their share) and ``skewness``.
    by : str, optional
        Column in each of whose values they are taken, or in quarters of the rows if it has more
        than ten numbers; one that is not in the formula is read from the training table.
    data : path, optional
        The training table, from which such a column is read; by default where it was.
    seed : int
        Seed of the replicated responses.

    Returns
    -------
    Checks
        Its ``table()`` has a posterior predictive p-value for each.

    Raises
    ------
    InputError
        For an unknown statistic or column, or a response of unordered categories.
    """
    run = opened(run)
    groups = None if by is None else _groups(run, by, data)
    return predictive_checks(
        read_posterior(run), run.rows(), stat,
        groups=groups, by=by, generator=np.random.default_rng(seed),
    )  # fmt: skip


def _groups(run: Run, by: str, data: str | Path | None) -> np.ndarray:
    """Return the group of each row: its value, or the quarter of the rows that a number is in."""
    import pandas as pd

    column = column_of(run, by, "--by", data)
    missing = np.flatnonzero(pd.isna(column))
    if missing.size:
        raise InputError(
            f"column '{by}' has no value in row {missing[0] + 1}; --by takes a group of each row"
        )
    if pd.api.types.is_numeric_dtype(column) and len(np.unique(column)) > MOST_VALUES:
        return np.array(pd.qcut(column, QUARTERS, duplicates="drop", precision=4))
    return column


def comparisons(
    run: RunLike,
    variables: str | Sequence[str] | None = None,
    *,
    newdata: Table | None = None,
    contrast: str | None = None,
    comparison: str = "difference",
    by: str | None = None,
    each: bool = False,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
    groups: str = KNOWN,
) -> pd.DataFrame:
    """Compare predictions before and after a change of a column, by row or averaged over rows.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    variables : str or sequence of str, optional
        Columns; by default all but images, and those that only name groups or stand in an offset.
    newdata : pandas.DataFrame or a table of another library, optional
        The rows; the training rows by default.
    contrast : str, optional
        Of numbers: a step (1 by default), ``sd``, ``2sd``, ``iqr``, ``minmax`` or ``FROM,TO``. Of
        factors: ``reference`` (the default), ``sequential``, ``pairwise`` or ``FROM,TO``.
    comparison : str
        ``difference``, ``ratio``, ``lnratio``, ``lift`` or ``lnor``.
    by : str, optional
        Factor in each of whose levels rows are averaged.
    each : bool
        Whether to compare each row by itself, as conditional effects of a treatment.
    scale : str
        ``response`` (the mean) or ``linpred``.
    interval : float
        Probability of the interval.
    rows : int, optional
        Use so many rows, drawn by the seed. By default all, unless that would take long: draws are
        fewer then, and rows if they are averaged.
    seed : int
        Draws the rows.
    groups : str
        What the effects of groups are, as of ``predict``.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``contrast``, groups or row numbers, ``Estimate``, ``Est.Error`` and an interval.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    return answered_comparisons(
        run, variables, newdata=newdata, contrast=contrast, comparison=comparison, by=by, each=each,
        scale=scale, interval=interval, rows=rows, seed=seed, groups=groups,
    ).frame  # fmt: skip


def answered_comparisons(
    run: RunLike,
    variables: str | Sequence[str] | None = None,
    *,
    newdata: Table | None = None,
    by: str | None = None,
    each: bool = False,
    groups: str = KNOWN,
    **options: Any,
) -> EffectTable:
    """Return what ``comparisons`` does, and on which draws and rows it rests."""
    if each and by is not None:
        raise InputError(
            "--each compares rows by themselves and --by averages them in groups: use one of them"
        )
    run = opened(run)
    posterior = read_posterior(run).with_groups(groups)
    table = run.table() if newdata is None else new_table(run.bundle, newdata, groups=groups)
    return comparisons_answer(posterior, table, variables=variables, by=by, each=each, **options)
