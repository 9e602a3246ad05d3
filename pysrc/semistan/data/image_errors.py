"""What can be wrong with a column of images, and the error that names its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.words import count

SHOWN = 5  # rows that a message names

Pixels = npt.NDArray[Any]


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
    rows : sequence of int
        The number of each row (N,) in the user's table, the first row being 1.
    """

    name: str
    folder: Path
    array: str | None
    labels: Sequence[str]
    which: Pixels
    rows: Sequence[int]

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
        return replace(self, labels=labels, which=which)


def refuse(
    column: Column, faults: Mapping[int, Fault], facts: Mapping[str, str] | None = None
) -> NoReturn:
    """Raise those faults that are like the first one, with the rows that have them.

    Raises
    ------
    InputError
        In any case.
    """
    complaint = faults[min(faults)].complaint
    alike = {i: fault for i, fault in faults.items() if fault.complaint == complaint}
    which = zip(column.rows, column.which.tolist(), strict=True)
    rows = [(row, column.labels[i], alike[i].detail) for row, i in which if i in alike]
    places = column.facts | dict(facts or {})
    verb = (complaint.one if len(rows) == 1 else complaint.several).format(**places)
    raise InputError(
        f"{count(len(rows), complaint.noun)} of column '{column.name}' {verb}: "
        f"{', '.join(_row_text(*row) for row in rows[:SHOWN])}"
        f"{', ...' if len(rows) > SHOWN else ''}; {complaint.advice.format(**places)}"
    )


def _row_text(row: int, label: str, detail: str) -> str:
    return f"row {row} ({shortened(label)}{f': {detail}' if detail else ''})"


def shortened(text: str, most: int = 60) -> str:
    """Return a text on one line, a long one with its ends."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:20]}...{line[-(most - 23) :]}"


def check_each(
    column: Column, complaint: Complaint, bad: Sequence[bool] | Pixels, **facts: str
) -> None:
    """Refuse those images, or rows, that are bad in one way; facts fill the complaint's places.

    Raises
    ------
    InputError
        If there are some.
    """
    if any(bad):
        faults = {i: Fault(complaint) for i, is_bad in enumerate(bad) if is_bad}
        refuse(column, faults, facts)
