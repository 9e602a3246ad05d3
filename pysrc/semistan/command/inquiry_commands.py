"""Commands that question a finished run: hypotheses, comparisons, checks, prior sensitivity."""

# Typer reads annotations at run time: no postponed evaluation here.
from typing import Annotated

import typer

from semistan.command import screen
from semistan.command.arguments import (
    Central,
    Data,
    Json,
    RunFolder,
    Scale,
    Seed,
    SomeRows,
    rows_of,
)
from semistan.command.flags import TABLE_FLAGS, configurable
from semistan.errors import InputError


def hypothesis(
    run: RunFolder,
    hypotheses: Annotated[
        list[str],
        typer.Argument(
            metavar="HYPOTHESIS ...", help="As 'b_x > 0', 'b_x / b_z < 2' or 'exp(b_x) = 1'."
        ),
    ],
    rope: Annotated[
        str | None,
        typer.Option(help="LOW,HIGH: a difference of both sides that is as good as 0."),
    ] = None,
    interval: Annotated[
        float, typer.Option(help="Probability p of the interval; with > or < it has 2 p - 1.")
    ] = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Judge hypotheses about parameters: probabilities, evidence ratios, a range about 0.

    Columns are those of brms's hypothesis(). Also, for the difference d of both sides, P(d > 0),
    its Monte Carlo standard error MCSE, and with --rope the probability of that range, P(ROPE).
    """
    from semistan.workflow import inquire

    found = inquire.hypothesis(run, hypotheses, interval=interval, rope=_range(rope), seed=seed)
    screen.show_table(found.table, as_json=as_json)
    screen.say_all(found.notes)


def r2(run: RunFolder, interval: Central = 0.95, seed: Seed = 1, as_json: Json = False) -> None:
    """Explained variance: R2, LOO-R2, and the shares of the structured and the network part.

    Shares are of the variance of the linear predictor, with what parts have in common halved
    between them; alone is the variance of a part by itself, relative to that of all.
    """
    from semistan.workflow import inquire

    found = inquire.bayes_r2(run, interval=interval, seed=seed)
    screen.show_tables({"r2": found.table, "parts": found.parts}, as_json=as_json)
    screen.say_all(found.notes)


def sensitivity(
    run: RunFolder,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Scale these priors alone: classes or names of the table, as b or "
            "b_age,sigma; the whole prior by default."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how sensitive each parameter is to the prior and the likelihood, by power-scaling."""
    from semistan.workflow import inquire

    screen.show_table(inquire.sensitivity(run, prior or ()), as_json=as_json)
    if prior is not None:
        screen.say(f"Of the prior, only that of {prior} is scaled.")
    screen.say("Above 0.05 (per doubling of the density's power) a sensitivity is not negligible.")


def pp_check(
    run: RunFolder,
    stat: Annotated[
        str, typer.Option(help="Statistics: mean, sd, min, max, median, zeros, skewness.")
    ] = "mean,sd",
    by: Annotated[
        str | None,
        typer.Option(
            help="Column whose values are groups, or in quarters if it has more than ten numbers; "
            "one that is not in the formula is read from the training data."
        ),
    ] = None,
    data: Data = None,
    interval: Central = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Check statistics of the response against replicated ones, with predictive p-values."""
    from semistan.workflow import inquire

    found = inquire.pp_check(run, stat, by=by, data=data, seed=seed)
    screen.show_table(found.table(interval), as_json=as_json)
    if found.note:
        screen.say(found.note)


@configurable(*TABLE_FLAGS, into="dialect")
def comparisons(
    run: RunFolder,
    variables: Annotated[
        str | None,
        typer.Option(
            help="Columns that change, as x,g; by default all but those that only name groups or "
            "stand in an offset."
        ),
    ] = None,
    contrast: Annotated[
        str | None,
        typer.Option(
            help="Of numbers: a step (1 by default), sd, 2sd, iqr, minmax or FROM,TO. Of factors: "
            "reference (the default), sequential, pairwise or FROM,TO."
        ),
    ] = None,
    comparison: Annotated[
        str, typer.Option(help="difference, ratio, lnratio, lift or lnor.")
    ] = "difference",
    by: Annotated[
        str | None, typer.Option(help="Factor in each of whose levels rows are averaged.")
    ] = None,
    newdata: Annotated[
        str | None, typer.Option(help="Rows over which to average; the training rows by default.")
    ] = None,
    scale: Scale = "response",
    rows: SomeRows = None,
    interval: Central = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
    *,
    dialect: dict[str, str],
) -> None:
    """Compare predictions before and after a change of a column, averaged over rows."""
    from semistan.posterior.run import read_run
    from semistan.workflow import inquire

    opened = read_run(run)
    frame = rows_of(newdata, dialect, opened) if newdata else None
    table = inquire.comparisons(
        opened, variables.split(",") if variables else None,
        frame=frame,
        contrast=contrast, comparison=comparison, by=by, scale=scale, rows=rows,
        interval=interval, seed=seed,
    )  # fmt: skip
    screen.show_table(table, as_json=as_json)
    columns = opened.table().columns if frame is None else frame.columns
    screen.say_weighting(opened.bundle.config, columns)
    screen.say_caveats(opened)


def _range(text: str | None) -> tuple[float, float] | None:
    """Read two numbers as ``-0.1,0.1``."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--rope takes two numbers as -0.1,0.1, got '{text}'") from None
    return low, high
