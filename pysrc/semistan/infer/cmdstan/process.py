"""One chain of CmdStan: a task in, the text of its CSV file out, and a folder that is gone then."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from semistan.errors import SemistanError
from semistan.infer.backends.backend import SILENT, Report
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import find_toolchain, quiet_cmdstanpy
from semistan.infer.task import ChainTask, Content

ITERATION = re.compile(r"Iteration:\s+(\d+) / (\d+)")


def cmdstan_chain(
    task: ChainTask, service: str, *, report: Report = SILENT, **options: Any
) -> bytes:
    """Run a service of CmdStan on a task's program.

    The program is compiled, or found in the cache, on the machine that does the task.

    Parameters
    ----------
    task : ChainTask
        Program, data and start.
    service : str
        The method of ``CmdStanModel`` that runs it.
    report : Report, optional
        Where iterations are told to.
    **options
        Other arguments. A ``Content`` becomes a list of its file's name.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed.
    """
    executable = compile_program(task.program, find_toolchain(), task.kernel).executable
    with tempfile.TemporaryDirectory(prefix="semistan-") as name:
        folder = Path(name)
        arguments = {
            "data": str(task.data.file(folder)),
            "inits": str(task.start.file(folder)),
            "output_dir": str(folder / "output"),
            **{key: _named(option, folder) for key, option in options.items()},
        }
        model = _telling(report)(exe_file=str(executable))
        try:
            fitted = getattr(model, service)(**arguments)
            fitted.save_csvfiles(dir=str(folder / "draws"))
        except (RuntimeError, ValueError, TimeoutError) as error:
            message = console_error(folder / "output", str(error))
            raise SemistanError(f"CmdStan failed: {message}") from None
        (written,) = (folder / "draws").glob("*.csv")
        return written.read_bytes()


def _named(option: Any, folder: Path) -> Any:
    return [str(option.file(folder))] if isinstance(option, Content) else option


def _telling(report: Report) -> Any:
    """Return CmdStanPy's model, which tells what each line that CmdStan prints says."""

    class Telling(quiet_cmdstanpy().CmdStanModel):  # type: ignore[misc]
        def _run_cmdstan(self, *arguments: Any, **options: Any) -> None:
            def tell(line: str, _: int) -> None:
                if found := ITERATION.search(line):
                    report.step(int(found[1]), int(found[2]))

            super()._run_cmdstan(*arguments, **options | {"progress_hook": tell})

    return Telling


def console_error(folder: Path, fallback: str) -> str:
    """Return the first error that CmdStan printed."""
    for path in sorted(folder.glob("*-stdout.txt")):
        lines = path.read_text("utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "Exception" in line or "error" in line.lower():
                return "\n".join(lines[number : number + 6])
    return fallback
