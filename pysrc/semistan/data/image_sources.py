"""Where a column's images are: files of their own, or the rows of one file.

Every file is looked at before any is decoded, so that what can be refused is refused before
memory is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from semistan.data.array_files import (
    CORRUPT,
    NpyRows,
    ParquetRows,
    Piece,
    Read,
    Stored,
    Task,
    in_pieces,
    mapped,
    oriented,
    readable,
)
from semistan.data.image import ImageFormat, Kind, kind_of
from semistan.data.image_errors import (
    MISSING,
    NO_PATH,
    NO_ROW,
    OTHER_FILE,
    TOO_LARGE,
    UNREADABLE,
    URL,
    Column,
    Fault,
    Pixels,
    check_each,
    refuse,
    shortened,
)
from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".npy")
FORMATS = ("PNG", "JPEG")
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "F")  # Pillow's names
WIDE_MODES = ("I", "I;16", "I;16B", "F")  # with more than 8 bits
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """The images that differ, not yet read.

    Attributes
    ----------
    column : Column
        Which row has which.
    kinds : dict
        What is known of them: of each file, or of the first readable row of an array.
    faults : dict
        Those that cannot be read.
    total : int
        How many can be tried.
    pieces : callable
        Yields them in lists of numbers and readers; a reader returns (C, H, W) of any type.
    """

    column: Column
    kinds: Mapping[int, Kind]
    faults: Mapping[int, Fault]
    total: int
    pieces: Callable[[], Iterable[Piece]]


def in_files(values: pd.Series, wanted: ImageFormat, folder: Path, pool: Executor) -> Source:
    """Look at all files of a column of paths; their pixels are read later.

    Raises
    ------
    InputError
        If some rows have no path of an image, or images have not the shape or type of one.
    """
    column, paths = _distinct(_column(values, wanted, folder), list(values))
    kinds: dict[int, Kind] = {}
    faults: dict[int, Fault] = {}
    for piece in in_pieces(range(len(paths))):
        looks = [partial(_look, paths[i], wanted) for i in piece]
        for i, found in zip(piece, pool.map(tried, looks), strict=True):
            if isinstance(found, Fault):
                faults[i] = found
            else:
                kinds[i] = found
    if others := {i: fault for i, fault in faults.items() if fault.complaint != UNREADABLE}:
        refuse(column, others)
    readers: list[Task] = [(i, partial(_read_file, paths[i], wanted)) for i in kinds]
    return Source(column, kinds, faults, len(kinds), partial(in_pieces, readers))


def in_array(values: pd.Series, wanted: ImageFormat, folder: Path) -> Source:
    """Find the rows of a file that has all images; their pixels are read later.

    Raises
    ------
    InputError
        If the file is missing or of another kind, or some rows have no number of a row in it.
    """
    column = _column(values, wanted, folder)
    stored = _open(folder / str(wanted.array), column, wanted)
    rows, which = np.unique(_row_numbers(values, column, len(stored)), return_inverse=True)
    column = column.with_images(list(map(str, rows)), which)
    pieces = partial(stored.pieces, rows)
    kinds, faults = _first_kind(pieces(), wanted)
    return Source(column, kinds, faults, len(rows), pieces)


def tried(task: Callable[[], T]) -> T | Fault:
    """Return a task's result, or what is wrong with its image."""
    from PIL import Image, UnidentifiedImageError

    try:
        return task()
    except Fault as fault:
        return fault
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return Fault(TOO_LARGE, str(error).partition(",")[0])
    except UnidentifiedImageError:
        return Fault(UNREADABLE, "its content is neither PNG nor JPEG")
    except CORRUPT as error:
        reason = error.strerror if isinstance(error, OSError) else None
        return Fault(UNREADABLE, shortened(reason or str(error) or type(error).__name__, 80))


def _column(values: pd.Series, wanted: ImageFormat, folder: Path) -> Column:
    """Return a column in which all images differ.

    Raises
    ------
    InputError
        If it has no rows.
    """
    if len(values) == 0:
        raise InputError(f"column '{values.name}' has no rows, so that it has no images")
    labels = [str(value) for value in values]
    rows = [int(position) + 1 for position in values.index]
    return Column(str(values.name), folder, wanted.array, labels, np.arange(len(values)), rows)


