"""Processes that work for this one, as CmdStan and the compiler, and that end with it.

Each has a group of its own, so that what it begins itself ends too, as the compiler that ``make``
runs, and a Ctrl-C at the terminal reaches it through this process alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semistan.errors import SemistanError

GRACE = 1.0  # seconds that processes have to end by themselves when they are asked to


@dataclass(eq=False)
class Children:
    """The processes of one piece of work, which another thread can end."""

    running: set[subprocess.Popen[str]] = field(default_factory=set)
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def process(
        self, command: Sequence[str | Path], **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """Begin a process, with options of ``subprocess.Popen``; it ends with the block.

        Raises
        ------
        SemistanError
            If the work has been ended already.
        """
        with self.lock:
            if self.ended:
                raise SemistanError("it was interrupted")
            process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, text=True,
                errors="replace", start_new_session=True, **options,
            )  # fmt: skip
            self.running.add(process)
        try:
            yield process
        finally:
            if process.poll() is None:
                _end([process])
            if process.stdout is not None:
                process.stdout.close()
            with self.lock:
                self.running.discard(process)

    def end(self) -> None:
        """End the processes that are running, and refuse to begin others."""
        with self.lock:
            self.ended, running = True, list(self.running)
        _end(running)


# Those of the work that this thread does for one that waits for it.
_OF_THIS_WORK: ContextVar[Children | None] = ContextVar("children", default=None)


def own_children() -> Children:
    """Return where the work that is being done begins its processes."""
    return _OF_THIS_WORK.get() or Children()


@contextmanager
def working_with(children: Children) -> Iterator[None]:
    """Let what this thread does in the block begin its processes there."""
    token = _OF_THIS_WORK.set(children)
    try:
        yield
    finally:
        _OF_THIS_WORK.reset(token)


def _end(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Ask processes to end, and kill those that do not."""
    running, until = list(processes), time.monotonic() + GRACE
    for process in running:
        _tell(process, signal.SIGTERM)
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, until - time.monotonic()))
    for process in running:  # what is left of its group, and itself
        _tell(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
        process.wait()


def _tell(process: subprocess.Popen[str], signal_number: int) -> None:
    """Send a signal to a process and to what it began."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal_number)
        else:
            process.send_signal(signal_number)
