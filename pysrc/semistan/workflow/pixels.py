"""The user's images: a column of paths, or of row numbers in a file, becomes one array.

Every file is looked at before any is decoded, so that what can be refused is refused before
memory is taken. Then they are read in pieces, each image once, however many rows have it.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.workflow.array_files import (
    CORRUPT,
    PIECE,
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
from semistan.workflow.complaints import (
    MISSING,
    NO_CHANNELS,
    NO_EMBEDDING,
    NO_NUMBERS,
    NO_PATH,
    NO_ROW,
    NOT_FINITE,
    NOT_IN_UNITS,
    OTHER_CHANNELS,
    OTHER_FILE,
    OTHER_SIZE,
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

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

PIECE_BYTES = 2**26  # of images that are read, and reported, together
WORKERS = 4
MOST_BYTES = 4 * 2**30  # of the images of a column
MOST_ELEMENTS = 2**28  # of one image; Pillow refuses more than about as many in three channels

SUFFIXES = (".png", ".jpg", ".jpeg", ".npy")
FORMATS = ("PNG", "JPEG")
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "F")  # Pillow's names
WIDE_MODES = ("I", "I;16", "I;16B", "F")  # with more than 8 bits
Reading = Callable[[int, int], None]
Take = Callable[[list[int], Pixels], None]  # gets numbers of images, and the images (n, C, H, W)
Normal = tuple[tuple[float, ...], tuple[float, ...]]  # a mean and standard deviation of a channel
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture:
    """What an image must be.

    Attributes
    ----------
    size : tuple of int, optional
        Height and width in pixels, to which images are resized; None takes them as they are.
    channels : int, optional
        1 is grey, 3 is colour; an array may have any other number. None takes what the first
        image has.
    array : str, optional
        A .npy or .parquet file that has all images: the column has row numbers in it, from 0.
    normal : pair of tuples of float, optional
        Means and standard deviations of the channels, or one of all, of pixels from 0 to 1, by
        which images are standardised: those of 8 bits are divided by 255, and others must be from
        0 to 1. No value is rescaled without.
    """

    size: tuple[int, int] | None
    channels: int | None
    array: str | None = None
    normal: Normal | None = None


def _unheard(_line: str) -> None:
    """Say nothing."""


def _unseen(_done: int, _total: int) -> None:
    """Show no progress."""


def read_pictures(
    values: pd.Series,
    wanted: Picture,
    folder: Path,
    *,
    say: Callable[[str], None] = _unheard,
    progress: Reading | None = None,
) -> Pixels:
    """Read a column of images.

    Parameters
    ----------
    values : pandas.Series
        Paths of PNG, JPEG or .npy files; or with ``wanted.array`` whole numbers, rows of that
        file from 0. The index has the rows' positions in the user's table, which count from 0.
    wanted : Picture
        What the images must be.
    folder : Path
        Where relative paths count from.
    say : callable, optional
        Gets what the user should know, a line at a time: that an alpha channel is left out, or
        that some images have 8 bits and others do not.
    progress : callable, optional
        Called after each piece of at most 256 images with how many of those that differ have
        been read, and how many there are.

    Returns
    -------
    numpy.ndarray
        The images (N, C, H, W), uint8 if each of them has 8 bits, else float32. No value is
        rescaled: a PNG file of 16-bit greys gives 0 to 65535.

    Raises
    ------
    InputError
        If an image is missing, unreadable, too large, or not as wanted, or if all together are
        larger than 4 GiB. It names the rows, counted from 1.

    Notes
    -----
    An array, from a .npy file or a row of ``wanted.array``, is (H, W), (H, W, C) or (C, H, W).
    If ``wanted.channels`` is given and just one of the first and the last axis has this length,
    that axis is the channels; else it is the one of both that has 1, 3 or 4. If both or none do,
    the array is refused. A row of a Parquet file is a list of lists of that shape, or a flat list
    of a square image: n * n numbers, or 3 * n * n with the channels first.

    Grey and colour become each other where ``wanted.channels`` asks for it; a palette becomes
    colour; a fourth channel is alpha and left out, unless four are asked for. EXIF orientation is
    applied. Channels come before size, which is Pillow's bilinear filter with antialiasing.
    Pillow reads PNG files of 16-bit colour as ones of 8 bits.
    """
    with _planned(values, wanted, folder, say) as (source, plan, pool):
        _check_memory(source.column, plan)
        pictures = np.empty((len(values), *plan.shape), plan.dtype)

        def take(numbers: list[int], images: Pixels) -> None:
            pictures[[source.column.first[i] for i in numbers]] = images

        _read_all(source, plan, pool, take, progress or _unseen)
    _repeat(pictures, source.column)
    return pictures


def embed_pictures(
    values: pd.Series,
    wanted: Picture,
    folder: Path,
    embed: Callable[[Pixels], Array],
    *,
    say: Callable[[str], None] = _unheard,
    progress: Reading | None = None,
) -> Array:
    """Read a column of images piece by piece, and keep an embedding of each image alone.

    Parameters
    ----------
    values, wanted, folder, say, progress
        As of ``read_pictures``.
    embed : callable
        Makes embeddings (n, m) of images (n, C, H, W).

    Returns
    -------
    numpy.ndarray
        The embeddings (N, m) of all rows; an image that several rows have is embedded once.

    Raises
    ------
    InputError
        As ``read_pictures``, but for images that are large together; or if an embedding is not
        finite.
    """
    with _planned(values, wanted, folder, say) as (source, plan, pool):
        found: list[Array] = []

        def take(_: list[int], images: Pixels) -> None:
            found.append(embed(images))

        _read_all(source, plan, pool, take, progress or _unseen)
    embeddings = np.concatenate(found)  # pieces come in the images' order
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1)).tolist()
    if bad:
        refuse(source.column, {i: Fault(NO_EMBEDDING) for i in bad}, plan.facts)
    return np.asarray(embeddings[source.column.which])


@contextmanager
def _planned(
    values: pd.Series, wanted: Picture, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[Source, Plan, Executor]]:
    """Find a column's images, say what all become, and yield both with what reads them."""
    with _bombs_are_errors(), ThreadPoolExecutor(WORKERS) as pool:
        if wanted.array is None:
            source = _in_files(values, wanted, folder, pool)
        else:
            source = _in_array(values, wanted, folder)
        plan = _plan(source, wanted)
        for line in _notes(source):
            say(line)
        yield source, plan, pool


