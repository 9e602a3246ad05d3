"""Commands about files and tools: are they what they should be, and how to get what is missing."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import Annotated

import typer

from semistan.command.answering import Reply, answering
from semistan.errors import InputError
from semistan.terminal import screen


@answering
def doctor(
    run: Annotated[
        Path | None, typer.Argument(help="A run, to see how it shares the cores.")
    ] = None,
    *,
    reply: Reply,
) -> None:
    """Say whether everything needed is there, and how to get what is missing."""
    import pandas as pd

    from semistan.workflow.doctor import doctor as examine

    findings = examine(run)
    table = pd.DataFrame([finding.plain() for finding in findings])
    reply.tables({"": table}, show=lambda: screen.show_findings(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(InputError.exit_code)


@answering
def check(
    folder: Annotated[Path, typer.Argument(metavar="RUN|BUNDLE", help="A run or a bundle.")],
    *,
    reply: Reply,
) -> None:
    """Hold every file of a run or a bundle to the hash that it was written with."""
    from semistan.workflow.check import check as check_folder

    found = check_folder(folder)
    reply.table(found.table())
    if not found.passed:
        raise typer.Exit(InputError.exit_code)


def install_cmdstan(
    official: Annotated[
        bool, typer.Option(help="Try the official release before the source tree.")
    ] = True,
) -> None:
    """Install CmdStan unless a usable one is found."""
    from semistan.infer.cmdstan.install import install_cmdstan as install

    install(screen.say, official=official)
