"""The coefficients of a model over several imputed tables, from finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semistan.posterior.pooled import pooled
from semistan.workflow.fit import Fitted, read_fitted
from semistan.workflow.runs import RunLike

if TYPE_CHECKING:
    import pandas as pd


def pool(run: RunLike, *others: RunLike, interval: float = 0.95) -> pd.DataFrame:
    """Pool the coefficients of a model that was fitted to several imputed tables.

    Parameters
    ----------
    run, *others : Fit, Run or path
        A finished run of each table.
    interval : float
        Probability of the intervals.

    Returns
    -------
    pandas.DataFrame
        The coefficient table, with Rhat as the largest within a table and ESS as sums, and
        ``Missing``, the share of the variance that is due to what is missing.

    Raises
    ------
    InputError
        If there is only one run, the models differ, or the interval is no probability.
    """
    return pooled([each.posterior for each in fitted_of([run, *others])], interval)


def fitted_of(runs: Sequence[RunLike]) -> list[Fitted]:
    """Read runs with the summary of each."""
    return [read_fitted(run) for run in runs]


def failures(runs: Sequence[Fitted]) -> list[str]:
    """Say which runs failed a diagnostic."""
    failed = [each for each in runs if not each.summary.passed]
    return [f"{each.run.path}: {each.summary.verdict()}" for each in failed]
