"""Predictions of several fits, averaged: draws of each in proportion to its weight.

The average is the mixture of the fits' predictive distributions (Yao, Vehtari, Simpson and Gelman,
2018, Bayesian Analysis 13), and so of draws, of which those of a fit are taken at even distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from semistan.errors import InputError
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.prediction import Prediction


def normalised(weights: Sequence[float], runs: int) -> tuple[float, ...]:
    """Return weights that sum to 1.

    Raises
    ------
    InputError
        Unless there is one for each run, none of them negative and one positive.
    """
    total = sum(weights)
    fits = len(weights) == runs and min(weights) >= 0 and np.isfinite(total) and total > 0
    if not fits:
        raise InputError(
            f"{runs} runs have a weight each, none of them negative and one positive, got "
            f"{', '.join(f'{weight:g}' for weight in weights)}"
        )
    return tuple(weight / total for weight in weights)


def averaged(several: Sequence[Prediction], weights: Sequence[float]) -> Prediction:
    """Mix predictions of the same rows.

    Parameters
    ----------
    several : sequence of Prediction
        Of the same rows and kind, with (S_m, N) draws each.
    weights : sequence of float
        Their shares, which sum to 1.

    Returns
    -------
    Prediction
        With as many draws as every fit can give its share of, in one sequence.

    Raises
    ------
    InputError
        If they are of different rows, or have different categories.
    """
    first = several[0]
    for other in several[1:]:
        if not np.array_equal(other.rows, first.rows):
            raise InputError("the runs predict different rows: missing values were left out of one")
        if other.categories != first.categories:
            raise InputError(
                "predictions of different categories cannot be averaged: "
                f"{', '.join(first.categories)} and {', '.join(other.categories)}"
            )
    used = [(each, w) for each, w in zip(several, weights, strict=True) if w > 0]
    size = min(len(each.values) / w for each, w in used)
    parts = [
        each.values[evenly_spaced(len(each.values), max(1, round(w * size)))] for each, w in used
    ]
    return replace(first, values=np.concatenate(parts), chains=1)
