"""Commands about columns and rows: predictions, effects, slopes, comparisons, importance."""

# Typer reads annotations at run time: no postponed evaluation here.
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistan.command.answering import AnswerOut, Reply, answering, check_answer
from semistan.command.arguments import (
    Central,
    Groups,
    Json,
    Overwrite,
    Picture,
    RunFolder,
    Scale,
    Seed,
    SomeRows,
    dialect_for,
    rows_of,
    wrote,
)
from semistan.command.flags import (
    EFFECT_FLAGS,
    PREDICT_FLAGS,
    TABLE_FLAGS,
    WHERE_FLAGS,
    cluster_of,
    configurable,
)
from semistan.errors import InputError
from semistan.posterior.options import KNOWN
from semistan.terminal import bars, screen

if TYPE_CHECKING:
    from semistan.data.chunks import Pieces
    from semistan.posterior.run import Run
    from semistan.workflow.watch import Say

Columns = Annotated[
    list[str] | None,
    typer.Argument(
        help="Columns of the data; by default all but those that only name groups or stand in an "
        "offset."
    ),
]
Contrast = Annotated[
    str | None,
    typer.Option(
        help="Of numbers: a step (1 by default), sd, 2sd, iqr, minmax or FROM,TO. Of factors: "
        "reference (the default), sequential, pairwise or FROM,TO."
    ),
]
Comparison = Annotated[str, typer.Option(help="difference, ratio, lnratio, lift or lnor.")]
Each = Annotated[
    bool, typer.Option("--each", help="Compare each row by itself: a treatment's effect on it.")
]


