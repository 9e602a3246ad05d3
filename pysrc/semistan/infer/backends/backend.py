"""What a backend is: something that does tasks, which are values, and hands back their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


def _nothing(*_: Any) -> None:
    """Take a report and do nothing."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a task tells while it runs, to whoever waits for it.

    Attributes
    ----------
    step : callable
        Takes the figures of its progress: a chain's iteration and the number of iterations; a
        training's epoch, its loss and that of the rows held out.
    keep : callable
        Takes the bytes from which an interrupted task can go on.
    """

    step: Callable[..., None] = _nothing
    keep: Callable[[bytes], None] = _nothing


SILENT = Report()


class Task(Protocol[Result_co]):
    """A piece of work that needs nothing but itself: frozen, and picklable with its result."""

    @property
    def name(self) -> str:
        """What it is, in a few words that begin an error message."""

    @property
    def in_thread(self) -> bool:
        """Whether a thread is enough, because the work is done by a process of its own."""

    def run(self, report: Report) -> Result_co:
        """Do the work."""


class Backend(Protocol):
    """Does tasks side by side."""

    def map(
        self,
        tasks: Sequence[Task[Result]],
        *,
        at_once: int | None = None,
        report: Callable[[int], Report] = lambda _: SILENT,
    ) -> Iterator[tuple[int, Result]]:
        """Do tasks, and yield each one's index and result as they finish.

        After a failure no other task is begun; the results of those that were running are
        yielded, and then the failure is raised. An interruption, or closing the iterator, stops
        the running ones too.

        Parameters
        ----------
        tasks : sequence of Task
            What is to be done, in the order in which it is begun.
        at_once : int, optional
            Tasks at a time; by default as many as the backend can do.
        report : callable
            Returns where the task of an index reports to. It is called from any thread, but
            by one at a time.
        """
