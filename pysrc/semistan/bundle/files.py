"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semistan.errors import InputError, SemistanError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_output_folder(path: Path, marker: str, *, overwrite: bool) -> None:
    """Refuse to write over an existing folder unless told to, and never over a foreign one.

    Parameters
    ----------
    path : Path
        The folder to be written.
    marker : str
        A file that every folder of this kind holds.
    overwrite : bool
        Whether a folder of this kind may be replaced.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / marker).is_file():
        raise InputError(
            f"'{path}' exists and was not written by semistan (it has no {marker}); "
            "choose another name"
        )
    if not overwrite:
        raise InputError(f"'{path}' exists; replace it with --overwrite or choose another name")


def check_output_file(path: Path, *, overwrite: bool) -> None:
    """Refuse to write over an existing file unless told to.

    Raises
    ------
    InputError
        If the file exists and may not be replaced.
    """
    if path.exists() and not overwrite:
        raise InputError(f"'{path}' exists; replace it with --overwrite or choose another name")


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, indented, keys in the order given."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", "utf-8")


def read_json(path: Path) -> Any:
    """Read JSON; raise an error that names the file if it is missing or damaged.

    Raises
    ------
    InputError
        If the file is missing or is no JSON.
    """
    try:
        return json.loads(
            path.read_text("utf-8"), parse_constant=_refused, object_pairs_hook=_distinct
        )
    except FileNotFoundError:
        raise InputError(f"'{path}' does not exist") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is damaged: {error}") from None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key stands there twice")
    return content


@contextmanager
def damage(path: Path | str) -> Iterator[None]:
    """Turn whatever a damaged file makes other code raise into an error that names the file.

    Raises
    ------
    InputError
        Instead of every other exception.
    """
    try:
        yield
    except (SemistanError, MemoryError):
        raise
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"'{path}' is damaged: {kind}: {str(error)[:200]}") from None


def sha256_file(path: Path) -> str:
    """Return a file's sha256 as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