def _distinct(column: Column, values: list[object]) -> tuple[Column, list[Path]]:
    """Return the paths that differ, all of existing files, and the column of these."""
    pathless = [not isinstance(value, str | os.PathLike) or value == "" for value in values]
    check_each(column, NO_PATH, pathless)
    check_each(column, URL, [bool(re.match(r"[A-Za-z][\w+.-]+://", x)) for x in column.labels])
    paths = [column.folder / label for label in column.labels]
    labels = dict(zip(paths, column.labels, strict=True))
    numbers = {path: i for i, path in enumerate(labels)}
    which = np.array([numbers[path] for path in paths])
    column = column.with_images(list(labels.values()), which)
    check_each(column, OTHER_FILE, [path.suffix.lower() not in SUFFIXES for path in numbers])
    check_each(column, MISSING, [not _is_file(path) for path in numbers])
    return column, list(numbers)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long, or a folder must not be read
        return False


def _look(path: Path, wanted: ImageFormat) -> Kind:
    """Return the kind of an image by the beginning of its file."""
    from PIL import Image

    if path.suffix.lower() == ".npy":
        return kind_of(oriented(mapped(path), wanted.channels), wanted)
    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if wanted.size is None and width != height and _lies_on_its_side(image):
            width, height = height, width
        channels = 1 if image.mode in GREY_MODES else 3
        eight_bit = image.mode not in WIDE_MODES
        return Kind(channels, height, width, eight_bit, image.has_transparency_data)


def _lies_on_its_side(image: Image.Image) -> bool:
    """Say whether EXIF asks for a quarter turn; a PNG file may be decoded for the answer."""
    from PIL import ExifTags

    return image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)


def _read_file(path: Path, wanted: ImageFormat) -> Pixels:
    """Return a file's pixels (C, H, W); those of a PNG or JPEG file are without alpha."""
    from PIL import Image, ImageOps

    if path.suffix.lower() == ".npy":
        return oriented(mapped(path), wanted.channels)
    with Image.open(path, formats=FORMATS) as image:
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode in WIDE_MODES:
            return np.asarray(image)[None]
        image.info.pop("transparency", None)  # Pillow warns that it is lost
        if image.mode in GREY_MODES:
            return np.asarray(image.convert("L"))[None]
        return np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)


def _open(path: Path, column: Column, wanted: ImageFormat) -> Stored:
    kinds: dict[str, Callable[[Path, int | None], Stored]]
    kinds = {".npy": NpyRows, ".parquet": ParquetRows}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"a file of images must be a .npy or .parquet file, got '{path}'")
    if not _is_file(path):
        raise InputError(
            f"the images of column '{column.name}' should be in '{column.array}', which does not "
            f"exist or is no file; a relative path counts from '{column.folder}'"
        )
    with readable(path):
        return kind(path, wanted.channels)


def _row_numbers(values: pd.Series, column: Column, count: int) -> Pixels:
    """Return the column (N,) as numbers of rows.

    Raises
    ------
    InputError
        If some are none.
    """
    numbers = np.full(len(values), np.nan)
    if values.dtype.kind in "iuf":
        numbers = values.to_numpy(dtype=float, na_value=np.nan)
    inside = (numbers >= 0) & (numbers < count) & (numbers == np.floor(numbers))
    check_each(column, NO_ROW, ~inside, last=str(count - 1))
    return numbers.astype(np.int64)


def _first_kind(
    pieces: Iterable[Piece], wanted: ImageFormat
) -> tuple[dict[int, Kind], dict[int, Fault]]:
    """Return the first image's kind that has one; what is wrong with all if none has."""
    faults: dict[int, Fault] = {}
    for i, read in (item for piece in pieces for item in piece):
        found = tried(partial(_kind_read, read, wanted))
        if not isinstance(found, Fault):
            return {i: found}, {}
        faults[i] = found
    return {}, faults


def _kind_read(read: Read, wanted: ImageFormat) -> Kind:
    return kind_of(read(), wanted)
