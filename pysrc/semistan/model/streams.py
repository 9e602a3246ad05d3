"""Random numbers that belong to a name: what is drawn under one name is the same wherever it is.

A new level of a group has one effect in each draw, whichever rows, pieces or files it is in; the
effects of two terms, or of two levels, are independent. So each has a generator of its own, seeded
by the hash of what it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from semistan.model.arrays import Array


@dataclass(frozen=True, slots=True)
class Streams:
    """Standard normal numbers for the draws of some chains.

    Attributes
    ----------
    seed : tuple of int
        The user's seed, and the number of the subspace where there are several.
    first : int
        Number of the first chain, from 0.
    chains, per_chain : int
        How many chains there are, and how many draws each has.
    """

    seed: tuple[int, ...]
    first: int
    chains: int
    per_chain: int

    def normal(self, *name: str, size: int) -> Array:
        """Return the numbers of a name, shape (chains * per_chain, size), chain after chain."""
        numbers = range(self.first, self.first + self.chains)
        generators = (_generator(self.seed, chain, name) for chain in numbers)
        return np.concatenate([each.normal(size=(self.per_chain, size)) for each in generators])


def _generator(seed: tuple[int, ...], chain: int, name: tuple[str, ...]) -> np.random.Generator:
    digest = blake2b(ascii((seed, chain, name)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
