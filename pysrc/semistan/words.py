"""Numbers with the nouns that they count, and lists of words."""

from __future__ import annotations

from collections.abc import Iterable


def listed(parts: Iterable[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def plural(noun: str, number: int) -> str:
    """Return ``row`` if there is one, and ``rows`` of any other number."""
    return noun if number == 1 else f"{noun}s"


def count(number: int, noun: str) -> str:
    """Return ``1 row``, ``442 rows``, ``100,000 rows``."""
    return f"{number:,} {plural(noun, number)}"


def part_of(part: int, whole: int, noun: str) -> str:
    """Return ``442 rows``, or ``300 of 442 rows``."""
    return count(whole, noun) if part >= whole else f"{part:,} of {count(whole, noun)}"
