"""Averaged predictions of several runs, with weights by stacking, equal ones, or the user's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table, as_frame
from semistan.density.pieces import pieces_of
from semistan.errors import InputError
from semistan.model.formula.formula import parse_formula
from semistan.posterior.averaging import averaged, normalised
from semistan.posterior.options import PredictOptions
from semistan.posterior.posterior import read_posterior
from semistan.posterior.prediction import (
    Prediction,
    check_prediction,
    predict_chunks,
    summarise_prediction,
)
from semistan.posterior.predictive import CHUNK_PREDICTIONS
from semistan.posterior.run import Run
from semistan.posterior.scoring.compare import unreliable_text
from semistan.posterior.written import written
from semistan.show.tables import Target
from semistan.workflow.compare import caveat, compare, names_of, resolved_by
from semistan.workflow.predict import write_chunks
from semistan.workflow.prepare import new_rows
from semistan.workflow.runs import RunLike, opened, posterior_run
from semistan.workflow.watch import NOBODY, Watch

if TYPE_CHECKING:
    import pandas as pd

Weights = str | Sequence[float]


@dataclass(frozen=True, slots=True)
class Weighted:
    """Weights of runs, and sentences on what they rest on."""

    weights: tuple[float, ...]
    notes: tuple[str, ...] = ()


def weights_of(runs: Sequence[RunLike], weights: Weights = "stacking") -> Weighted:
    """Weight runs.

    Parameters
    ----------
    runs : sequence of fits, runs or paths
        Runs of the same response.
    weights : str or sequence of float
        ``stacking`` (those of ``compare``), ``equal``, or a number for each run.

    Raises
    ------
    InputError
        If the weights cannot be used, or the runs cannot be compared.
    """
    if not isinstance(weights, str):
        return Weighted(normalised(weights, len(runs)))
    if weights == "equal":
        return Weighted(normalised([1] * len(runs), len(runs)))
    if weights != "stacking":
        return Weighted(normalised(_numbers(weights), len(runs)))
    judged = [posterior_run(run) for run in runs]
    by = resolved_by(judged)
    table = compare(judged, by=by)
    found = tuple(table.set_index("model").loc[names_of(judged), "weight"].astype(float))
    unreliable = unreliable_text(table) if by == "loo" else None
    listed = ", ".join(written(weight, 2) for weight in found)
    notes = (
        f"weights of the runs by stacking: {listed} (by {by})",
        *([f"warning: {unreliable}"] if unreliable else []),
        *filter(None, [caveat(judged, by)]),
    )
    return Weighted(found, notes)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--weights is stacking, equal, or a number for each run, as 0.3,0.7, got '{text}'"
        ) from None


def predict_average(
    runs: Sequence[RunLike],
    newdata: Table,
    *,
    weights: Weights = "stacking",
    watch: Watch = NOBODY,
    **options: Any,
) -> pd.DataFrame:
    """Predict new rows by several runs, averaged.

    Parameters
    ----------
    runs : sequence of fits, runs or paths
        Finished runs of the same response.
    newdata : pandas.DataFrame
        The new rows.
    weights : str or sequence of float
        ``stacking``, ``equal``, or a number for each run.
    watch, **options
        As of ``predict``; ``part`` and ``prior`` are of one run alone.

    Raises
    ------
    InputError
        If the rows, the weights or an option cannot be used, or the runs are of different
        responses.
    """
    import pandas as pd

    chosen = PredictOptions.of(options)
    chunks = _chunks(runs, newdata, weights, chosen, watch)
    return pd.concat(
        [summarise_prediction(chunk, chosen.interval) for chunk in chunks], ignore_index=True
    )


def write_average(
    runs: Sequence[RunLike],
    newdata: Table,
    table: Target,
    draws: Path | None = None,
    *,
    weights: Weights = "stacking",
    watch: Watch = NOBODY,
    **options: Any,
) -> None:
    """Write what ``predict_average`` returns, and all draws on request."""
    chosen = PredictOptions.of(options)
    chunks = _chunks(runs, newdata, weights, chosen, watch)
    write_chunks(chunks, chosen.interval, table, draws)


def _chunks(
    runs: Sequence[RunLike],
    newdata: Table,
    weights: Weights,
    options: PredictOptions,
    watch: Watch,
) -> Iterator[Prediction]:
    several = [opened(run) for run in runs]
    _check(several, options)
    found = weights_of(several, weights)
    for note in found.notes:
        watch.say(note)
    newdata = as_frame(newdata).reset_index(drop=True)
    generator = np.random.default_rng(options.seed)
    posteriors = [
        read_posterior(run, options.engine).seeded(options.seed, number).with_groups(options.groups)
        for number, run in enumerate(several)
    ]
    rows = [
        new_rows(
            run.bundle, newdata, drop_missing=options.drop_missing,
            allow_new_levels=options.allow_new_levels, groups=options.groups, watch=watch,
        )
        for run in several
    ]  # fmt: skip
    if len({len(each) for each in rows}) > 1:
        raise InputError("the runs predict different rows: missing values were left out of one")
    each = max(1, len(several[0].bundle.design.categories), several[0].bundle.family.categories)
    size = sum(posterior.size for posterior in posteriors) * each
    for piece in pieces_of(len(rows[0]), size, CHUNK_PREDICTIONS):
        positions = np.arange(len(rows[0]))[piece]
        yield averaged(
            [
                next(predict_chunks(posterior, own.take(positions), options, generator))
                for posterior, own in zip(posteriors, rows, strict=True)
            ],
            found.weights,
        )


def _check(runs: Sequence[Run], options: PredictOptions) -> None:
    """Refuse what cannot be averaged."""
    if options.part != "all" or options.prior:
        raise InputError("--part and --prior are of one run: predict by each alone")
    responses = {parse_formula(run.bundle.config.formula).response: run.path for run in runs}
    if len(responses) > 1:
        listed = ", ".join(f"'{path}' of {text}" for text, path in responses.items())
        raise InputError(f"only predictions of one response can be averaged, got {listed}")
    links = {run.bundle.family.link for run in runs}
    if options.what == "linpred" and len(links) > 1:
        raise InputError(
            f"linear predictors under different links ({', '.join(sorted(links))}) cannot be "
            "averaged: use --kind epred"
        )
    for run in runs:
        check_prediction(run.bundle.family, run.bundle.design, options)
