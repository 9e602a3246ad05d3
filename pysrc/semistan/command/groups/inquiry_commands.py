"""Commands that question a finished run: hypotheses, comparisons, checks, prior sensitivity."""

# Typer reads annotations at run time: no postponed evaluation here.
from typing import Annotated

import typer

from semistan.command.answering import Reply, answering
from semistan.command.arguments import (
    Central,
    Data,
    RunFolder,
    Seed,
)
from semistan.errors import InputError
from semistan.terminal import screen


@answering
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
    *,
    reply: Reply,
) -> None:
    """Judge hypotheses about parameters: probabilities, evidence ratios, a range about 0.

    Columns are those of brms's hypothesis(). Also, for the difference d of both sides, P(d > 0),
    its Monte Carlo standard error MCSE, and with --rope the probability of that range, P(ROPE).
    """
    from semistan.workflow import criticise

    found = criticise.hypothesis(run, hypotheses, interval=interval, rope=_range(rope), seed=seed)
    reply.table(found.table())
    screen.say_all(found.notes)


@answering
def terms(
    run: RunFolder,
    kind: Annotated[
        str,
        typer.Option(
            help="ranef (how each level of a group differs from the average one), coef (each "
            "level's coefficients) or smooths (effective degrees of freedom, standard deviations); "
            "all that there are by default."
        ),
    ] = "",
    interval: Central = 0.95,
    *,
    reply: Reply,
) -> None:
    """Show the terms one by one: effects of levels, as brms's ranef and coef, and smooths."""
    from semistan.workflow import terms as asking

    if kind:
        reply.table(asking.terms(run, kind, interval=interval))
    else:
        tables = asking.all_terms(run, interval=interval)
        reply.tables(tables)
    if kind == "smooths" or (not kind and "smooths" in tables):
        screen.say("edf: degrees of freedom at the mean standard deviations, the network as known.")


@answering
def sensitivity(
    run: RunFolder,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Scale these priors alone: classes or names of the table, as b or "
            "b_age,sigma; the whole prior by default."
        ),
    ] = None,
    *,
    reply: Reply,
) -> None:
    """Say how sensitive each parameter is to the prior and the likelihood, by power-scaling."""
    from semistan.workflow import criticise

    reply.table(criticise.sensitivity(run, prior or ()))
    if prior is not None:
        screen.say(f"Of the prior, only that of {prior} is scaled.")
    screen.say("Above 0.05 (per doubling of the density's power) a sensitivity is not negligible.")


@answering
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
    *,
    reply: Reply,
) -> None:
    """Check statistics of the response against replicated ones, with predictive p-values."""
    from semistan.workflow import criticise

    found = criticise.pp_check(run, stat, by=by, data=data, seed=seed)
    reply.table(found.table(interval))
    if found.note:
        screen.say(found.note)


def _range(text: str | None) -> tuple[float, float] | None:
    """Read two numbers as ``-0.1,0.1``."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--rope takes two numbers as -0.1,0.1, got '{text}'") from None
    return low, high
