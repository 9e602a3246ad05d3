"""What every benchmark shares: the command line, interleaved timing, records and the table."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.processors import usable_processors

RESULTS = Path(__file__).with_name("results")
SECONDS = 0.25  # that one repeat should take
LIBRARIES = (
    "semistan", "numpy", "torch", "cmdstanpy", "arviz", "jax", "jaxlib", "numpyro", "nutpie",
    "statsmodels", "laplace-torch", "sklearn-contrib-bde",
)  # fmt: skip

Run = Callable[[int], float]  # evaluate so many times and return the seconds taken

console = Console(width=132)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line.

    Attributes
    ----------
    quick : bool
        Whether to run a few small cases only.
    repeats : int
        Rounds in which the contenders take turns.
    cores : int
        Cores to which the benchmark and all its contenders are pinned.
    """

    quick: bool
    repeats: int
    cores: int


@dataclass(frozen=True, slots=True)
class Case:
    """A problem's size: rows, network inputs, hidden layers, activation and subspace.

    ``k`` is None where all weights are sampled, each by itself.
    """

    name: str
    n: int
    hidden: tuple[int, ...] = (16, 16, 16)
    activation: str = "tanh"
    k: int | None = 5
    inputs: int = 5


AIRFOIL = Case("airfoil-size", 1202)  # rows, inputs and network of the paper's airfoil data


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the results; ``ratio`` is of the medians, contender over reference."""

    case: str
    contender: str
    n: int
    d: int
    k: int
    threads: int
    metric: str
    median: float
    min: float
    max: float
    ratio: float | None


def read_options(description: str, *, repeats: int, cores: int | None) -> Options:
    """Parse the command line and pin this process, hence all that it starts.

    Parameters
    ----------
    description : str
        What ``--help`` says.
    repeats : int
        Default number of rounds; three at the most with ``--quick``.
    cores : int, optional
        Default number of cores; all usable ones if None.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a few small cases only")
    parser.add_argument("--repeats", type=int, help="rounds in which the contenders take turns")
    parser.add_argument("--cores", type=int, help="cores to which everything is pinned")
    given = parser.parse_args()
    available = len(usable_processors())
    wanted = min(given.cores or cores or available, available)
    pin(range(wanted))
    default = min(repeats, 3) if given.quick else repeats
    return Options(given.quick, given.repeats or default, wanted)


def pin(places: Sequence[int]) -> None:
    """Restrict this process to some of its cores, by their place among them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {usable_processors()[place] for place in places})


def interleave(contenders: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    """Time contenders in turns, so that a slow spell of the machine meets all of them.

    Parameters
    ----------
    contenders : mapping
        Name to a function that evaluates so many times and returns the seconds taken.
    repeats : int
        Number of rounds.

    Returns
    -------
    dict
        Name to milliseconds per evaluation, one for each round.
    """
    evaluations = {name: _enough(run) for name, run in contenders.items()}

    def measure(name: str) -> float:
        return 1e3 * contenders[name](evaluations[name]) / evaluations[name]

    return take_turns({name: partial(measure, name) for name in contenders}, repeats)


def take_turns(
    contenders: Mapping[str, Callable[[], float]], repeats: int
) -> dict[str, list[float]]:
    """Measure every contender once in each round, and return the figures by name."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            samples[name].append(measure())
    return samples


def _enough(run: Run) -> int:
    """Return the number of evaluations that take about ``SECONDS``."""
    run(1)  # JAX compiles in the first call
    count, seconds = 1, run(1)
    while seconds < SECONDS / 10:
        count *= 4
        seconds = run(count)
    return ceil(count * SECONDS / seconds)


def record(
    case: Case,
    contender: str,
    metric: str,
    values: Sequence[float],
    *,
    d: int,
    threads: int = 1,
    reference: Sequence[float] | None = None,
) -> Record:
    """Summarise one contender's repeats, next to those of the reference."""
    ratio = median(values) / median(reference) if reference and median(reference) else None
    return Record(
        case.name, contender, case.n, d, d if case.k is None else case.k, threads, metric,
        median(values), min(values), max(values), ratio,
    )  # fmt: skip


def records_of(
    case: Case,
    metric: str,
    samples: Mapping[str, Sequence[float]],
    *,
    d: int,
    reference: str,
    threads: int = 1,
) -> list[Record]:
    """Summarise all contenders of a case next to the one named as reference."""
    return [
        record(case, name, metric, values, d=d, threads=threads, reference=samples[reference])
        for name, values in samples.items()
    ]


def report(
    name: str, options: Options, records: Sequence[Record], toolchain: Toolchain | None = None
) -> None:
    """Print the table and write ``results/<name>.json``, ``<name>-quick.json`` if quick."""
    console.print(_table(name, records))
    path = write_results(
        name, options.quick, options.cores, [asdict(item) for item in records], toolchain
    )
    console.print(f"written to {path.relative_to(RESULTS.parents[1])}")


def write_results(
    name: str,
    quick: bool,
    cores: int,
    records: Sequence[Mapping[str, Any]],
    toolchain: Toolchain | None = None,
) -> Path:
    """Write ``results/<name>.json``, ``<name>-quick.json`` if quick, and return its path."""
    content = {
        "machine": machine(cores),
        "versions": versions(toolchain),
        "records": list(records),
    }
    path = RESULTS / f"{name}{'-quick' * quick}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return path


def machine(cores: int) -> dict[str, Any]:
    """Describe the machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_used": cores,
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{_system()} ({platform.machine()})",
    }


def versions(toolchain: Toolchain | None) -> dict[str, str]:
    """Return the versions of Python, the libraries that are installed, and the compiler."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if toolchain is not None:
        found |= {"cmdstan": toolchain.version_text, "compiler": toolchain.compiler}
    return found


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return f"{platform.system()} {platform.release()}"


def _table(name: str, records: Sequence[Record]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("case")
    table.add_column("contender")
    for column in ("d", "k", "threads"):
        table.add_column(column, justify="right")
    table.add_column("metric")
    for column in ("median", "min", "max", "ratio"):
        table.add_column(column, justify="right")
    case = None
    for item in records:
        if case not in (None, item.case):
            table.add_section()
        case = item.case
        table.add_row(*_cells(item))
    return table


def _cells(item: Record) -> list[str]:
    figures = [f"{value:.4g}" for value in (item.median, item.min, item.max)]
    ratio = "" if item.ratio is None else f"{item.ratio:.2f}"
    sizes = (item.d, item.k, item.threads)
    return [item.case, item.contender, *map(str, sizes), item.metric, *figures, ratio]
