"""A table some rows at a time, so that one of any length can be predicted in bounded memory.

Long text files are read twice: the first time to find what pandas takes each column for in all of
them, since a piece may have whole numbers, or numbers, where the whole table has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.bundle.foreign import OPENERS, check_plain
from semistan.data.dialect import SAMPLE, Dialect, guessed
from semistan.data.frames import Table, as_frame, whole_types
from semistan.data.images import FOLDER
from semistan.data.tables import (
    BINARY,
    GUESSED,
    STDIN,
    as_guessed,
    check_names,
    pandas_options,
    read_table,
    say_unusual,
    strictly,
    stripped,
)
from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

PIECE = 50_000  # rows
LONG = 1 << 25  # bytes from which a text file is read in pieces
BUFFER = 1 << 20  # bytes of a Parquet file that are read at a time

Frames = Callable[[], Iterator["pd.DataFrame"]]


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A table in pieces, which can be read more than once.

    Attributes
    ----------
    frames : callable
        Returns an iterator over the pieces, in order.
    """

    frames: Frames

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Iterate over the pieces, whose indices count the rows of the table."""
        start = 0
        for frame in self.frames():
            frame.index = range(start, start + len(frame))
            start += len(frame)
            yield frame

    def whole(self) -> pd.DataFrame:
        """Return the table."""
        import pandas as pd

        first, *others = self
        table = pd.concat([first, *others]) if others else first
        table.attrs = first.attrs
        return table


def pieces_of_frame(table: Table) -> Pieces:
    """Cut a table that is in memory."""
    frame = as_frame(table)

    def cut() -> Iterator[pd.DataFrame]:
        for start in range(0, max(1, len(frame)), PIECE):
            yield frame.iloc[start : start + PIECE].copy(deep=False)

    return Pieces(cut)


def in_one(pieces: Pieces) -> Pieces:
    """Return the table in a single piece."""
    whole = pieces.whole()
    return Pieces(lambda: iter([whole]))


def read_pieces(
    path: Path | str, dialect: Dialect = GUESSED, say: Callable[[str], None] | None = None
) -> Pieces:
    """Read a table as ``read_table`` does, long text files and Parquet some rows at a time.

    Raises
    ------
    InputError
        As ``read_table``.
    """
    if str(path) != STDIN and Path(path).is_file():
        check_plain(path)
        suffix = Path(path).suffix.lower()
        if suffix == ".parquet":
            return _of_parquet(path)
        text = suffix not in BINARY and suffix not in OPENERS
        if text and Path(path).stat().st_size >= LONG:
            return _of_text(path, dialect, say)
    return pieces_of_frame(read_table(path, dialect, say))


def _of_parquet(path: Path | str) -> Pieces:
    import pyarrow.parquet as pq

    try:
        rows = pq.read_metadata(path).num_rows
    except Exception:  # read_table says what is wrong
        rows = 0
    return Pieces(partial(_batches, path)) if rows > PIECE else pieces_of_frame(read_table(path))


def _batches(path: Path | str) -> Iterator[pd.DataFrame]:
    """Yield the rows of a Parquet file as they are decoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # With what it calls a pre-buffer, pyarrow keeps all that it has read.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as file:
            for batch in file.iter_batches(batch_size=PIECE, use_threads=False):
                frame = pa.Table.from_batches([batch]).to_pandas(types_mapper=whole_types().get)
                yield _with_folder(frame.reset_index(drop=True), path)
    except (OSError, ValueError) as error:
        raise InputError(f"data file '{path}' is no readable Parquet file: {error}") from None


def _of_text(path: Path | str, dialect: Dialect, say: Callable[[str], None] | None) -> Pieces:
    with Path(path).open("rb") as stream:
        guess = guessed(dialect, stream.read(SAMPLE))
    types, found = as_guessed(path, dialect, guess, partial(_types, path))
    say_unusual(path, dialect, found, say)
    return Pieces(partial(_chunks, path, found, types))


def _types(path: Path | str, dialect: Dialect) -> dict[str, Any]:
    """Return the type of each column of which pieces have different ones."""
    seen: dict[str, set[str]] = {}
    for number, frame in enumerate(_chunks(path, dialect, {})):
        if number == 0:
            check_names(path, None, list(frame.columns), dialect)
        for name, column in frame.items():
            if column.notna().any():  # one that lacks them all says nothing
                seen.setdefault(str(name), set()).add(column.dtype.kind)
    several = {name: kinds for name, kinds in seen.items() if not kinds <= {"i", "u"}}
    return {  # numbers, or text as it is
        name: "Float64" if kinds <= {"i", "u", "f"} else str
        for name, kinds in several.items()
        if len(kinds) > 1
    }


def _chunks(path: Path | str, dialect: Dialect, types: dict[str, Any]) -> Iterator[pd.DataFrame]:
    import pandas as pd

    index = 0 if dialect.row_names else False
    with (
        strictly(),
        pd.read_csv(
            path, index_col=index, chunksize=PIECE, **pandas_options(dialect, types)
        ) as reader,
    ):
        for frame in reader:
            yield _with_folder(frame.reset_index(drop=True).rename(columns=stripped), path)


def _with_folder(frame: pd.DataFrame, path: Path | str) -> pd.DataFrame:
    frame.attrs = {FOLDER: str(Path(path).parent)}
    return frame
