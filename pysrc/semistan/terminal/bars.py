"""Progress of what takes long: bars on a terminal, and a line a minute in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from semistan.terminal import screen

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from semistan.data.pixels import Reading
    from semistan.infer.chain_store import ChainProgress
    from semistan.workflow.watch import Watch

PACE = 60.0  # seconds between two lines in a log


class Log:
    """Says how far something is where there are no bars: seldom, and nothing of what is short."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, line: str) -> None:
        """Say a line, if the last one is a minute ago."""
        now = time.monotonic()
        if not screen.is_interactive() and now - self._said >= PACE:
            self._said = now
            screen.say(line)


@contextmanager
def training_bar() -> Iterator[Callable[[int, int, float, float], None]]:
    """Yield a callback that shows the epochs and the loss from its first call on."""
    columns = ("training", "{task.completed}/{task.total} epochs  {task.fields[loss]}")
    with _bar(*columns) as (bar, log):
        task = bar.add_task("training", loss="")

        def show(epoch: int, epochs: int, loss: float, held_out: float) -> None:
            losses = f"loss {loss:.4f}, held out {held_out:.4f}"
            log(f"training: {epoch} of {epochs} epochs, {losses}")
            bar.start()
            bar.update(task, completed=epoch, total=epochs, loss=losses)
            if epoch == epochs:
                bar.stop()

        yield show


@contextmanager
def image_bar() -> Iterator[Reading]:
    """Yield a callback that shows how many images are read from its first call on."""
    with _bar("reading", "{task.completed}/{task.total} images") as (bar, log):
        task = bar.add_task("reading")

        def show(done: int, total: int) -> None:
            log(f"reading: {done} of {total} images")
            bar.update(task, completed=done, total=total)
            bar.start()
            if done == total:
                bar.stop()

        yield show


@contextmanager
def chain_bars() -> Iterator[ChainProgress]:
    """Yield a callback that shows how far each chain is from its first call on."""
    with _bar("chain {task.description}", "{task.completed}/{task.total}") as (bar, log):
        tasks: dict[int, TaskID] = {}
        unfinished: dict[int, str] = {}

        def show(chain: int, iteration: int, iterations: int) -> None:
            unfinished[chain] = f"chain {chain} at {iteration} of {iterations}"
            if iteration == iterations:
                unfinished.pop(chain, None)
            if under_way := list(unfinished.values()):  # in one step, as chains report from threads
                log("sampling: " + ", ".join(under_way))
            if chain not in tasks:
                bar.start()
                tasks[chain] = bar.add_task(str(chain), total=iterations)
            bar.update(tasks[chain], completed=iteration)

        yield show


@contextmanager
def watching() -> Iterator[Watch]:
    """Yield what shows how far something is: its lines, images, epochs and chains."""
    from semistan.workflow.watch import Watch

    with image_bar() as reading, training_bar() as training, chain_bars() as chains:
        yield Watch(screen.say, reading, training, chains)


@contextmanager
def _bar(before: str, behind: str) -> Iterator[tuple[Bar, Log]]:
    """Yield a bar that is not yet shown, and the log beside it; stop the bar at the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(before), BarColumn(), TextColumn(behind), TimeRemainingColumn(),
        console=screen.notes, disable=not screen.is_interactive(),
    )  # fmt: skip
    try:
        yield bar, Log()
    finally:
        bar.stop()
