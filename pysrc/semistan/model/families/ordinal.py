"""Ordered categories 1, ..., K: their number, and the thresholds that all models of them have.

    tau_1 = 0,    tau_k = gap_2 + ... + gap_k,    k < K

The network's output bias is the intercept, and so the first threshold is 0. Reported are the
thresholds alone, as by brms: b_Intercept[k] is tau_k less the intercept. Where a gap has a
predictor, thresholds differ between rows, and the intercepts of eta and of the gaps are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.common import logit_of_mean
from semistan.model.families.family import Dispersion, Family, Given
from semistan.model.families.links import LINKS, linked_units, refuse_link

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

DIGITS = 20  # of a number of categories, that are read: Python refuses to read thousands
MOST_CATEGORIES = 1000  # each has a threshold that is sampled, and text in the program


def gap_names(K: int) -> tuple[str, ...]:
    """Return the names of the distances between neighbouring thresholds."""
    return tuple(f"gap_{k}" for k in range(2, K))


def intercept_names(K: int, name: str) -> tuple[str, ...]:
    """Return the names of the intercept, or of the K - 1 thresholds in its place if K is not 0."""
    return tuple(f"{name}[{k}]" for k in range(1, K)) if K else (name,)


def thresholds(values: Mapping[str, Any], K: int) -> list[Any]:
    """Return tau_1, ..., tau_{K-1} from the gaps among values, numbers or arrays or tensors."""
    found: list[Any] = [0.0]
    for name in gap_names(K):
        found.append(found[-1] + values[name])
    return found


class Ordinal(NamedTuple):
    """A model of ordered categories, before their number is known.

    Attributes
    ----------
    name : str
        The family's.
    links : tuple of str
        Those that it has, the default one first.
    gap : Dispersion
        The distance between neighbouring thresholds.
    of_categories : callable
        Maps a link and a number of categories, 0 if it is not known, to the record.
    """

    name: str
    links: tuple[str, ...]
    gap: Dispersion
    of_categories: Callable[[str, int], Family]

    def read(self, options: list[str]) -> Family:
        """Read what users write in brackets: a link, a number of categories, or both."""
        numbers = [option for option in options if option.isdecimal()]
        own = [option for option in options if option not in numbers]
        if len(numbers) > 1 or len(own) > 1:
            raise InputError(
                f"family {self.name} takes a link and a number of categories, as "
                f"'{self.name}({self.links[0]}, 5)', got '{', '.join(options)}'"
            )
        link, K = (*own, *self.links)[0], int((numbers or ["0"])[0][:DIGITS])
        if link not in self.links:
            refuse_link(self.name, link, self.links)
        if numbers and K < 2:
            raise InputError(f"family {self.name} needs two categories or more, got {K}")
        return self.of_categories(link, K)


def ordinal_family(name: str, link: str, K: int, gap: Dispersion, **model: Any) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet.

    Parameters
    ----------
    name, link : str
        The family's and its link's name.
    K : int
        Number of categories, or 0.
    gap : Dispersion
        Prior, link and start of the distance between neighbouring thresholds.
    **model
        The other fields of the record; its Stan code finds the thresholds in ``tau``.
    """
    _check_number(name, K)
    options = ", ".join((link, *([str(K)] if K else [])))
    gaps = gap_names(K)
    return Family(
        name=name,
        link=link,
        aliases=(),
        parameters=tuple(
            replace(gap, name=each, text=f"threshold {k} minus threshold {k - 1}", of_class="gap")
            for k, each in enumerate(gaps, start=2)
        ),
        integer=True,
        support=lambda y: (y >= 1) & (y == np.floor(y)) & (y <= (K or np.inf)) & np.isfinite(y),
        support_text=f"categories 1, 2, ..., {K or 'K'}",
        stan_local=(f"vector[{K - 1}] tau = cumulative_sum([{', '.join(('0', *gaps))}]');",),
        text=name if options == "logit" else f"{name}({options})",
        categories=K,
        ordered=True,
        several=gap,
        varied=_with_varying_gaps,
        **model,
    )


def _with_varying_gaps(record: Family, varying: Collection[str]) -> Family:  # noqa: ARG001
    """Return the record whose thresholds are found row by row."""
    gaps = ", ".join(("0", *(f"{{{name}}}" for name in gap_names(record.categories))))
    tau = f"cumulative_sum([{gaps}]')"
    return replace(
        record,
        density=record.density.replace("tau", tau),
        stan_rng=record.stan_rng.replace("tau", tau),
        stan_local=(),
        by_row=True,
        by_row_thresholds=True,
    )


def expected_category(
    probabilities: Callable[[Array, Mapping[str, Array]], Array],
    eta: Array,
    dispersion: Mapping[str, Array],
) -> Array:
    """Return the mean of the categories' numbers, from P(y = k) of each."""
    each = probabilities(np.asarray(eta), dispersion)
    return np.asarray(each @ np.arange(1.0, each.shape[-1] + 1))


def share_of_first(link: str, y: Array, given: Given) -> tuple[float, float]:
    """Return the units of eta where 1 less the probability of category 1 has this link."""
    above = (y > 1).astype(float)
    if link == "logit":
        return logit_of_mean(above, given)
    name = next(item for item in LINKS if (item.name, item.default) == (link, "logit"))
    return linked_units(name, logit_of_mean, above, given)


def check_categories(family: str, y: Array, K: int, name: str) -> None:
    """Refuse a response that lacks one of the categories 1, ..., K, or has only one.

    Raises
    ------
    InputError
        Naming the first empty category, or if there are too many.
    """
    _check_number(family, K)
    empty = sorted(set(range(1, K + 1)) - set(y.astype(int).tolist()))
    if empty:
        raise InputError(
            f"family {family}: no row of response '{name}' is in category {empty[0]} of 1 to "
            f"{K}, so that its thresholds are not identified; merge or renumber the categories"
        )


def _check_number(family: str, K: int) -> None:
    """Refuse categories of which each would have a parameter, before any is made."""
    if K > MOST_CATEGORIES:
        raise InputError(
            f"family {family} has at most {MOST_CATEGORIES} categories, got {K:.6g}; merge "
            "neighbouring ones, or take a family of numbers"
        )


def check_ordered(record: Family, name: str, table: pd.DataFrame) -> int:
    """Return how many ordered categories the response has, 0 if it is no column of them.

    Parameters
    ----------
    record : Family
        The family.
    name : str
        The response's.
    table : pandas.DataFrame
        The user's rows.

    Raises
    ------
    InputError
        If the family is for numbers, or for another number of categories.
    """
    column = table.get(name.strip("`"))
    if column is None or category_numbers(column) is None:
        return 0
    found, K = len(column.cat.categories), record.categories
    if not (record.ordered or record.levels):
        raise InputError(
            f"response '{name}' has {found} ordered categories, which family {record} does not "
            "know; use family cumulative, sratio, acat or categorical, or a column of numbers"
        )
    if K not in (0, found):
        raise InputError(
            f"response '{name}' has {found} ordered categories, family {record} has {K}"
        )
    return found


def category_numbers(column: pd.Series) -> Array | None:
    """Return the positions, from 1, of values among ordered categories; None for other columns."""
    if not getattr(column.dtype, "ordered", False):
        return None
    return np.asarray(column.cat.codes, dtype=float) + 1


def picked(y: Tensor, values: Mapping[int, Any]) -> Tensor:
    """Return for each row the value of its category, 0 for categories without one."""
    total = y.new_zeros(y.shape)
    for k, value in values.items():
        total = total + (y == k) * value
    return total
