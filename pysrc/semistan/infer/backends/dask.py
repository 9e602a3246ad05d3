"""A Dask cluster: tasks travel to workers that share no files with this machine.

A worker needs semistan of the same version and, for CmdStan's methods, CmdStan and a compiler. A
task takes its program along as text, which the worker compiles once into its own cache, and its
files as their content, which each worker gets once: what tasks have in common, as the data of a
run's chains, is a dependency of theirs in Dask's graph, named by its hash. A task whose worker is
lost is begun anew on another one, and has the same result, because a task depends on itself alone.

What a task keeps to go on from (``Report.keep``) stays on its worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pickle
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import SILENT, Backend, Report, Result, Task
from semistan.infer.backends.local import LOCAL, Workers, here
from semistan.infer.children import Children
from semistan.infer.content import Content
from semistan.version import __version__

SHARED = 1 << 16  # bytes from which a content travels by itself, once to each worker
POLL = 0.5  # seconds between looks at whether a task is still wanted, and at new workers
CONNECT = 10.0  # seconds until a scheduler that does not answer is given up
TELL = 0.5  # seconds between two reports of a task's progress


@dataclass(frozen=True, slots=True)
class Dask:
    """The backend over a cluster's client; see ``Backend``.

    Attributes
    ----------
    client : distributed.Client
        A connection to the scheduler.
    grows : bool
        Whether workers are begun as there is work for them: then all tasks are handed over at once.
    """

    client: Any
    grows: bool = False

    def map(
        self,
        tasks: Sequence[Task[Result]],
        *,
        at_once: int | None = None,  # noqa: ARG002 - planned for the cores of this machine
        report: Callable[[int], Report] = lambda _: SILENT,
    ) -> Iterator[tuple[int, Result]]:
        """Do as many tasks at a time as the workers have threads, and yield results.

        Where the cluster grows with its work, a failure stops what is running, too.
        """
        upcoming, finished = enumerate(tasks), SimpleQueue[Any]()
        waiting: dict[str, tuple[int, Any]] = {}
        failures: dict[int, BaseException] = {}
        with _told(self.client, report) as topic:
            try:
                while True:
                    if not failures:
                        for index, task in islice(upcoming, max(0, self._room() - len(waiting))):
                            future = self._begin(index, task, topic)
                            waiting[future.key] = index, future
                            future.add_done_callback(finished.put)
                    if not waiting or (failures and self.grows):
                        break
                    with contextlib.suppress(Empty):
                        index, future = waiting.pop(finished.get(timeout=POLL).key)
                        error = _failure(future, tasks[index])
                        if error is not None:
                            failures[index] = error
                        else:
                            yield index, future.result()
            finally:
                self.client.cancel([future for _, future in waiting.values()], force=True)
        if failures:
            raise failures[min(failures)]

    def _room(self) -> int:
        """Return how many tasks run at a time; one, that waits, where there is no worker yet."""
        if self.grows:
            return sys.maxsize
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def _begin(self, index: int, task: Task[Result], topic: str) -> Any:
        work, shared = packed(task)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            held = [
                self.client.submit(bytes, content, key=f"semistan-{name}", pure=True)
                for name, content in shared.items()
            ]
            return self.client.submit(
                _do, work, list(shared), held, index, topic, __version__,
                key=f"{task.name.replace(' ', '-')}-{uuid.uuid4().hex}", pure=False,
            )  # fmt: skip


def packed(task: Task[Any]) -> tuple[bytes, dict[str, bytes]]:
    """Return a task as bytes, and apart from it, by hash, its contents of at least 64 KiB."""
    shared: dict[str, bytes] = {}

    class Packer(pickle.Pickler):
        def persistent_id(self, item: Any) -> tuple[str, str] | None:
            if not isinstance(item, Content):
                return None
            content = item.read()
            if len(content) < SHARED:
                return None
            name = hashlib.sha256(content).hexdigest()
            shared[name] = content
            return item.name, name

    file = io.BytesIO()
    Packer(file, pickle.HIGHEST_PROTOCOL).dump(task)
    return file.getvalue(), shared


def unpacked(work: bytes, shared: Mapping[str, bytes]) -> Any:
    """Return the task that ``packed`` took apart."""

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, pair: tuple[str, str]) -> Content:
            name, found = pair
            return Content(name, None, shared[found])

    return Unpacker(io.BytesIO(work)).load()


def _do(
    work: bytes, names: list[str], held: list[bytes], index: int, topic: str, version: str
) -> Any:
    """Do a task on a worker, and stop when nobody waits for it any more."""
    from distributed import get_worker

    worker = get_worker()
    if version != __version__:
        found = SemistanError(
            f"the worker {worker.address} has semistan {__version__}, this machine {version}: "
            "install the same version on both"
        )
        return _Failed(found)
    task = unpacked(work, dict(zip(names, held, strict=True)))
    report = Report(_now_and_then(lambda *figures: worker.log_event(topic, (index, figures))))
    children, workers = Children(), Workers(1)
    run: Callable[[Task[Any], Report], Any] = partial(here, children)
    interrupt = children.end
    if not task.in_thread:
        run, interrupt = workers.run, workers.interrupt
    with _while_wanted(worker, worker.get_current_task(), interrupt):
        try:
            return run(task, report)
        except SemistanError as error:
            return _Failed(error)


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a task failed of: a result to Dask, which would log an exception on the worker."""

    error: SemistanError


