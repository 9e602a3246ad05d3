"""The user's images: a column of paths, or of row numbers in a file, becomes one array.

Every file is looked at before any is decoded, so that what can be refused is refused before
memory is taken. Then they are read in pieces, each image once, however many rows have it.
"""

from __future__ import annotations

import math
import os
import re
import struct
import tokenize
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

PIECE = 256  # images that are read, and reported, together, if they are small
PIECE_BYTES = 2**26  # of such images
WORKERS = 4
MOST_BYTES = 4 * 2**30  # of the images of a column
MOST_ELEMENTS = 2**28  # of one image; Pillow refuses more than about as many in three channels
SHOWN = 5  # rows that a message names

SUFFIXES = (".png", ".jpg", ".jpeg", ".npy")
FORMATS = ("PNG", "JPEG")
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "F")  # Pillow's names
WIDE_MODES = ("I", "I;16", "I;16B", "F")  # with more than 8 bits
CORRUPT = (  # what Pillow and NumPy raise where a file is not what it should be
    OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError,
    struct.error, tokenize.TokenError, zlib.error,
)  # fmt: skip

Pixels = npt.NDArray[Any]
Read = Callable[[], Pixels]
Task = tuple[int, Read]  # the number of an image, and what reads it
Piece = Sequence[Task]
Progress = Callable[[int, int], None]
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
    progress: Progress | None = None,
) -> Pixels:
    """Read a column of images.

    Parameters
    ----------
    values : pandas.Series
        Paths of PNG, JPEG or .npy files; or with ``wanted.array`` whole numbers, rows of that
        file from 0.
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
    progress: Progress | None = None,
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
        numbers: list[int] = []
        found: list[Array] = []

        def take(piece: list[int], images: Pixels) -> None:
            found.append(embed(images))
            numbers.extend(piece)

        _read_all(source, plan, pool, take, progress or _unseen)
    embeddings = np.concatenate(found)[np.argsort(numbers)]
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1)).tolist()
    if bad:
        _refuse(source.column, {i: Fault(NO_EMBEDDING) for i in bad}, plan)
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


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong with one image or with several, and what to do about it.

    The texts have places for ``{call}``, as 'image(path', and ``{folder}``; for ``{size}`` and
    ``{channels}`` of the images, and the ``{row}`` of that with which they are compared.
    """

    one: str
    several: str
    advice: str
    noun: str = "image"


NO_PATH = Complaint(
    "has no path",
    "have no path",
    "give that of an image in each row; for row numbers, name the file that has all images, as "
    "{call}, array='images.npy')",
    noun="row",
)
NO_ROW = Complaint(
    "has no whole number from 0 to {last}",
    "have no whole number from 0 to {last}",
    "the column must have numbers of rows in '{array}', and the first row is 0",
    noun="row",
)
URL = Complaint(
    "is not a local file",
    "are not local files",
    "download them, and give the paths of the copies",
)
OTHER_FILE = Complaint(
    "is no .png, .jpg, .jpeg or .npy file",
    "are no .png, .jpg, .jpeg or .npy files",
    "convert them to PNG",
)
MISSING = Complaint(
    "does not exist or is no file",
    "do not exist or are no files",
    "relative paths count from '{folder}'",
)
UNREADABLE = Complaint(
    "cannot be read",
    "cannot be read",
    "mend or replace the files, or leave these rows out",
)
TOO_LARGE = Complaint(
    "is too large to be read",
    "are too large to be read",
    "write smaller files: an image is read whole before {call}, size=32) shrinks it",
)
NO_SHAPE = Complaint(
    "has not the shape of an image",
    "have not the shape of an image",
    "expected (H, W), (H, W, C) or (C, H, W), where C is 1 or 3, or the number that is given as "
    "{call}, channels=5), and only one of the first and the last axis could be C",
)
NO_SQUARE = Complaint(
    "is a flat list, but of no square",
    "are flat lists, but of no squares",
    "a square has n * n numbers, or 3 * n * n with the channels first; write nested lists (rows "
    "of pixels) or a .npy file",
)
NO_LIST = Complaint(
    "is no list of equally long lists",
    "are no lists of equally long lists",
    "write each image as a list of its rows, or write a .npy file",
)
NO_NUMBERS = Complaint(
    "has no real numbers",
    "have no real numbers",
    "write them as uint8 or float32",
)
NOT_FINITE = Complaint(
    "has values that are not finite",
    "have values that are not finite",
    "mend the images, or leave these rows out",
)
OTHER_SIZE = Complaint(
    "is not {size} pixels (height x width), as that of row {row} is",
    "are not {size} pixels (height x width), as that of row {row} is",
    "have all of them resized, as {call}, size=32)",
)
OTHER_CHANNELS = Complaint(
    "has not {channels}, as that of row {row} has",
    "have not {channels}, as that of row {row} has",
    "say what all of them should be: {call}, channels=1) for grey, {call}, channels=3) for colour",
)
NOT_IN_UNITS = Complaint(
    "has not 8 bits, and values beyond 0 to 1, of which mean and sd are",
    "have not 8 bits, and values beyond 0 to 1, of which mean and sd are",
    "write them as uint8, or divide them by their largest possible value",
)
NO_EMBEDDING = Complaint(
    "has an embedding that is not finite",
    "have embeddings that are not finite",
    "see whether the trunk expects other pixels, as those from 0 to 1 that {call}, mean=0, sd=1) "
    "makes, or leave these rows out",
)
NO_CHANNELS = Complaint(
    "cannot have {channels}",
    "cannot have {channels}",
    "grey (1) and colour (3) can become each other; else give the number that the images have",
)


