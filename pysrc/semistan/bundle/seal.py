"""The seal of a folder: what its files held when they were written, and whether they still do.

A folder's record (``bundle.json`` of a bundle, ``manifest.json`` of a run) names each file that a
result depends on, with its sha256, its size and, of a table, its rows, under ``files``; under
``seal`` it has the sha256 of its own content. Spaces and the order of keys do not count in that.
Who changes a file finds it named when it is read, and says ``trust_edited`` if it was on purpose.
A seal protects against damage and mistakes, not against someone who computes it anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from semistan.bundle.files import damage, read_json, sha256_file, write_json
from semistan.errors import InputError

FILES, SEAL, VERSION = "files", "seal", "format_version"
DIGEST = re.compile("[0-9a-f]{64}")
ON_PURPOSE = (
    "; if it was edited on purpose, go on with --trust-edited (in Python: with "
    "semistan.trust_edited(): ...)"
)
RESTORE = "restore it from a copy"

_trusted: ContextVar[list[str] | None] = ContextVar("trusted", default=None)


@contextmanager
def trust_edited() -> Iterator[list[str]]:
    """Go on with files that were changed after they were written, whatever is read within.

    What is read must still have the form that it should have.

    Yields
    ------
    list of str
        The changed files, as they are met.
    """
    met: list[str] = []
    token = _trusted.set(met)
    try:
        yield met
    finally:
        _trusted.reset(token)


def changed(name: str, message: str) -> None:
    """Refuse what was changed, or note its name where edited files are trusted.

    Raises
    ------
    InputError
        With the message.
    """
    met = _trusted.get()
    if met is None:
        raise InputError(message + ON_PURPOSE)
    if name not in met:
        met.append(name)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a file held: its sha256, its size, and the rows of a table."""

    sha256: str
    bytes: int
    rows: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        content = {"sha256": self.sha256, "bytes": self.bytes, "rows": self.rows}
        return {name: value for name, value in content.items() if value is not None}


def stamp_of(path: Path) -> Stamp:
    """Return what a file holds."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        return Stamp(sha256, path.stat().st_size, _rows(path.suffix, file))


def stamp_of_bytes(content: bytes, rows: int | None = None) -> Stamp:
    """Return what a file with this content holds."""
    return Stamp(hashlib.sha256(content).hexdigest(), len(content), rows)


def csv_rows(file: Iterator[bytes] | BinaryIO) -> int:
    """Count a CSV's lines below its header, less comments."""
    return max(0, sum(1 for line in file if line.strip() and not line.startswith(b"#")) - 1)


def _rows(suffix: str, file: BinaryIO) -> int | None:
    if suffix == ".csv":
        return csv_rows(file)
    if suffix == ".parquet":
        import pyarrow.parquet

        rows: int = pyarrow.parquet.read_metadata(file).num_rows
        return rows
    return None


