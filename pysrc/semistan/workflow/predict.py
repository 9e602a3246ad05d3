"""From a finished run to predictions of new rows, as a table or in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from semistan.posterior.options import PredictOptions
from semistan.posterior.posterior import (
    Mixture,
    One,
    Posterior,
    member_engine,
    read_posterior,
)
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
from semistan.workflow.pixels import Reading
from semistan.workflow.prepare import Say, new_rows
from semistan.workflow.runs import RunLike, opened

if TYPE_CHECKING:
    import pandas as pd


def predict(
    run: RunLike,
    frame: pd.DataFrame,
    *,
    say: Say | None = None,
    reading: Reading | None = None,
    **options: Any,
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
    reading : callable, optional
        Called with how many images of a column have been read, and how many there are.
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
    chunks = _predictions(opened(run), frame, chosen, say, reading)
    tables = [summarise_prediction(chunk, chosen.interval) for chunk in chunks]
    return pd.concat(tables, ignore_index=True)


def write_predictions(
    run: RunLike,
    frame: pd.DataFrame,
    table: Path | TextIO,
    draws: Path | None = None,
    *,
    say: Say | None = None,
    reading: Reading | None = None,
    **options: Any,
) -> None:
    """Write what ``predict`` returns, and all draws on request, holding only some rows at a time.

    Parameters
    ----------
    run, frame, say, reading, **options
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
    chunks = _predictions(opened(run), frame, chosen, say, reading)
    write_chunks(chunks, chosen.interval, table, draws)


def write_chunks(
    chunks: Iterator[Prediction], interval: float, table: Path | TextIO, draws: Path | None
) -> None:
    """Write predictions some rows at a time: the table, and all draws if there is a file."""
    for path in (table, draws):
        if isinstance(path, Path):
            check_table_path(path)
    with ExitStack() as stack:
        append = stack.enter_context(table_writer(table))
        append_draws = stack.enter_context(table_writer(draws)) if draws else None
        for chunk in chunks:
            append(summarise_prediction(chunk, interval))
            if append_draws:
                append_draws(draws_of(chunk))


def _predictions(
    run: Run,
    frame: pd.DataFrame,
    options: PredictOptions,
    say: Say | None,
    reading: Reading | None,
) -> Iterator[Prediction]:
    check_prediction(run.bundle.family, run.bundle.design, options)
    member_engine(run.members[0], options.engine)  # an unknown one is refused first
    rows = new_rows(
        run.bundle, frame.reset_index(drop=True), drop_missing=options.drop_missing,
        allow_new_levels=options.allow_new_levels, say=say, reading=reading,
    )  # fmt: skip
    generator = np.random.default_rng(options.seed)
    if options.prior:
        posterior = _prior(run, generator, options.engine)
    else:
        posterior = read_posterior(run, options.engine)
    return predict_chunks(posterior, rows, options, generator)


def _prior(run: Run, generator: np.random.Generator, engine: str) -> Posterior:
    """Draw from the priors, as many as the run has, in each of its subspaces."""
    shape, rows = (run.options.chains, run.options.draws), run.rows()
    members = tuple(
        One(
            member.bundle, prior_draws(member.bundle, rows, shape, generator),
            member_engine(member, engine),
        )
        for member in run.members
    )  # fmt: skip
    return Mixture(members) if run.parts else members[0]