@contextmanager
def _bombs_are_errors() -> Iterator[None]:
    """Make an error of Pillow's warning that a file decompresses to very many pixels."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _column(values: pd.Series, wanted: Picture, folder: Path) -> Column:
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


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of an image before its pixels are read; ``channels`` are without alpha."""

    channels: int
    height: int
    width: int
    eight_bit: bool
    alpha: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What all images become; ``row`` has the one that says what is not given."""

    wanted: Picture
    shape: tuple[int, int, int]
    eight_bit: bool
    row: int

    @property
    def dtype(self) -> npt.DTypeLike:
        """The type of the numbers."""
        return np.uint8 if self.eight_bit and self.wanted.normal is None else np.float32

    @property
    def bytes(self) -> int:
        """Those of one image."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def facts(self) -> dict[str, str]:
        """What the texts of complaints have places for."""
        number, height, width = self.shape
        channels = f"{number} channel{'s' * (number > 1)}"
        return {"size": f"{height} x {width}", "channels": channels, "row": str(self.row)}


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


def _plan(source: Source, wanted: Picture) -> Plan:
    """Say what all images become.

    Raises
    ------
    InputError
        If some cannot become that, or if none can be read.
    """
    column, kinds = source.column, source.kinds
    if not kinds:
        refuse(column, source.faults)
    first = min(kinds)
    channels = wanted.channels or kinds[first].channels
    size = wanted.size or (kinds[first].height, kinds[first].width)
    eight_bit = all(kind.eight_bit for kind in kinds.values())
    plan = Plan(wanted, (channels, *size), eight_bit, column.rows[column.first[first]])
    unfit = {i: fault for i, kind in kinds.items() if (fault := _unfit(kind, plan))}
    if unfit:
        refuse(column, unfit, plan.facts)
    return plan


