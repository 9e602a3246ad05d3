"""CmdStan's JSON, written and read some rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.table.rows import Block, Rows
from semistan.program.penalised import penalised_names

ROWS_AT_A_TIME = 10_000


def write_stan_json(path: Path, content: dict[str, Any]) -> None:
    """Write CmdStan's JSON atomically, without rounding, a line for each name.

    Rows are written some at a time: text of gigabytes is never held in memory.
    """
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        separator = "{\n"
        for name, value in content.items():
            file.write(f'{separator}"{name}": ')
            for piece in _pieces(value):
                file.write(piece)
            separator = ",\n"
        file.write("\n}\n")


def _pieces(value: Any) -> Iterator[str]:
    array = np.asarray(value)
    if array.ndim == 0 or array.size == 0:
        yield json.dumps(array.tolist())
        return
    for start in range(0, len(array), ROWS_AT_A_TIME):
        text = json.dumps(array[start : start + ROWS_AT_A_TIME].tolist())
        yield ("," if start else "[") + text[1:-1]
    yield "]"


def read_stan_rows(path: Path, design: Design) -> Rows:
    """Read the rows back, one line of ``write_stan_json`` at a time.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    further = penalised_names(design)
    blocks = [name for pair in further for name in pair if name]
    own = {item.name: f"X_{item.name}" for item in design.parameters if item.coefficients}
    wanted = ("N", "P", "Q", "y", "X", "U", *design.given, *blocks, *own.values())
    found: dict[str, Array] = {}
    with path.open("rb") as file:
        for line in file:
            name = line.partition(b":")[0].strip().strip(b'"').decode()
            if name in wanted:
                found[name] = _numbers(line.partition(b":")[2])
    if set(found) != set(wanted):
        raise InputError(f"'{path}' is damaged: it lacks some of {', '.join(wanted)}")
    N, P, Q = (int(found[name][0]) for name in ("N", "P", "Q"))
    return Rows(
        found["y"], found["X"].reshape(N, P), found["U"].reshape(N, Q), tuple(range(N)),
        given={name: found[name] for name in design.given},
        blocks=tuple(
            Block(
                found[Z].reshape(N, -1) if Z else np.ones((N, 1)),
                found[J].astype(int) - 1 if J else np.zeros(N, dtype=int),
            )
            for Z, J in further
        ),
        further={
            item.name: found[own[item.name]].reshape(N, -1) if item.coefficients
            else np.zeros((N, 0))
            for item in design.parameters
        },
    )  # fmt: skip


def _numbers(text: bytes) -> Array:
    plain = text.translate(None, b"[] \r\n").strip(b",")
    return np.fromstring(plain.decode("ascii"), sep=",") if plain else np.zeros(0)
