"""What an image must be, and the pure functions that make it so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistan.data.array_files import Read
from semistan.data.image_errors import (
    NO_CHANNELS,
    NO_NUMBERS,
    NOT_FINITE,
    NOT_IN_UNITS,
    OTHER_CHANNELS,
    OTHER_SIZE,
    TOO_LARGE,
    Fault,
    Pixels,
)
from semistan.words import count

MOST_ELEMENTS = 2**28  # of one image; Pillow refuses more than about as many in three channels
Normal = tuple[tuple[float, ...], tuple[float, ...]]  # a mean and standard deviation of a channel


@dataclass(frozen=True, slots=True)
class ImageFormat:
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

    wanted: ImageFormat
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
        channels = count(number, "channel")
        return {"size": f"{height} x {width}", "channels": channels, "row": str(self.row)}


def why_unfit(kind: Kind, plan: Plan) -> Fault | None:
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


def kind_of(pixels: Pixels, wanted: ImageFormat) -> Kind:
    """Return the kind of an image (C, H, W); none of its pixels is read."""
    channels, height, width = pixels.shape
    if pixels.dtype.kind not in "buif":
        raise Fault(NO_NUMBERS, str(pixels.dtype))
    if pixels.size > MOST_ELEMENTS:
        shown = " x ".join(map(str, pixels.shape))
        raise Fault(TOO_LARGE, f"{shown} numbers are more than {MOST_ELEMENTS}")
    alpha = channels == 4 and wanted.channels != 4
    return Kind(3 if alpha else channels, height, width, pixels.dtype == np.uint8, alpha)


def as_planned(read: Read, plan: Plan) -> Pixels:
    """Read an image and make it what is planned, (C, H, W)."""
    pixels = read()
    kind = kind_of(pixels, plan.wanted)
    if fault := why_unfit(kind, plan):
        raise fault
    channels, *size = plan.shape
    image = _resized(_with_channels(_numbers(pixels[: kind.channels]), channels), size)
    return image if plan.wanted.normal is None else _normalised(image, plan.wanted.normal)


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
