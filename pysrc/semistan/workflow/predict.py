"""From a finished run to predictions of new rows, as a table or in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from semistan.posterior.engine import Engine, engine_named
from semistan.posterior.options import PredictOptions
from semistan.posterior.posterior import One, read_posterior
from semistan.posterior.prediction import (
    Prediction,
    check_prediction,
    draws_of,
    predict_chunks,
    summarise_prediction,
)
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.run import Run
from semistan.show.tables import check_table_path, table_writer
from semistan.workflow.prepare import Say, new_rows
from semistan.workflow.runs import RunLike, opened

if TYPE_CHECKING:
    import pandas as pd


def predict(
    run: RunLike, frame: pd.DataFrame, *, say: Say | None = None, **options: Any
) -> pd.DataFrame:
    """Predict new rows: one line per row, or row and category, with mean, error and interval.

    Parameters
    ----------
    run : Run or path
        A finished run.
    frame : pandas.DataFrame
        The new rows; the response is not needed.
    say : callable, optional
        Receives one line about dropped rows.
    **options
        Those of ``PredictOptions``: ``kind``, ``part``, ``dpar``, ``interval``, ``seed``,
        ``engine``, ``prior``, ``drop_missing`` and ``allow_new_levels``.

    Raises
    ------
    InputError
        If the rows or an option cannot be used.
    """
    import pandas as pd

    chosen = PredictOptions.of(options)
    chunks = _predictions(opened(run), frame, chosen, say)
    tables = [summarise_prediction(chunk, chosen.interval) for chunk in chunks]
    return pd.concat(tables, ignore_index=True)


def write_predictions(
    run: RunLike,
    frame: pd.DataFrame,
    table: Path | TextIO,
    draws: Path | None = None,
    *,
    say: Say | None = None,
    **options: Any,
) -> None:
    """Write what ``predict`` returns, and all draws on request, holding only some rows at a time.

    Parameters
    ----------
    run, frame, say, **options
        As for ``predict``.
    table : Path or stream
        File (``.csv`` or ``.parquet``) or stream that gets the table.
    draws : Path, optional
        File that gets one line per row and draw.

    Raises
    ------
    InputError
        As ``predict`` does, or for a file of another suffix.
    """
    chosen = PredictOptions.of(options)
    for path in (table, draws):
        if isinstance(path, Path):
            check_table_path(path)
    chunks = _predictions(opened(run), frame, chosen, say)
    with ExitStack() as stack:
        append = stack.enter_context(table_writer(table))
        append_draws = stack.enter_context(table_writer(draws)) if draws else None
        for chunk in chunks:
            append(summarise_prediction(chunk, chosen.interval))
            if append_draws:
                append_draws(draws_of(chunk))


def _predictions(
    run: Run, frame: pd.DataFrame, options: PredictOptions, say: Say | None
) -> Iterator[Prediction]:
    check_prediction(run.bundle.family, run.bundle.design, options)
    # Without an engine, PyTorch computes, with each chain's own network where it is linearised.
    of_torch = options.engine == "torch"
    engine = None if of_torch else engine_named(options.engine, run.bundle, run.path / "bundle")
    rows = new_rows(
        run.bundle, frame.reset_index(drop=True), drop_missing=options.drop_missing,
        allow_new_levels=options.allow_new_levels, say=say,
    )  # fmt: skip
    generator = np.random.default_rng(options.seed)
    posterior = _prior(run, generator, engine) if options.prior else read_posterior(run, engine)
    return predict_chunks(posterior, rows, options, generator)


def _prior(run: Run, generator: np.random.Generator, engine: Engine | None) -> One:
    """Draw from the priors, as many as the run has."""
    shape = (run.options.chains, run.options.draws)
    return One(run.bundle, prior_draws(run.bundle, run.rows(), shape, generator), engine)
