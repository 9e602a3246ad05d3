"""Write tables as CSV or Parquet, by the file's suffix, piece by piece and atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from semistan.bundle.files import atomic_file
from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Append = Callable[["pd.DataFrame"], None]

SUFFIXES = (".csv", ".parquet")
FILE_FORMAT = "%.10g"
SCREEN_FORMAT = "%.6g"


def check_table_path(path: Path) -> None:
    """Refuse a file whose suffix is neither ``.csv`` nor ``.parquet``.

    Raises
    ------
    InputError
        Naming the file.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"a table's file ends in {' or '.join(SUFFIXES)}, got '{path}'")


@contextmanager
def table_writer(target: Path | TextIO) -> Iterator[Append]:
    """Yield a function that appends rows; the file appears when the block succeeds.

    Raises
    ------
    InputError
        If the file's suffix is unknown.
    """
    if not isinstance(target, Path):
        yield _csv_appender(target, SCREEN_FORMAT)
        return
    check_table_path(target)
    with atomic_file(target) as temporary:
        if target.suffix == ".csv":
            with temporary.open("w", encoding="utf-8", newline="") as file:
                yield _csv_appender(file, FILE_FORMAT)
        else:
            with _parquet_appender(temporary) as append:
                yield append


def write_table(table: pd.DataFrame, target: Path | TextIO) -> None:
    """Write a whole table to a file or a stream."""
    with table_writer(target) as append:
        append(table)


def _csv_appender(stream: TextIO, float_format: str) -> Append:
    started = False

    def append(table: pd.DataFrame) -> None:
        nonlocal started
        table.to_csv(stream, index=False, header=not started, float_format=float_format)
        started = True

    return append


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
