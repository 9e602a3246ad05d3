"""One chain of CmdStan: a task in, the text of its CSV file out, and a folder that is gone then."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistan.bundle.files import remove_leftovers, temporary_prefix
from semistan.errors import SemistanError, file_error
from semistan.infer.backends.backend import SILENT, Report
from semistan.infer.children import Children, own_children
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.infer.content import Content
from semistan.infer.environment import environment
from semistan.infer.stan_csv import SIGNIFICANT_DIGITS
from semistan.infer.task import ChainTask

SCRATCH = "semistan"
ERRORS = ("exception", "mismatch", "error")
ITERATION = re.compile(r"Iteration:\s+(\d+) / (\d+)")

Word = str | tuple[str, Content]


def cmdstan_chain(
    task: ChainTask,
    method: Sequence[Word],
    *,
    seed: int,
    chain: int | None = None,
    refresh: int | None = None,
    report: Report = SILENT,
) -> bytes:
    """Run a method of CmdStan on a task's program, and return the CSV file that it writes.

    The program is compiled, or found in the cache, on the machine that does the task.

    Parameters
    ----------
    task : ChainTask
        Program, data and start.
    method : sequence
        What CmdStan's command line says of the method, beginning with its name; an option of the
        user's file is a pair of its name and content.
    seed : int
        Seed of the random numbers.
    chain : int, optional
        The number that tells this chain's random numbers from others of the same seed.
    refresh : int, optional
        Iterations between two lines that CmdStan prints.
    report : Report, optional
        Where iterations are told to.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed.
    """
    executable = compile_program(task.program, find_toolchain(), task.kernel).executable
    with scratch_folder() as folder:
        call = Call(
            data=task.data.file(folder), start=task.start.file(folder), seed=seed, chain=chain,
            sig_figs=SIGNIFICANT_DIGITS, refresh=refresh, threads=task.threads,
        )  # fmt: skip
        words = [
            item if isinstance(item, str) else f"{item[0]}={_path(item[1], folder)}"
            for item in method
        ]
        return run_cmdstan(executable, words, call, folder / "chain.csv", report)


@dataclass(frozen=True, slots=True)
class Call:
    """What all methods of CmdStan are told; None is left to CmdStan."""

    data: Path
    seed: int
    start: Path | None = None
    chain: int | None = None
    sig_figs: int | None = None
    refresh: int | None = None
    threads: int = 1


def run_cmdstan(
    executable: Path, method: Sequence[str], call: Call, output: Path, report: Report = SILENT
) -> bytes:
    """Run a compiled program, and return the file that it writes; what it prints is beside it.

    Its options have the same names in all releases from 2.27 on.

    Raises
    ------
    SemistanError
        If it fails, or writes nothing, with what it printed.
    """
    chain = [] if call.chain is None else [f"id={call.chain}"]
    start = [] if call.start is None else [f"init={call.start}"]
    numbers = {"refresh": call.refresh, "sig_figs": call.sig_figs}
    chosen = [f"{name}={value}" for name, value in numbers.items() if value is not None]
    command: list[str | Path] = [
        executable, *chain, "random", f"seed={call.seed}", "data", f"file={call.data}", *start,
        "output", f"file={output}", *chosen, *method,
    ]  # fmt: skip
    console = console_of(output)
    env = environment() | {"STAN_NUM_THREADS": str(call.threads)}
    status = _watched(command, env, console, report, own_children())
    if status or not output.is_file():
        said = console_error(console) or f"it ended with status {status}"
        raise SemistanError(f"CmdStan failed: {said}")
    return output.read_bytes()


def console_of(output: Path) -> Path:
    """Return where what is printed goes."""
    return output.with_suffix(".txt")


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


def _path(option: Any, folder: Path) -> str:
    return str(option.file(folder) if isinstance(option, Content) else option)


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


def console_error(console: Path) -> str:
    """Return the first error that CmdStan printed, otherwise its last lines."""
    text = console.read_text("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if any(word in line.lower() for word in ERRORS):
            return "\n".join(lines[number : number + 6])
    return "\n".join(lines[-6:])
