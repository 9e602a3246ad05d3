"""Numbers as they are printed: as many digits as their error leaves sense."""

from __future__ import annotations

import math

MINUS = "\N{MINUS SIGN}"
MISSING = "\N{EN DASH}"


def number(value: float, digits: int) -> str:
    """Return a number with some decimals, or a dash for one that does not exist."""
    if not math.isfinite(value):
        return MISSING
    text = f"{value:.{digits}f}"
    return (text if float(text) else text.lstrip("-")).replace("-", MINUS)


def significant(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits."""
    return (
        f"{value:#.{digits}g}".rstrip(".").replace("-", MINUS) if math.isfinite(value) else MISSING
    )


def count(value: int, noun: str) -> str:
    """Return ``1 row``, ``442 rows``, ``100,000 rows``."""
    return f"{value:,} {noun}{'s' * (value != 1)}"


def joined(words: tuple[str, ...]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def part_of(part: int, whole: int, noun: str) -> str:
    """Return ``442 rows``, or ``300 of 442 rows``."""
    return count(whole, noun) if part >= whole else f"{part:,} of {count(whole, noun)}"
