"""Predictions of new rows as tables, some rows at a time: mean, error and interval, or all draws.

A response of categories has a probability of each: one line per row and category, and of new
unordered responses the share of the draws in each.

Draws are in long form with tidybayes's names: ``.row``, ``.chain``, ``.iteration``, ``.draw``,
``.category`` of a probability, and ``.epred``, ``.linpred`` or ``.prediction``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.table.rows import Rows
from semistan.posterior.categories import category_names, named
from semistan.posterior.draws import draw_index
from semistan.posterior.options import PredictOptions, check_interval, check_response_groups
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import (
    check_dpar,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
    row_chunks,
)

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {"epred": ".epred", "linpred": ".linpred", "predict": ".prediction"}
KINDS = tuple(COLUMNS)
PARTS = ("all", "structured", "nn", "penalised")


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Draws for some rows.

    Attributes
    ----------
    values : array, shape (S, N) or (S, N, K)
        One line per draw, chain after chain; the last axis is that of the categories.
    rows : array of int, shape (N,)
        Number of each row in the data, from 1.
    chains : int
        Number of chains among the S draws.
    kind : str
        ``epred``, ``linpred`` or ``predict``.
    categories : tuple of str
        Names of the K categories, or of those that (S, N) values number from 1; none where
        values are numbers.
    """

    values: Array
    rows: Array
    chains: int
    kind: str
    categories: tuple[str, ...] = ()


def check_prediction(family: Family, design: Design, options: PredictOptions) -> None:
    """Refuse an unknown kind, part or parameter, and parts of anything but the linear predictor.

    Raises
    ------
    InputError
        Naming the nearest kind, part or parameter.
    """
    kind, part, dpar = options.what, options.part, options.dpar
    if kind not in KINDS:
        raise InputError(f"unknown kind of prediction '{kind}'.{did_you_mean(kind, KINDS)}")
    if part not in PARTS:
        raise InputError(f"unknown part of the predictor '{part}'.{did_you_mean(part, PARTS)}")
    if part != "all" and kind != "linpred":
        raise InputError(
            f"only the linear predictor is a sum of parts: use --kind linpred with --part {part}"
        )
    if kind == "predict":
        check_response_groups(options.groups)
    if dpar is None:
        return
    check_dpar(family, design, dpar, part)
    if kind == "predict":
        raise InputError(
            f"a new response has all parameters: use --kind epred or linpred with --dpar {dpar}"
        )


def predict_chunks(
    posterior: Posterior, rows: Rows, options: PredictOptions, generator: np.random.Generator
) -> Iterator[Prediction]:
    """Predict rows whose labels are their positions in the data, as many as fit in memory."""
    kind, dpar, names = options.what, options.dpar, _categories(posterior, options)
    for chunk in row_chunks(posterior, rows):
        if kind == "predict":
            values = posterior_predict(posterior, chunk, generator)
        elif kind == "epred":
            values = posterior_epred(posterior, chunk, dpar=dpar)
        else:
            values = posterior_linpred(posterior, chunk, part=options.part, dpar=dpar)
        numbers = np.array(chunk.index, dtype=int) + 1
        yield Prediction(values, numbers, posterior.chains, kind, names)


def _categories(posterior: Posterior, options: PredictOptions) -> tuple[str, ...]:
    """Return the categories of which there is a probability each, or that responses number."""
    if options.what == "predict":
        return posterior.design.categories
    probabilities = options.what == "epred" and options.dpar is None
    return category_names(posterior.family, posterior.design) if probabilities else ()


def summarise_prediction(prediction: Prediction, interval: float) -> pd.DataFrame:
    """Return one line per row with brms's columns: Estimate, Est.Error and two quantiles.

    With categories, one line per row and ``category``; of new responses the share of the draws
    in each is the estimate.

    Raises
    ------
    InputError
        If the interval's probability is not between 0 and 1.
    """
    import pandas as pd

    check_interval(interval)
    names, values = prediction.categories, prediction.values
    labels = {"row": np.repeat(prediction.rows, max(1, len(names)))}
    if names:
        labels["category"] = np.tile(np.array(names, dtype=object), len(prediction.rows))
    if names and values.ndim == 2:
        shares = [(values == k).mean(axis=0) for k in range(1, len(names) + 1)]
        return pd.DataFrame(labels | {"Estimate": np.stack(shares, axis=1).ravel()})
    lower, upper = (1 - interval) / 2, (1 + interval) / 2
    values = values.reshape(len(values), -1)
    quantiles = np.quantile(values, (lower, upper), axis=0)
    return pd.DataFrame(
        {
            **labels,
            "Estimate": values.mean(axis=0),
            "Est.Error": values.std(axis=0, ddof=1),
            f"Q{100 * lower:.4g}": quantiles[0],
            f"Q{100 * upper:.4g}": quantiles[1],
        }
    )


def draws_of(prediction: Prediction) -> pd.DataFrame:
    """Return one line per row and draw, and category if there is a number for each."""
    import pandas as pd

    names, values = prediction.categories, prediction.values
    size, rows = values.shape[:2]
    index = draw_index(prediction.chains, size // prediction.chains)
    each = len(names) if values.ndim == 3 else 1
    labels = {".row": np.repeat(prediction.rows, size * each)}
    labels |= {name: np.tile(np.repeat(count, each), rows) for name, count in index.items()}
    if each > 1:
        labels[".category"] = np.tile(np.array(names, dtype=object), size * rows)
    drawn = named(values, names) if names and values.ndim == 2 else values
    return pd.DataFrame(labels | {COLUMNS[prediction.kind]: np.moveaxis(drawn, 0, 1).ravel()})
