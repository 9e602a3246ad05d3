"""Files of many images, or of one: .npy and Parquet, of which rows are read as needed."""

from __future__ import annotations

import struct
import tokenize
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np

from semistan.data.axes import channels_first, square
from semistan.data.image_errors import (
    NO_LIST,
    NO_SHAPE,
    NO_SQUARE,
    SHOWN,
    Fault,
    Pixels,
    shortened,
)
from semistan.errors import InputError

ONE_AT_A_TIME = Lock()  # Python 3.11 fails at times if several threads parse headers
PIECE = 256  # images that are read together
CORRUPT = (  # what Pillow and NumPy raise where a file is not what it should be
    OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError,
    struct.error, tokenize.TokenError, zlib.error,
)  # fmt: skip


Read = Callable[[], Pixels]
Task = tuple[int, Read]  # the number of an image, and what reads it
Piece = Sequence[Task]
T = TypeVar("T")


def in_pieces(items: Sequence[T], most: int = PIECE) -> Iterator[Sequence[T]]:
    """Yield some at a time."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def mapped(path: Path) -> Pixels:
    """Map a .npy file to memory: only what is used is read, and nothing is unpickled."""
    with ONE_AT_A_TIME:
        return np.lib.format.open_memmap(path, mode="r")


def oriented(pixels: Pixels, channels: int | None) -> Pixels:
    """Return pixels as (C, H, W), without copying them."""
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise Fault(NO_SHAPE, str(pixels.shape))
    found = pixels[None] if pixels.ndim == 2 else channels_first(pixels, channels)
    if found is None:
        raise Fault(NO_SHAPE, str(pixels.shape))
    return found


class Stored(Protocol):
    """A file that has many images."""

    def __len__(self) -> int:
        """How many it has."""

    def pieces(self, rows: Pixels) -> Iterator[Piece]:
        """Yield some of its rows (n,), given in their order, by their positions 0 to n-1."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say that a file of images cannot be read, and why."""
    try:
        yield
    except InputError:
        raise
    except CORRUPT as error:
        raise InputError(f"file of images '{path}' cannot be read: {error}") from None


class NpyRows:
    """A .npy file (N, H, W), (N, H, W, C) or (N, C, H, W), of which rows are read as needed."""

    def __init__(self, path: Path, channels: int | None) -> None:
        self.array, self.channels = mapped(path), channels
        if self.array.ndim not in (3, 4):
            raise InputError(
                f"file of images '{path}' must have the axes (N, H, W), (N, H, W, C) or "
                f"(N, C, H, W), got {self.array.ndim} axes: {self.array.shape}"
            )

    def __len__(self) -> int:
        """Return how many images it has."""
        return len(self.array)

    def pieces(self, rows: Pixels) -> Iterator[Piece]:
        """Yield readers of some rows."""
        for piece in in_pieces(range(len(rows))):
            yield [(i, partial(self._read, int(rows[i]))) for i in piece]

    def _read(self, row: int) -> Pixels:
        return oriented(self.array[row], self.channels)


class ParquetRows:
    """A Parquet file with one column of lists, one for each image; read by groups of rows."""

    def __init__(self, path: Path, channels: int | None) -> None:
        import pyarrow.parquet as pq

        self.path, self.channels, self.file = path, channels, pq.ParquetFile(path)
        schema = self.file.schema_arrow
        names = [name for name in schema.names if not name.startswith("__index_level_")]
        if len(names) != 1 or _depth(schema.field(names[0]).type) not in (1, 2, 3):
            columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
            raise InputError(
                f"file of images '{path}' must have one column, of lists of numbers nested up to "
                f"three deep, got: {shortened(columns, 200)}"
            )
        self.column = names[0]

    def __len__(self) -> int:
        """Return how many images it has."""
        return int(self.file.metadata.num_rows)

    def pieces(self, rows: Pixels) -> Iterator[Piece]:
        """Yield readers of some rows."""
        with readable(self.path):
            for start, lists in self._batches(rows):
                within = range(*np.searchsorted(rows, [start, start + len(lists)]))
                if within:
                    yield [(i, partial(self._read, lists[int(rows[i]) - start])) for i in within]

    def _batches(self, rows: Pixels) -> Iterator[tuple[int, Any]]:
        """Yield the lists of those groups that have any of the rows, with the first one's row."""
        start = 0
        for group in range(self.file.num_row_groups):
            end = start + self.file.metadata.row_group(group).num_rows
            if len(range(*np.searchsorted(rows, [start, end]))):
                first = start
                for batch in self.file.iter_batches(PIECE, row_groups=[group]):
                    yield first, batch.column(self.column)
                    first += len(batch)
            start = end

    def _read(self, row: Any) -> Pixels:
        pixels = _dense(row.values)
        if pixels.ndim > 1:
            return oriented(pixels, self.channels)
        shape = square(pixels.size, (self.channels, 1, 3))
        if shape is None:
            raise Fault(NO_SQUARE, f"{pixels.size} numbers")
        return pixels.reshape(shape)


def _depth(kind: Any) -> int:
    """Return how deep Arrow's lists of numbers are nested; 0 if it is another type."""
    from pyarrow import types

    depth = 0
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return depth if numbers else 0


def _dense(values: Any) -> Pixels:
    """Return Arrow's nested lists as an array with an axis for each level.

    Raises
    ------
    Fault
        If there is none, or lists of one level differ in length.
    """
    if values is None:
        raise Fault(NO_LIST, "null")
    shape = [len(values)]
    while hasattr(values, "flatten") and _depth(values.type):
        lengths = set(values.value_lengths().to_pylist())
        if len(lengths) != 1 or None in lengths:
            shown = ", ".join(sorted(map(str, lengths))[:SHOWN])
            raise Fault(NO_LIST, f"the lists at depth {len(shape) + 1} have lengths {shown}")
        shape.append(lengths.pop())
        values = values.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
