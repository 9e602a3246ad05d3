"""The user's images: a column of paths, or of row numbers in a file, becomes one array.

They are read in pieces, each image once, however many rows have it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.data.array_files import PIECE, in_pieces
from semistan.data.image import ImageFormat, Plan, as_planned, why_unfit
from semistan.data.image_errors import NO_EMBEDDING, Column, Fault, Pixels, refuse
from semistan.data.image_sources import Source, in_array, in_files, tried
from semistan.errors import InputError
from semistan.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

PIECE_BYTES = 2**26  # of images that are read, and reported, together
WORKERS = 4
MOST_BYTES = 4 * 2**30  # of the images of a column

Reading = Callable[[int, int], None]
Take = Callable[[list[int], Pixels], None]  # gets numbers of images, and the images (n, C, H, W)


def _unheard(_line: str) -> None:
    """Say nothing."""


def _unseen(_done: int, _total: int) -> None:
    """Show no progress."""


def read_pictures(
    values: pd.Series,
    wanted: ImageFormat,
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
    wanted : ImageFormat
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
    wanted: ImageFormat,
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
    values: pd.Series, wanted: ImageFormat, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[Source, Plan, Executor]]:
    """Find a column's images, say what all become, and yield both with what reads them."""
    with _bombs_are_errors(), ThreadPoolExecutor(WORKERS) as pool:
        if wanted.array is None:
            source = in_files(values, wanted, folder, pool)
        else:
            source = in_array(values, wanted, folder)
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


def _plan(source: Source, wanted: ImageFormat) -> Plan:
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
    unfit = {i: fault for i, kind in kinds.items() if (fault := why_unfit(kind, plan))}
    if unfit:
        refuse(column, unfit, plan.facts)
    return plan


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
        made = pool.map(tried, [partial(as_planned, read, plan) for _, read in piece])
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
