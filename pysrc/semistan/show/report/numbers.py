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


def count(value: int, noun: str) -> str:
    """Return ``1 row``, ``442 rows``, ``100,000 rows``."""
    return f"{value:,} {noun}{'s' * (value != 1)}"


def joined(words: tuple[str, ...]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def part_of(part: int, whole: int, noun: str) -> str:
    """Return ``442 rows``, or ``300 of 442 rows``."""
    return count(whole, noun) if part >= whole else f"{part:,} of {count(whole, noun)}"
