"""What a finished run says of its terms: effects of levels, and smooths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.errors import InputError
from semistan.posterior.effects.groups import group_coefficients, group_effects
from semistan.posterior.effects.smooths import smooths_table
from semistan.posterior.posterior import read_posterior
from semistan.workflow.runs import RunLike, opened

if TYPE_CHECKING:
    import pandas as pd


def ranef(run: RunLike, *, interval: float = 0.95) -> pd.DataFrame:
    """Return the effects of each level of each group, as brms's function of this name.

    Parameters
    ----------
    run : Run or path
        A finished run.
    interval : float
        Probability of the interval.

    Returns
    -------
    pandas.DataFrame
        ``group``, ``level``, ``effect``, ``Estimate``, ``Est.Error`` and an interval; ``predictor``
        if several have groups.

    Raises
    ------
    InputError
        If the formula has no groups, or the interval is no probability.
    """
    return _of_groups(group_effects(read_posterior(opened(run)), interval))


def coef(run: RunLike, *, interval: float = 0.95) -> pd.DataFrame:
    """Return the coefficients of each level: those of all levels plus its effects.

    Arguments, columns and errors are those of ``ranef``. They are not orthogonalised to a network.
    """
    return _of_groups(group_coefficients(read_posterior(opened(run)), interval))


def smooths(run: RunLike, *, interval: float = 0.95) -> pd.DataFrame:
    """Return standard deviations and effective degrees of freedom of each smooth.

    Parameters
    ----------
    run : Run or path
        A finished run.
    interval : float
        Probability of the interval.

    Returns
    -------
    pandas.DataFrame
        ``smooth``, ``edf`` (with the straight part, the network taken as known; see
        ``posterior/effects/smooths.py``), ``sd`` (the name of a standard deviation) and its
        ``Estimate``, ``Est.Error`` and interval; ``level`` of smooths by group, ``predictor`` if
        several have smooths.

    Raises
    ------
    InputError
        If the formula has no smooths, or the interval is no probability.
    """
    run = opened(run)
    found = smooths_table(read_posterior(run), run.rows(), interval)
    if found.empty:
        raise InputError("the formula has no smooths, as s(x), t2(x, z) or gp(x)")
    return found


def _of_groups(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        raise InputError("the formula has no group-level terms, as (1 | g)")
    return table