@configurable(*TABLE_FLAGS, into="dialect")
@configurable(*WHERE_FLAGS, into="where")
@configurable(*PREDICT_FLAGS, into="options")
def predict(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN ...", help="A run's folder, or several to average.")
    ],
    newdata: Annotated[
        str | None,
        typer.Option(
            help="Table with the rows, of any kind that --data of 'semistan fit' takes; the "
            "training rows by default."
        ),
    ] = None,
    out: AnswerOut = None,
    draws: Annotated[
        Path | None, typer.Option(help="CSV, Parquet or JSON file with one line per row and draw.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Of several runs: stacking (the default), equal, or as 0.3,0.7."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    *,
    dialect: dict[str, str],
    options: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Predict rows: mean, standard error and interval of each, and all draws on request."""
    from contextlib import nullcontext

    from semistan.bundle.files import check_output_file
    from semistan.infer.backends.dask import connected
    from semistan.posterior.run import read_run
    from semistan.show.tables import Json as JsonStream
    from semistan.show.tables import check_table_path
    from semistan.workflow.average import write_average
    from semistan.workflow.predict import write_predictions

    cluster = cluster_of(where)
    if len(runs) == 1 and weights is not None:
        raise InputError("--weights is for several runs: semistan predict RUN1 RUN2 --newdata ...")
    if len(runs) > 1 and cluster is not None:
        raise InputError("an average of several runs is predicted on this machine: leave --cluster")
    check_answer(as_json, out, overwrite)
    if draws is not None:
        check_table_path(draws)
        check_output_file(draws, overwrite=overwrite)
    opened = [read_run(run) for run in runs]
    with (
        bars.watching() as watch,
        nullcontext() if cluster is None else connected(cluster) as backend,
    ):
        rows = _pieces(opened, newdata, dialect, watch.say)
        to = (out or (JsonStream(sys.stdout) if as_json else sys.stdout), draws)
        if len(opened) == 1:
            write_predictions(opened[0], rows, *to, watch=watch, backend=backend, **options)
        else:
            how = weights or "stacking"
            write_average(opened, rows.whole(), *to, weights=how, watch=watch, **options)
    screen.say_caveats_of(opened)
    wrote(out, draws)


def _pieces(
    runs: "list[Run]", newdata: str | None, dialect: dict[str, str], say: "Say"
) -> "Pieces":
    """Return the rows to predict, in pieces: of a table, or those that trained the first run."""
    from semistan.data.chunks import pieces_of_frame, read_pieces

    if newdata is None:
        return pieces_of_frame(runs[0].table())
    return read_pieces(newdata, dialect_for(dialect, *runs), say)


@configurable(*EFFECT_FLAGS, into="options")
@answering
def effect(
    run: RunFolder,
    variables: Annotated[list[str], typer.Argument(help="One or two columns of the data.")],
    interval: Central = 0.95,
    picture: Picture = None,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    options: dict[str, Any],
) -> None:
    """Show what one or two columns do to the response, with intervals."""
    from semistan.bundle.files import check_output_file
    from semistan.model.formula.formula import parse_formula
    from semistan.posterior.run import read_run
    from semistan.show.pictures.write import check_suffix
    from semistan.show.tables import write_table
    from semistan.workflow import explain
    from semistan.workflow.outputs import plot_effect

    if picture is not None:
        check_suffix(picture)
        check_output_file(picture, overwrite=overwrite)
    opened = read_run(run)
    found = explain.effect(opened, variables, **options)
    if picture is not None:
        plot_effect(opened, found, picture)
    if picture is None or not reply.on_screen:
        table = found.table(interval)
        reply.tables({"": table}, show=lambda: write_table(table, sys.stdout))
    trained_on = opened.bundle.source.rows
    if options["kind"] == "pd" and options["rows"] < trained_on:
        screen.say(f"averaged over {options['rows']} of {trained_on} rows, drawn by the seed")
    if options["kind"] == "pd" and parse_formula(opened.bundle.config.formula).weights:
        screen.say("averages over rows are unweighted")
    screen.say_caveat(opened)
    wrote(picture)


@answering
def slopes(
    run: RunFolder,
    variables: Columns = None,
    scale: Scale = "response",
    rows: SomeRows = None,
    interval: Central = 0.95,
    groups: Groups = KNOWN,
    seed: Seed = 1,
    *,
    reply: Reply,
) -> None:
    """Average marginal effects: slopes of numeric columns, differences between levels."""
    from semistan.posterior.run import read_run
    from semistan.workflow import explain

    opened = read_run(run)
    found = explain.answered_slopes(
        opened, variables or None,
        scale=scale, interval=interval, rows=rows, seed=seed, groups=groups,
    )  # fmt: skip
    reply.table(found.frame, found.facts)
    screen.say_basis(found)
    screen.say_caveat(opened)


@configurable(*TABLE_FLAGS, into="dialect")
@answering
def comparisons(
    run: RunFolder,
    variables: Columns = None,
    contrast: Contrast = None,
    comparison: Comparison = "difference",
    by: Annotated[
        str | None, typer.Option(help="Factor in each of whose levels rows are averaged.")
    ] = None,
    each: Each = False,
    newdata: Annotated[
        str | None, typer.Option(help="The rows; the training rows by default.")
    ] = None,
    scale: Scale = "response",
    rows: SomeRows = None,
    interval: Central = 0.95,
    groups: Groups = KNOWN,
    picture: Annotated[
        Path | None, typer.Option(help="PNG or SVG with the rows, by the size of what changes.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Draw the rows over this column of the formula instead.")
    ] = None,
    seed: Seed = 1,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    dialect: dict[str, str],
) -> None:
    """Compare predictions before and after a change of a column, by row or averaged over rows."""
    from semistan.bundle.files import check_output_file
    from semistan.posterior.run import read_run
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow import criticise
    from semistan.workflow.outputs import plot_comparisons

    if picture is not None:
        if not each:
            raise InputError("--picture is of each row: add --each")
        check_suffix(picture)
        check_output_file(picture, overwrite=overwrite)
    elif against is not None:
        raise InputError("--against is for the picture: add --each --picture FILE.png")
    opened = read_run(run)
    frame = rows_of(newdata, dialect, opened) if newdata else None
    found = criticise.answered_comparisons(
        opened, variables or None,
        newdata=frame,
        contrast=contrast, comparison=comparison, by=by, each=each, scale=scale, rows=rows,
        interval=interval, seed=seed, groups=groups,
    )  # fmt: skip
    if picture is not None:
        plot_comparisons(
            opened, found.frame, picture, comparison=comparison, scale=scale, against=against,
            newdata=frame,
        )  # fmt: skip
    if picture is None or not reply.on_screen:
        reply.table(found.frame, found.facts)
    screen.say_basis(found)
    screen.say_caveats(opened)
    wrote(picture)


@configurable(*TABLE_FLAGS, into="dialect")
@answering
def importance(
    run: RunFolder,
    newdata: Annotated[
        str | None, typer.Option(help="Rows with a known response; the training rows by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Permutations of each column.")] = 5,
    rows: SomeRows = None,
    interval: Central = 0.95,
    seed: Seed = 1,
    *,
    reply: Reply,
    dialect: dict[str, str],
) -> None:
    """Rank columns by what permuting them costs in mean log-likelihood."""
    from semistan.posterior.run import read_run
    from semistan.workflow import explain

    opened = read_run(run)
    found = explain.answered_importance(
        opened, rows_of(newdata, dialect, opened) if newdata else None, repeats=repeats,
        interval=interval, rows=rows, seed=seed,
    )  # fmt: skip
    reply.table(found.frame, found.facts)
    screen.say_basis(found)
    screen.say_caveat(opened)


@configurable(*TABLE_FLAGS, into="dialect")
@answering
def decompose(
    run: RunFolder,
    newdata: Annotated[
        str | None, typer.Option(help="Rows over which to average; the training rows by default.")
    ] = None,
    dpar: Annotated[
        str | None, typer.Option(help="A parameter, as sigma, whose predictor has a network.")
    ] = None,
    below: Annotated[
        float, typer.Option(help="The share below which what is not additive is as good as none.")
    ] = 0.05,
    rows: Annotated[
        int | None,
        typer.Option(help="Use this many rows, drawn by the seed; all up to 10,000 by default."),
    ] = None,
    interval: Central = 0.95,
    picture: Picture = None,
    seed: Seed = 1,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    dialect: dict[str, str],
) -> None:
    """Say what the network found: shares of its variance by main effects and interactions."""
    from semistan.bundle.files import check_output_file
    from semistan.posterior.run import read_run
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow import explain
    from semistan.workflow.outputs import plot_decomposition

    if picture is not None:
        check_suffix(picture)
        check_output_file(picture, overwrite=overwrite)
    opened = read_run(run)
    found = explain.decompose(
        opened, rows_of(newdata, dialect, opened) if newdata else None,
        dpar=dpar, rows=rows, seed=seed,
    )  # fmt: skip
    if picture is not None:
        plot_decomposition(opened, found, picture)
    probability = found.additive(below)
    facts = {"below": below, "additive": probability, "functions": found.space.size}
    tables = {"components": found.table(interval), "totals": found.totals(interval)}
    reply.tables(tables, facts)
    screen.say(found.basis)
    screen.say(f"Probability that less than {below:g} is not additive: {probability:.3g}.")
    screen.say_weighting(opened.bundle.config, opened.table().columns)
    screen.say_caveats(opened)
    wrote(picture)
