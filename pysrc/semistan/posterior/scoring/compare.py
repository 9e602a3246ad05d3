"""Compare models by the log predictive density of the same rows.

    elpd_diff = sum_i (elpd_i - elpd_i of the best model),  SE from the variance of the terms

Stacking weights maximise sum_i w_i log sum_m weight_m exp(elpd_mi) over the simplex, w_i being 1
unless rows are weighted
(Yao, Vehtari, Simpson and Gelman, 2018, Bayesian Analysis 13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.loo import Loo, standard_error

if TYPE_CHECKING:
    import pandas as pd


LEAST_WEIGHT = 1e-6  # below which the optimiser does not tell a weight from 0


def compare_elpd(elpd: Mapping[str, Array], weight: Array | None = None) -> pd.DataFrame:
    """Rank models by their summed log predictive density.

    Parameters
    ----------
    elpd : mapping of arrays, shape (N,)
        Log predictive density of the same N rows under each model, by its name.
    weight : array, shape (N,), optional
        How often each row counts; once by default.

    Returns
    -------
    pandas.DataFrame
        ``model``, ``elpd_diff`` and ``se_diff`` to the best model, ``elpd``, ``se`` and
        ``weight``, best model first.

    Raises
    ------
    InputError
        If there are fewer than two models, their rows differ in number, or a density is not finite.
    """
    import pandas as pd

    if len(elpd) < 2:
        raise InputError(f"a comparison needs at least two models, got {len(elpd)}")
    if len({len(values) for values in elpd.values()}) > 1:
        sizes = ", ".join(f"{name}: {len(values)}" for name, values in elpd.items())
        raise InputError(f"the models were judged on different numbers of rows ({sizes})")
    for name, values in elpd.items():
        check_finite(f"elpd of '{name}'", values)
    names = sorted(elpd, key=lambda name: -elpd[name].sum())
    each = np.column_stack([elpd[name] for name in names])
    weight = np.ones(len(each)) if weight is None else weight
    matrix = weight[:, None] * each
    difference = matrix - matrix[:, :1]
    return pd.DataFrame(
        {
            "model": names,
            "elpd_diff": difference.sum(axis=0),
            "se_diff": [standard_error(column) for column in difference.T],
            "elpd": matrix.sum(axis=0),
            "se": [standard_error(column) for column in matrix.T],
            "weight": stacking_weights(each, weight),
        }
    )


def compare_loo(found: Mapping[str, Loo]) -> pd.DataFrame:
    """Rank models by PSIS-LOO, with what is known of its reliability.

    Returns
    -------
    pandas.DataFrame
        As of ``compare_elpd``, and ``largest_k`` and ``k_above``: the largest Pareto k of a model
        and the number of rows in which it is above the limit. Where ``k_above`` is not 0, elpd is
        unreliable, and with it the differences and all weights.
    """
    table = compare_elpd({name: item.elpd for name, item in found.items()})
    return table.assign(
        largest_k=[float(found[name].pareto_k.max()) for name in table["model"]],
        k_above=[len(found[name].unreliable) for name in table["model"]],
    )


def unreliable_text(table: pd.DataFrame) -> str | None:
    """Say of which models in a table of ``compare_loo`` Pareto k is too large, if there are any."""
    bad = table[table["k_above"] > 0]
    if bad.empty:
        return None
    models = ", ".join(
        f"'{line.model}' in {line.k_above} rows (largest {line.largest_k:.2f})"
        for line in bad.itertuples()
    )
    return (
        f"Pareto k is above its limit: {models}. Their elpd is unreliable, and so are the "
        "differences and the weights; use 'semistan kfold' and --by kfold"
    )


def stacking_weights(elpd: Array, weight: Array | None = None) -> Array:
    """Return the weights (M,) of M models, given the log predictive densities (N, M).

    ``weight`` (N,) says how often each row counts.
    """
    from scipy.optimize import minimize

    models = elpd.shape[1]
    density = np.exp(elpd - elpd.max(axis=1, keepdims=True))
    share = np.ones(len(elpd)) if weight is None else weight
    share = share / share.sum()

    def loss(weights: Array) -> tuple[float, Array]:
        mixture = density @ weights
        return -float(share @ np.log(mixture)), -(share @ (density / mixture[:, None]))

    result = minimize(
        loss,
        np.full(models, 1 / models),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * models,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    weights = np.where(result.x < LEAST_WEIGHT, 0.0, result.x)
    return np.asarray(weights / weights.sum())