@dataclass(frozen=True, slots=True)
class State:
    """What became of a file: ``unchanged``, ``changed`` or ``missing``.

    Attributes
    ----------
    state : str
        In one word.
    finding : str
        What differs; empty where nothing does.
    """

    state: str
    finding: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong as far as is known."""
        return self.state == "unchanged"


@dataclass(frozen=True, slots=True)
class Seal:
    """A folder, the name of its record, and what that says of the other files.

    Attributes
    ----------
    folder : Path
        The folder.
    record : str
        The name of its record.
    stamps : dict of Stamp
        What each file held, by its name with slashes.
    """

    folder: Path
    record: str
    stamps: Mapping[str, Stamp]

    def state(self, name: str) -> State:
        """Compare a file with what it held."""
        path, stamp = self.folder / name, self.stamps.get(name)
        if not path.is_file():
            return State("missing")
        if stamp is None:
            return State("changed", f"{self.record} does not know of it")
        if stamp.bytes == path.stat().st_size and sha256_file(path) == stamp.sha256:
            return State("unchanged")
        return State("changed", self._difference(path, stamp))

    def verify(self, *names: str, remedy: str = RESTORE) -> set[str]:
        """Refuse files that are missing or not as they were.

        Parameters
        ----------
        *names : str
            The files.
        remedy : str
            What to do with one that was changed.

        Returns
        -------
        set of str
            Those that are known to be unchanged.

        Raises
        ------
        InputError
            Naming the file, what differs, and what to do.
        """
        states = {name: self.state(name) for name in names}
        for name, state in states.items():
            if state.state == "missing":
                raise InputError(f"'{self.folder}' is incomplete: it has no {name}; {remedy}")
            if not state.ok:
                changed(
                    str(self.folder / name),
                    f"'{self.folder / name}' does not match its hash in {self.record}: "
                    f"{state.finding}; {remedy}",
                )
        return {name for name, state in states.items() if state.state == "unchanged"}

    def _difference(self, path: Path, stamp: Stamp) -> str:
        """Say how a changed file differs."""
        sha256, size = sha256_file(path), path.stat().st_size
        others = (name for name, other in self.stamps.items() if other.sha256 == sha256)
        if (other := next(others, None)) is not None:
            return f"it is a copy of {other}"
        if path.suffix == ".csv" and stamp.rows is not None:
            with path.open("rb") as file:
                rows = csv_rows(file)
            if rows != stamp.rows:
                return f"it has {rows} rows, expected {stamp.rows}"
        if stamp.bytes != size:
            return f"it has {size} bytes, expected {stamp.bytes}"
        return "it was changed"


def read_record(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a folder's record, and hold it to the hash that it has of itself.

    Parameters
    ----------
    path : Path
        The record.
    kind : str
        Of what, in one word.
    version : int
        The format that is read.

    Raises
    ------
    InputError
        If it is damaged, was changed, or is of another format.
    """
    content = read_json(path)
    found = content.get(VERSION) if isinstance(content, dict) else None
    if type(found) is not int:
        raise InputError(f"'{path}' is damaged: it is not what semistan writes; {RESTORE}")
    if found != version:
        remedy = "upgrade semistan" if found > version else "fit anew"
        raise InputError(
            f"'{path.parent}' has {kind} format {found}, this semistan reads format {version}; "
            f"{remedy}, or use the semistan that wrote it"
        )
    read_stamps(path, content)
    with damage(path):
        same = content.get(SEAL) == digest(content)
    if not same:
        changed(str(path), f"'{path}' does not match the hash in it: it was changed; {RESTORE}")
    return dict(content)


def read_seal(path: Path, content: Mapping[str, Any]) -> Seal:
    """Return what a record says of the files in its folder."""
    return Seal(path.parent, path.name, read_stamps(path, content))


def write_record(path: Path, content: Mapping[str, Any], stamps: Mapping[str, Stamp]) -> None:
    """Write a folder's record with its seal, atomically."""
    files = {name: stamp.plain() for name, stamp in stamps.items()}
    kept = {key: value for key, value in content.items() if key not in (FILES, SEAL)}
    sealed = {**kept, FILES: files}
    write_json(path, {**sealed, SEAL: digest(sealed)})


def stamps_of(folder: Path) -> dict[str, Stamp]:
    """Return what every file in a folder holds, by its name with slashes; not of hidden ones."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder): path for path in files}
    shown = {name: path for name, path in names.items() if not name.name.startswith(".")}
    return {name.as_posix(): stamp_of(path) for name, path in shown.items()}


def read_stamps(path: Path, content: Mapping[str, Any]) -> dict[str, Stamp]:
    """Read what a record says of files.

    Raises
    ------
    InputError
        If that is not what semistan writes.
    """
    files = content.get(FILES)
    if not isinstance(files, dict) or not all(map(_is_stamp, files, files.values())):
        raise InputError(f"'{path}' is damaged: '{FILES}' is not what semistan writes; {RESTORE}")
    return {name: Stamp(**stamp) for name, stamp in files.items()}


def digest(content: Mapping[str, Any]) -> str:
    """Return the hash of a record's content, less the hash itself."""
    kept = {key: value for key, value in content.items() if key != SEAL}
    # Keys that are numbers become text in the file, and are sorted as such when it is read again.
    written = json.loads(json.dumps(kept, allow_nan=False))
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _is_stamp(name: Any, stamp: Any) -> bool:
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    if not inside or not isinstance(stamp, dict) or not stamp.keys() <= {"sha256", "bytes", "rows"}:
        return False
    counts = [value for key, value in stamp.items() if key != "sha256"]
    sha256 = stamp.get("sha256")
    whole = isinstance(sha256, str) and DIGEST.fullmatch(sha256) is not None and "bytes" in stamp
    return whole and all(type(value) is int and value >= 0 for value in counts)
