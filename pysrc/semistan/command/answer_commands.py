"""Commands that ask a finished run: predictions, scores, effects."""

# Typer reads annotations at run time: no postponed evaluation here.
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from semistan.command import bars, screen
from semistan.command.arguments import (
    DIAGNOSTIC_FAILED,
    Data,
    DropMissing,
    Interval,
    Json,
    NewData,
    NewLevels,
    Overwrite,
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


@configurable(*TABLE_FLAGS, into="dialect")
@configurable(*WHERE_FLAGS, into="where")
@configurable(*PREDICT_FLAGS, into="options")
def predict(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN ...", help="A run's folder, or several to average.")
    ],
    newdata: NewData,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV or Parquet, instead of printing.")
    ] = None,
    draws: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with one line per row and draw.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Of several runs: stacking (the default), equal, or as 0.3,0.7."),
    ] = None,
    overwrite: Overwrite = False,
    *,
    dialect: dict[str, str],
    options: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Predict new rows: mean, standard error and interval of each, and all draws on request."""
    from contextlib import nullcontext

    from semistan.bundle.files import check_output_file
    from semistan.infer.backends.dask import connected
    from semistan.posterior.run import read_run
    from semistan.workflow.average import write_average
    from semistan.workflow.pieces import read_pieces
    from semistan.workflow.predict import write_predictions

    cluster = cluster_of(where)
    if len(runs) == 1 and weights is not None:
        raise InputError("--weights is for several runs: semistan predict RUN1 RUN2 --newdata ...")
    if len(runs) > 1 and cluster is not None:
        raise InputError("an average of several runs is predicted on this machine: leave --cluster")

    for path in (out, draws):
        if path is not None:
            check_output_file(path, overwrite=overwrite)
    opened = [read_run(run) for run in runs]
    said = {"say": screen.say, **options}
    with (
        bars.image_bar() as reading,
        nullcontext() if cluster is None else connected(cluster) as backend,
    ):
        rows = read_pieces(newdata, dialect_for(dialect, *opened), screen.say)
        to = (out or sys.stdout, draws)
        if len(opened) == 1:
            write_predictions(opened[0], rows, *to, reading=reading, backend=backend, **said)
        else:
            how = {"weights": weights or "stacking", "reading": reading, **said}
            write_average(opened, rows.whole(), *to, **how)
    screen.say_caveats_of(opened)
    wrote(out, draws)


@configurable(*TABLE_FLAGS, into="dialect")
def score(
    run: RunFolder,
    newdata: NewData,
    interval: Interval = 0.9,
    seed: Seed = 1,
    drop_missing: DropMissing = False,
    allow_new_levels: NewLevels = False,
    as_json: Json = False,
    *,
    dialect: dict[str, str],
) -> None:
    """Score predictions of rows with a known response: LPPD, RMSE, MAE, CRPS, coverage, ..."""
    from semistan.posterior.run import read_run
    from semistan.posterior.scoring.scores import scores, scores_table, scoring_notes
    from semistan.workflow import score as scoring

    opened = read_run(run)
    with bars.image_bar() as reading:
        judged = scoring.judge(
            opened, rows_of(newdata, dialect, opened), interval=interval, seed=seed,
            drop_missing=drop_missing, allow_new_levels=allow_new_levels, say=screen.say,
            reading=reading,
        )  # fmt: skip
    family = opened.bundle.family
    screen.show_table(scores_table(scores(family, judged, interval)), as_json=as_json)
    screen.say_all(scoring_notes(family, judged, interval))
    screen.say_weighting(opened.bundle.config)


def loo(
    run: RunFolder,
    pointwise: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with elpd and Pareto k of each row.")
    ] = None,
    moment_match: Annotated[
        bool,
        typer.Option("--moment-match", help="Move the draws for rows with a high Pareto k."),
    ] = False,
    reloo: Annotated[
        bool,
        typer.Option(
            "--reloo",
            help="Sample without each row whose Pareto k is (still) high; the subspace "
            "stays that of all rows.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Leave-one-out cross-validation by PSIS, conditional on the subspace if there is one.

    What --moment-match and --reloo find is kept in RUN/loo: this command, compare and report use it
    from then on, and an interrupted --reloo goes on from there. Delete that folder to forget it.
    """
    from semistan.bundle.files import check_output_file
    from semistan.show.tables import write_table
    from semistan.workflow import score as scoring

    if pointwise is not None:
        check_output_file(pointwise, overwrite=overwrite)
    found = scoring.loo(run, moment_match=moment_match, reloo=reloo, say=screen.say)
    if pointwise is not None:
        write_table(found.pointwise(), pointwise)
    screen.show_tables({"loo": found.table(), "pareto_k": found.k_table()}, as_json=as_json)
    screen.say(found.text())
    if found.caveat:
        screen.say(found.caveat)
    wrote(pointwise)


