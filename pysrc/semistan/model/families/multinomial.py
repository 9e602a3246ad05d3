"""Counts of categories: the multinomial model of a response of several columns.

Row i has n_i trials, of which y_ik fell in category k. As in the categorical model, each category
but the first has a predictor of its own,

    (y_i1, ..., y_iK) ~ Multinomial(n_i, p_i),    p_ik = exp(mu_ik) / sum_j exp(mu_ij),    mu_i1 = 0

The formula has the columns in ``cbind(a, b, c) | trials(n)``, and the predictors are called after
them, ``mub`` and ``muc``, as brms calls them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families import categorical
from semistan.model.families.family import Family
from semistan.model.formula.formula import Formula
from semistan.model.names import stan_name

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

MULTINOMIAL = "multinomial"


def log_lik(
    names: Sequence[str], y: Tensor, eta: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """Return log P(y) of each row, y (N, K); ``names`` are those of mu_3, ..., mu_K."""
    log_p = categorical.log_probabilities(names, eta, parameters)
    ways = (y.sum(dim=-1) + 1).lgamma() - (y + 1).lgamma().sum(dim=-1)
    return ways + (y * log_p).sum(dim=-1)


def rng(
    names: Sequence[str],
    eta: Array,
    parameters: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw the counts (..., K) of each element of eta."""
    p = categorical.probabilities(names, eta, parameters)
    trials = np.broadcast_to(parameters["trials"], eta.shape).astype(int)
    return generator.multinomial(trials, p).astype(float)


def locations(names: Sequence[str], y: Array) -> dict[str, float]:
    """Return the log odds of mu_3, ..., mu_K against the first category."""
    return {name: log_odds(y, k) for k, name in enumerate(names, start=3)}


def log_odds(y: Array, k: int) -> float:
    """Return the log odds of category k, from 1, against the first one."""
    return float(np.log(y[:, k - 1].sum() / y[:, 0].sum()))


def counted_categories(
    formula: Formula, frame: pd.DataFrame, first: Sequence[str]
) -> tuple[str, ...]:
    """Return the categories: the columns of the response, the reference first.

    Parameters
    ----------
    formula : Formula
        The parsed formula, whose response is ``cbind(a, b, c)``.
    frame : pandas.DataFrame
        The training rows, each category of which must have a trial.
    first : sequence of str
        Categories that the family names, which must be those of the formula.

    Raises
    ------
    InputError
        If the response is one column, has very many or one of zeros, or if the family names others.
    """
    what = f"family {MULTINOMIAL} counts several categories, each in a column"
    names = columns_of(MULTINOMIAL, what, "cbind(a, b, c) | trials(n) ~ ...", formula, first)
    for name in names:
        if name in frame and not np.any(frame[name].to_numpy()):
            raise InputError(f"no row has a trial in category '{name}' of '{formula.response}'")
    return names


def columns_of(
    name: str, what: str, example: str, formula: Formula, first: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns of a response of several, which a family may name in their order.

    Raises
    ------
    InputError
        If the response is one column or has very many, or if the family names others: with
        ``what`` the family of this name takes, and an example.
    """
    names = formula.counted
    if not names:
        raise InputError(
            f"{what}: write the response as {example}, got '{formula.response}'; a column that "
            "names the category of each row has family categorical"
        )
    categorical.refuse_many(name, len(names))
    categorical.by_stan_name(names, formula.response)
    if first and [stan_name(item) for item in first] != [stan_name(name) for name in names]:
        raise InputError(
            f"family {name}({', '.join(first)}) does not name the columns of "
            f"'{formula.response}' in their order; leave them out: the first one is the reference"
        )
    return names


def of_levels(levels: tuple[str, ...]) -> Family:
    """Return the record of counted categories, whose names may not be known yet."""
    names = categorical.other_names(levels)
    return replace(
        categorical.of_levels(levels),
        name=MULTINOMIAL,
        support=lambda y: (y >= 0) & (y == np.floor(y)),
        support_text="counts",
        eta_units=lambda y, _: (log_odds(y, 2), 1.0),
        log_lik=partial(log_lik, names),
        rng=partial(rng, names),
        density="multinomial_logit_lpmf({y} | {eta}')",
        stan_rng="multinomial_logit_rng({eta}', {trials})",
        given=("trials",),
        text=f"{MULTINOMIAL}({', '.join(levels)})" if levels else "",
        locations=partial(locations, names),
        counted=len(levels),
    )


read = partial(categorical.read_levels, MULTINOMIAL, of_levels)
