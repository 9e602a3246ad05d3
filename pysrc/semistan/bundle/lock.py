"""A folder that one process at a time completes, and whose holder can be named.

The system's own lock is released by the holder's death, however it comes.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from semistan.bundle.files import atomic_file, remove_leftovers
from semistan.errors import SemistanError, file_error

LOCK, HOLDER = ".lock", ".holder.json"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for the block, after removing what killed processes left in it.

    Raises
    ------
    SemistanError
        If another process holds it, with its number, machine, begin and command, or if the folder
        cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise SemistanError(
            f"'{folder}' is being completed by {_holder(folder)}; wait until it ends, or end it"
        ) from None
    except OSError as error:
        raise file_error(error, folder) from error
    try:
        for place in (folder, *(path for path in folder.glob("**/") if path != folder)):
            remove_leftovers(place)
        with atomic_file(folder / HOLDER) as temporary:
            temporary.write_text(json.dumps(_self()) + "\n", "utf-8")
        yield
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        (folder / LOCK).unlink(missing_ok=True)
        lock.release()


def _self() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }


def _holder(folder: Path) -> str:
    """Name the process that holds a folder, from what it wrote."""
    try:
        holder = json.loads((folder / HOLDER).read_text("utf-8"))
        return (
            f"process {holder['pid']} on {holder['host']}, since {holder['since']}: "
            f"{holder['command']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