@configurable(*WHERE_FLAGS, into="where")
def kfold(
    run: RunFolder,
    folds: Annotated[int, typer.Option("--folds", "-K", help="Number of folds.")] = 10,
    group: Annotated[
        str | None, typer.Option(help="Column whose groups stay together in a fold.")
    ] = None,
    data: Data = None,
    seed: Seed = 1,
    interval: Interval = 0.9,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Folds at a time; by default one for each core.")
    ] = None,
    save_fits: Annotated[bool, typer.Option("--save-fits", help="Keep each fold's run.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    *,
    where: dict[str, Any],
) -> None:
    """Cross-validate, training the subspace anew in each fold; resumable."""
    from semistan.infer.backends.dask import backend_at
    from semistan.posterior.run import read_run
    from semistan.posterior.scoring.scores import scores, scores_table, scoring_notes
    from semistan.workflow import kfold as validation

    opened = read_run(run)
    with backend_at(cluster_of(where)) as backend:
        found = validation.kfold(
            opened, folds=folds, group=group, data=data, seed=seed, interval=interval, jobs=jobs,
            save_fits=save_fits, overwrite=overwrite, say=screen.say, backend=backend,
        )  # fmt: skip
    table = scores_table(scores(opened.bundle.family, found.rows, interval))
    tables = {"kfold": found.table(), "scores": table}
    if found.failed:
        tables["failed diagnostics"] = found.failures()
    screen.show_tables(tables, as_json=as_json)
    screen.say_all(scoring_notes(opened.bundle.family, found.rows, interval))
    screen.say_weighting(opened.bundle.config)
    if found.caveat:
        screen.say(found.caveat)
    if found.failed:
        screen.say(
            f"warning: {len(found.failed)} of {folds} fits failed a diagnostic; their rows are "
            "judged by fewer effective draws"
        )
        raise typer.Exit(DIAGNOSTIC_FAILED)


@configurable(*TABLE_FLAGS, into="dialect")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN1 RUN2 ...", help="Runs' folders.")],
    by: Annotated[
        str,
        typer.Option(
            help="loo (conditional on each subspace), kfold (made before), or auto: kfold where "
            "all runs have it and one is conditional on a subspace."
        ),
    ] = "auto",
    newdata: Annotated[
        str | None, typer.Option(help="Table of rows with a known response, to compare on instead.")
    ] = None,
    as_json: Json = False,
    *,
    dialect: dict[str, str],
) -> None:
    """Compare runs on the same rows: differences in elpd, standard errors, stacking weights."""
    from semistan.posterior.scoring.compare import unreliable_text
    from semistan.workflow import compare as comparing
    from semistan.workflow.runs import posterior_run

    judged = [posterior_run(run) for run in runs]
    frame = rows_of(newdata, dialect, *judged) if newdata else None
    by = by if frame is None else "newdata"
    by = comparing.resolved_by(judged) if by == "auto" else by
    table = comparing.compare(judged, by=by, frame=frame)
    screen.show_table(table, as_json=as_json)
    if by == "loo":
        unreliable = unreliable_text(table)
        if unreliable is not None:
            screen.say(f"warning: {unreliable}")
    if caveat := comparing.caveat(judged, by):
        screen.say(caveat)


@configurable(*EFFECT_FLAGS, into="options")
def effect(
    run: RunFolder,
    variables: Annotated[list[str], typer.Argument(help="One or two columns of the data.")],
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV or Parquet, instead of printing.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG or SVG with the picture.")] = None,
    overwrite: Overwrite = False,
    *,
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

    for path in (out, picture):
        if path is not None:
            check_output_file(path, overwrite=overwrite)
    if picture is not None:
        check_suffix(picture)
    opened = read_run(run)
    found = explain.effect(opened, variables, **options)
    if picture is not None:
        plot_effect(opened, found, picture)
    if out is not None or picture is None:
        write_table(found.table(interval), out or sys.stdout)
    trained_on = opened.bundle.source.rows
    if options["kind"] == "pd" and options["rows"] < trained_on:
        screen.say(f"averaged over {options['rows']} of {trained_on} rows, drawn by the seed")
    if options["kind"] == "pd" and parse_formula(opened.bundle.config.formula).weights:
        screen.say("averages over rows are unweighted")
    screen.say_caveat(opened)
    wrote(out, picture)


def marginal(
    run: RunFolder,
    variables: Annotated[
        list[str] | None,
        typer.Argument(
            help="Columns of the data; by default all but those that only name groups or stand in "
            "an offset."
        ),
    ] = None,
    scale: Scale = "response",
    rows: SomeRows = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Average marginal effects: slopes of numeric columns, differences between levels."""
    from semistan.posterior.run import read_run
    from semistan.workflow import explain

    opened = read_run(run)
    found = explain.marginal(
        opened, variables or None, scale=scale, interval=interval, rows=rows, seed=seed
    )
    screen.show_answer(found, as_json=as_json)
    screen.say_caveat(opened)


@configurable(*TABLE_FLAGS, into="dialect")
def importance(
    run: RunFolder,
    newdata: Annotated[
        str | None, typer.Option(help="Rows with a known response; the training rows by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Permutations of each column.")] = 5,
    rows: SomeRows = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
    *,
    dialect: dict[str, str],
) -> None:
    """Rank columns by what permuting them costs in mean log-likelihood."""
    from semistan.posterior.run import read_run
    from semistan.workflow import explain

    opened = read_run(run)
    found = explain.importance_of(
        opened, rows_of(newdata, dialect, opened) if newdata else None, repeats=repeats,
        interval=interval, rows=rows, seed=seed,
    )  # fmt: skip
    screen.show_answer(found, as_json=as_json)
    screen.say_caveat(opened)
