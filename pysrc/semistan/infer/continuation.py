"""A chain of the compiled program that goes on: from its last draw, moving as it did.

The continuation is a chain without warm-up and with random numbers of its own. Its draws follow
those before in one file, so that all that reads chains reads both.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from semistan.errors import InputError
from semistan.infer.backends.backend import Report
from semistan.infer.content import Content
from semistan.infer.task import ChainTask
from semistan.model.layout import column_names

METRIC = re.compile(r"# (?:Diagonal elements|Elements) of inverse mass matrix:")
LENGTH = re.compile(r"# Length = ([\d.e+-]+)")
SECONDS = re.compile(r"([\d.e+-]+)( seconds \((?:Warm-up|Sampling|Total)\))")
DRAWS = re.compile(r"(num_samples = )\d+[^\n]*")


@dataclass(frozen=True, slots=True)
class ChainFile:
    """The text of a chain's file in its parts.

    Attributes
    ----------
    head : tuple of str
        Lines down to the header and what adaptation found.
    columns : tuple of str
        The header.
    rows : tuple of str
        The draws.
    tail : tuple of str
        Comments after the last draw.
    """

    head: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Motion:
    """How a chain moved at its end.

    Attributes
    ----------
    step : float
        Its step size.
    metric : list, optional
        Its inverse metric, of numbers or of rows; None for the unit matrix.
    length : float, optional
        Distance over which its velocity forgets its direction, if it has one.
    """

    step: float
    metric: list[Any] | None
    length: float | None


class Continued(Protocol):
    """Samples without warm-up, moving as a chain did, from the start of a task."""

    def __call__(self, task: ChainTask, report: Report, *, motion: Motion) -> bytes:
        """Return the text of the continuation's CSV file."""


def parsed(content: bytes) -> ChainFile:
    """Split a chain's file into its parts."""
    lines = content.decode("utf-8", "replace").splitlines()
    plain = [i for i, line in enumerate(lines) if line and not line.startswith("#")]
    header, first, last = plain[0], plain[1], plain[-1]
    rows = tuple(lines[i] for i in plain[1:])
    columns = tuple(lines[header].split(","))
    return ChainFile(tuple(lines[:first]), columns, rows, tuple(lines[last + 1 :]))


def continued_task(
    task: ChainTask, continued: Continued, before: bytes, draws: int, seed: int
) -> ChainTask:
    """Return the task of a chain's continuation.

    Parameters
    ----------
    task : ChainTask
        The task that the chain was drawn by.
    continued : callable
        What continues the chains of its method.
    before : bytes
        Its file.
    draws : int
        How many more.
    seed : int
        Seed of the continuation of all chains.

    Raises
    ------
    InputError
        If the file does not say where the chain was, or with which step size and metric.
    """
    file, shapes = parsed(before), json.loads(task.start.read())
    start = json.dumps(_last_values(file, shapes)).encode()
    motion = Motion(float(_last(file, "stepsize__")), _metric(file), _length(file))
    options = task.options.model_copy(update={"draws": draws, "warmup": 0, "seed": seed})
    return replace(
        task, draw=partial(continued, motion=motion), options=options,
        start=Content(f"last-{task.number}.json", None, start), mode=None, left=None,
    )  # fmt: skip


def joined(before: bytes, after: bytes) -> bytes:
    """Return one file with the draws of both; its times are the sums of both."""
    one, other = parsed(before), parsed(after)
    if one.columns != other.columns:
        raise InputError("the continuation of a chain has other columns than the chain")
    number = len(one.rows) + len(other.rows)
    head = [DRAWS.sub(rf"\g<1>{number}", line) for line in one.head]
    tail = [_summed(*lines) for lines in zip(one.tail, other.tail, strict=False)]
    lines = (*head, *one.rows, *other.rows, *tail)
    return ("\n".join(lines) + "\n").encode()


def rows_of(content: bytes) -> int:
    """Return the number of draws in a chain's file."""
    return len(parsed(content).rows)


def seconds_of(content: bytes) -> float:
    """Return the seconds that a chain took, as its file says."""
    found = [SECONDS.search(line) for line in parsed(content).tail]
    return sum(float(match[1]) for match in found if match and "Total" in match[2])


def _summed(line: str, other: str) -> str:
    found, more = SECONDS.search(line), SECONDS.search(other)
    if found is None or more is None:
        return line
    return SECONDS.sub(f"{float(found[1]) + float(more[1]):.6g}{found[2]}", line)


def _last(file: ChainFile, column: str) -> str:
    values = dict(zip(file.columns, file.rows[-1].split(","), strict=True))
    if column not in values:
        raise InputError(
            f"the chain's file has no column '{column}', without which it cannot be continued; "
            "sample the bundle into a new run with more --draws"
        )
    return values[column]


def _last_values(file: ChainFile, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return the last draw of every parameter, in the shapes of the initial values."""
    values = {}
    for name, start in shapes.items():
        array = np.zeros(np.shape(start))
        for column, position in column_names(name, array.shape).items():
            array[position] = float(_last(file, column))
        values[name] = array.tolist()
    return values


def _length(file: ChainFile) -> float | None:
    found = [match for line in file.head if (match := LENGTH.match(line))]
    return float(found[0][1]) if found else None


def _metric(file: ChainFile) -> list[Any] | None:
    """Return the inverse metric; None if it is the unit matrix."""
    for i, line in enumerate(file.head):
        if METRIC.match(line):
            rows = [[float(x) for x in row[1:].split(",")] for row in file.head[i + 1 :]]
            return rows[0] if "Diagonal" in line else rows
    return None
