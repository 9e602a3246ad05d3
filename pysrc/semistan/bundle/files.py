"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semistan.errors import InputError, SemistanError, file_error

LONGEST = 50  # characters of a name that its temporaries have, so that theirs is not too long
TEMPORARY = re.compile(
    r"\.(?P<name>.*)\.tmp-(?P<machine>[0-9a-f]{8})-(?P<process>\d{1,9})-", re.DOTALL
)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block succeeds.

    Raises
    ------
    SemistanError
        Where the operating system refuses, with the path and what to do.
    """
    with _explained(path), _temporary_file(path) as temporary:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place when the block succeeds.

    Raises
    ------
    SemistanError
        Where the operating system refuses, with the path and what to do.
    """
    with _explained(path), _temporary_folder(path) as temporary:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error of ours, about a path."""
    try:
        yield
    except OSError as error:
        raise file_error(error, path) from error


@contextmanager
def _temporary_file(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=temporary_prefix(path.name), suffix=path.suffix
    )
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=path.parent, prefix=temporary_prefix(path.name))
    try:
        yield Path(temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_prefix(name: str) -> str:
    """Return how the name of a temporary file or folder begins: what it is for, and whose it is.

    By its process, what a killed one leaves behind is told from what a live one uses.
    """
    return f".{name[:LONGEST]}.tmp-{_machine()}-{os.getpid()}-"


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove temporaries that killed processes of this machine left in a folder.

    Parameters
    ----------
    folder : Path
        Where they are.
    name : str
        What they are for; by default anything.
    """
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            owner = TEMPORARY.match(path.name)
            ours = owner is not None and owner["machine"] == _machine()
            if owner is None or not ours or name[:LONGEST] not in ("", owner["name"]):
                continue
            if not is_alive(int(owner["process"])):
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _machine() -> str:
    """Return a short name of this machine."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def is_alive(process: int) -> bool:
    """Say whether a process of this machine, by its number, is still there."""
    if os.name != "posix":  # signal 0 would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def check_output_folder(path: Path, marker: str, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be written, or may not be, before any work is done for it.

    An existing folder is replaced only if it is of the same kind and that was asked for. What
    killed processes left of earlier attempts at it is removed.

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
        If the folder exists and may not be replaced, or cannot be written where it is to be.
    """
    with _explained(path):
        _check_replaceable(path)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            if not (path / marker).is_file():
                raise InputError(
                    f"'{path}' exists and was not written by semistan (it has no {marker}); "
                    "choose another name"
                )
            if not overwrite:
                raise InputError(
                    f"'{path}' exists; replace it with --overwrite or choose another name"
                )
        remove_leftovers(path.parent, path.name)
        _try_writing(path)


def _check_replaceable(path: Path) -> None:
    """Refuse a folder that none can take the place of."""
    if path.is_symlink():
        raise InputError(f"'{path}' is a link; name the folder itself, or another")
    if Path(os.path.realpath(path)) in (Path.cwd(), *Path.cwd().parents):
        raise InputError(
            f"'{path}' is the folder that you are in, or above it, expected one that can be "
            "replaced as a whole; name a new folder"
        )
    if path.is_mount():
        raise InputError(f"'{path}' is where a file system is mounted; name a folder in it")


def _try_writing(path: Path) -> None:
    """Make a temporary folder where ``path`` is to be, or in the nearest folder above it."""
    above = path.parent
    while not os.path.lexists(above) and above != above.parent:
        above = above.parent
    try:
        Path(tempfile.mkdtemp(dir=above, prefix=temporary_prefix(path.name))).rmdir()
    except OSError as error:
        raise file_error(error, above) from error


def file_beside(name: str, folder: Path) -> Path | None:
    """Return a named file: in a folder, or from the working directory; None if in neither."""
    paths = (folder / name, Path(name))
    try:
        return next((path for path in paths if path.is_file()), None)
    except OSError:  # the name is too long, or a folder must not be read
        return None


def check_output_file(path: Path, *, overwrite: bool) -> None:
    """Refuse to write over an existing file unless told to, or where none can be written.

    Raises
    ------
    InputError
        If the file exists and may not be replaced, or cannot be written where it is to be.
    """
    with _explained(path):
        if path.is_dir():
            raise InputError(f"'{path}' is a folder, expected the name of a file")
        if path.exists() and not overwrite:
            raise InputError(f"'{path}' exists; replace it with --overwrite or choose another name")
        remove_leftovers(path.parent, path.name)
        _try_writing(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


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
    except OSError as error:
        raise file_error(error, path) from error
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
    except OSError as error:
        raise file_error(error, Path(path)) from error
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"'{path}' is damaged: {kind}: {str(error)[:200]}") from None


def sha256_file(path: Path) -> str:
    """Return a file's sha256 as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
