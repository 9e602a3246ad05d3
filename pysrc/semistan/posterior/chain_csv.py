"""One chain's CSV file: its columns, or what is wrong with it and what to do."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array

Chain = dict[str, Array]
NUMBER = re.compile(r"chain-(\d+)\.csv")
IDENTITY = re.compile(r"# *id = ([1-9]\d*)\b")


@dataclass(frozen=True, slots=True)
class ChainForm:
    """What a chain's file must have.

    Attributes
    ----------
    lines : int
        Lines of numbers.
    take : callable
        Takes the columns that are needed; raises a ``KeyError`` with the name of one that is not
        there.
    """

    lines: int
    take: Callable[[Mapping[str, Array]], object]


def read_chain(path: Path, form: ChainForm, *, known: bool, remedy: str) -> Chain:
    """Read the columns of one CSV file.

    Parameters
    ----------
    path : Path
        ``chain-<c>.csv``.
    form : ChainForm
        What it must have.
    known : bool
        Whether it is, by its hash, as the sampler wrote it. If not, it must be of this chain, end
        with a whole line, and have a finite number in every cell.
    remedy : str
        What to do with one that is not so.

    Raises
    ------
    InputError
        Naming the file, what is wrong, and what to do.
    """
    columns = _columns(path, remedy)
    problem = _misfit(columns, form)
    if not known:
        problem = _cut_off(path) or _of_another(path) or problem or _bad_cell(columns)
    if problem:
        raise InputError(f"'{path}' is no whole chain: {problem}; {remedy}")
    # A sampler may have no number for what it says of itself.
    of_model = {name: column for name, column in columns.items() if not name.endswith("__")}
    if problem := _bad_cell(of_model):
        raise InputError(
            f"'{path}' is as the sampler wrote it, but {problem}: the program failed there; sample "
            "anew with --integrate none, and if that helps, please report it"
        )
    return columns


def copied(chains: Sequence[Chain]) -> tuple[int, int] | None:
    """Return the positions of two chains with the same numbers, if there are such."""
    seen: dict[bytes, int] = {}
    for position, chain in enumerate(chains):
        key = b"".join(np.ascontiguousarray(column).tobytes() for column in chain.values())
        if key in seen:
            return seen[key], position
        seen[key] = position
    return None


def _columns(path: Path, remedy: str) -> Chain:
    """Read numbers by column; what is no number is looked for only where reading fails."""
    import pandas as pd

    try:
        table = pd.read_csv(path, comment="#", dtype=float, index_col=False)
    except (ValueError, OSError) as error:
        found = _text_cell(path) or str(error)
        raise InputError(f"'{path}' is no whole chain: {found}; {remedy}") from None
    return {str(name): table[name].to_numpy() for name in table.columns}


def _misfit(columns: Chain, form: ChainForm) -> str:
    """Say which columns or lines are missing."""
    lines = len(next(iter(columns.values()), ()))
    if lines != form.lines:
        return f"it has {lines} draws, expected {form.lines}"
    try:
        form.take(columns)
    except KeyError as error:
        return f"it has no column {error}"
    return ""


def _bad_cell(columns: Chain) -> str:
    """Say where the first cell is that has no finite number."""
    for name, column in columns.items():
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            return f"column '{name}' has {column[bad[0]]} in draw {bad[0] + 1}, expected a number"
    return ""


def _text_cell(path: Path) -> str:
    """Say where the first cell is that has text, in a file that could not be read as numbers."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        table = csv.reader(line for line in file if not line.startswith("#"))
        names = next(table, None)
        if names is None:
            return "it is empty"
        for draw, cells in enumerate(table, start=1):
            if len(cells) != len(names):
                return f"draw {draw} has {len(cells)} numbers, expected {len(names)}"
            for name, cell in zip(names, cells, strict=True):
                if not _is_number(cell):
                    return f"column '{name}' has '{cell[:20]}' in draw {draw}, expected a number"
    return ""


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _cut_off(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return "" if file.read() == b"\n" else "it is cut off in its last line"


def _of_another(path: Path) -> str:
    """Say which chain it is by its own words, if that is another one than its name says."""
    named = NUMBER.fullmatch(path.name)
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.startswith("#"):
                break
            if (own := IDENTITY.match(line)) and named and int(own[1]) != int(named[1]):
                return f"it says that it is chain {int(own[1])}"
    return ""
