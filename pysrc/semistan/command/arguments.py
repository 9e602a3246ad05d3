"""Arguments and options that several commands share, and how commands end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistan.posterior.options import GROUPS_TEXT
from semistan.terminal import screen

if TYPE_CHECKING:
    import pandas as pd

    from semistan.data.dialect import Dialect
    from semistan.posterior.run import Run

DIAGNOSTIC_FAILED = 3  # the exit code of what finished although a diagnostic failed

Model = Annotated[
    str, typer.Argument(help="A model.toml, or a formula in quotes: 'y ~ x + nn(u1, u2)'.")
]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
PriorOnly = Annotated[bool, typer.Option("--prior-only", help="Leave the likelihood out.")]
Data = Annotated[
    str | None, typer.Option(help="The training data, if they are no longer where they were.")
]

Picture = Annotated[Path | None, typer.Option(help="PNG or SVG with the picture.")]
Central = Annotated[float, typer.Option(help="Probability of the interval.")]
Interval = Annotated[float, typer.Option(help="Probability of the predictive interval.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn here.")]
Scale = Annotated[str, typer.Option(help="response (the mean) or linpred.")]
Groups = Annotated[str, typer.Option(help=GROUPS_TEXT)]
SomeRows = Annotated[
    int | None, typer.Option(help="Use this many rows, drawn by the seed; all by default.")
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")
]
NewLevels = Annotated[
    bool,
    typer.Option(
        "--allow-new-levels", help="Draw the effects of a group's new levels from all levels'."
    ),
]


def dialect_for(dialect: dict[str, str], *runs: Run | Path) -> Dialect:
    """Return how new rows are written: by the flags, with text where the runs learnt text."""
    from semistan.data.dialect import given_dialect
    from semistan.workflow.runs import opened

    words = (opened(run).bundle.design.text_columns for run in runs)
    return replace(given_dialect(**dialect), words=frozenset().union(*words))


def rows_of(newdata: str, dialect: dict[str, str], *runs: Run | Path) -> pd.DataFrame:
    """Read a table of new rows for some runs, and say how, if that is unusual."""
    from semistan.data.tables import read_table

    return read_table(newdata, dialect_for(dialect, *runs), screen.say)


def wrote(*paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            screen.say(f"wrote {path}")
