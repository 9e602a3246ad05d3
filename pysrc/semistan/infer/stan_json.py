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
from semistan.model.predictor import Predictor
from semistan.model.table.rows import Columns, Rows
from semistan.program.predictors import offset_name

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
    of_predictors = (name for p in design.predictors for name in _names(p))
    wanted = dict.fromkeys(("N", "P", "Q", "y", "X", "U", *design.given, *of_predictors))
    found: dict[str, Array] = {}
    with path.open("rb") as file:
        for line in file:
            name = line.partition(b":")[0].strip().strip(b'"').decode()
            if name in wanted:
                found[name] = _numbers(line.partition(b":")[2])
    if found.keys() != wanted.keys():
        raise InputError(f"'{path}' is damaged: it lacks some of {', '.join(wanted)}")
    N, Q = (int(found[name][0]) for name in ("N", "Q"))
    return Rows(
        found["y"],
        {predictor.name: _columns(predictor, found, N) for predictor in design.predictors},
        found["U"].reshape(N, Q),
        tuple(range(N)),
        given={name: found[name] for name in design.given},
    )


def _names(predictor: Predictor) -> Iterator[str]:
    """Yield the names of a predictor's own columns in the data, and of what its terms need."""
    if predictor.coefficients:
        yield f"X{predictor.suffix}"
    if predictor.offsets:
        yield offset_name(predictor)
    for term in predictor.terms:
        yield from term.row_data


def _columns(predictor: Predictor, found: dict[str, Array], N: int) -> Columns:
    X = found[f"X{predictor.suffix}"] if predictor.coefficients else np.zeros(0)
    blocks = tuple(term.block_from_data(found, N) for term in predictor.terms)
    offset = found[offset_name(predictor)] if predictor.offsets else None
    return Columns(X.reshape(N, len(predictor.coefficients)), blocks, offset)


def _numbers(text: bytes) -> Array:
    plain = text.translate(None, b"[] \r\n").strip(b",")
    return np.fromstring(plain.decode("ascii"), sep=",") if plain else np.zeros(0)
