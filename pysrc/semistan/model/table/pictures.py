"""Images as a network's inputs: a column of arrays, standardised channel by channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula, Network
from semistan.model.formula.images import Image, image_of
from semistan.model.networks.architecture import Architecture
from semistan.model.networks.conv import Convolutional
from semistan.model.table.inputs import InputKind, Vectors, fully_connected

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.config import NetworkConfig

COMPACT = {np.dtype(np.uint8), np.dtype(np.float32)}  # types of numbers that are kept as they are
NUMBERS = 500_000  # of images that are made float64 at a time


@dataclass(frozen=True, slots=True)
class Pictures(Vectors):
    """What is learnt of images: the mean and standard deviation of each channel.

    Attributes
    ----------
    image : Image
        The call in the formula, with the images' size.
    means, sds : tuple of float
        Of each channel's pixels over the training rows.
    """

    image: Image
    means: tuple[float, ...]
    sds: tuple[float, ...]

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        """The call."""
        return (self.image.text,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of an image."""
        return tuple(f"{self.image.column}[{i}]" for i in range(prod(self.image.shape)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.image.shape

    @property
    def pixels_of(self) -> Image:
        """The images."""
        return self.image

    @property
    def loc(self) -> tuple[float, ...]:  # type: ignore[override]
        """The mean of each number's channel."""
        return tuple(np.repeat(self.means, self._pixels).tolist())

    @property
    def scale(self) -> tuple[float, ...]:
        """The standard deviation of each number's channel."""
        return tuple(np.repeat(self.sds, self._pixels).tolist())

    @property
    def _pixels(self) -> int:
        return prod(self.image.shape[1:])

    def numbers(self, table: pd.DataFrame) -> Array:
        """Return the pixels."""
        return pixels(self.image, table)

    def architecture(self, options: NetworkConfig, outputs: int) -> Architecture:
        """Return a convolutional network, or a fully connected one of the pixels."""
        if options.kind == "mlp":
            return fully_connected(len(self.loc), options, outputs)
        return Convolutional(
            self.image.shape, options.channels, options.hidden, options.kernel, options.pooling,
            options.activation, options.skip, options.norm, outputs=outputs,
        )  # fmt: skip

    def to_plain(self) -> dict[str, Any]:
        """Return what is learnt as JSON-ready data."""
        return {"image": self.image.text, "means": self.means, "sds": self.sds}


def learn_pictures(image: Image, frame: pd.DataFrame) -> tuple[Pictures, Array]:
    """Learn the channels' means and standard deviations; return them and the numbers (N, Q)."""
    numbers = pixels(image, frame)
    means, sds = _moments(numbers.reshape(len(numbers), image.shape[0], -1))
    if not (sds > 1e-12 * np.abs(means)).all():
        raise InputError(f"the images of column '{image.column}' have a channel that is constant")
    return Pictures(image, tuple(means.tolist()), tuple(sds.tolist())), numbers


def _moments(numbers: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of each channel of images (N, C, pixels).

    Some images at a time are made float64.
    """
    size = max(1, NUMBERS // numbers[0].size)
    pieces = [slice(start, start + size) for start in range(0, len(numbers), size)]
    count = len(numbers) * numbers.shape[2]
    sums = [numbers[piece].astype(float).sum(axis=2) for piece in pieces]
    means = np.concatenate(sums).sum(axis=0) / count
    squares = [np.square(numbers[piece] - means[:, None]).sum(axis=2) for piece in pieces]
    return means, np.sqrt(np.concatenate(squares).sum(axis=0) / (count - 1))


def pixels(image: Image, frame: pd.DataFrame) -> Array:
    """Return the numbers (N, Q) of a column of arrays: uint8, float32 or float64.

    Raises
    ------
    InputError
        If an element is no array of the images' size, or not finite.
    """
    return flat_numbers(frame[image.column], prod(image.shape), "image", image.shape)


def flat_numbers(values: pd.Series, size: int, noun: str, shape: tuple[int, ...]) -> Array:
    """Return the numbers (N, size) of a column of arrays, each an image or its embedding.

    They are uint8 or float32 where all arrays are, which saves memory, else float64.

    Raises
    ------
    InputError
        If an element is no array of that size, or not finite.
    """
    arrays = list(values)
    for row, array in enumerate(arrays, start=1):
        if np.size(array) != size or np.ndim(array) == 0:
            raise InputError(
                f"column '{values.name}' needs {noun}s of {' x '.join(map(str, shape))} numbers, "
                f"got {np.size(array)} in row {row}"
            )
    kinds = {array.dtype if isinstance(array, np.ndarray) else None for array in arrays}
    dtype = next(iter(kinds)) if len(kinds) == 1 and kinds <= COMPACT else float
    numbers = np.array(arrays, dtype=dtype).reshape(len(arrays), -1)
    bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if len(bad):
        raise InputError(
            f"the {noun} of column '{values.name}' in row {bad[0] + 1} has values that are not "
            "finite; leave such rows out"
        )
    return numbers


def pictures_from_plain(content: Mapping[str, Any], formula: Formula, _: Network) -> Pictures:
    """Rebuild what is learnt of images from JSON data, which may come from anybody.

    Raises
    ------
    KeyError, TypeError, AttributeError, ValueError
        If the data are none.
    """
    known = {image.text: image for image in formula.images}
    image = known[str(content["image"])]
    if image.size is None or image.channels is None:
        raise ValueError("the images have no size")
    means, sds = (tuple(float(x) for x in content[key]) for key in ("means", "sds"))
    if len(means) != image.shape[0] or len(sds) != len(means) or not np.isfinite(means + sds).all():
        raise ValueError("means and standard deviations are not those of the images' channels")
    return Pictures(image, means, sds)


def _learn(network: Network, frame: pd.DataFrame) -> tuple[Pictures, Array]:
    image = image_of(network.arguments[0])
    assert image is not None
    return learn_pictures(image, frame)


KIND = InputKind(
    takes=lambda network: network.of_images, learn=_learn, from_plain=pictures_from_plain
)
