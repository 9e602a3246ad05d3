"""Monte Carlo standard errors: how far a figure of the table may be off because draws are few.

Of a mixture, the mean is a weighted mean of the members' means, whose errors are independent. The
error of a quantile is that of the share of draws below it, carried to the quantity's own scale by
the draws' quantiles there (Vehtari et al., 2021, Bayesian Analysis 16(2)), as ArviZ does it for one
posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.posterior.arviz import mcse
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd

BOUNDS = (0.025, 0.975)
MCSE_COLUMNS = (
    "Estimate", "MCSE_Estimate", "l-95% CI", "MCSE_l-95% CI", "u-95% CI", "MCSE_u-95% CI",
)  # fmt: skip


def mcse_table(posterior: Posterior) -> pd.DataFrame:
    """Return estimates and interval bounds with their Monte Carlo standard errors.

    Returns
    -------
    pandas.DataFrame
        ``variable`` and the columns of ``MCSE_COLUMNS``; errors of constants are NaN.
    """
    import pandas as pd

    lines = []
    for name, pooled in posterior.interpreted.items():
        several = [member.draws.interpreted[name] for member in posterior.counted]
        line: list[object] = [name, float(pooled.mean()), mcse_mean(several)]
        for p in BOUNDS:
            line += [float(np.quantile(pooled, p)), mcse_quantile(several, p)]
        lines.append(line)
    return pd.DataFrame(lines, columns=["variable", *MCSE_COLUMNS])


def mcse_mean(several: Sequence[Array]) -> float:
    """Return the error of the pooled mean of independent posteriors' draws, (C, S) each."""
    total = sum(values.size for values in several)
    if any(np.ptp(values) == 0 for values in several):
        return float("nan")
    each = [values.size / total * mcse(values) for values in several]
    return float(np.sqrt(np.sum(np.square(each))))


def mcse_quantile(several: Sequence[Array], p: float) -> float:
    """Return the error of a quantile of the pooled draws."""
    if any(np.ptp(values) == 0 for values in several):
        return float("nan")
    if len(several) == 1:
        return mcse(several[0], "quantile", p)
    pooled = np.concatenate([values.ravel() for values in several])
    at = np.quantile(pooled, p)
    below = [(values <= at).astype(float) for values in several]
    # A member with all its draws on one side of the quantile adds next to nothing to the error.
    shares = [values.size / pooled.size * mcse(values) for values in below if np.ptp(values) > 0]
    error = float(np.sqrt(np.sum(np.square(shares))))
    lower, upper = np.quantile(pooled, np.clip([p - error, p + error], 0, 1))
    return float(upper - lower) / 2
