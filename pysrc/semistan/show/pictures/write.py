"""Writing a picture as PNG or SVG, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.show.pictures.style import DPI, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What matplotlib would add that differs between days and releases.
METADATA: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None}}


def check_suffix(path: Path | str) -> None:
    """Refuse a file that is neither PNG nor SVG.

    Raises
    ------
    InputError
        With the suffix.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in METADATA:
        raise InputError(f"a picture is written as .png or .svg, got '{suffix or path}'")


def write_picture(figure: Figure, path: Path | str) -> None:
    """Write a picture atomically, as PNG (144 dots per inch) or SVG by its suffix.

    Raises
    ------
    InputError
        For another suffix.
    """
    path = Path(path)
    check_suffix(path)
    suffix = path.suffix.lower()
    with atomic_file(path) as temporary, look():
        figure.savefig(temporary, format=suffix[1:], dpi=DPI, metadata=METADATA[suffix])
