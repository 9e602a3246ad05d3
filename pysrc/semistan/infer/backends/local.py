"""The cores of one machine: threads for what is a process anyway, processes for work in Python.

One task at a time is done here, in this process, and so are tasks that another process could not
read, as those with a class that a notebook defines. Processes share the processors: each has its
own, so that libraries that take all they see do not stand in each other's way. Nothing interrupts a
thread: the process that it waits for is ended.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from types import FunctionType
from typing import IO, Any

from semistan.errors import SemistanError
from semistan.infer.backends.backend import SILENT, Report, Result, Task
from semistan.infer.children import Children, working_with
from semistan.infer.processors import usable_processors

GRACE = 0.5  # seconds that interrupted processes have to end by themselves
PATIENCE = 2.0  # seconds that they have after they were asked to


@dataclass(frozen=True, slots=True)
class Local:
    """The backend that everybody has; see ``Backend``."""

    def map(
        self,
        tasks: Sequence[Task[Result]],
        *,
        at_once: int | None = None,
        report: Callable[[int], Report] = lambda _: SILENT,
    ) -> Iterator[tuple[int, Result]]:
        """Do tasks on this machine's cores, and yield results as they finish."""
        at_once = max(1, min(at_once or len(usable_processors()), len(tasks)))
        threads = all(task.in_thread for task in tasks)
        if at_once == 1 or not (threads or _travels(tasks[0])):
            yield from ((index, task.run(report(index))) for index, task in enumerate(tasks))
        elif threads:
            children = Children()
            run = partial(here, children)
            yield from _side_by_side(tasks, run, at_once, report, children.end)
        else:
            workers = Workers(at_once)
            yield from _side_by_side(tasks, workers.run, at_once, report, workers.interrupt)


LOCAL = Local()


class _Stays(Exception):
    """Something is defined where other processes cannot import it."""


class _Traveller(pickle.Pickler):
    def persistent_id(self, item: Any) -> None:
        """Refuse classes and functions of the script or notebook that is running."""
        defined = isinstance(item, type | FunctionType)
        if defined and item.__module__ == "__main__":
            raise _Stays


def _travels(task: Task[Result]) -> bool:
    """Say whether another process could read a task; the others of a kind are like it."""
    try:
        _Traveller(BytesIO(), pickle.HIGHEST_PROTOCOL, buffer_callback=lambda _: None).dump(task)
    except (_Stays, pickle.PickleError, AttributeError, TypeError):
        return False
    return True


def here(children: Children, task: Task[Result], report: Report) -> Result:
    """Do a task in this thread; its processes are among the children, which can be ended."""
    with working_with(children):
        return task.run(report)


def _side_by_side(
    tasks: Sequence[Task[Result]],
    run: Callable[[Task[Result], Report], Result],
    at_once: int,
    report: Callable[[int], Report],
    interrupt: Callable[[], None],
) -> Iterator[tuple[int, Result]]:
    """Do tasks in threads; ``interrupt`` stops those that are running."""
    lock, upcoming = threading.Lock(), enumerate(tasks)
    waiting: dict[Future[Result], int] = {}
    failures: dict[int, BaseException] = {}
    with ThreadPoolExecutor(at_once) as pool:

        def begin(number: int) -> None:
            for index, task in itertools.islice(upcoming, number):
                waiting[pool.submit(run, task, _one_at_a_time(report(index), lock))] = index

        try:
            begin(at_once)
            while waiting:
                try:
                    finished = wait(waiting, return_when=FIRST_COMPLETED).done
                except KeyboardInterrupt as interruption:
                    failures[-1] = interruption
                    interrupt()
                    continue
                for future in finished:
                    index, error = waiting.pop(future), future.exception()
                    if error is not None:
                        failures[index] = error
                        continue
                    if not failures:
                        begin(1)
                    yield index, future.result()
        except BaseException:
            interrupt()
            raise
    if failures:
        raise failures[min(failures)]  # the first task's, so that the same input fails alike


def _one_at_a_time(report: Report, lock: threading.Lock) -> Report:
    def step(*figures: Any) -> None:
        with lock:
            report.step(*figures)

    def keep(state: bytes) -> None:
        with lock:
            report.keep(state)

    return Report(step, keep)


@dataclass(eq=False)
class Workers:
    """Processes for one call of ``map``, and each one's share of the processors."""

    at_once: int
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    shares: SimpleQueue[list[int]] = field(default_factory=SimpleQueue)
    interrupted: bool = False

    def __post_init__(self) -> None:
        processors = usable_processors()
        for i in range(self.at_once):
            self.shares.put(processors[i :: self.at_once] or processors)

    def run(self, task: Task[Result], report: Report) -> Result:
        """Let a process of its own do a task."""
        share = self.shares.get()
        try:
            with tempfile.TemporaryFile() as errors:
                return self._run_on(share, task, report, errors)
        finally:
            self.shares.put(share)

    def _run_on(
        self, share: list[int], task: Task[Result], report: Report, errors: IO[bytes]
    ) -> Result:
        command = [sys.executable, "-m", "semistan.infer.backends.worker"]
        process = subprocess.Popen(
            [*command, ",".join(map(str, share))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=_environment(),
        )  # fmt: skip
        self.running.add(process)
        if self.interrupted:  # before this process was known
            _stop([process])
        try:
            result = _follow(process, task, report)
        finally:
            process.wait()
            self.running.discard(process)
        if result is None:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raised = lines and process.returncode == 1
            reason = lines[-1] if raised else f"its process ended with status {process.returncode}"
            raise SemistanError(f"{task.name} failed: {reason}")
        (value,) = result
        return value

    def interrupt(self) -> None:
        """Stop the processes that are running, and those that are about to."""
        self.interrupted = True
        _stop(list(self.running))


def _environment() -> dict[str, str]:
    """Return the environment of a process that imports from wherever this one does."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let processes stop as Ctrl-C does, which the terminal may have sent them; or end them."""
    _wait(processes, GRACE)
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
    _wait(processes, PATIENCE)  # while Python starts, it may miss a signal
    for process in processes:
        if process.poll() is None:
            process.kill()


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait for processes to end, for some seconds in all."""
    until = time.monotonic() + seconds
    for process in processes:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, until - time.monotonic()))


def _follow(
    process: subprocess.Popen[bytes], task: Task[Result], report: Report
) -> tuple[Result] | None:
    """Send a process its task and pass on what it tells; None if it ends without a result."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # closing it writes too
        process.stdin.write(pickle.dumps(task))
    with process.stdout:
        while True:
            try:
                kind, content = pickle.load(process.stdout)
            except (EOFError, pickle.UnpicklingError):
                return None
            if kind == "step":
                report.step(*content)
            elif kind == "keep":
                report.keep(content)
            elif kind == "failed":
                raise content
            else:
                return (content,)
