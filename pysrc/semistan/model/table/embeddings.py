"""Embeddings as a network's inputs: a column of arrays that a trunk has made of images.

A table whose arrays a trunk has made says so in its attributes (``DataFrame.attrs``), which
pandas keeps in Parquet files: what is fitted to such a table again knows the trunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula, Network
from semistan.model.formula.trunks import Trunk
from semistan.model.table.inputs import InputKind, Vectors
from semistan.model.table.pictures import flat_numbers
from semistan.model.table.trunk_file import TrunkFile

if TYPE_CHECKING:
    import pandas as pd

TRUNKS = "trunks"  # among a table's attributes: the file of each column of embeddings
CONSTANT = 1e-12  # standard deviation over mean of a number that is the same for all rows


@dataclass(frozen=True, slots=True)
class Embeddings(Vectors):
    """What is learnt of embeddings: the mean and standard deviation of each number.

    Attributes
    ----------
    trunk : Trunk
        What the formula says.
    file : TrunkFile
        What made the training rows' embeddings.
    loc, scale : tuple of float
        Of each number over the training rows; a constant one has scale 1, as units of a network
        that are off for all training images may be on for others.
    """

    trunk: Trunk
    file: TrunkFile
    loc: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The call of ``image()``."""
        return (self.trunk.image.text,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of an embedding."""
        return tuple(f"{self.trunk.image.column}[{i}]" for i in range(self.file.size))

    @property
    def trunks(self) -> dict[str, TrunkFile]:
        """The trunk's file, by its column."""
        return {self.trunk.image.column: self.file}

    @property
    def made_by(self) -> str:
        """The trunk, which the fit does not keep."""
        size, file = self.file.size, self.trunk.file
        if not self.file.sha256:
            return (
                f"the {size} numbers of an embedding were in the table; the file '{file}' was not "
                "there, so that new images cannot be embedded"
            )
        return (
            f"{file} (sha256 {self.file.sha256[:12]}...), {size} numbers of output "
            f"'{self.file.output}'; the file is not part of the fit, and new images need it"
        )

    @property
    def no_images(self) -> str:
        """Why they are no images."""
        return (
            "the network behind a trunk takes the numbers of its embedding of "
            f"{self.trunk.image.text}; leave the kind out, or choose 'mlp'"
        )

    def numbers(self, table: pd.DataFrame) -> Array:
        """Return the embeddings."""
        return embedded_numbers(self.trunk, self.file, table)

    def to_plain(self) -> dict[str, Any]:
        """Return what is learnt as JSON-ready data."""
        return {
            "image": self.trunk.image.text,
            "trunk": asdict(self.file),
            "loc": self.loc,
            "scale": self.scale,
        }


def with_trunks(frame: pd.DataFrame, files: Mapping[str, TrunkFile]) -> None:
    """Write into a table's attributes which files made its columns of embeddings."""
    frame.attrs = {TRUNKS: {column: asdict(file) for column, file in files.items()}}


def trunks_of(frame: pd.DataFrame) -> dict[str, TrunkFile]:
    """Return which files made a table's columns of embeddings."""
    return {column: TrunkFile(**file) for column, file in frame.attrs.get(TRUNKS, {}).items()}


def learn_embeddings(trunk: Trunk, frame: pd.DataFrame) -> tuple[Embeddings, Array]:
    """Learn the numbers' means and standard deviations; return them and the numbers (N, m).

    Raises
    ------
    InputError
        If an element is no embedding of one size, or not finite.
    """
    column = trunk.image.column
    size = int(np.size(frame[column].iloc[0]))
    file = trunks_of(frame).get(column, TrunkFile("", trunk.output or "", size))
    numbers = embedded_numbers(trunk, file, frame)
    loc, scale = numbers.mean(axis=0), numbers.std(axis=0, ddof=1)
    scale = np.where(scale > CONSTANT * np.abs(loc), scale, 1.0)
    return Embeddings(trunk, file, tuple(loc.tolist()), tuple(scale.tolist())), numbers


def embedded_numbers(trunk: Trunk, file: TrunkFile, frame: pd.DataFrame) -> Array:
    """Return the numbers (N, m) of a column of embeddings.

    Raises
    ------
    InputError
        If an element is no embedding of this size, or not finite.
    """
    found = flat_numbers(frame[trunk.image.column], file.size, "embedding", (file.size,))
    return found.astype(float)


def _from_plain(content: Mapping[str, Any], formula: Formula, _: Network) -> Embeddings:
    """Rebuild what is learnt of embeddings from JSON data, which may come from anybody.

    Raises
    ------
    KeyError, TypeError, AttributeError, ValueError
        If the data are none.
    """
    known = {trunk.image.text: trunk for trunk in formula.trunks if trunk}
    plain = content["trunk"]
    file = TrunkFile(str(plain["sha256"]), str(plain["output"]), int(plain["size"]))
    if not re.fullmatch("([0-9a-f]{64})?", file.sha256):
        raise ValueError("the trunk's sha256 has not 64 hexadecimal digits")
    loc, scale = (tuple(float(x) for x in content[key]) for key in ("loc", "scale"))
    if not len(loc) == len(scale) == file.size or not np.isfinite(loc + scale).all():
        raise ValueError("means and standard deviations are not those of the embedding")
    return Embeddings(known[str(content["image"])], file, loc, scale)


def _learn(network: Network, frame: pd.DataFrame) -> tuple[Embeddings, Array]:
    assert network.trunk is not None
    return learn_embeddings(network.trunk, frame)


KIND = InputKind(
    takes=lambda network: network.trunk is not None, learn=_learn, from_plain=_from_plain
)
