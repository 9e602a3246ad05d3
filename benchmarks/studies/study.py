"""What every study shares: the command line, cells that resume, the record and the results page.

A study is a list of cells. A cell is one contender on one data set: a key that names it and a
function that measures it. What was measured is written after every cell, so that a study that was
stopped goes on where it was; `--quick` and `--full` have a record each. With `--full` the study's
page docs/study-NAME.md and its picture are drawn anew from the record: what was not run is not in
them. With `--cluster` the workers of a Dask cluster measure the cells, each one its own; they
import this folder too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from common import RESULTS, console, machine, pin, versions
from semistan.infer.backends.backend import Report
from semistan.infer.backends.dask import connected
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.infer.processors import usable_processors

DOCS = RESULTS.parents[1] / "docs"

Key = Mapping[str, Any]  # what names a cell: JSON values
Record = dict[str, Any]  # a cell's key, its figures, and `seconds`; or `error` instead of figures


@dataclass(frozen=True, slots=True)
class Options:
    """The command line.

    Attributes
    ----------
    quick : bool
        Whether to run the few small cells that take minutes.
    data : Path, optional
        Folder of the tables, for the studies that read some.
    """

    quick: bool
    data: Path | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One contender on one data set.

    Attributes
    ----------
    key : mapping
        Names and JSON values that tell it from every other cell.
    measure : callable
        Returns its figures by name, JSON values.
    """

    key: Key
    measure: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Study:
    """What one study is.

    Attributes
    ----------
    name : str
        Of its files: ``results/study-NAME.json``, ``docs/study-NAME.md`` and its picture.
    title : str
        Heading of its page.
    cells : callable
        Options to the cells, in the order in which they are run.
    section : callable
        Records to the page's Markdown, without heading and picture.
    draw : callable
        Records and a path to the picture.
    """

    name: str
    title: str
    cells: Callable[[Options], Sequence[Cell]]
    section: Callable[[Sequence[Record]], str]
    draw: Callable[[Sequence[Record], Path], None]


@dataclass(frozen=True, slots=True)
class CellTask:
    """A cell for a worker, which finds it in the study by its key: functions do not travel.

    Attributes
    ----------
    study : str
        The study, which is the module of that name.
    options : Options
        The command line.
    cell : str
        The cell's key as text.
    """

    study: str
    options: Options
    cell: str

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"cell {self.cell}"

    @property
    def in_thread(self) -> bool:
        """Contenders compute in this process."""
        return False

    def run(self, _: Report) -> Record:
        """Measure the cell."""
        import torch

        torch.set_num_threads(1)
        cells = importlib.import_module(f"studies.{self.study}").STUDY.cells(self.options)
        (cell,) = (cell for cell in cells if _name(cell.key) == self.cell)
        return _measure(cell)


