"""How far a posterior is from another of the same model, as that of a subspace from all weights'.

    difference   (E[z] - E'[z]) / sd'(z)      of means, in standard deviations of the other one
    ratio        sd(z) / sd'(z)               below 1 where intervals are narrower

for what is interpreted, and for the linear predictor at the rows, of which the medians over some
rows are given, of differences without their sign (figures 4 and 11 of Dold et al., 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.mcse import mcse_mean
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_linpred

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("difference of means", "MCSE", "ratio of sds")
ETA = "eta at the rows (median)"
MOST_ROWS = 1000  # evenly spaced ones


def distance(posterior: Posterior, other: Posterior, rows: Rows, other_rows: Rows) -> pd.DataFrame:
    """Compare two posteriors.

    Parameters
    ----------
    posterior, other : Posterior
        Of the same model and data.
    rows, other_rows : Rows
        The same training rows, as each of them learnt their columns.

    Returns
    -------
    pandas.DataFrame
        ``variable`` and ``COLUMNS``, of what both interpret and does vary; ``MCSE`` is the standard
        error of the difference by chance alone, and not given of the linear predictor.
    """
    import pandas as pd

    eta = _apart(
        posterior_linpred(posterior, rows.evenly(MOST_ROWS)),
        posterior_linpred(other, other_rows.evenly(MOST_ROWS)),
    )
    medians = float(np.median(np.abs(eta[0]))), np.nan, float(np.median(eta[1]))
    lines = [*_interpreted(posterior, other), (ETA, *medians)]
    return pd.DataFrame(lines, columns=["variable", *COLUMNS])


def _interpreted(
    posterior: Posterior, other: Posterior
) -> Iterator[tuple[str, float, float, float]]:
    for name, draws in posterior.interpreted.items():
        if name not in other.interpreted or np.ptp(other.interpreted[name]) == 0:
            continue
        reference = other.interpreted[name]
        difference, ratio = _apart(draws.reshape(-1, 1), reference.reshape(-1, 1))
        own, others = (
            mcse_mean([member.draws.interpreted[name] for member in each.counted])
            for each in (posterior, other)
        )
        error = np.hypot(own, others) / reference.std()
        yield name, float(difference[0]), float(error), float(ratio[0])


def _apart(draws: Array, reference: Array) -> tuple[Array, Array]:
    """Return differences of means and ratios of sds of draws (S, n), each of shape (n,)."""
    sd = reference.std(axis=0)
    return (draws.mean(axis=0) - reference.mean(axis=0)) / sd, draws.std(axis=0) / sd
