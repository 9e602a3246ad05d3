"""Predictions of new rows as tables: mean, error and interval, or every draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.bundle.files import atomic_file
from semistan.errors import InputError, did_you_mean
from semistan.model.design import Rows
from semistan.posterior.draws import Array, Draws
from semistan.posterior.predict import posterior_epred, posterior_linpred, posterior_predict

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("epred", "linpred", "predict")


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Draws for new rows.

    Attributes
    ----------
    values : array, shape (S, N)
        One line per draw, chain after chain.
    rows : tuple of int
        Number of each row in the data, from 1.
    chains : int
        Number of chains among the S draws.
    """

    values: Array
    rows: tuple[int, ...]
    chains: int


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of prediction.

    Raises
    ------
    InputError
        Naming the nearest kind.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of prediction '{kind}'.{did_you_mean(kind, KINDS)}")


def predict_rows(
    bundle: Bundle, draws: Draws, rows: Rows, kind: str, generator: np.random.Generator
) -> Prediction:
    """Draw predictions of one kind for rows whose labels are their positions in the data."""
    if kind == "predict":
        values = posterior_predict(bundle, draws, rows, generator)
    else:
        function = posterior_epred if kind == "epred" else posterior_linpred
        values = function(bundle, draws, rows)
    return Prediction(values, tuple(int(label) + 1 for label in rows.index), draws.chains)


def summarise_prediction(prediction: Prediction, interval: float) -> pd.DataFrame:
    """Return one line per row with brms's columns: Estimate, Est.Error and two quantiles.

    Raises
    ------
    InputError
        If the interval's probability is not between 0 and 1.
    """
    import pandas as pd

    if not 0 < interval < 1:
        raise InputError(f"--interval is a probability between 0 and 1, got {interval:g}")
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


def write_table(table: pd.DataFrame, target: Path | TextIO) -> None:
    """Write a table as CSV to a file, atomically, or to a stream."""
    if isinstance(target, Path):
        with atomic_file(target) as temporary:
            table.to_csv(temporary, index=False, float_format="%.10g")
    else:
        table.to_csv(target, index=False, float_format="%.6g")


def write_draws(prediction: Prediction, path: Path) -> None:
    """Write one line per draw: ``.chain``, ``.iteration``, ``.draw``, then a column per row."""
    import pandas as pd

    size = len(prediction.values)
    iterations = size // prediction.chains
    table = pd.DataFrame(prediction.values, columns=[str(row) for row in prediction.rows])
    table.insert(0, ".draw", np.arange(1, size + 1))
    table.insert(0, ".iteration", np.tile(np.arange(1, iterations + 1), prediction.chains))
    table.insert(0, ".chain", np.repeat(np.arange(1, prediction.chains + 1), iterations))
    write_table(table, path)