def main(study: Study, description: str) -> None:
    """Run a study from the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true", help="a few small cells, in minutes")
    size.add_argument("--full", action="store_true", help="all cells, written to docs/")
    size.add_argument("--show", action="store_true", help="run nothing: page and picture anew")
    parser.add_argument("--data", type=Path, help="folder of CSV tables, the response last")
    parser.add_argument("--cores", type=int, help="cores to which all is pinned (default: all)")
    parser.add_argument("--minutes", type=float, help="start no cell after so many minutes")
    parser.add_argument(
        "--cluster", help="a Dask cluster that runs the cells, as of semistan's commands"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="KEY=VALUE[,...]",
        help="the cells that have one of these values of every key",
    )
    parser.add_argument("--note", help="said below the results, as that other programs ran")
    parser.add_argument("--retry", action="store_true", help="run again the cells that failed")
    given = parser.parse_args()
    available = len(usable_processors())
    cores = min(given.cores or available, available)
    pin(range(cores))
    path = RESULTS / f"study-{study.name}{'-quick' * given.quick}.json"
    records = _read(path)
    if given.retry:
        records = [record for record in records if "error" not in record]
    if not given.show:
        wanted = [pair.split("=", 1) for pair in given.only]
        options = Options(given.quick, given.data)
        cells = [
            cell
            for cell in study.cells(options)
            if all(str(cell.key.get(name)) in value.split(",") for name, value in wanted)
        ]
        measured = partial(_measured, study.name, options, given.cluster, given.minutes)
        records = _run(study.name, cells, records, path, cores, measured)
    if given.note is not None:
        _note(path, given.note)
    section = study.section(records)
    console.print(section, markup=False)
    if given.quick:
        study.draw(records, path.with_suffix(".png"))
        return
    picture = DOCS / "images" / f"study-{study.name}.png"
    study.draw(records, picture)
    page = DOCS / f"study-{study.name}.md"
    page.write_text(_page(study, section, picture, path), "utf-8")
    console.print(f"written to {page}")


def _run(
    name: str,
    cells: Sequence[Cell],
    records: list[Record],
    path: Path,
    cores: int,
    measured: Callable[[Sequence[Cell]], Iterator[Record]],
) -> list[Record]:
    """Measure the cells that have no record yet, and write the record after each."""
    done = {_name(record["key"]) for record in records}
    missing = [cell for cell in cells if _name(cell.key) not in done]
    console.print(f"{name}: {len(cells)} cells, {len(missing)} to run")
    for record in measured(missing):
        records = [*records, record]
        _write(path, records, cores)
        console.print(f"    {_name(_figures(record))}", markup=False)
    return records


def _measured(
    study: str,
    options: Options,
    cluster: str | None,
    minutes: float | None,
    cells: Sequence[Cell],
) -> Iterator[Record]:
    """Yield the cells' records as they are measured, here one after the other or on a cluster."""
    started = time.monotonic()

    def over(left: int) -> bool:
        late = minutes is not None and time.monotonic() - started > 60 * minutes
        if late:
            console.print(f"{minutes:g} minutes are over: {left} cells left")
        return late

    if cluster is None:
        for number, cell in enumerate(cells):
            if over(len(cells) - number):
                return
            console.print(f"{number + 1} of {len(cells)}: {_name(cell.key)}", markup=False)
            yield _measure(cell)
        return
    tasks = [CellTask(study, options, _name(cell.key)) for cell in cells]
    with connected(cluster) as backend:
        for number, (index, record) in enumerate(backend.map(tasks), start=1):
            console.print(f"{number} of {len(tasks)}: {tasks[index].cell}", markup=False)
            yield record
            if number < len(tasks) and over(len(tasks) - number):
                return


def _figures(record: Record) -> Record:
    """Return what of a record fits on a line."""
    left_out = ("key", "traceback", "verdict")
    return {
        name: value
        for name, value in record.items()
        if name not in left_out and not isinstance(value, list | dict)
    }


def _measure(cell: Cell) -> Record:
    """Measure one cell; what went wrong is a record too."""
    started = time.monotonic()
    try:
        found: Mapping[str, Any] = cell.measure()
    except Exception as error:  # a contender's failure is a result, and must not stop a night
        console.print_exception()
        first = str(error).strip().splitlines()[:1]
        found = {
            "error": f"{type(error).__name__}: {''.join(first)}",
            "traceback": traceback.format_exc()[-2000:],
        }
    return {"key": dict(cell.key), "seconds": time.monotonic() - started, **found}


def _content(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {"records": [], "note": ""}


def _read(path: Path) -> list[Record]:
    return list(_content(path)["records"])


def _note(path: Path, text: str) -> None:
    """Keep what is to be said of a record."""
    _write_content(path, _content(path) | {"note": text})


def _write(path: Path, records: Sequence[Record], cores: int) -> None:
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(cores),
        "versions": versions(find_toolchain()),
        "note": _content(path).get("note", ""),
        "records": list(records),
    }
    _write_content(path, content)


def _write_content(path: Path, content: Mapping[str, Any]) -> None:
    """Write the record whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    temporary.replace(path)


def _page(study: Study, section: str, picture: Path, path: Path) -> str:
    """Return a page with its heading, what it was run on, and its picture."""
    content = json.loads(path.read_text("utf-8"))
    records = content["records"]
    failed = sum("error" in record for record in records)
    hours = sum(record["seconds"] for record in records) / 3600
    libraries = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    facts = (
        f"Run by `make study-{study.name}` with `--full`, {content['date']}: {len(records)} cells"
        f" in {hours:.1f} hours on {content['machine']['cores_used']} cores of"
        f" {content['machine']['processor']}; {failed} failed. Versions: {libraries}."
    )
    facts = " ".join(filter(None, [facts, content.get("note", "")]))
    shown = f"![{study.title}](images/{picture.name})"
    return f"# {study.title}\n\n{section.strip()}\n\n{shown}\n\n{facts}\n"


def _name(key: Mapping[str, Any]) -> str:
    """Return what tells a cell from every other, as text."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in key.items()
    )
