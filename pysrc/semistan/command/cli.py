"""The command line: a thin command for each step, in the files of its group.

Exit codes: 0 success, 1 failure, 2 usage or bad input, 3 finished but a diagnostic failed, 128 and
the signal's number where one asked to end: 130 by Ctrl-C, 143 by SIGTERM.
"""

# Typer reads annotations at run time: no postponed evaluation here.
import signal
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from semistan.command.groups import (
    effect_commands,
    inquiry_commands,
    model_commands,
    run_commands,
    score_commands,
    show_commands,
    study_commands,
    tool_commands,
)
from semistan.command.trusting import trusting
from semistan.errors import SemistanError, file_error
from semistan.terminal import screen
from semistan.version import __version__

COMMANDS: dict[str, Callable[..., None]] = {
    "new": model_commands.new,
    "fit": model_commands.fit,
    "update": model_commands.update,
    "subspace": model_commands.subspace,
    "stan": run_commands.stan,
    "sample": run_commands.sample,
    "reproduce": run_commands.reproduce,
    "priors": model_commands.priors,
    "summary": run_commands.summary,
    "pool": run_commands.pool,
    "predict": effect_commands.predict,
    "score": score_commands.score,
    "loo": score_commands.loo,
    "kfold": score_commands.kfold,
    "compare": score_commands.compare,
    "effect": effect_commands.effect,
    "slopes": effect_commands.slopes,
    "importance": effect_commands.importance,
    "decompose": effect_commands.decompose,
    "comparisons": effect_commands.comparisons,
    "pp-check": inquiry_commands.pp_check,
    "hypothesis": inquiry_commands.hypothesis,
    "sensitivity": inquiry_commands.sensitivity,
    "terms": inquiry_commands.terms,
    "baseline": study_commands.baseline,
    "simulate": study_commands.simulate,
    "sbc": study_commands.sbc,
    "plot": show_commands.plot,
    "report": show_commands.report,
    "export": show_commands.export,
    "check": tool_commands.check,
    "doctor": tool_commands.doctor,
    "install-cmdstan": tool_commands.install_cmdstan,
}

JOBS: dict[str, Callable[..., None]] = {
    "list": run_commands.jobs_list,
    "run": run_commands.jobs_run,
    "collect": run_commands.jobs_collect,
}

WITHOUT_RUN = {"new", "fit", "check", "install-cmdstan"}  # all others may read one

PANELS = {  # what the commands of a file are for
    "model_commands": "Specify and fit",
    "run_commands": "Sample, and read the result",
    "effect_commands": "Predictions, comparisons and slopes",
    "score_commands": "How well does it predict?",
    "inquiry_commands": "Ask what was learnt",
    "study_commands": "Study the model",
    "show_commands": "Show, and hand on",
    "tool_commands": "Tools",
}

app = typer.Typer(
    help="Semi-structured regression: interpretable coefficients and a neural network in Stan.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    panel = PANELS.get(command.__module__.rpartition(".")[2])
    whole = command if name in WITHOUT_RUN else trusting(command)
    app.command(name, rich_help_panel=panel)(whole)

jobs = typer.Typer(
    help="Chains as the jobs of any scheduler: list their commands, run one, collect their files.",
    no_args_is_help=True,
)
for name, command in JOBS.items():
    jobs.command(name)(trusting(command))
app.add_typer(jobs, name="jobs", rich_help_panel=PANELS["run_commands"])


@app.callback(invoke_without_command=True)
def _semistan(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"semistan {__version__}")
        raise typer.Exit


INTERRUPTED = 130
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    screen.escape_what_cannot_be_encoded()
    received: list[int] = []
    for number in ENDING:
        _end_as_by_ctrl_c(number, received)
    try:
        app()
    except SystemExit as end:  # Typer's, of Ctrl-C too
        sys.exit(_status(received) if end.code == INTERRUPTED else end.code)
    except SemistanError as error:
        _give_up(error)
    except OSError as error:
        _give_up(file_error(error))
    except KeyboardInterrupt:  # before or after a command, in which Typer sees it
        sys.exit(_status(received))


def _status(received: list[int]) -> int:
    """Return the status of a command that was asked to end, as shells have it."""
    return 128 + received[0] if received else INTERRUPTED


def _end_as_by_ctrl_c(number: int, received: list[int]) -> None:
    """Let a signal end the command as Ctrl-C does: children too, and what is complete is kept."""

    def interrupt(*_: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(number) is signal.SIG_DFL:  # nohup, for one, has it ignored
        signal.signal(number, interrupt)


def _give_up(error: SemistanError) -> NoReturn:
    screen.complain(str(error))
    sys.exit(error.exit_code)
