"""Which axis of an array has the channels of an image, and which square a flat list is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

USUAL = (1, 3, 4)  # channels: grey, colour, and colour with alpha


def channels_first(
    pixels: npt.NDArray[Any], channels: int | None = None
) -> npt.NDArray[Any] | None:
    """Return an array (H, W, C) or (C, H, W) as the latter, without copying it.

    The axis that has ``channels`` is that of the channels, if just one of the first and the last
    one does; else the one of both that has these or 1, 3 or 4. None if both or none do.
    """
    ends = (pixels.shape[0], pixels.shape[-1])
    for numbers in ((channels,), (*USUAL, channels)):
        found = [end for end in (0, 1) if ends[end] in numbers]
        if len(found) == 1:
            return np.moveaxis(pixels, -1, 0) if found == [1] else pixels
    return None


def square(size: int, channels: Iterable[int | None]) -> tuple[int, int, int] | None:
    """Return channels, height and width of the square image that has so many numbers.

    The first of some numbers of channels that is possible is taken; None if none is.
    """
    for number in filter(None, channels):
        side = math.isqrt(size // number)
        if side and number * side**2 == size:
            return number, side, side
    return None
