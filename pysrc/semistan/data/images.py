"""The images of a table: each column of files or row numbers becomes one of arrays.

The arrays are the images' pixels, or a trunk's embeddings of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.data.axes import channels_first, square
from semistan.data.embeddings import given_embeddings, run_trunk
from semistan.data.image import ImageFormat
from semistan.data.pixels import Reading, read_pictures
from semistan.errors import InputError
from semistan.model.formula.formula import Formula, parse_formula
from semistan.model.formula.images import Image, with_images
from semistan.model.table.embeddings import trunks_of, with_trunks
from semistan.model.table.trunk_file import TrunkFile

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "folder"  # of the table's file, among the attributes of its DataFrame


def with_pictures(
    formula: Formula,
    frame: pd.DataFrame,
    say: Callable[[str], None] = lambda _: None,
    *,
    positions: Sequence[int] | None = None,
    trunks: Mapping[str, TrunkFile] | None = None,
    progress: Reading | None = None,
) -> tuple[Formula, pd.DataFrame]:
    """Read the images that a formula uses, and run them through its trunks.

    Parameters
    ----------
    formula : Formula
        The formula.
    frame : pandas.DataFrame
        Complete rows. Paths that are not absolute count from the folder of the table's file, or
        from the working directory. A column of arrays is taken as it is.
    say : callable, optional
        Receives what the user should know.
    positions : sequence of int, optional
        Where the rows stand in the user's table, from 0, as messages name them; all of it by
        default.
    trunks : mapping, optional
        For each column the trunk's file with which the model was fitted, which must be the same.
    progress : callable, optional
        Called with how many images of a column have been read, and how many there are.

    Returns
    -------
    Formula
        With the sizes of the images, and the outputs of trunks.
    pandas.DataFrame
        With a flat array in place of each path or row number: pixels, or an embedding. Its
        attributes say which file made embeddings.

    Raises
    ------
    InputError
        If an image is missing, cannot be read, or is not as the others; or if a trunk cannot be
        run, or is not the file with which the model was fitted.
    """
    folder = Path(frame.attrs.get(FOLDER, "."))
    places = range(len(frame)) if positions is None else positions
    known, columns, files = {}, {}, {}
    behind = {trunk.image.column: trunk for trunk in formula.trunks if trunk}
    for name, image in {image.column: image for image in formula.images}.items():
        values, trunk = frame[name].set_axis(places), behind.get(name)
        if trunk is None:
            arrays = _arrays(image, values, folder, say, progress)
            known[name] = image.of(*arrays.shape[1:])
            columns[name] = list(arrays.reshape(len(arrays), -1))
            continue
        fitted = (trunks or {}).get(name)
        if _has_arrays(values):
            found = given_embeddings(trunk, values, folder, fitted, trunks_of(frame).get(name))
        else:
            found = run_trunk(trunk, values, folder, fitted, say=say, progress=progress)
        known[name], columns[name], files[name] = found.image, found.arrays, found.file
    return _with_arrays(formula, frame, known, columns, files)


def _with_arrays(
    formula: Formula,
    frame: pd.DataFrame,
    images: Mapping[str, Image],
    columns: Mapping[str, list[np.ndarray]],
    files: Mapping[str, TrunkFile],
) -> tuple[Formula, pd.DataFrame]:
    """Put what is now known of images into the formula, and their arrays into the table."""
    if not images:
        return formula, frame
    frame = frame.assign(**columns)
    frame.attrs = {}
    if files:
        with_trunks(frame, files)
    outputs = {name: file.output for name, file in files.items() if file.output}
    return parse_formula(with_images(formula.text, images, outputs)), frame


def _has_arrays(values: pd.Series) -> bool:
    return values.dtype == object and isinstance(values.iloc[0], np.ndarray | list)


def _arrays(
    image: Image,
    values: pd.Series,
    folder: Path,
    say: Callable[[str], None],
    progress: Reading | None,
) -> np.ndarray:
    """Return the images (N, C, H, W) of a column."""
    if not _has_arrays(values):
        wanted = ImageFormat(image.size, image.channels, image.array)
        return read_pictures(values, wanted, folder, say=say, progress=progress)
    found = [_array(image, np.array(list(value))) for value in values]
    shapes = {array.shape for array in found}
    said = [image.channels, *(image.size or (None, None))]
    first = found[0].shape
    fits = all(a is None or a == b for a, b in zip(said, first, strict=True))
    if len(shapes) > 1 or not fits:
        several = ", ".join(" x ".join(map(str, shape)) for shape in sorted(shapes)[:3])
        raise InputError(
            f"column '{image.column}' holds arrays of {several} numbers; {image.text} needs arrays "
            "of one size, which are taken as they are"
        )
    return np.stack(found)


def _array(image: Image, array: np.ndarray) -> np.ndarray:
    """Return one image (C, H, W): an array of that shape, (H, W, C), (H, W), or flat."""
    if array.ndim == 3:
        found = channels_first(array, image.channels)
        return array if found is None else found
    if array.ndim == 2:
        return array[None]
    if array.ndim == 1 and (shape := _flat(image, array.size)):
        return array.reshape(shape)
    raise InputError(
        f"column '{image.column}' holds arrays of shape {array.shape}, from which the images' size "
        f"cannot be told; say it, as {image.of(image.channels or 3, 32, 32).text}"
    )


def _flat(image: Image, n: int) -> tuple[int, int, int] | None:
    """Return channels, height and width of an image of n numbers; squares where none is said."""
    if image.size:
        height, width = image.size
        return None if n % (height * width) else (n // (height * width), height, width)
    return square(n, (1, 3) if image.channels is None else (image.channels,))
