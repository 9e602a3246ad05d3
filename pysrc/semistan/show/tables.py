"""Write tables as CSV, Parquet or JSON, by the file's suffix, piece by piece and atomically.

Numbers have all their digits. JSON is one object with the rows as a list of records, ``rows``; a
number that does not exist or is infinite is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from semistan.bundle.files import atomic_file
from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Append = Callable[["pd.DataFrame"], None]

SUFFIXES = (".csv", ".parquet", ".json")
SCREEN_FORMAT = "%.6g"


@dataclass(frozen=True, slots=True)
class Json:
    """A stream that receives rows as JSON, and facts about them."""

    stream: TextIO
    facts: Mapping[str, Any] = field(default_factory=dict)


Target = Path | TextIO | Json


def check_table_path(path: Path) -> None:
    """Refuse a file that ends in none of ``SUFFIXES``.

    Raises
    ------
    InputError
        Naming the file.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"a table's file ends in .csv, .parquet or .json, got '{path}'")


@contextmanager
def table_writer(target: Target, facts: Mapping[str, Any] | None = None) -> Iterator[Append]:
    """Yield a function that appends rows; the file appears when the block succeeds.

    Parameters
    ----------
    target : Path, text stream or Json
        A file, or a stream that receives CSV (with fewer digits) or JSON.
    facts : dict, optional
        What a JSON file has beside ``rows``.

    Raises
    ------
    InputError
        If the file's suffix is unknown.
    """
    if isinstance(target, Json):
        with _json_appender(target) as append:
            yield append
        return
    if not isinstance(target, Path):
        yield _csv_appender(target, SCREEN_FORMAT)
        return
    check_table_path(target)
    with atomic_file(target) as temporary:
        if target.suffix == ".parquet":
            with _parquet_appender(temporary) as append:
                yield append
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            if target.suffix == ".csv":
                yield _csv_appender(file, None)
                return
            with _json_appender(Json(file, facts or {})) as append:
                yield append


def write_table(table: pd.DataFrame, target: Target) -> None:
    """Write a whole table to a file or a stream."""
    with table_writer(target) as append:
        append(table)


def _csv_appender(stream: TextIO, float_format: str | None) -> Append:
    started = False

    def append(table: pd.DataFrame) -> None:
        nonlocal started
        table.to_csv(stream, index=False, header=not started, float_format=float_format)
        started = True

    return append


@contextmanager
def _json_appender(to: Json) -> Iterator[Append]:
    to.stream.write("{")
    for name, value in to.facts.items():
        to.stream.write(f"\n  {json.dumps(name)}: {_json(value)},")
    to.stream.write('\n  "rows": [')
    between = "\n    "

    def append(table: pd.DataFrame) -> None:
        nonlocal between
        for record in table.astype(object).where(table.notna(), None).to_dict("records"):
            to.stream.write(between + _json({str(name): x for name, x in record.items()}))
            between = ",\n    "

    yield append
    to.stream.write("\n  ]\n}\n")


def _json(value: Any) -> str:
    return json.dumps(_existing(value), default=str, allow_nan=False)


def _existing(value: Any) -> Any:
    """Put None in the place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _existing(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_existing(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _parquet_appender(path: Path) -> Iterator[Append]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None

    def append(table: pd.DataFrame) -> None:
        nonlocal writer
        piece = pa.Table.from_pandas(table, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, piece.schema)
        writer.write_table(piece)

    try:
        yield append
    finally:
        if writer is not None:
            writer.close()
