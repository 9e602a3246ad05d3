"""A process that does one task: ``python -m semistan.infer.backends.worker PROCESSORS``.

It reads the pickled task from its standard input, and writes pickled pairs to its standard output:
("step", figures), ("keep", state), and at the end ("done", result) or ("failed", error).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Iterable
from typing import IO, Any

from semistan.errors import SemistanError
from semistan.infer.backends.backend import Report


def bind(processors: Iterable[int]) -> None:
    """Keep this process and its children to some processors, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(processors))


def answer(task: Any, out: IO[bytes]) -> None:
    """Do a task and write what it tells and what comes of it."""

    def tell(kind: str, content: Any) -> None:
        out.write(pickle.dumps((kind, content)))
        out.flush()

    report = Report(lambda *figures: tell("step", figures), lambda state: tell("keep", state))
    try:
        tell("done", task.run(report))
    except SemistanError as error:
        tell("failed", error)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is kept is kept then too
    bind(int(number) for number in sys.argv[1].split(","))  # before libraries count the processors
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print does not come between the results
    answer(pickle.load(sys.stdin.buffer), results)
