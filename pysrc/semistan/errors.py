"""The errors a user can meet: each says what is wrong, what was expected and what to do."""

import errno
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class SemistanError(Exception):
    """Something failed while running; the command line exits with 1."""

    exit_code = 1


class InputError(SemistanError, ValueError):
    """What the user gave cannot be used; the command line exits with 2."""

    exit_code = 2


class ToolchainError(InputError):
    """CmdStan or the C++ compiler is missing, too old or refuses the program."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or the whole list."""
    names = [str(candidate) for candidate in known]
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{close[0]}'?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f" Known: {shown}." if names else ""


def sentence(error: Exception) -> str:
    """Return an error's text with a full stop, so that another sentence can follow."""
    text = str(error).rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


FULL = "{path}: no space is left on the disk, or a quota is reached; free some and run it again"
FAILURES = {  # of the machine
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "{path} grew beyond the largest file that is allowed here; raise 'ulimit -f'",
    errno.EIO: "{path}: the disk failed to read or write; check it, or use another",
    errno.EMFILE: "{path}: too many files are open; raise 'ulimit -n'",
    errno.ENFILE: "{path}: too many files are open on this machine; end other programs",
    errno.ENOMEM: "{path}: the machine has too little memory left for it",
}
MISTAKES = {  # of whoever named the place
    errno.EROFS: "{path} is in a place that is read-only; choose another",
    errno.EACCES: "{path}: you have no permission for it; choose another place, or change its mode",
    errno.EPERM: "{path}: the system does not permit it; choose another place",
    errno.ENOENT: "{path} does not exist, or its folder does not; check the name",
    errno.ENOTDIR: "{path}: a part of this path is a file, expected a folder; choose another",
    errno.EISDIR: "{path} is a folder, expected a file; name a file",
    errno.EEXIST: "{path} exists; choose another name",
    errno.ENAMETOOLONG: "{path}: the name is too long for the file system; choose a shorter one",
    errno.ELOOP: "{path}: its links lead in a circle; name the place itself",
    errno.EBUSY: "{path} is in use, or something is mounted there; choose another place",
    errno.EXDEV: "{path} is on another file system than its folder; choose another place",
}


def file_error(error: OSError, path: Path | str | None = None) -> SemistanError:
    """Say in our words what the operating system refused.

    Parameters
    ----------
    error : OSError
        What it raised.
    path : Path or str, optional
        The file or folder that was being read or written, where that is known; by default the one
        that the error names.

    Returns
    -------
    SemistanError
        An ``InputError`` where another place or name helps, for the caller to raise.
    """
    place = path or error.filename
    shown = f"'{os.fsdecode(place)}'" if place else "a file"
    number = error.errno or _number_in(str(error))
    if number in MISTAKES:
        return InputError(MISTAKES[number].format(path=shown))
    if number in FAILURES:
        return SemistanError(FAILURES[number].format(path=shown))
    return SemistanError(f"{shown} cannot be read or written: {error.strerror or error}")


def _number_in(text: str) -> int | None:
    """Return the number that a library's error has in its text alone."""
    found = re.search(r"errno\W+(\d+)", text, re.IGNORECASE)
    return int(found[1]) if found else None
