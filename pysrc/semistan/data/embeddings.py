"""From a column of images to one of a trunk's embeddings, or such a column as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.bundle.trunk import DIGITS, OpenTrunk, open_trunk, trunk_path
from semistan.data.image import ImageFormat, Normal
from semistan.data.image_errors import Pixels
from semistan.data.pixels import Reading, embed_pictures
from semistan.errors import InputError
from semistan.infer.processors import usable_cores
from semistan.model.arrays import Array
from semistan.model.formula.images import Image
from semistan.model.formula.trunks import Trunk
from semistan.model.table.trunk_file import TrunkFile

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 4 * 2**30  # of the embeddings of a column


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A column's embeddings.

    Attributes
    ----------
    image : Image
        The call, with the images' size and channels as far as they are known.
    file : TrunkFile
        What made them.
    arrays : list of arrays, shape (m,)
        One of each row.
    """

    image: Image
    file: TrunkFile
    arrays: list[Array]


def run_trunk(
    trunk: Trunk,
    values: pd.Series,
    folder: Path,
    known: TrunkFile | None,
    *,
    say: Callable[[str], None],
    progress: Reading | None,
) -> Embedded:
    """Read a column of images in pieces, and keep what a trunk makes of them.

    Parameters
    ----------
    trunk : Trunk
        What the formula says.
    values : pandas.Series
        Paths of images, or their rows in one file.
    folder : Path
        Where relative paths count from.
    known : TrunkFile or None
        The file that the trunk must be.
    say, progress
        As of ``read_pictures``.

    Raises
    ------
    InputError
        If the trunk or an image cannot be used.
    """
    opened = open_trunk(trunk, folder, known, threads=usable_cores())
    image = _as_taken(trunk, opened)
    wanted, shapes = ImageFormat(image.size, image.channels, image.array, _normal(image)), set()

    def embed(images: Pixels) -> Array:
        nonlocal opened
        found = opened.embeddings(images)
        _check_memory(str(opened.path), len(values), found.shape[1])
        opened = replace(opened, size=found.shape[1])  # which all other images must have
        shapes.add(images.shape[1:])
        return found

    arrays = list(embed_pictures(values, wanted, folder, embed, say=say, progress=progress))
    (shape,) = shapes
    file = TrunkFile(opened.sha256, opened.output, arrays[0].size)
    return Embedded(image.of(*shape), file, arrays)


def given_embeddings(
    trunk: Trunk,
    values: pd.Series,
    folder: Path,
    known: TrunkFile | None,
    made_by: TrunkFile | None = None,
) -> Embedded:
    """Take a column of arrays as embeddings; the trunk is looked at, if it is there, and not run.

    Parameters
    ----------
    trunk, values, folder, known
        As of ``run_trunk``.
    made_by : TrunkFile, optional
        What made the arrays, if the table says so.

    Raises
    ------
    InputError
        If the arrays are no embeddings, not of the trunk's size, or another trunk made them.
    """
    image, arrays = trunk.image, [np.array(list(value)) for value in values]
    if wrong := [array.shape for array in arrays if array.ndim != 1]:
        raise InputError(
            f"column '{image.column}' holds arrays of shape {wrong[0]}, and an embedding is flat; "
            "images are run through a trunk from files, as image(row, array='images.npy')"
        )
    if known and made_by and len({known.sha256, made_by.sha256} - {""}) > 1:
        raise InputError(
            f"another trunk made the embeddings in column '{image.column}': its sha256 begins "
            f"with {made_by.sha256[:DIGITS]}, expected {known.sha256[:DIGITS]}; give the images, "
            "or embeddings by the trunk that the model was fitted with"
        )
    if file := known or made_by:
        return Embedded(image, file, arrays)
    m = arrays[0].size
    if trunk_path(trunk, folder) is None:
        return Embedded(image, TrunkFile("", trunk.output or "", m), arrays)
    opened = open_trunk(trunk, folder)
    if opened.size not in (None, m):
        raise InputError(
            f"column '{image.column}' holds arrays of {m} numbers, but an embedding by trunk "
            f"'{opened.path}' has {opened.size}"
        )
    return Embedded(_as_taken(trunk, opened), TrunkFile(opened.sha256, opened.output, m), arrays)


def _as_taken(trunk: Trunk, opened: OpenTrunk) -> Image:
    """Complete the call of ``image()`` by what the trunk takes.

    Raises
    ------
    InputError
        If they contradict each other.
    """
    image = trunk.image
    _, channels, *size = opened.shape
    normal = max(map(len, _normal(image) or ((),)))
    said = {
        "channels": (image.channels or (normal if normal > 1 else None), channels),
        "height": (image.size and image.size[0], size[0]),
        "width": (image.size and image.size[1], size[1]),
    }
    for name, (own, taken) in said.items():
        if own is not None and taken is not None and own != taken:
            raise InputError(
                f"trunk '{opened.path}' takes images of {name} {taken}, but {image.text} says "
                f"{own}; leave it out"
            )
    own, taken = said["channels"]
    height, width = size
    both = None if height is None or width is None else (height, width)
    return replace(image, size=image.size or both, channels=own or taken)


def _normal(image: Image) -> Normal | None:
    """Return means and standard deviations of an image's channels, if the call says either."""
    if image.mean is None and image.sd is None:
        return None
    return image.mean or (0.0,), image.sd or (1.0,)


def _check_memory(path: str, n: int, m: int) -> None:
    needed = 8 * n * m
    if needed > MOST_BYTES:
        raise InputError(
            f"{n} embeddings of {m} numbers by trunk '{path}' need {needed / 2**30:.3g} GiB, and "
            f"at most {MOST_BYTES / 2**30:.3g} GiB are allowed; choose an output with fewer "
            "numbers, or use fewer rows"
        )
