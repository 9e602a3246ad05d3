"""Commands that show the terms of a finished run: effects of levels, and smooths."""

# Typer reads annotations at run time: no postponed evaluation here.

from semistan.command import screen
from semistan.command.arguments import Central, Json, RunFolder


def ranef(run: RunFolder, interval: Central = 0.95, as_json: Json = False) -> None:
    """Group-level effects: how each level of a group differs from the average level."""
    from semistan.workflow import terms

    screen.show_table(terms.ranef(run, interval=interval), as_json=as_json)


def coef(run: RunFolder, interval: Central = 0.95, as_json: Json = False) -> None:
    """Coefficients of each level of a group: those of all levels plus its effects."""
    from semistan.workflow import terms

    screen.show_table(terms.coef(run, interval=interval), as_json=as_json)


def smooths(run: RunFolder, interval: Central = 0.95, as_json: Json = False) -> None:
    """Smooths: effective degrees of freedom, and standard deviations with intervals."""
    from semistan.workflow import terms

    screen.show_table(terms.smooths(run, interval=interval), as_json=as_json)
    screen.say("edf: degrees of freedom at the mean standard deviations, the network as known.")
