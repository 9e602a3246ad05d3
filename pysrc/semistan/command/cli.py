"""The command line: a thin command for each step, in the files of its group.

Exit codes: 0 success, 1 failure, 2 usage or bad input, 3 finished but a diagnostic failed.
"""

# Typer reads annotations at run time: no postponed evaluation here.
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from semistan.command import (
    answer_commands,
    model_commands,
    run_commands,
    screen,
    show_commands,
    tool_commands,
)
from semistan.errors import SemistanError
from semistan.version import __version__

COMMANDS: dict[str, Callable[..., None]] = {
    "new": model_commands.new,
    "fit": model_commands.fit,
    "train": model_commands.train,
    "subspace": model_commands.subspace,
    "stan": run_commands.stan,
    "sample": run_commands.sample,
    "priors": model_commands.priors,
    "summary": run_commands.summary,
    "predict": answer_commands.predict,
    "score": answer_commands.score,
    "loo": answer_commands.loo,
    "kfold": answer_commands.kfold,
    "compare": answer_commands.compare,
    "effect": answer_commands.effect,
    "marginal": answer_commands.marginal,
    "importance": answer_commands.importance,
    "plot": show_commands.plot,
    "draws": show_commands.draws,
    "generate": show_commands.generate,
    "r-script": show_commands.r_script,
    "report": show_commands.report,
    "doctor": tool_commands.doctor,
    "install-cmdstan": tool_commands.install_cmdstan,
}

app = typer.Typer(
    help="Semi-structured regression: interpretable coefficients and a neural network in Stan.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    app.command(name)(command)


@app.callback(invoke_without_command=True)
def _semistan(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"semistan {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    try:
        app()
    except SemistanError as error:
        screen.complain(str(error))
        sys.exit(error.exit_code)
