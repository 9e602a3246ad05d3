"""Run CmdStan's ``generate_quantities`` on the draws of a chain.

CmdStan begins every call with the same stream of random numbers for one seed. A draw whose
quantities cannot be computed it leaves out without failing, and newer releases write a line that is
not a number anywhere. So each chain has a seed of its own, made from the seed and its number, and
its other lines are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from semistan.errors import SemistanError
from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.process import (
    Call,
    console_error,
    console_of,
    run_cmdstan,
    scratch_folder,
)
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.infer.content import Content
from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.infer.task import chain_seed

SIGNIFICANT_DIGITS = 12  # of the sampling program's ten-digit draws


@dataclass(frozen=True, slots=True, eq=False)
class QuantitiesTask:
    """Quantities of one chain's draws.

    Attributes
    ----------
    number : int
        The chain's number, from 1.
    program : str
        Text of the program of generated quantities.
    data : Content
        Its data.
    fitted : Content
        The chain's CSV file.
    columns : tuple of str
        The columns of the program's parameters, in its order.
    seed : int
        Seed of the replicated responses of all chains.
    """

    number: int
    program: str
    data: Content
    fitted: Content
    columns: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"quantities of chain {self.number}"

    @property
    def in_thread(self) -> bool:
        """CmdStan is a process of its own."""
        return True

    def run(self, _: Report) -> bytes:
        """Compute the quantities and return their CSV file.

        Raises
        ------
        SemistanError
            If CmdStan fails, with what it printed.
        """
        executable = compile_program(self.program, find_toolchain()).executable
        with scratch_folder() as folder:
            return _generate(executable, self, folder)


def _generate(executable: Path, task: QuantitiesTask, folder: Path) -> bytes:
    call = Call(
        data=task.data.file(folder), seed=chain_seed(task.seed, task.number), chain=1,
        sig_figs=SIGNIFICANT_DIGITS,
    )  # fmt: skip
    method = ["method=generate_quantities", f"fitted_params={_fitted(task, folder)}"]
    output = folder / "quantities.csv"
    written = run_cmdstan(executable, method, call, output)
    expected, got = _draw_lines(task.fitted.read()), _draw_lines(written)
    if got != expected:
        raise SemistanError(
            f"CmdStan computed the quantities of {got} of the {expected} draws of chain "
            f"{task.number}: {console_error(console_of(output))}"
        )
    return written


def _fitted(task: QuantitiesTask, folder: Path) -> Path:
    """Return the file of draws in the order of this program's parameters.

    Where something was integrated out, the chain has it among its generated quantities.
    """
    path = task.fitted.file(folder)
    with path.open("rb") as file:
        header = next(line for line in file if not line.startswith(b"#"))
    names = header.decode().strip().split(",")
    first = [*NUTS_COLUMNS.values(), *task.columns]
    if names[: len(first)] == first or not set(first) <= set(names):
        return path  # which CmdStan refuses if columns are missing
    ordered = [*first, *(name for name in names if name not in set(first))]
    at = [names.index(name) for name in ordered]
    made = folder / "ordered.csv"
    with path.open("rb") as file, made.open("wb") as out:
        for line in file:
            cells = line.rstrip().split(b",")
            whole = len(cells) == len(names) and not line.startswith(b"#")
            out.write(b",".join(cells[i] for i in at) + b"\n" if whole else line)
    return made


def _draw_lines(csv: bytes) -> int:
    """Count the lines of a Stan CSV that have a number, without its comments and its header."""
    lines = (line for line in csv.splitlines() if line.strip(b"nan, \t"))
    return sum(not line.startswith(b"#") for line in lines) - 1
