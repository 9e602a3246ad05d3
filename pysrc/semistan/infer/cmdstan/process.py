"""One chain of CmdStan: a task in, the text of its CSV file out, and a folder that is gone then."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semistan.bundle.files import remove_leftovers, temporary_prefix
from semistan.errors import SemistanError, file_error
from semistan.infer.backends.backend import SILENT, Report
from semistan.infer.children import Children, own_children
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import find_toolchain, quiet_cmdstanpy
from semistan.infer.content import Content
from semistan.infer.environment import environment
from semistan.infer.task import ChainTask

SCRATCH = "semistan"
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
    with scratch_folder() as folder:
        arguments = {
            "data": str(task.data.file(folder)),
            "inits": str(task.start.file(folder)),
            "output_dir": str(folder / "output"),
            **{key: _named(option, folder) for key, option in options.items()},
        }
        with cmdstan_model(executable, report) as model:
            try:
                fitted = getattr(model, service)(**arguments)
                fitted.save_csvfiles(dir=str(folder / "draws"))
            except (RuntimeError, ValueError, TimeoutError) as error:
                message = console_error(folder / "output", str(error))
                raise SemistanError(f"CmdStan failed: {message}") from None
        (written,) = (folder / "draws").glob("*.csv")
        return written.read_bytes()


def own_chain(task: ChainTask, main: str, report: Report = SILENT, **options: Any) -> bytes:
    """Run a main program of ours, linked to a task's program, and return the file that it writes.

    Parameters
    ----------
    task : ChainTask
        Program, data and start.
    main : str
        The main program, ``stan/<main>.cpp``.
    report : Report, optional
        Where iterations are told to.
    **options
        Its other arguments. A ``Content`` becomes its file's name.

    Raises
    ------
    SemistanError
        If it fails, with what it printed.
    """
    compiled = compile_program(task.program, find_toolchain(), task.kernel, main)
    with scratch_folder() as folder:
        output, console = folder / "chain.csv", folder / "console.txt"
        files = {"data": task.data, "init": task.start, "output": output}
        arguments = [f"{key}={_path(value, folder)}" for key, value in (files | options).items()]
        env = environment() | {"STAN_NUM_THREADS": str(task.threads)}
        command: list[str | Path] = [compiled.linked_to(main), *arguments]
        if status := _watched(command, env, console, report, own_children()):
            *_, said = ["", *console.read_text("utf-8", errors="replace").splitlines()]
            raise SemistanError(said or f"{main} ended with status {status}")
        return output.read_bytes()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for temporary files, which is gone after the block.

    Raises
    ------
    SemistanError
        Where the operating system refuses, as on a full disk.
    """
    place = Path(tempfile.gettempdir())
    remove_leftovers(place, SCRATCH)
    try:
        with tempfile.TemporaryDirectory(prefix=temporary_prefix(SCRATCH)) as name:
            yield Path(name)
    except OSError as error:
        explained = file_error(error, place)
        hint = "the environment variable TMPDIR names another place for temporary files"
        raise type(explained)(f"{explained}; {hint}") from error


def _named(option: Any, folder: Path) -> Any:
    return [_path(option, folder)] if isinstance(option, Content) else option


def _path(option: Any, folder: Path) -> str:
    return str(option.file(folder) if isinstance(option, Content) else option)


@contextmanager
def cmdstan_model(executable: Path, report: Report = SILENT) -> Iterator[Any]:
    """Yield CmdStanPy's model of a program, whose processes end with the block."""
    children = own_children()
    try:
        yield _telling(report, children)(exe_file=str(executable))
    except KeyboardInterrupt:  # CmdStanPy waits for its processes in threads of its own
        children.end()
        raise


def _telling(report: Report, children: Children) -> Any:
    """Return CmdStanPy's model, which tells what each line that CmdStan prints says."""

    class Telling(quiet_cmdstanpy().CmdStanModel):  # type: ignore[misc]
        def _run_cmdstan(self, runset: Any, idx: int = 0, *_: Any, **__: Any) -> None:
            console = Path(runset.stdout_files[idx])
            status = _watched(runset.cmd(idx), environment(), console, report, children)
            runset._set_retcode(idx, status)

    return Telling


def _watched(
    command: Sequence[str | Path],
    env: dict[str, str],
    console: Path,
    report: Report,
    children: Children,
) -> int:
    """Run a process, keep what it prints, tell of its iterations, and return its exit status."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        console.open("w", encoding="utf-8") as file,
        children.process(command, env=env, **pipes) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if found := ITERATION.search(line):
                report.step(int(found[1]), int(found[2]))
        return process.wait()


def console_error(folder: Path, fallback: str) -> str:
    """Return the first error that CmdStan printed."""
    for path in sorted(folder.glob("*-stdout.txt")):
        lines = path.read_text("utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "Exception" in line or "error" in line.lower():
                return "\n".join(lines[number : number + 6])
    return fallback
