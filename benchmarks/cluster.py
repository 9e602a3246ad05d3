"""What a Dask cluster costs and brings: overhead per task, bytes moved, 20 chains over workers.

A scheduler and 1, 2 and 4 worker processes of one thread run on this machine, each pinned to one of
the benchmark's cores in turn, so that no more workers than cores can be faster. The workers share
the cache of compiled programs, and compilation is not among the times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cases import untrained
from common import AIRFOIL, Case, Record, console, read_options, record, report, take_turns
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.backend import Report as Progress
from semistan.infer.backends.dask import Dask, connected, packed
from semistan.infer.backends.local import LOCAL
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.infer.processors import usable_processors
from semistan.model.config import SampleConfig
from semistan.posterior.run import Run
from semistan.program.program import bundle_program
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import draw_missing, missing_tasks

WORKERS = (1, 2, 4)
CHAINS = 20
TASKS = 200  # that do nothing


@dataclass(frozen=True, slots=True)
class Nothing:
    """A task that does nothing, in the worker's process or in one of its own."""

    number: int
    in_thread: bool

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"task {self.number}"

    def run(self, _: Progress) -> int:
        """Do nothing."""
        return self.number


def main() -> None:
    """Measure and report."""
    options = read_options(__doc__ or "", repeats=3, cores=None)
    toolchain = find_toolchain()
    case = replace(AIRFOIL, name=f"{6 if options.quick else CHAINS} chains, {AIRFOIL.name}")
    chains = 6 if options.quick else CHAINS
    workers = [n for n in WORKERS if n <= 2 or not options.quick]
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), workers) as backends:
        run = Chains(case, chains, toolchain, Path(folder))
        records = [*run.sizes(), *overheads(case, backends[1], options.repeats)]
        contenders = {f"{n} worker{'s' * (n > 1)}": to for n, to in backends.items()}
        contenders["this machine, no cluster"] = LOCAL
        samples = take_turns(
            {name: run.timed(to) for name, to in contenders.items()}, options.repeats
        )
        records += [
            record(case, name, f"seconds for {chains} chains", values, d=run.d,
                   reference=samples["1 worker"])
            for name, values in samples.items()
        ]  # fmt: skip
    report("cluster", options, records, toolchain)


class Chains:
    """A run of some chains, drawn as often as is asked for."""

    def __init__(self, case: Case, chains: int, toolchain: Toolchain, folder: Path) -> None:
        self.case, self.toolchain, self.folder, self.count = case, toolchain, folder, 0
        self.bundle, self.rows = untrained(case)
        self.options = SampleConfig(chains=chains, warmup=500, draws=1000, threads=1, seed=1)
        self.d = self.bundle.subspace.d
        compile_program(bundle_program(self.bundle, "cpp"), toolchain, "cpp")

    def new(self) -> Run:
        """Make the run's folder, without chains."""
        self.count += 1
        out = self.folder / f"run-{self.count}"
        return new_run(
            self.bundle, self.rows, out, self.options, self.toolchain, kernel="cpp"
        )  # fmt: skip

    def timed(self, backend: Backend) -> Callable[[], float]:
        """Return what draws all chains and returns the seconds that this takes."""

        def seconds() -> float:
            run, started = self.new(), time.perf_counter()
            draw_missing(run, self.toolchain, backend=backend)
            return time.perf_counter() - started

        return seconds

    def sizes(self) -> Iterator[Record]:
        """Yield what a chain moves: itself, what all chains share, and its draws."""
        run = self.new()
        work, shared = packed(missing_tasks(run)[0].task)
        draw_missing(run, self.toolchain)
        draws = (run.path / "chains" / "chain-1.csv").stat().st_size
        of_chain = {
            "each chain's task": len(work),
            "once to each worker": sum(map(len, shared.values())),
            "each chain's draws back": draws,
        }
        for name, size in of_chain.items():
            yield record(self.case, name, "KiB moved", [size / 1024], d=self.d)


def overheads(case: Case, backend: Backend, repeats: int) -> Iterator[Record]:
    """Yield the milliseconds per task that does nothing, over one worker."""

    def timed(count: int, in_thread: bool) -> Callable[[], float]:
        def milliseconds() -> float:
            started = time.perf_counter()
            done = sum(1 for _ in backend.map([Nothing(i, in_thread) for i in range(count)]))
            return 1e3 * (time.perf_counter() - started) / done

        return milliseconds

    kinds = {"in the worker's process": timed(TASKS, True), "in one of its own": timed(5, False)}
    for name, values in take_turns(kinds, repeats).items():
        yield record(case, name, "ms per task that does nothing", values, d=0)


@contextmanager
def cluster(folder: Path, sizes: list[int]) -> Iterator[dict[int, Dask]]:
    """Begin a scheduler with workers for each size, and yield the backends by their sizes."""
    processes: list[subprocess.Popen[bytes]] = []
    connections, found = [], {}
    try:
        for size in sizes:
            file = folder / f"scheduler-{size}.json"
            processes.append(_begin("scheduler", file, "--port", "0", "--dashboard-address", ":0"))
            for number in range(size):
                worker = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory")
                processes.append(_begin("worker", file, *worker, f"{folder}/{size}-{number}"))
                cores = usable_processors()
                os.sched_setaffinity(processes[-1].pid, {cores[number % len(cores)]})
            while not (file.is_file() and file.stat().st_size):
                time.sleep(0.1)
            connections.append(connected(str(file)))
            found[size] = connections[-1].__enter__()
            found[size].client.wait_for_workers(size, timeout=300)
        console.print(f"workers: {', '.join(map(str, sizes))}")
        yield found
    finally:
        for connection in connections:
            connection.__exit__(None, None, None)
        for process in processes:
            process.kill()
            process.wait()


def _begin(kind: str, file: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(file)]
    paths = [str(Path(__file__).parent), *sys.path]
    return subprocess.Popen(
        [*command, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


if __name__ == "__main__":
    import cluster as importable  # workers could not import the tasks of a script

    importable.main()