class Fault(Exception):
    """What is wrong with one image; the detail stands behind its name."""

    def __init__(self, complaint: Complaint, detail: str = "") -> None:
        super().__init__(detail)
        self.complaint = complaint
        self.detail = detail


@dataclass(frozen=True, eq=False)
class Column:
    """Which image each row has.

    Attributes
    ----------
    name : str
        The column's.
    folder : Path
        Where relative paths count from.
    array : str or None
        The file that has all images.
    labels : sequence of str
        What the user wrote for each of the images that differ.
    which : numpy.ndarray
        For each row (N,) the number of its image among these.
    """

    name: str
    folder: Path
    array: str | None
    labels: Sequence[str]
    which: Pixels

    @cached_property
    def first(self) -> list[int]:
        """For each of the images that differ the first row that has it."""
        return list(map(int, np.unique(self.which, return_index=True)[1]))

    @property
    def facts(self) -> dict[str, str]:
        """What the texts of complaints have places for."""
        array = f", array='{self.array}'" if self.array else ""
        return {
            "call": f"image({self.name}{array}",
            "folder": str(self.folder),
            "array": str(self.array),
        }

    def with_images(self, labels: Sequence[str], which: Pixels) -> Column:
        """Return it with fewer images that differ."""
        return Column(self.name, self.folder, self.array, labels, which)


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
    return Column(str(values.name), folder, wanted.array, labels, np.arange(len(values)))


def _refuse(
    column: Column, faults: Mapping[int, Fault], plan: Plan | None = None, **facts: str
) -> NoReturn:
    """Raise those faults that are like the first one, with the rows that have them."""
    complaint = faults[min(faults)].complaint
    alike = {i: fault for i, fault in faults.items() if fault.complaint == complaint}
    which = enumerate(column.which.tolist(), start=1)
    rows = [(row, column.labels[i], alike[i].detail) for row, i in which if i in alike]
    places = column.facts | (plan.facts if plan else {}) | facts
    verb = (complaint.one if len(rows) == 1 else complaint.several).format(**places)
    raise InputError(
        f"{len(rows)} {complaint.noun}{'s' * (len(rows) > 1)} of column '{column.name}' {verb}: "
        f"{', '.join(_row_text(*row) for row in rows[:SHOWN])}"
        f"{', ...' * (len(rows) > SHOWN)}; {complaint.advice.format(**places)}"
    )


def _row_text(row: int, label: str, detail: str) -> str:
    return f"row {row} ({_shortened(label)}{': ' * bool(detail)}{detail})"


