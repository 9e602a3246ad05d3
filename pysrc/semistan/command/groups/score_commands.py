"""Commands that judge a finished run: scores, leave-one-out, cross-validation, comparison."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistan.command.answering import Reply, answering
from semistan.command.arguments import (
    DIAGNOSTIC_FAILED,
    Data,
    DropMissing,
    Interval,
    NewLevels,
    Overwrite,
    RunFolder,
    Seed,
    rows_of,
    wrote,
)
from semistan.command.flags import (
    TABLE_FLAGS,
    WHERE_FLAGS,
    cluster_of,
    configurable,
)
from semistan.errors import InputError
from semistan.terminal import bars, screen

if TYPE_CHECKING:
    from semistan.posterior.run import Run


@configurable(*TABLE_FLAGS, into="dialect")
@answering
def score(
    run: RunFolder,
    newdata: Annotated[
        str | None, typer.Option(help="Table with the rows and their response.")
    ] = None,
    r2: Annotated[
        bool,
        typer.Option(
            "--r2",
            help="Of the training rows instead: R2, LOO-R2, and the shares of the structured and "
            "the network part in the variance of the linear predictor.",
        ),
    ] = False,
    interval: Interval = 0.9,
    seed: Seed = 1,
    drop_missing: DropMissing = False,
    allow_new_levels: NewLevels = False,
    *,
    reply: Reply,
    dialect: dict[str, str],
) -> None:
    """Score predictions of rows with a known response: LPPD, RMSE, MAE, CRPS, coverage, ..."""
    from semistan.posterior.run import read_run
    from semistan.posterior.scoring.scores import scores, scores_table, scoring_notes
    from semistan.workflow import score as scoring

    if (newdata is None) is not r2:
        raise InputError("score takes --newdata FILE, or --r2 of the training rows: one of the two")
    opened = read_run(run)
    if newdata is None:
        _explained_variance(opened, interval, seed, reply)
        return
    with bars.watching() as watch:
        judged = scoring.judge(
            opened, rows_of(newdata, dialect, opened), interval=interval, seed=seed,
            drop_missing=drop_missing, allow_new_levels=allow_new_levels, watch=watch,
        )  # fmt: skip
    family = opened.bundle.family
    reply.table(scores_table(scores(family, judged, interval)))
    screen.say_all(scoring_notes(family, judged, interval))
    screen.say_weighting(opened.bundle.config)


def _explained_variance(run: "Run", interval: float, seed: int, reply: Reply) -> None:
    """Show R2, and shares of parts: what they have in common is halved between them."""
    from semistan.workflow.criticise import bayes_r2

    found = bayes_r2(run, interval=interval, seed=seed)
    reply.tables({"r2": found.table(), "parts": found.parts})
    screen.say_all(found.notes)


@answering
def loo(
    run: RunFolder,
    pointwise: Annotated[
        Path | None,
        typer.Option(help="CSV, Parquet or JSON file with elpd and Pareto k of each row."),
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
    subsample: Annotated[
        int | None,
        typer.Option(
            help="Look at so many rows, and estimate the sum over all from them and from a quick "
            "approximation: for large tables.",
        ),
    ] = None,
    seed: Seed = 1,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
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
    found = scoring.loo(
        run, moment_match=moment_match, reloo=reloo, subsample=subsample, seed=seed, say=screen.say
    )
    if pointwise is not None:
        write_table(found.pointwise(), pointwise)
    reply.tables({"loo": found.table(), "pareto_k": found.k_table()})
    screen.say(found.text())
    if found.caveat:
        screen.say(found.caveat)
    wrote(pointwise)


@configurable(*WHERE_FLAGS, into="where")
@answering
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
    *,
    reply: Reply,
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
    reply.tables(tables)
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
@answering
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
    *,
    reply: Reply,
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
    table = comparing.compare(judged, by=by, newdata=frame)
    reply.table(table)
    if by == "loo":
        unreliable = unreliable_text(table)
        if unreliable is not None:
            screen.say(f"warning: {unreliable}")
    if caveat := comparing.caveat(judged, by):
        screen.say(caveat)
