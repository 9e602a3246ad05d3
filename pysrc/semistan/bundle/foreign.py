"""Files that somebody else may have made: what they claim is checked before memory is taken.

A file of some bytes can claim an array of terabytes, unpack to more than the machine holds, or be
no file at all but a link, a device or a pipe. What is checked here costs no more than a look at the
beginning or the end of a file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from semistan.errors import InputError, SemistanError, file_error
from semistan.model.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = "fiub"  # NumPy's kinds of real and whole numbers and truth values
TEXTS = NUMBERS + "U"


def _unzipped(path: Path | str, _: str) -> Any:
    """Open the one file of a zip archive."""
    members = zipfile.ZipFile(path).infolist()
    if len(members) != 1:
        raise InputError(f"data file '{path}' has {len(members)} files, expected one table")
    return zipfile.ZipFile(path).open(members[0])


OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zip": _unzipped,
}
PIECE = 1 << 20  # bytes that are unpacked at a time
FREELY = 64 << 20  # bytes that any compressed file may unpack to
MOST_TIMES = 200  # its own size that a larger one may; text that is no bomb shrinks to a tenth
CELL = 8  # bytes


def check_plain(path: Path | str) -> None:
    """Refuse what is no ordinary file on this machine: an address, a folder, a device, a pipe.

    Raises
    ------
    InputError
        If it is none, or is missing; before anything is opened.
    """
    if "://" in str(path):
        raise InputError(
            f"'{path}' is an address, and tables are read from files of this machine alone; "
            "download it first, and name the file"
        )
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise file_error(error, path) from None
    except ValueError:
        raise InputError(f"{str(path)!r} is no name of a file: it has a character 0") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, "Is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise InputError(f"'{path}' is a device or a pipe, expected a file; copy it to one first")


def check_no_links(folder: Path) -> None:
    """Refuse a run's or a bundle's folder in which anything is a link, a device or a pipe.

    A link would lead outside: a run's chains would be written there, and what is read from there
    is not what was handed over. Hidden ones are left alone, for nothing reads them.

    Raises
    ------
    InputError
        Naming the first one.
    """
    for entry in _entries(folder):
        kind = entry.stat(follow_symlinks=False).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            what = "a link" if stat.S_ISLNK(kind) else "a device or a pipe"
            raise InputError(
                f"'{entry.path}' is {what}, and a run or a bundle has only files and folders; put "
                "the file itself there"
            )


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:  # a temporary one that another process has just removed
        return
    except NotADirectoryError:  # whoever reads it says what it is not
        return
    except OSError as error:
        raise file_error(error, folder) from None
    for entry in entries:
        if entry.name.startswith("."):  # what an interrupted process left, or one is writing now
            continue
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(entry.path)


def read_arrays(path: Path, kinds: str = NUMBERS, content: bytes | None = None) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` file that takes no more memory than its own size.

    Parameters
    ----------
    path : Path
        The file.
    kinds : str
        NumPy's letters of the kinds that the arrays may be of.
    content : bytes, optional
        What the file holds, where that is in memory already.

    Returns
    -------
    dict
        The arrays by name.

    Raises
    ------
    InputError
        If it cannot be read, has compressed, encrypted or repeated members, or an array claims
        another size than it has, or is of another kind.
    """
    try:
        if content is None:
            check_plain(path)
        size = path.stat().st_size if content is None else len(content)
        with zipfile.ZipFile(path if content is None else BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(path, members, size)
            for member in members:
                with archive.open(member) as stream:
                    _check_header(path, member, stream, kinds)
            return {
                member.filename.removesuffix(".npy"): _array(archive, member) for member in members
            }
    except SemistanError:
        raise
    except Exception as error:  # zipfile and NumPy raise a dozen kinds
        raise InputError(f"'{path}' cannot be read: {error}") from None


def _check_members(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    names = {member.filename for member in members}
    plain = all(
        member.compress_type == zipfile.ZIP_STORED and member.file_size == member.compress_size
        for member in members
    )
    whole = sum(member.file_size for member in members) <= size
    if len(names) < len(members) or not plain or not whole:
        _refuse(path, "its members are compressed, overlap or stand there twice")
    for name in names:
        if not name.endswith(".npy") or "/" in name:
            _refuse(path, f"it has the member {name!r}, expected arrays alone")


def _check_header(path: Path, member: zipfile.ZipInfo, stream: Any, kinds: str) -> None:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        _refuse(path, f"{member.filename} has version {version} of NumPy's format")
    shape, _, dtype = readers[version](stream)
    if dtype.kind not in kinds:
        _refuse(path, f"{member.filename} holds {dtype}, expected numbers")
    needed = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or needed != member.file_size - stream.tell():
        _refuse(path, f"{member.filename} claims the shape {shape}, which it does not have")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _refuse(path: Path | str, reason: str) -> NoReturn:
    raise InputError(f"'{path}' cannot be read: {reason}; it is not what semistan writes")


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file of a run or of a cross-validation.

    Raises
    ------
    InputError
        If it cannot be read, or claims more than the machine has memory for.
    """
    import pandas as pd

    try:
        check_parquet(path)
        return pd.read_parquet(path)
    except SemistanError:
        raise
    except Exception as error:  # pyarrow raises its own, and Python's
        raise InputError(f"'{path}' cannot be read: {error}") from None


def pack(folder: Path) -> bytes:
    """Return an uncompressed tar archive of a folder, for ``unpack``."""
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder, arcname=folder.name)
    return file.getvalue()


def unpack(content: bytes, target: Path) -> None:
    """Unpack the archive of a folder that another process has packed.

    Parameters
    ----------
    content : bytes
        An uncompressed tar archive.
    target : Path
        The folder that it is unpacked into.

    Raises
    ------
    InputError
        If it cannot be read, holds anything but files and folders, or these lead outside or claim
        more than the archive holds. Nothing is written then.
    """
    try:
        with tarfile.open(fileobj=BytesIO(content), mode="r:") as archive:
            members = archive.getmembers()
            for member in members:
                if not (member.isdir() or member.isreg()) or member.issparse():
                    raise InputError(
                        f"the archive of '{target}' has {member.name!r}, expected files and folders"
                    )
                tarfile.data_filter(member, str(target))
            if sum(member.size for member in members) > len(content):
                raise InputError(f"the archive of '{target}' claims more than it holds")
            archive.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise InputError(f"the archive of '{target}' cannot be read: {error}") from None


def check_parquet(path: Path | str) -> None:
    """Refuse a Parquet file that claims more than the machine has memory for."""
    import pyarrow.parquet as pq

    check_plain(path)
    found = pq.read_metadata(path)
    groups = (found.row_group(i) for i in range(found.num_row_groups))
    claimed = sum(group.total_byte_size for group in groups)
    check_memory(path, max(claimed, found.num_rows * found.num_columns * CELL))


def check_memory(path: Path | str, needed: int) -> None:
    """Refuse what would not fit into the machine's memory.

    Raises
    ------
    InputError
        With both sizes.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise InputError(
            f"'{path}' holds {needed / 2**30:,.0f} GiB by what it says, and this machine has "
            f"{available / 2**30:,.0f} GiB of memory"
        )


def check_text_size(path: Path | str) -> None:
    """Refuse a text file that is larger than the memory, or unpacks to very much more than it is.

    Raises
    ------
    InputError
        With what it unpacks to, as far as that was seen.
    """
    check_plain(path)
    size = Path(path).stat().st_size
    check_memory(path, size)
    opener = OPENERS.get(Path(path).suffix.lower())
    if opener is None:
        return
    most, seen = max(FREELY, MOST_TIMES * size), 0
    try:
        with opener(path, "rb") as stream:
            while piece := stream.read(PIECE):
                seen += len(piece)
                if seen > most:
                    raise InputError(
                        f"'{path}' has {size:,} bytes and unpacks to more than {most:,}, as no "
                        "table does; unpack it, and look at it"
                    )
    except SemistanError:
        raise
    except Exception as error:  # each of these libraries has its own
        raise InputError(f"data file '{path}' cannot be unpacked: {error}") from None
