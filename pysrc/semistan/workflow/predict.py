"""From a finished run to predictions of new rows, as a table or in files.

Rows are read, predicted and written in pieces. Random numbers do not cross them: piece n of a table
has those of (seed, n), wherever it is predicted. On a cluster each piece is a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.chunks import Pieces, in_one, pieces_of_frame
from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend, Report
from semistan.infer.content import Content
from semistan.model.design import new_levels, new_levels_text
from semistan.model.formula.formula import parse_formula
from semistan.model.table.kinds import check_columns
from semistan.model.table.missing import Missing, check_left, joined, missing_of
from semistan.model.table.rows import Rows
from semistan.posterior.options import KNOWN, PredictOptions
from semistan.posterior.posterior import (
    Mixture,
    Posterior,
    SubspacePosterior,
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
from semistan.show.tables import Append, Target, check_table_path, table_writer
from semistan.workflow.prepare import new_rows, optional_columns
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.watch import NOBODY, Watch

if TYPE_CHECKING:
    import pandas as pd

WAVE = 64  # pieces on a cluster at a time, which this machine holds


def predict(
    run: RunLike,
    newdata: Table | None = None,
    *,
    kind: str | None = None,
    part: str = "all",
    dpar: str | None = None,
    interval: float = 0.95,
    seed: int = 1,
    engine: str = "torch",
    prior: bool = False,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    groups: str = KNOWN,
    watch: Watch = NOBODY,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Predict rows: one line per row, or row and category, with mean, error and interval.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    newdata : pandas.DataFrame or a table of another library, optional
        The rows, whose response is not needed; the training rows by default.
    kind : str, optional
        ``epred`` (the mean, or the probability of each category), ``linpred`` (the linear
        predictor) or ``predict`` (responses); by default ``epred``, or ``linpred`` where a part is
        asked for.
    part : str
        Of the linear predictor: ``all``, ``structured``, ``nn`` (centred) or ``penalised``.
    dpar : str, optional
        A parameter of the response's distribution instead, as ``sigma``.
    interval : float
        Probability of the interval.
    seed : int
        Of everything that is drawn.
    engine : str
        ``torch``, or ``onnx`` for the bundle's ``predictor.onnx``.
    prior : bool
        Whether to predict from the priors; the run needs no chains then.
    drop_missing : bool
        Whether rows with missing values are left out.
    allow_new_levels : bool
        Whether groups may have levels that the model was not trained on.
    groups : str
        What the effects of groups are: ``known``, those of the rows' levels; ``new``, those of new
        levels in place of the rows' own; ``none``, left out, as of a level at the centre; or
        ``marginal``, integrated out of the mean over the distribution of the levels. The rows need
        no levels but where these are ``known``.
    watch : Watch, optional
        Who is told of dropped rows, and how reading goes on; by default nobody.
    backend : Backend, optional
        What predicts pieces of the rows; by default this process, one after the other.

    Raises
    ------
    InputError
        If the rows or an option cannot be used.
    """
    import pandas as pd

    chosen = PredictOptions(
        kind, part, dpar, interval, seed, engine, prior, drop_missing, allow_new_levels,
        groups,
    )  # fmt: skip
    found: list[pd.DataFrame] = []
    run = opened(run)
    pieces = pieces_of_frame(run.table() if newdata is None else newdata)
    _predict(run, pieces, chosen, found.append, None, watch, backend)
    return pd.concat(found, ignore_index=True)


def write_predictions(
    run: RunLike,
    rows: Table | Pieces,
    table: Target,
    draws: Path | None = None,
    *,
    watch: Watch = NOBODY,
    backend: Backend | None = None,
    **options: Any,
) -> None:
    """Write what ``predict`` returns, and all draws on request, holding only some rows at a time.

    Parameters
    ----------
    run, watch, backend
        As for ``predict``.
    **options
        The other options of ``predict``.
    rows : pandas.DataFrame, a table of another library, or Pieces
        The new rows.
    table : Path or stream
        File (``.csv`` or ``.parquet``) or stream that gets the table.
    draws : Path, optional
        File that gets one line per row and draw.

    Raises
    ------
    InputError
        As ``predict`` does, or for a file of another suffix, or for draws on a cluster.
    """
    chosen = PredictOptions.of(options)
    pieces = rows if isinstance(rows, Pieces) else pieces_of_frame(rows)
    if draws and backend:
        raise InputError("all draws are written on this machine: leave --draws or --cluster out")
    with _appending(table, draws) as (append, append_draws):
        _predict(opened(run), pieces, chosen, append, append_draws, watch, backend)


def write_chunks(
    chunks: Iterator[Prediction], interval: float, table: Target, draws: Path | None
) -> None:
    """Write predictions some rows at a time: the table, and all draws if there is a file."""
    with _appending(table, draws) as (append, append_draws):
        for chunk in chunks:
            append(summarise_prediction(chunk, interval))
            if append_draws:
                append_draws(draws_of(chunk))


@contextmanager
def _appending(table: Target, draws: Path | None) -> Iterator[tuple[Append, Append | None]]:
    """Yield what appends to the two files, which appear when the block succeeds."""
    for path in (table, draws):
        if isinstance(path, Path):
            check_table_path(path)
    with ExitStack() as stack:
        append = stack.enter_context(table_writer(table))
        yield append, stack.enter_context(table_writer(draws)) if draws else None


