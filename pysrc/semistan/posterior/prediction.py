"""Predictions of new rows as tables, some rows at a time: mean, error and interval, or all draws.

Draws are in long form with tidybayes's names: ``.row``, ``.chain``, ``.iteration``, ``.draw``
and ``.epred``, ``.linpred`` or ``.prediction``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.errors import InputError, did_you_mean
from semistan.model.rows import Rows
from semistan.posterior.draws import Array, Draws
from semistan.posterior.engine import Engine
from semistan.posterior.export import draw_index
from semistan.posterior.predict import (
    posterior_epred,
    posterior_linpred,
    posterior_predict,
    row_chunks,
)
from semistan.posterior.scoring.scores import check_interval

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
    values : array, shape (S, N)
        One line per draw, chain after chain.
    rows : array of int, shape (N,)
        Number of each row in the data, from 1.
    chains : int
        Number of chains among the S draws.
    kind : str
        ``epred``, ``linpred`` or ``predict``.
    """

    values: Array
    rows: Array
    chains: int
    kind: str


def check_prediction(kind: str, part: str) -> None:
    """Refuse an unknown kind or part, and parts of anything but the linear predictor.

    Raises
    ------
    InputError
        Naming the nearest kind or part.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of prediction '{kind}'.{did_you_mean(kind, KINDS)}")
    if part not in PARTS:
        raise InputError(f"unknown part of the predictor '{part}'.{did_you_mean(part, PARTS)}")
    if part != "all" and kind != "linpred":
        raise InputError(
            f"only the linear predictor is a sum of parts: use --kind linpred with --part {part}"
        )


def predict_chunks(
    bundle: Bundle,
    draws: Draws,
    rows: Rows,
    kind: str,
    part: str,
    generator: np.random.Generator,
    engine: Engine,
) -> Iterator[Prediction]:
    """Predict rows whose labels are their positions in the data, as many as fit in memory."""
    for chunk in row_chunks(rows, draws):
        if kind == "predict":
            values = posterior_predict(bundle, draws, chunk, generator, engine=engine)
        elif kind == "epred":
            values = posterior_epred(bundle, draws, chunk, engine=engine)
        else:
            values = posterior_linpred(bundle, draws, chunk, part=part, engine=engine)
        yield Prediction(values, np.array(chunk.index, dtype=int) + 1, draws.chains, kind)


def summarise_prediction(prediction: Prediction, interval: float) -> pd.DataFrame:
    """Return one line per row with brms's columns: Estimate, Est.Error and two quantiles.

    Raises
    ------
    InputError
        If the interval's probability is not between 0 and 1.
    """
    import pandas as pd

    check_interval(interval)
    lower, upper = (1 - interval) / 2, (1 + interval) / 2
    quantiles = np.quantile(prediction.values, (lower, upper), axis=0)
    return pd.DataFrame(
        {
            "row": prediction.rows,
            "Estimate": prediction.values.mean(axis=0),
            "Est.Error": prediction.values.std(axis=0, ddof=1),
            f"Q{100 * lower:.4g}": quantiles[0],
            f"Q{100 * upper:.4g}": quantiles[1],
        }
    )


def draws_of(prediction: Prediction) -> pd.DataFrame:
    """Return one line per row and draw."""
    import pandas as pd

    size, rows = prediction.values.shape
    index = draw_index(prediction.chains, size // prediction.chains)
    return pd.DataFrame(
        {
            ".row": np.repeat(prediction.rows, size),
            **{name: np.tile(values, rows) for name, values in index.items()},
            COLUMNS[prediction.kind]: prediction.values.T.ravel(),
        }
    )
