"""CmdStan's JSON, written some rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.files import atomic_file

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
        file.write("\n}\n" if content else "{}\n")


def _pieces(value: Any) -> Iterator[str]:
    array = np.asarray(value)
    if array.ndim == 0 or array.size == 0:
        yield json.dumps(array.tolist())
        return
    for start in range(0, len(array), ROWS_AT_A_TIME):
        text = json.dumps(array[start : start + ROWS_AT_A_TIME].tolist())
        yield ("," if start else "[") + text[1:-1]
    yield "]"