def _unfit(kind: Kind, plan: Plan) -> Fault | None:
    """Say why an image cannot become what is planned."""
    channels, *size = plan.shape
    if kind.channels != channels:
        if plan.wanted.channels is None:
            return Fault(OTHER_CHANNELS, str(kind.channels))
        if {kind.channels, channels} != {1, 3}:
            return Fault(NO_CHANNELS, str(kind.channels))
    if plan.wanted.size is None and [kind.height, kind.width] != size:
        return Fault(OTHER_SIZE, f"{kind.height} x {kind.width}")
    return None


def _check_memory(column: Column, plan: Plan) -> None:
    """Refuse images that together are too large."""
    n, each = len(column.which), np.dtype(plan.dtype).itemsize
    channels, height, width = plan.shape
    needed = n * plan.bytes
    if needed > MOST_BYTES:
        side = max(1, math.isqrt(MOST_BYTES // (n * channels * each)))
        raise InputError(
            f"{n} images of {channels} x {height} x {width} numbers (channels x height x width) in "
            f"column '{column.name}' need {needed / 2**30:.3g} GiB, and at most "
            f"{MOST_BYTES / 2**30:.3g} GiB are allowed; make them smaller, as "
            f"{column.facts['call']}, size={side}), or use fewer rows"
        )


def _notes(source: Source) -> Iterator[str]:
    kinds, name = source.kinds.values(), source.column.name
    if any(kind.alpha for kind in kinds):
        yield f"the alpha channel of images in column '{name}' is left out"
    if len({kind.eight_bit for kind in kinds}) > 1:
        yield (
            f"some images of column '{name}' have 8 bits, 0 to 255, and others have not; "
            "their values are taken as they are"
        )


def _read_all(source: Source, plan: Plan, pool: Executor, take: Take, progress: Reading) -> None:
    """Read each image that differs, and hand them over in pieces of bounded memory.

    Raises
    ------
    InputError
        If some cannot be read. From the first of them on, images are only looked at.
    """
    faults, done = dict(source.faults), 0
    most = max(1, min(PIECE, PIECE_BYTES // plan.bytes))
    for piece in (part for whole in source.pieces() for part in in_pieces(whole, most)):
        made = pool.map(_tried, [partial(_made, read, plan) for _, read in piece])
        numbers, images = [i for i, _ in piece], list(made)
        wrong = {i: x for i, x in zip(numbers, images, strict=True) if isinstance(x, Fault)}
        faults |= wrong
        if not faults:
            take(numbers, np.stack([x for x in images if not isinstance(x, Fault)]))
        done += len(piece)
        progress(done, source.total)
    if faults:
        refuse(source.column, faults, plan.facts)


def _repeat(pictures: Pixels, column: Column) -> None:
    """Copy images to the other rows that have them."""
    for row, i in enumerate(column.which.tolist()):
        if row != column.first[i]:
            pictures[row] = pictures[column.first[i]]


def _tried(task: Callable[[], T]) -> T | Fault:
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


def _made(read: Read, plan: Plan) -> Pixels:
    """Read an image and make it what is planned, (C, H, W)."""
    pixels = read()
    kind = _kind(pixels, plan.wanted)
    if fault := _unfit(kind, plan):
        raise fault
    channels, *size = plan.shape
    image = _resized(_with_channels(_numbers(pixels[: kind.channels]), channels), size)
    return image if plan.wanted.normal is None else _normalised(image, plan.wanted.normal)


def _kind(pixels: Pixels, wanted: Picture) -> Kind:
    """Return the kind of an image (C, H, W); none of its pixels is read."""
    channels, height, width = pixels.shape
    if pixels.dtype.kind not in "buif":
        raise Fault(NO_NUMBERS, str(pixels.dtype))
    if pixels.size > MOST_ELEMENTS:
        shown = " x ".join(map(str, pixels.shape))
        raise Fault(TOO_LARGE, f"{shown} numbers are more than {MOST_ELEMENTS}")
    alpha = channels == 4 and wanted.channels != 4
    return Kind(3 if alpha else channels, height, width, pixels.dtype == np.uint8, alpha)


def _numbers(pixels: Pixels) -> Pixels:
    """Return pixels as uint8, if they are that, or else as finite float32."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(pixels, dtype=np.float32)
    if bad := numbers.size - np.count_nonzero(np.isfinite(numbers)):
        raise Fault(NOT_FINITE, f"{bad} of {numbers.size}")
    return numbers


def _normalised(pixels: Pixels, normal: Normal) -> Pixels:
    """Standardise an image (C, H, W) whose values are from 0 to 1, or 0 to 255 if of 8 bits."""
    mean, sd = (np.array(values, dtype=np.float32)[:, None, None] for values in normal)
    if pixels.dtype == np.uint8:
        pixels = pixels.astype(np.float32) / 255
    if pixels.min() < 0 or pixels.max() > 1:
        raise Fault(NOT_IN_UNITS, f"{pixels.min():.4g} to {pixels.max():.4g}")
    return np.asarray((pixels - mean) / sd, dtype=np.float32)


def _with_channels(pixels: Pixels, channels: int) -> Pixels:
    """Turn colour into grey, by Pillow's weights of red, green and blue, or grey into colour."""
    if len(pixels) == channels:
        return pixels
    if channels > 1:
        return np.repeat(pixels, channels, axis=0)
    weights = np.array([19595, 38470, 7471])  # of 2**16
    if pixels.dtype == np.uint8:
        return ((np.tensordot(weights, pixels, 1) + 2**15) >> 16).astype(np.uint8)[None]
    return np.tensordot(weights / 2**16, pixels, 1).astype(np.float32)[None]


def _resized(pixels: Pixels, size: Sequence[int]) -> Pixels:
    """Resize each channel (H, W) to a height and a width."""
    from PIL import Image

    height, width = size
    if pixels.shape[1:] == (height, width):
        return pixels
    bilinear = Image.Resampling.BILINEAR
    planes = [Image.fromarray(plane).resize((width, height), bilinear) for plane in pixels]
    return np.stack([np.asarray(plane) for plane in planes])


def _in_files(values: pd.Series, wanted: Picture, folder: Path, pool: Executor) -> Source:
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
        for i, found in zip(piece, pool.map(_tried, looks), strict=True):
            if isinstance(found, Fault):
                faults[i] = found
            else:
                kinds[i] = found
    if others := {i: fault for i, fault in faults.items() if fault.complaint != UNREADABLE}:
        refuse(column, others)
    readers: list[Task] = [(i, partial(_read_file, paths[i], wanted)) for i in kinds]
    return Source(column, kinds, faults, len(kinds), partial(in_pieces, readers))


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


def _look(path: Path, wanted: Picture) -> Kind:
    """Return the kind of an image by the beginning of its file."""
    from PIL import Image

    if path.suffix.lower() == ".npy":
        return _kind(oriented(mapped(path), wanted.channels), wanted)
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


def _read_file(path: Path, wanted: Picture) -> Pixels:
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


def _in_array(values: pd.Series, wanted: Picture, folder: Path) -> Source:
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


def _open(path: Path, column: Column, wanted: Picture) -> Stored:
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
    pieces: Iterable[Piece], wanted: Picture
) -> tuple[dict[int, Kind], dict[int, Fault]]:
    """Return the first image's kind that has one; what is wrong with all if none has."""
    faults: dict[int, Fault] = {}
    for i, read in (item for piece in pieces for item in piece):
        found = _tried(partial(_kind_read, read, wanted))
        if not isinstance(found, Fault):
            return {i: found}, {}
        faults[i] = found
    return {}, faults


def _kind_read(read: Read, wanted: Picture) -> Kind:
    return _kind(read(), wanted)
