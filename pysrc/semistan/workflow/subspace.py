"""How good a subspace is: before anything is sampled, and beside a run of all weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.features import at_features
from semistan.density.problem import make_problem
from semistan.model.bundle import Bundle
from semistan.model.table.rows import Rows
from semistan.posterior.distance import distance
from semistan.posterior.posterior import read_posterior
from semistan.subspace.measures import measure
from semistan.workflow.compare import check_same_response
from semistan.workflow.runs import RunLike, posterior_run

if TYPE_CHECKING:
    import pandas as pd


def subspace_measures(bundle: Bundle, rows: Rows) -> pd.DataFrame:
    """Measure how much of the predictive uncertainty a bundle's subspace keeps.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows, as ``training_rows`` or ``Run.rows`` read them.

    Returns
    -------
    pandas.DataFrame
        ``measure`` and ``value``: sizes, arc length, and against the Laplace approximation of
        all weights, linearised at the trained ones, the relative error of the epistemic
        covariance (0 is best) and its trace, both in all weights and in the subspace.
    """
    import pandas as pd

    bundle, rows = at_features(bundle, rows)
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


def posterior_distance(run: RunLike, against: RunLike) -> pd.DataFrame:
    """Say how far a run's posterior is from that of another, as of one of all weights.

    Parameters
    ----------
    run, against : Run, str or Path
        Of the same model and data.

    Returns
    -------
    pandas.DataFrame
        ``variable``, ``difference of means`` in standard deviations of ``against``, its ``MCSE``,
        and ``ratio of sds``: of the coefficients and dispersion, and of the linear predictor at the
        rows the medians.

    Raises
    ------
    InputError
        If the runs draw from the prior, or are of different data.
    """
    runs = [posterior_run(item) for item in (run, against)]
    check_same_response(runs, [str(item.path) for item in runs])
    first, second = (read_posterior(item) for item in runs)
    return distance(first, second, *(item.rows() for item in runs))