@dataclass(frozen=True, slots=True, eq=False)
class PieceTask:
    """Some rows to be predicted.

    Attributes
    ----------
    number : int
        The piece, from 0.
    rows : Rows
        Its rows, labelled by their positions in the table.
    posterior : Content
        The pickled posterior, which all pieces have in common.
    options : PredictOptions
        What to predict.
    """

    number: int
    rows: Rows
    posterior: Content
    options: PredictOptions

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"piece {self.number + 1} of the rows"

    @property
    def in_thread(self) -> bool:
        """It takes seconds, for which no process is worth its start."""
        return True

    def run(self, _: Report) -> pd.DataFrame:
        """Predict the rows and summarise their draws."""
        posterior = pickle.loads(self.posterior.read())
        return _piece_table(posterior, self.number, self.rows, self.options)


def _piece_table(
    posterior: Posterior,
    number: int,
    rows: Rows,
    options: PredictOptions,
    append_draws: Append | None = None,
) -> pd.DataFrame:
    """Predict a piece's rows, and append their draws on request."""
    import pandas as pd

    tables, generator = [], np.random.default_rng((options.seed, number))
    for chunk in predict_chunks(posterior, rows, options, generator):
        tables.append(summarise_prediction(chunk, options.interval))
        if append_draws:
            append_draws(draws_of(chunk))
    return pd.concat(tables, ignore_index=True)


def _predict(
    run: Run,
    pieces: Pieces,
    options: PredictOptions,
    append: Append,
    append_draws: Append | None,
    watch: Watch,
    backend: Backend | None,
) -> None:
    """Predict a table piece by piece, and append what is found in the order of its rows."""
    check_prediction(run.bundle.family, run.bundle.design, options)
    member_engine(run.members[0], options.engine)  # an unknown one is refused first
    formula = parse_formula(run.bundle.config.formula)
    if formula.images:
        pieces = in_one(pieces)
    numbered = _numbered(run, pieces, options, watch)
    posterior = _posterior(run, options)
    optional = optional_columns(formula, options.groups)
    needed = [name for name in formula.columns if name not in optional]
    check_columns(next(iter(pieces)), needed, formula.text)
    if not any(len(frame) for frame in pieces):
        _append_none(run, posterior, options, append, append_draws)
        return
    if backend is None:
        for number, rows in numbered:
            append(_piece_table(posterior, number, rows, options, append_draws))
        return
    if options.engine != "torch":
        raise InputError("a cluster predicts with --engine torch")
    content = Content("posterior", None, pickle.dumps(posterior))
    while wave := list(islice(numbered, WAVE)):
        tasks = [PieceTask(n, replace(rows, frame=None), content, options) for n, rows in wave]
        found = dict(backend.map(tasks))
        for index in range(len(tasks)):
            append(found[index])


def _append_none(
    run: Run,
    posterior: Posterior,
    options: PredictOptions,
    append: Append,
    append_draws: Append | None,
) -> None:
    """Append what is found of no rows: the columns that the answer about a training row has."""

    def none_of(table: pd.DataFrame) -> None:
        assert append_draws
        append_draws(table.head(0))

    one = run.rows().first(1)
    append(_piece_table(posterior, 0, one, options, append_draws and none_of).head(0))


def _numbered(
    run: Run, pieces: Pieces, options: PredictOptions, watch: Watch
) -> Iterator[tuple[int, Rows]]:
    """Yield the pieces' numbers and rows; say at the end which were dropped, and new levels."""
    formula, reports = parse_formula(run.bundle.config.formula), list[Missing]()
    optional = optional_columns(formula, options.groups)
    taken: dict[str, dict[str, None]] = {}
    for number, frame in enumerate(pieces):
        with _counting_from(frame.index[0]):
            reports.append(missing_of(formula, frame, response=False, optional=optional))
            if options.drop_missing and len(reports[-1]) == len(frame):
                continue
            rows = new_rows(
                run.bundle, frame, drop_missing=options.drop_missing,
                allow_new_levels=options.allow_new_levels, groups=options.groups,
                watch=Watch(reading=watch.reading),
            )  # fmt: skip
        known = options.groups == KNOWN
        for name, levels in (new_levels(run.bundle.design, rows) if known else {}).items():
            taken.setdefault(name, {}).update(dict.fromkeys(levels))
        yield number, rows
    if taken:
        watch.say(new_levels_text({name: [*levels] for name, levels in taken.items()}))
    missing = joined(reports)
    check_left(missing)
    if missing:
        watch.say(missing.text)


@contextmanager
def _counting_from(start: int) -> Iterator[None]:
    """Say in errors where a piece begins whose rows they count."""
    try:
        yield
    except InputError as error:
        if start == 0:
            raise
        raise InputError(f"in the rows from {start + 1:,} on: {error}") from None


def _posterior(run: Run, options: PredictOptions) -> Posterior:
    if options.prior:
        generator = np.random.default_rng((options.seed, 0, 1))
        found = _prior(run, generator, options.engine)
    else:
        found = read_posterior(run, options.engine)
    return found.seeded(options.seed).with_groups(options.groups)


def _prior(run: Run, generator: np.random.Generator, engine: str) -> Posterior:
    """Draw from the priors, as many as the run has, in each of its subspaces."""
    shape, rows = (run.options.chain_count, run.options.per_chain), run.rows()
    members = tuple(
        SubspacePosterior(
            member.bundle, prior_draws(member.bundle, rows, shape, generator),
            member_engine(member, engine),
        )
        for member in run.members
    )  # fmt: skip
    return Mixture(members) if run.parts else members[0]