@contextmanager
def _while_wanted(worker: Any, key: str, interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupt what the block does when its task is cancelled or its worker closes."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled" or worker.status.name != "running":
                interrupt()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _now_and_then(tell: Callable[..., None]) -> Callable[..., None]:
    """Pass on figures at most twice a second, so that no scheduler drowns in them."""
    last = [-TELL]

    def step(*figures: Any) -> None:
        if time.monotonic() - last[0] >= TELL:
            last[0] = time.monotonic()
            tell(*(float(figure) if isinstance(figure, float) else figure for figure in figures))

    return step


@contextmanager
def _told(client: Any, report: Callable[[int], Report]) -> Iterator[str]:
    """Yield the topic under which workers tell of their progress, and pass it on to reports."""
    topic, reports, lock = f"semistan-{uuid.uuid4().hex}", dict[int, Report](), threading.Lock()

    def handle(event: tuple[float, tuple[int, tuple[Any, ...]]]) -> None:
        index, figures = event[1]
        with lock:
            reports.setdefault(index, report(index)).step(*figures)

    client.subscribe_topic(topic, handle)
    try:
        yield topic
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            client.unsubscribe_topic(topic)


def _failure(future: Any, task: Task[Any]) -> BaseException | None:
    """Return what went wrong with a task, in our words."""
    from distributed.scheduler import KilledWorker

    if future.status == "finished":
        found = future.result()
        return found.error if isinstance(found, _Failed) else None
    error = future.exception() if future.status == "error" else None
    if isinstance(error, KilledWorker):
        return SemistanError(
            f"{task.name} failed: every worker that did it was lost; look at their logs, as for a "
            "lack of memory"
        )
    reason = f"{type(error).__name__}: {error}" if error else "it was cancelled on the cluster"
    return SemistanError(f"{task.name} failed: {reason}")


@contextmanager
def connected(cluster: str) -> Iterator[Dask]:
    """Connect to a cluster for the block.

    Parameters
    ----------
    cluster : str
        A scheduler's address, as ``tcp://10.0.0.1:8786``; the JSON file that ``dask scheduler
        --scheduler-file`` writes; ``local`` for workers on this machine; or ``slurm`` for jobs of
        dask-jobqueue, as its own configuration states them.

    Raises
    ------
    InputError
        If it does not answer, or a package is missing.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--cluster needs the package distributed: pip install 'semistan[cluster]'"
        ) from None
    with contextlib.ExitStack() as stack:
        try:
            target = stack.enter_context(_cluster(cluster))
            # Other libraries, as xarray when it writes, would use a default client for their own.
            client = stack.enter_context(Client(**target, timeout=CONNECT, set_as_default=False))
        except (OSError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at '{cluster}': {error or type(error).__name__}; "
                "expected an address as tcp://host:8786, a scheduler's JSON file, local or slurm"
            ) from None
        yield Dask(client, grows=cluster == "slurm")


@contextmanager
def _cluster(cluster: str) -> Iterator[dict[str, Any]]:
    """Yield the argument of ``Client``, and end the workers that were begun for it."""
    if cluster == "local":
        from distributed import LocalCluster

        from semistan.infer.processors import usable_processors

        workers = len(usable_processors())
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as own:
            yield {"address": own}
    elif cluster == "slurm":
        with _slurm() as own:
            yield {"address": own}
    elif Path(cluster).suffix == ".json":
        if not Path(cluster).is_file():
            raise InputError(f"the scheduler's file '{cluster}' does not exist")
        yield {"scheduler_file": cluster}
    else:
        yield {"address": cluster}


def _slurm() -> Any:
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise InputError(
            "--cluster slurm needs the package dask-jobqueue: pip install dask-jobqueue"
        ) from None
    cluster = SLURMCluster()
    cluster.adapt()
    return cluster


@contextmanager
def backend_at(cluster: str | None) -> Iterator[Backend]:
    """Yield the backend of a cluster as of ``connected``, or this machine's for None."""
    if cluster is None:
        yield LOCAL
    else:
        with connected(cluster) as backend:
            yield backend