def _shortened(text: str, most: int = 60) -> str:
    """Return a text on one line, a long one with its ends."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:20]}...{line[-(most - 23) :]}"


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
        _refuse(column, source.faults)
    first = min(kinds)
    channels = wanted.channels or kinds[first].channels
    size = wanted.size or (kinds[first].height, kinds[first].width)
    eight_bit = all(kind.eight_bit for kind in kinds.values())
    plan = Plan(wanted, (channels, *size), eight_bit, column.first[first] + 1)
    unfit = {i: fault for i, kind in kinds.items() if (fault := _unfit(kind, plan))}
    if unfit:
        _refuse(column, unfit, plan)
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


def _read_all(source: Source, plan: Plan, pool: Executor, take: Take, progress: Progress) -> None:
    """Read each image that differs, and hand them over in pieces of bounded memory.

    Raises
    ------
    InputError
        If some cannot be read. From the first of them on, images are only looked at.
    """
    faults, done = dict(source.faults), 0
    most = max(1, min(PIECE, PIECE_BYTES // plan.bytes))
    for piece in (part for whole in source.pieces() for part in _in_pieces(whole, most)):
        made = pool.map(_tried, [partial(_made, read, plan) for _, read in piece])
        numbers, images = [i for i, _ in piece], list(made)
        wrong = {i: x for i, x in zip(numbers, images, strict=True) if isinstance(x, Fault)}
        faults |= wrong
        if not faults:
            take(numbers, np.stack([x for x in images if not isinstance(x, Fault)]))
        done += len(piece)
        progress(done, source.total)
    if faults:
        _refuse(source.column, faults, plan)


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
        return Fault(UNREADABLE, _shortened(reason or str(error) or type(error).__name__, 80))


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
    for piece in _in_pieces(range(len(paths))):
        looks = [partial(_look, paths[i], wanted) for i in piece]
        for i, found in zip(piece, pool.map(_tried, looks), strict=True):
            if isinstance(found, Fault):
                faults[i] = found
            else:
                kinds[i] = found
    if others := {i: fault for i, fault in faults.items() if fault.complaint != UNREADABLE}:
        _refuse(column, others)
    readers: list[Task] = [(i, partial(_read_file, paths[i], wanted)) for i in kinds]
    return Source(column, kinds, faults, len(kinds), partial(_in_pieces, readers))


def _in_pieces(items: Sequence[T], most: int = PIECE) -> Iterator[Sequence[T]]:
    """Yield some at a time."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _distinct(column: Column, values: list[object]) -> tuple[Column, list[Path]]:
    """Return the paths that differ, all of existing files, and the column of these."""
    pathless = [not isinstance(value, str | os.PathLike) or value == "" for value in values]
    _check_each(column, NO_PATH, pathless)
    _check_each(column, URL, [bool(re.match(r"[A-Za-z][\w+.-]+://", x)) for x in column.labels])
    paths = [column.folder / label for label in column.labels]
    labels = dict(zip(paths, column.labels, strict=True))
    numbers = {path: i for i, path in enumerate(labels)}
    which = np.array([numbers[path] for path in paths])
    column = column.with_images(list(labels.values()), which)
    _check_each(column, OTHER_FILE, [path.suffix.lower() not in SUFFIXES for path in numbers])
    _check_each(column, MISSING, [not _is_file(path) for path in numbers])
    return column, list(numbers)


def _check_each(
    column: Column, complaint: Complaint, bad: Sequence[bool] | Pixels, **facts: str
) -> None:
    if any(bad):
        faults = {i: Fault(complaint) for i, is_bad in enumerate(bad) if is_bad}
        _refuse(column, faults, None, **facts)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long, or a folder must not be read
        return False


def _look(path: Path, wanted: Picture) -> Kind:
    """Return the kind of an image by the beginning of its file."""
    from PIL import Image

    if path.suffix.lower() == ".npy":
        return _kind(_oriented(_mapped(path), wanted), wanted)
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
        return _oriented(_mapped(path), wanted)
    with Image.open(path, formats=FORMATS) as image:
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode in WIDE_MODES:
            return np.asarray(image)[None]
        image.info.pop("transparency", None)  # Pillow warns that it is lost
        if image.mode in GREY_MODES:
            return np.asarray(image.convert("L"))[None]
        return np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)


