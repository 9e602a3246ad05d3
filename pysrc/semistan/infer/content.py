"""A file that a task takes along."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds, which may be gigabytes: a name while at home, bytes when pickled.

    Attributes
    ----------
    name : str
        The file's name, without a folder.
    path : Path, optional
        Where it is; None if its bytes were brought along.
    carried : bytes
        These bytes.
    """

    name: str
    path: Path | None = None
    carried: bytes = b""

    def read(self) -> bytes:
        """Return the bytes."""
        return self.path.read_bytes() if self.path else self.carried

    def file(self, folder: Path) -> Path:
        """Return the path of a file that holds them, written into a folder if there is none."""
        if self.path:
            return self.path
        (folder / self.name).write_bytes(self.carried)
        return folder / self.name

    def __reduce__(self) -> tuple[type[Content], tuple[str, None, bytes]]:
        return Content, (self.name, None, self.read())


def content_of(path: Path) -> Content:
    """Return the content of a file."""
    return Content(path.name, path)
