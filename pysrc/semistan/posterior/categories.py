"""The categories of a response: what they are called, and which one is asked for.

An ordinal response has an expected category, an unordered one has no mean at all. Where one number
is needed of it, that is the probability of a category, by default the second: the first one is the
reference of an unordered response.
"""

from __future__ import annotations

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.family import Family


def category_names(family: Family, design: Design) -> tuple[str, ...]:
    """Return the names in order, ``1`` to ``K`` of ordered ones; none of other responses."""
    ordered = tuple(str(k) for k in range(1, family.categories + 1))
    return design.categories or ordered


def category_position(family: Family, design: Design, category: str | None) -> int:
    """Return a category's position from 0, the second one's by default.

    Raises
    ------
    InputError
        Naming the nearest category, or if the response has none.
    """
    names = category_names(family, design)
    if not names:
        raise InputError(
            f"there is no category '{category}': the response of family {family.name} has "
            "no categories"
        )
    if category is None:
        return 1
    if str(category) not in names:
        raise InputError(
            f"the response has no category '{category}'.{did_you_mean(str(category), names)}"
        )
    return names.index(str(category))


def observed_shares(y: Array, K: int) -> Array:
    """Return each row's share (N, K) of the categories: of its trials, or 1 of the observed one."""
    if y.ndim == 2:
        return np.asarray(y / y.sum(axis=1, keepdims=True))
    return np.asarray(y[:, None] == np.arange(1, K + 1), dtype=float)


def named(codes: Array, names: tuple[str, ...]) -> np.ndarray:
    """Return the names of categories that are numbered from 1, in the same shape."""
    return np.asarray(np.array(names, dtype=object)[codes.astype(int) - 1])
