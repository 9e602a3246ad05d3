"""The errors a user can meet: each says what is wrong, what was expected and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


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
