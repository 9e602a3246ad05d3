"""Work in pieces, to bound memory."""

from __future__ import annotations

from collections.abc import Iterator


def pieces_of(items: int, elements_per_item: int, most: int) -> Iterator[slice]:
    """Cut items into pieces of at most this many elements."""
    size = max(1, most // elements_per_item)
    for start in range(0, items, size):
        yield slice(start, min(start + size, items))
