"""Numbers and their nouns as the page prints them, with a real minus."""

from __future__ import annotations

from semistan.posterior import written

MINUS = "\N{MINUS SIGN}"
MISSING = "\N{EN DASH}"


def number(value: float, digits: int) -> str:
    """Return a number with some decimals, or a dash for one that does not exist."""
    return written.written(value, digits, MISSING).replace("-", MINUS)


def significant(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits."""
    return written.significant(value, digits, MISSING).replace("-", MINUS)


def joined(words: tuple[str, ...]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
