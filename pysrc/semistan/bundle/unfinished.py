"""What an unfinished piece of work keeps to go on from, with a hash, so that damage is noticed.

The file has the sha256 of the state, and then the state: bytes that only their writer understands.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from semistan.bundle.files import write_bytes

ASIDE = ".damaged"  # ending of what is set aside, behind the file's own
LENGTH = hashlib.sha256().digest_size


def keep_state(path: Path, state: bytes) -> None:
    """Write a state in place of the one before, atomically."""
    write_bytes(path, hashlib.sha256(state).digest() + state)


def kept_state(path: Path) -> bytes | None:
    """Return the state that a file keeps, or None if there is none or it is damaged."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    state = content[LENGTH:]
    return state if hashlib.sha256(state).digest() == content[:LENGTH] else None


def set_state_aside(path: Path) -> str | None:
    """Rename a file whose state is damaged, and say so; None if it is whole or not there."""
    if not path.is_file() or kept_state(path) is not None:
        return None
    aside = path.with_name(path.name + ASIDE)
    path.replace(aside)
    return f"'{path}' does not match the hash in it: set aside as {aside.name}"
