"""The coefficients of a model over several imputed tables, from finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semistan.bundle.files import check_output_folder
from semistan.errors import InputError
from semistan.posterior.manifest import MARKER
from semistan.posterior.pooled import pooled
from semistan.workflow.runs import RunLike
from semistan.workflow.sample import Fitted, read_fitted

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


def imputed_folders(out: Path, tables: int, *, overwrite: bool) -> list[Path]:
    """Return where the runs of so many tables go, 1, 2, ... in a folder; make it.

    Raises
    ------
    InputError
        If there is something else, or runs of more tables, or ``overwrite`` is false.
    """
    folders = [out / str(number + 1) for number in range(tables)]
    for folder in folders:
        check_output_folder(folder, MARKER, overwrite=overwrite)
    if others := sorted(set(out.iterdir()) - set(folders)) if out.is_dir() else []:
        raise InputError(
            f"'{out}' would hold the runs of {tables} tables alone, but there is '{others[0]}'; "
            "choose another name, or remove it"
        )
    out.mkdir(parents=True, exist_ok=True)
    return folders


def fitted_of(runs: Sequence[RunLike]) -> list[Fitted]:
    """Read runs with the summary of each."""
    return [read_fitted(run) for run in runs]


def not_passed(runs: Sequence[Fitted]) -> list[str]:
    """Say of which runs a diagnostic failed, or the chains are pooled modes."""
    found = [each for each in runs if not each.summary.passed]
    return [f"{each.run.path}: {each.summary.verdict()}" for each in found]
