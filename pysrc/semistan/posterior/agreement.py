"""Do the subspaces of a fit agree: the share of a variance that lies between them.

    Var(z) = E[Var(z | subspace)] + Var(E[z | subspace])

The second summand is what one training alone does not know of: it is in the pooled draws, and so
in their standard errors and intervals. The expectations are over the draws, which count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.diagnostics import ETA_ROWS
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_linpred


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far several subspaces agree.

    Attributes
    ----------
    subspaces : int
        Their number M.
    eta : float
        Share of the variance of eta that lies between them, the median over rows.
    name : str
        The quantity of the table of whose variance the largest share does.
    largest : float
        That share.
    """

    subspaces: int
    eta: float
    name: str
    largest: float

    def text(self) -> str:
        """Say it in a sentence."""
        return (
            f"{self.subspaces} subspaces: between them lies {100 * self.eta:.0f}% of the variance "
            f"of eta at the rows (median), {100 * self.largest:.0f}% of {self.name}'s at most."
        )


def between(several: Sequence[Array]) -> Array:
    """Return the share of the pooled variance that lies between groups of draws.

    Parameters
    ----------
    several : sequence of arrays, shape (S_m, ...)
        Draws of the same quantities in each of M groups.

    Returns
    -------
    array, shape (...)
        Shares from 0 to 1; 0 of a constant.
    """
    sizes = np.array([len(draws) for draws in several], dtype=float)
    means = np.stack([draws.mean(axis=0) for draws in several])
    weights = (sizes / sizes.sum()).reshape(-1, *(1,) * (means.ndim - 1))
    apart = (weights * np.square(means - (weights * means).sum(axis=0))).sum(axis=0)
    within = (weights * np.stack([draws.var(axis=0) for draws in several])).sum(axis=0)
    total = np.asarray(apart + within)
    return np.asarray(np.divide(apart, total, out=np.zeros_like(total), where=total > 0))


def agreement(posterior: Posterior, rows: Rows) -> Agreement | None:
    """Compare the subspaces of a mixture; None where there is one.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows, of which evenly spaced ones are taken.
    """
    members = posterior.counted
    if len(members) < 2:
        return None
    chosen = rows.evenly(ETA_ROWS)
    eta = between([posterior_linpred(member, chosen) for member in members])
    shares = {
        name: float(between([member.draws.identified[name].ravel() for member in members]))
        for name in members[0].draws.identified
    }
    name = max(shares, key=shares.__getitem__)
    return Agreement(len(members), float(np.median(eta)), name, shares[name])
