"""Weights of the subspaces of a fit by stacking their leave-one-out predictive densities.

Weights that maximise the log density of the mixture at rows that are left out, by PSIS-LOO within
each subspace (Yao, Vehtari and Gelman, 2022, JMLR 23(79)). A row counts if its Pareto k is below
the limit in every subspace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior
from semistan.posterior.scoring.compare import stacking_weights
from semistan.posterior.scoring.loo import leave_one_out
from semistan.posterior.written import written

LEAST_RELIABLE = 0.5  # share of the rows below which the weights stay equal


@dataclass(frozen=True, slots=True)
class Stacked:
    """Weights of subspaces, and the rows on which they rest.

    Attributes
    ----------
    weights : tuple of float
        One for each subspace; empty, which stands for equal ones, if too few rows are reliable.
    reliable, rows : int
        Rows whose Pareto k is below the limit in every subspace, and all.
    """

    weights: tuple[float, ...]
    reliable: int
    rows: int

    def text(self) -> str:
        """Say the weights and what they rest on."""
        basis = f"{self.reliable} of {self.rows} rows have a reliable PSIS-LOO in every subspace"
        if not self.weights:
            return f"warning: the subspaces have equal weights, because only {basis}"
        listed = ", ".join(written(weight, 2) for weight in self.weights)
        return f"weights of the subspaces by stacking: {listed} ({basis})"


def stack(posterior: Posterior, rows: Rows) -> Stacked:
    """Weight the members of a mixture; ``rows`` are the training rows.

    Raises
    ------
    InputError
        If PSIS-LOO of the draws cannot be computed.
    """
    found = [leave_one_out(member, rows) for member in posterior.members]
    reliable = np.all([item.pareto_k <= item.limit for item in found], axis=0)
    number = int(reliable.sum())
    if number < LEAST_RELIABLE * len(rows):
        return Stacked((), number, len(rows))
    elpd = np.column_stack([item.elpd for item in found])[reliable]
    counts = rows.given.get("weights")
    weights = stacking_weights(elpd, None if counts is None else counts[reliable])
    return Stacked(tuple(map(float, weights)), number, len(rows))
