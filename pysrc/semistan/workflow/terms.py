"""What a finished run says of its terms: effects and coefficients of levels, and smooths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.model.table.rows import Rows
from semistan.posterior.effects.groups import group_coefficients, group_effects
from semistan.posterior.effects.smooths import smooths_table
from semistan.posterior.posterior import Posterior, read_posterior
from semistan.workflow.runs import RunLike, opened

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("ranef", "coef", "smooths")
NONE = {
    "ranef": "the formula has no group-level terms, as (1 | g)",
    "coef": "the formula has no group-level terms, as (1 | g)",
    "smooths": "the formula has no smooths, as s(x), t2(x, z) or gp(x)",
}


def terms(run: RunLike, kind: str = "ranef", *, interval: float = 0.95) -> pd.DataFrame:
    """Return the effects of the levels of groups, the levels' coefficients, or the smooths.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    kind : str
        ``ranef``: how each level of a group differs from the average level; ``coef``: the
        coefficients of each level, those of all plus its effects, not orthogonalised to a network;
        both as brms's functions of these names. ``smooths``: their effective degrees of freedom
        and standard deviations.
    interval : float
        Probability of the interval.

    Returns
    -------
    pandas.DataFrame
        ``group``, ``level``, ``effect``, ``Estimate``, ``Est.Error`` and an interval. Of smooths
        ``smooth``, ``edf`` (with the straight part, the network taken as known; see
        ``posterior/effects/smooths.py``), ``sd`` (the name of a standard deviation) and its
        ``Estimate``, ``Est.Error`` and interval; ``level`` of smooths by group. ``predictor`` if
        several predictors have such terms.

    Raises
    ------
    InputError
        If the kind is unknown, the formula has no such terms, or the interval is no probability.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of terms '{kind}'.{did_you_mean(kind, KINDS)}")
    run = opened(run)
    found = _table(read_posterior(run), run.rows(), kind, interval)
    if found.empty:
        raise InputError(NONE[kind])
    return found


def all_terms(run: RunLike, *, interval: float = 0.95) -> dict[str, pd.DataFrame]:
    """Return ``terms`` of every kind that the formula has.

    Raises
    ------
    InputError
        If it has none, or the interval is no probability.
    """
    run = opened(run)
    posterior, rows = read_posterior(run), run.rows()
    tables = {kind: _table(posterior, rows, kind, interval) for kind in KINDS}
    found = {kind: table for kind, table in tables.items() if not table.empty}
    if not found:
        raise InputError("the formula has neither group-level terms, as (1 | g), nor smooths")
    return found


def _table(posterior: Posterior, rows: Rows, kind: str, interval: float) -> pd.DataFrame:
    """Return the terms of one kind; empty where there are none."""
    if kind == "smooths":
        return smooths_table(posterior, rows, interval)
    return (group_effects if kind == "ranef" else group_coefficients)(posterior, interval)
