"""The chains of a run as files: what is there, what is missing, and what was interrupted.

``chain-<c>.csv`` is a finished chain, ``.chain-<c>.partial.npz`` what a method that can go on kept
of an unfinished one. A chain depends on its task alone, so that a run is completed with the draws
it would have had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from semistan.bundle.files import write_bytes
from semistan.bundle.unfinished import keep_state, kept_state
from semistan.infer.backends.backend import Backend, Report, Task
from semistan.infer.content import content_of
from semistan.infer.folder import metric_file, start_file
from semistan.infer.method import Method
from semistan.infer.task import ChainTask
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows
from semistan.program.parts import Kernel

ChainProgress = Callable[[int, int, int], None]  # chain, iteration, iterations in all
Before = Callable[[Path, bytes], None]


class FileTask(Task[bytes], Protocol):
    """A task whose result is a chain's file."""

    @property
    def number(self) -> int:
        """The chain's number, from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class FiledTask:
    """A task, and where its result goes.

    Attributes
    ----------
    task : FileTask
        What is to be done.
    folder : Path
        Where ``chain-<c>.csv`` goes.
    before : int
        How many chains precede those of this folder, where chains of several are counted through.
    """

    task: FileTask
    folder: Path
    before: int = 0


def chain_file(folder: Path, chain: int) -> Path:
    """Return the path of a chain's CSV."""
    return folder / f"chain-{chain}.csv"


def partial_file(folder: Path, chain: int) -> Path:
    """Return the path of what an interrupted chain leaves."""
    return folder / f".chain-{chain}.partial.npz"


def missing_chains(folder: Path, chains: int) -> list[int]:
    """Return the chains whose CSV is not there yet."""
    return [c for c in range(1, chains + 1) if not chain_file(folder, c).is_file()]


def chain_tasks(
    run: Path,
    method: Method,
    bundle: Bundle,
    options: SampleConfig,
    *,
    kernel: Kernel = "stan",
    threads: int = 1,
    keep_metric: bool = False,
    prior_only: bool = False,
    rows: Rows | None = None,
    where: str = "",
    chains: Sequence[int] | None = None,
) -> list[ChainTask]:
    """Return the tasks of the chains that a run does not have yet, or of some chains.

    Parameters
    ----------
    run : Path
        The run's folder, as ``write_stan_folder`` writes it, with ``chains/``.
    method : Method
        How the chains are drawn.
    bundle, options, kernel, threads, keep_metric, prior_only, where
        As in ``ChainTask``.
    rows : Rows, optional
        The training rows, if PyTorch runs the method.
    chains : sequence of int, optional
        Which chains; by default those that are missing.
    """
    program = (run / "program.stan").read_text("utf-8")
    data, folder = content_of(run / "data.json"), run / "chains"

    def task(chain: int) -> ChainTask:
        mode = metric_file(run, chain)
        return ChainTask(
            method.chain, chain, options, bundle, prior_only,
            start=content_of(start_file(run, chain)),
            mode=content_of(mode) if mode.is_file() else None,
            keep_metric=keep_metric, program=program, data=data, kernel=kernel,
            threads=threads, rows=rows,
            left=kept_state(partial_file(folder, chain)), where=where,
        )  # fmt: skip

    wanted = missing_chains(folder, options.chain_count) if chains is None else chains
    return [task(chain) for chain in wanted]


def complete(
    folder: Path,
    tasks: Sequence[FileTask],
    backend: Backend,
    *,
    at_once: int | None = None,
    progress: ChainProgress | None = None,
) -> None:
    """Let a backend do tasks, and keep each chain's file in one folder; see ``complete_all``."""
    filed = [FiledTask(task, folder) for task in tasks]
    folder.mkdir(exist_ok=True)
    complete_all(filed, backend, at_once=at_once, progress=progress)


def complete_all(
    filed: Sequence[FiledTask],
    backend: Backend,
    *,
    at_once: int | None = None,
    progress: ChainProgress | None = None,
    before: Before = lambda _path, _content: None,
) -> None:
    """Let a backend do tasks, and keep each chain's file as soon as it is there.

    Parameters
    ----------
    filed : sequence of FiledTask
        What is missing, and where it goes.
    backend : Backend
        What does it.
    at_once : int, optional
        Chains at a time.
    progress : callable, optional
        Called with a chain's number, its iteration and the number of iterations.
    before : callable
        Called with a file's path and content before it is written, as by what records its hash.
    """

    def report(index: int) -> Report:
        item = filed[index]

        def step(iteration: int, iterations: int) -> None:
            if progress is not None:
                progress(item.before + item.task.number, iteration, iterations)

        partial = partial_file(item.folder, item.task.number)
        return Report(step, lambda state: keep_state(partial, state))

    tasks = [item.task for item in filed]
    for index, content in backend.map(tasks, at_once=at_once, report=report):
        folder, chain = filed[index].folder, tasks[index].number
        before(chain_file(folder, chain), content)
        write_bytes(chain_file(folder, chain), content)
        partial_file(folder, chain).unlink(missing_ok=True)
