"""Commands that question a finished run: hypotheses, explained variance, prior sensitivity."""

# Typer reads annotations at run time: no postponed evaluation here.
from typing import Annotated

import typer

from semistan.command import screen
from semistan.command.arguments import Json, RunFolder, Seed
from semistan.errors import InputError

Central = Annotated[float, typer.Option(help="Probability of the interval.")]


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
    """Judge hypotheses about parameters: probabilities, evidence ratios, a range about 0."""
    from semistan.workflow import inquire

    found = inquire.hypothesis(run, hypotheses, interval=interval, rope=_range(rope), seed=seed)
    screen.show_table(found.table, as_json=as_json)
    _say(found.notes)


def r2(run: RunFolder, interval: Central = 0.95, seed: Seed = 1, as_json: Json = False) -> None:
    """Explained variance: R2, LOO-R2, and the shares of the structured and the network part."""
    from semistan.workflow import inquire

    found = inquire.bayes_r2(run, interval=interval, seed=seed)
    screen.show_tables({"r2": found.table, "parts": found.parts}, as_json=as_json)
    _say(found.notes)


def sensitivity(run: RunFolder, as_json: Json = False) -> None:
    """Say how sensitive each parameter is to the prior and the likelihood, by power-scaling."""
    from semistan.workflow import inquire

    screen.show_table(inquire.sensitivity(run), as_json=as_json)
    screen.say("Above 0.05 (per doubling of the density's power) a sensitivity is not negligible.")


def _say(notes: tuple[str, ...]) -> None:
    for note in notes:
        screen.say(note)


def _range(text: str | None) -> tuple[float, float] | None:
    """Read two numbers as ``-0.1,0.1``."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--rope takes two numbers as -0.1,0.1, got '{text}'") from None
    return low, high
