"""How much of what the network says the structured columns could say.

The network's part f, averaged over the draws, is regressed on the columns over the training rows.
R2 is adjusted for their number, 1 - (1 - R2) (N - 1) / (N - P - 1), so that it is about 0 for
columns that have nothing to do with f. The limit is a variance inflation factor 1 / (1 - R2) of 5,
the lower of the two customary marks, 5 and 10 (James et al., 2021, An Introduction to Statistical
Learning, 3.3.3). f is without what orthogonalised coefficients hold, so that nothing is found
where all of them are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_linpred

LIMIT = 0.8
NEARLY_ALL = 0.9  # share of R2 that the named columns explain
MOST_ROWS, MOST_DRAWS = 2000, 200


@dataclass(frozen=True, slots=True)
class Collinearity:
    """How much of the network's part the structured columns explain.

    Attributes
    ----------
    r2 : float
        Adjusted R2.
    columns : tuple of str
        The fewest columns, found one after the other, that explain nearly all of that.
    """

    r2: float
    columns: tuple[str, ...]

    def warning(self) -> str | None:
        """Return a sentence with advice if R2 is above the limit."""
        if not self.r2 > LIMIT:
            return None
        return (
            f"Warning: {', '.join(self.columns)} "
            f"{'explains' if len(self.columns) == 1 else 'explain'} {100 * self.r2:.0f}% of the "
            f"network's part (limit {100 * LIMIT:.0f}%), so that coefficients and network can "
            "stand in for one another: fit with --orthogonalise all, or move a variable to the "
            "other part."
        )


def collinearity(posterior: Posterior, rows: Rows) -> Collinearity:
    """Regress the network's part on the structured columns; ``rows`` are the training rows."""
    some = rows.evenly(MOST_ROWS)
    f = posterior_linpred(posterior.thin(MOST_DRAWS), some, part="nn").mean(axis=0)
    return regress(f, some.X, posterior.design.x.columns)


def regress(f: Array, X: Array, columns: tuple[str, ...]) -> Collinearity:
    """Regress f (N,) on columns X (N, P).

    Returns
    -------
    Collinearity
        With R2 = 0 where f is constant, or there are no columns or too few rows.
    """
    N, P = X.shape
    f = f - f.mean()
    total = float(f @ f)
    if not P or N < P + 2 or not total > 0:
        return Collinearity(0.0, ())
    order, shares = _one_after_the_other(f, X - X.mean(axis=0))
    r2 = 1 - (1 - shares[-1] / total) * (N - 1) / (N - P - 1)
    enough = int(np.searchsorted(shares, NEARLY_ALL * shares[-1])) + 1
    return Collinearity(float(r2), tuple(columns[j] for j in order[:enough]))


def _one_after_the_other(f: Array, X: Array) -> tuple[list[int], Array]:
    """Return the columns in the order in which each explains most, and the sums explained."""
    left, least = X / np.sqrt(np.sum(X**2, axis=0)), 1e-12
    order: list[int] = []
    sums: list[float] = []
    for _ in range(X.shape[1]):
        norms = np.sum(left**2, axis=0)
        gains = np.divide((f @ left) ** 2, norms, out=np.zeros(len(norms)), where=norms > least)
        gains[order] = -1.0
        best = int(gains.argmax())
        order.append(best)
        sums.append(float(gains[best]))
        direction = left[:, best] / np.sqrt(max(norms[best], least))
        left = left - np.outer(direction, direction @ left)
    return order, np.cumsum(sums)
