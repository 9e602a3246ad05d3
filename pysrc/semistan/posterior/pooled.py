"""Coefficients from several completions of one table: multiple imputation.

Draws of the posterior given each imputed table, mixed in equal parts, are draws of the posterior
given what was observed, if the imputations are (Gelman et al., Bayesian Data Analysis, 3rd edition,
section 18.2). With few tables they are too narrow by what the tables' own mean misses; some twenty
are enough (Zhou and Reiter, 2010, The American Statistician 64).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.diagnostics import named_convergence, together, worst
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.summary import COLUMNS

if TYPE_CHECKING:
    import pandas as pd


def pooled(posteriors: Sequence[Posterior], interval: float = 0.95) -> pd.DataFrame:
    """Return the coefficient table of a model over several imputed tables.

    Parameters
    ----------
    posteriors : sequence of Posterior
        Those of one model given each table, at least two.
    interval : float
        Probability of the central intervals.

    Returns
    -------
    pandas.DataFrame
        ``variable``, the columns of the table with intervals named after their probability, and
        ``Missing``: the share of the variance that is due to what is missing, van Buuren's lambda.
        Rhat is the largest within a table, and ESS are sums: the tables need not agree.

    Raises
    ------
    InputError
        If there is only one, their models differ, or the interval is no probability.
    """
    import pandas as pd

    check_interval(interval)
    _check_equal(posteriors)
    lines = []
    for name in posteriors[0].interpreted:
        several = [each.interpreted[name].ravel() for each in posteriors]
        least = min(map(len, several))  # as many draws of each, at even distances
        draws = np.stack([values[evenly_spaced(len(values), least)] for values in several])
        each_table = [named_convergence(posterior, name) for posterior in posteriors]
        figures = together(each_table, [1.0] * len(posteriors))
        last = (worst(each_table).rhat, figures.bulk_ess, figures.tail_ess, missing_share(draws))
        lines.append(
            {"variable": name}
            | {k: float(x[0]) for k, x in estimates(draws.reshape(-1, 1), interval).items()}
            | dict(zip((*COLUMNS[4:], "Missing"), last, strict=True))
        )
    return pd.DataFrame(lines)


def missing_share(draws: Array) -> float:
    """Return the share of the variance between tables (m, S); NaN of what never varies."""
    m = len(draws)
    within, between = draws.var(axis=1, ddof=1).mean(), draws.mean(axis=1).var(ddof=1)
    total = within + (1 + 1 / m) * between
    return float((1 + 1 / m) * between / total) if total > 0 else np.nan


def _check_equal(posteriors: Sequence[Posterior]) -> None:
    """Refuse what is no model of several tables."""
    if len(posteriors) < 2:
        raise InputError("fits of at least two imputed tables are pooled, got one")
    first = posteriors[0]
    for number, other in enumerate(posteriors[1:], start=2):
        for kind, one, two in (
            ("formula", first.config.formula, other.config.formula),
            ("family", first.family.name, other.family.name),
            ("coefficients", ", ".join(first.interpreted), ", ".join(other.interpreted)),
        ):
            if one != two:
                raise InputError(
                    f"fits of one model are pooled: the first has the {kind} '{one}', and fit "
                    f"{number} '{two}'"
                )
