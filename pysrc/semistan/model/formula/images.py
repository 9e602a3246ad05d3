"""Images as a network's inputs: ``nn(image(path, size=32))``.

The column has the images' files, or their rows in one array file. When the table is read, it is
replaced by a column of arrays, each an image's numbers, channel by channel and row by row; and the
call says how large they are, so that a trained model knows: ``image(path, size=[32, 32],
channels=3)``. Where ``nn()`` has a trunk, the arrays are its embeddings of the images.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from semistan.model.formula.syntax import closing, masked
from semistan.model.spelling import in_formula, spelled, unmarked

_CALL = re.compile(r"(?<![\w.])image\s*\(")
_COLUMN = re.compile(r"image\s*\(\s*(`[^`]+`|[^\s,)]+)")


@dataclass(frozen=True, slots=True)
class Image:
    """A call of ``image()``.

    Attributes
    ----------
    column : str
        The column of the table.
    size : tuple of int, optional
        Height and width in pixels to which images are resized; they are taken as they are without.
    channels : int, optional
        1 of grey images, 3 of coloured ones; those that the images have without.
    array : str, optional
        A file that has all images; the column has their rows in it.
    mean, sd : tuple of float, optional
        What a trunk was trained with, of each channel or of all, for pixels from 0 to 1; pixels
        are taken as they are without both.
    """

    column: str
    size: tuple[int, int] | None = None
    channels: int | None = None
    array: str | None = None
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width, where the call says them."""
        assert self.size is not None
        assert self.channels is not None
        return (self.channels, *self.size)

    @property
    def text(self) -> str:
        """The call as it stands in a formula."""
        options = {
            "size": None if self.size is None else list(self.size),
            "channels": self.channels,
            "array": self.array,
            "mean": None if self.mean is None else list(self.mean),
            "sd": None if self.sd is None else list(self.sd),
        }
        given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return f"image({', '.join([in_formula(self.column), *given])})"

    def of(self, channels: int, height: int, width: int) -> Image:
        """Return the call with the size that its images have."""
        return replace(self, size=(height, width), channels=channels)


def image_of(argument: str) -> Image | None:
    """Read an argument of ``nn()`` that is a call of ``image()``; None if it is none."""
    found = _COLUMN.match(argument)
    if not found:
        return None
    call = ast.parse(f"image(column{argument[found.end() :]}", mode="eval").body
    assert isinstance(call, ast.Call)
    column = unmarked(spelled(found[1])).strip("`")
    options = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    size = options.get("size")
    square = (size, size) if isinstance(size, int) else size
    return Image(
        column,
        None if square is None else (int(square[0]), int(square[1])),
        options.get("channels"),
        options.get("array"),
        _numbers(options.get("mean")),
        _numbers(options.get("sd")),
    )


def _numbers(value: float | list[float] | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    return tuple(map(float, value if isinstance(value, list) else [value]))


def with_images(
    text: str, known: Mapping[str, Image], outputs: Mapping[str, str] | None = None
) -> str:
    """Replace the calls of ``image()`` in a formula by others of the same columns.

    Parameters
    ----------
    text : str
        The formula.
    known : mapping
        The call of each column.
    outputs : mapping, optional
        The output of the trunk that takes a column's images; written where the formula has none.
    """
    pieces, end, source = [], 0, masked(text)
    for match in _CALL.finditer(source):
        stop = closing(source, match.end())
        call = image_of(text[match.start() : stop])
        assert call is not None
        pieces += [text[end : match.start()], known[call.column].text]
        end, options = stop, _options(source, stop)
        if call.column in (outputs or {}) and "output" not in options:
            assert outputs is not None
            pieces += [text[stop : options["trunk"]], f", output={outputs[call.column]!r}"]
            end = options["trunk"]
    return "".join([*pieces, text[end:]])


def _options(source: str, stop: int) -> dict[str, int]:
    """Return the options of the ``nn()`` whose images end at a place, and where each one ends."""
    call = ast.parse(f"nn(x{source[stop : closing(source, stop)]}", mode="eval").body
    assert isinstance(call, ast.Call)
    first = stop - len("nn(x")
    return {str(item.arg): first + int(item.value.end_col_offset or 0) for item in call.keywords}