def _mapped(path: Path) -> Pixels:
    """Map a .npy file to memory: only what is used is read, and nothing is unpickled."""
    return np.lib.format.open_memmap(path, mode="r")


def _oriented(pixels: Pixels, wanted: Picture) -> Pixels:
    """Return pixels as (C, H, W), without copying them."""
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise Fault(NO_SHAPE, str(pixels.shape))
    if pixels.ndim == 2:
        return pixels[None]
    ends = (pixels.shape[0], pixels.shape[-1])
    found = {end for end in (0, 1) if ends[end] == wanted.channels}
    if len(found) != 1:
        found = {end for end in (0, 1) if ends[end] in (1, 3, 4, wanted.channels)}
    if len(found) != 1:
        raise Fault(NO_SHAPE, str(pixels.shape))
    return np.moveaxis(pixels, -1, 0) if found == {1} else pixels


class Stored(Protocol):
    """A file that has many images."""

    def __len__(self) -> int:
        """How many it has."""

    def pieces(self, rows: Pixels) -> Iterator[Piece]:
        """Yield some of its rows (n,), given in their order, by their positions 0 to n-1."""


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
    kinds: dict[str, Callable[[Path, Picture], Stored]]
    kinds = {".npy": NpyRows, ".parquet": ParquetRows}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"a file of images must be a .npy or .parquet file, got '{path}'")
    if not _is_file(path):
        raise InputError(
            f"the images of column '{column.name}' should be in '{column.array}', which does not "
            f"exist or is no file; a relative path counts from '{column.folder}'"
        )
    with _readable(path):
        return kind(path, wanted)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say that a file of images cannot be read, and why."""
    try:
        yield
    except InputError:
        raise
    except CORRUPT as error:
        raise InputError(f"file of images '{path}' cannot be read: {error}") from None


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
    _check_each(column, NO_ROW, ~inside, last=str(count - 1))
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


class NpyRows:
    """A .npy file (N, H, W), (N, H, W, C) or (N, C, H, W), of which rows are read as needed."""

    def __init__(self, path: Path, wanted: Picture) -> None:
        self.array, self.wanted = _mapped(path), wanted
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
        for piece in _in_pieces(range(len(rows))):
            yield [(i, partial(self._read, int(rows[i]))) for i in piece]

    def _read(self, row: int) -> Pixels:
        return _oriented(self.array[row], self.wanted)


class ParquetRows:
    """A Parquet file with one column of lists, one for each image; read by groups of rows."""

    def __init__(self, path: Path, wanted: Picture) -> None:
        import pyarrow.parquet as pq

        self.path, self.wanted, self.file = path, wanted, pq.ParquetFile(path)
        schema = self.file.schema_arrow
        names = [name for name in schema.names if not name.startswith("__index_level_")]
        if len(names) != 1 or _depth(schema.field(names[0]).type) not in (1, 2, 3):
            columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
            raise InputError(
                f"file of images '{path}' must have one column, of lists of numbers nested up to "
                f"three deep, got: {_shortened(columns, 200)}"
            )
        self.column = names[0]

    def __len__(self) -> int:
        """Return how many images it has."""
        return int(self.file.metadata.num_rows)

    def pieces(self, rows: Pixels) -> Iterator[Piece]:
        """Yield readers of some rows."""
        with _readable(self.path):
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
        return _square(pixels, self.wanted) if pixels.ndim == 1 else _oriented(pixels, self.wanted)


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


def _square(flat: Pixels, wanted: Picture) -> Pixels:
    """Return a flat list as a square (C, n, n)."""
    for channels in filter(None, (wanted.channels, 1, 3)):
        n = math.isqrt(flat.size // channels)
        if n and channels * n * n == flat.size:
            return flat.reshape(channels, n, n)
    raise Fault(NO_SQUARE, f"{flat.size} numbers")
