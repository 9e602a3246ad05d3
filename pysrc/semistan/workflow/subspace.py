"""How good a subspace is, before anything is sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.problem import make_problem
from semistan.model.bundle import Bundle
from semistan.model.table.rows import Rows
from semistan.subspace.measures import measure

if TYPE_CHECKING:
    import pandas as pd


def subspace_measures(bundle: Bundle, rows: Rows) -> pd.DataFrame:
    """Measure how much of the predictive uncertainty a bundle's subspace keeps.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows, as ``semistan.training_rows`` or ``Run.rows`` read them.

    Returns
    -------
    pandas.DataFrame
        ``measure`` and ``value``: sizes, arc length, and against the Laplace approximation of
        all weights, linearised at the trained ones, the relative error of the epistemic
        covariance (0 is best) and its trace, both in all weights and in the subspace.
    """
    import pandas as pd

    problem = make_problem(bundle.model, rows, "cpu")
    found = measure(problem, bundle.units, bundle.trained)
    values = {
        "weights d": bundle.subspace.d,
        "dimension k": bundle.subspace.k,
        "arc length": found.arc_length,
        "largest singular value": found.singular_values.max(),
        "smallest singular value": found.singular_values.min(),
        "relative error": found.relative_error,
        "trace in the subspace": found.trace,
        "trace in all weights": found.full_trace,
    }
    return pd.DataFrame({"measure": list(values), "value": [float(x) for x in values.values()]})
