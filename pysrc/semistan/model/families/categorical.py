"""Unordered categories: the categorical model, or multinomial logistic regression.

The first category is the reference, and each of the others has a predictor of its own,

    P(y = k) = exp(mu_k) / (1 + exp(mu_2) + ... + exp(mu_K)),    mu_1 = 0,    k <= K

As in brms they are called after the categories, ``muversicolor`` and ``muvirginica``. mu_2 is the
linear predictor eta, the others stand behind commas in the formula, ``muvirginica ~ x + nn(u)``;
those that are not written have the terms of eta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.family import Dispersion, Family
from semistan.model.formula.formula import Formula, parse_formula, with_predictors
from semistan.model.names import stan_name
from semistan.model.table.canonical import label
from semistan.words import plural

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

CATEGORICAL = "categorical"
MOST = 20  # categories


def predictor_name(level: str) -> str:
    """Return the name of a category's predictor: ``muvirginica``."""
    return f"mu{stan_name(level)}"


def other_names(levels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of mu_3, ..., mu_K, the predictors beside eta."""
    return tuple(predictor_name(level) for level in levels[2:])


def log_lik(
    names: Sequence[str], y: Tensor, eta: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """Return log P(y) of each row; ``names`` are those of mu_3, ..., mu_K."""
    log_p = log_probabilities(names, eta, parameters)
    chosen = y.unsqueeze(-1) == torch.arange(1, log_p.shape[-1] + 1, device=y.device)
    return torch.where(chosen, log_p, 0.0).sum(dim=-1)


def log_probabilities(
    names: Sequence[str], eta: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """Return the logarithm of the probability of each category, shape (..., K)."""
    mu = [torch.zeros_like(eta), eta, *(parameters[name].expand_as(eta) for name in names)]
    return torch.stack(mu, dim=-1).log_softmax(dim=-1)


def probabilities(names: Sequence[str], eta: Array, parameters: Mapping[str, Array]) -> Array:
    """Return the probability of each category, shape (..., K)."""
    mu = [np.zeros_like(eta), eta, *(parameters[name] for name in names)]
    odds = np.stack(np.broadcast_arrays(*mu), axis=-1)
    p = np.exp(odds - odds.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def rng(
    names: Sequence[str],
    eta: Array,
    parameters: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw a category, from 1, for each element of eta."""
    below = np.cumsum(probabilities(names, eta, parameters)[..., :-1], axis=-1)
    return np.asarray(1.0 + (generator.random(eta.shape)[..., None] > below).sum(axis=-1))


def locations(names: Sequence[str], y: Array) -> dict[str, float]:
    """Return the log odds of mu_3, ..., mu_K against the first category."""
    return {name: log_odds(y, k) for k, name in enumerate(names, start=3)}


def log_odds(y: Array, k: int) -> float:
    """Return the log odds of category k, from 1, against the first one."""
    return float(np.log((y == k).sum() / (y == 1).sum()))


def response_levels(formula: Formula, frame: pd.DataFrame, first: Sequence[str]) -> tuple[str, ...]:
    """Return the categories of the response in order, the reference first.

    Parameters
    ----------
    formula : Formula
        The parsed formula, whose response is a column of strings, whole numbers, truth values or
        categories.
    frame : pandas.DataFrame
        The training rows.
    first : sequence of str
        Categories, or their names in Stan, that the family puts first.

    Raises
    ------
    InputError
        If the response is no column, if it has fewer than two categories or very many, if two
        would have the same name, or if the family names one that no row has.
    """
    name = formula.response.strip("`")
    if name not in frame:
        raise InputError(
            f"family {CATEGORICAL}: the response must be a column as it is, got '{name}'"
        )
    found = _found(frame[name], name)
    if not 2 <= len(found) <= MOST:
        raise InputError(
            f"family {CATEGORICAL}: response '{name}' has {len(found)} different "
            f"{plural('value', len(found))}, expected 2 to {MOST} categories"
        )
    by_name, chosen = by_stan_name(found, name), []
    for item in first:
        if stan_name(item) not in by_name:
            raise InputError(
                f"family {CATEGORICAL}: no row of response '{name}' is '{item}'."
                f"{did_you_mean(item, found)}"
            )
        chosen.append(by_name[stan_name(item)])
    return tuple(dict.fromkeys((*chosen, *found)))


def by_stan_name(found: Sequence[str], name: str) -> dict[str, str]:
    """Return the categories by their names in Stan, each of which must be its own."""
    by_name: dict[str, str] = {}
    for level in found:
        other = by_name.setdefault(stan_name(level), level)
        if other != level or not stan_name(level):
            as_other = f", as '{other}'" if other != level else ""
            _refuse_level(level, name, as_other)
    for short, level in by_name.items():
        if located := by_name.get(f"{short}_loc"):
            _refuse_level(located, name, f", as the location of '{level}'")
    return by_name


def _refuse_level(level: str, name: str, as_other: str) -> None:
    raise InputError(
        f"category '{level}' of '{name}' would be called "
        f"'{predictor_name(level)}' in Stan{as_other}; rename it in the data"
    )


def _check_own(formula: Formula, levels: Sequence[str]) -> None:
    """Refuse predictors behind commas of the first two categories."""
    reference, second = (predictor_name(level) for level in levels[:2])
    for name in [item.name for item in formula.others]:
        if name == reference:
            raise InputError(
                f"'{name} ~ ...': '{levels[0]}' is the reference, whose predictor is 0; leave it "
                f"out, or name another reference, as in '{CATEGORICAL}({stan_name(levels[-1])})'"
            )
        if name == second:
            raise InputError(
                f"'{name} ~ ...': the predictor of '{levels[1]}' is the one in front of the "
                f"commas; write its terms there, as '{formula.response} ~ ...'"
            )


def _found(column: pd.Series, name: str) -> list[str]:
    """Return the values that occur: in the order of categories, or else sorted."""
    if hasattr(column, "cat"):
        return [label(value) for value in column.cat.remove_unused_categories().cat.categories]
    values = column.dropna().unique().tolist()
    if any(isinstance(value, float) and value != round(value) for value in values):
        raise InputError(
            f"family {CATEGORICAL} expects strings or whole numbers, but response '{name}' has "
            "fractions; choose another family"
        )
    return [label(value) for value in sorted(values, key=lambda v: (isinstance(v, str), v))]


def category_codes(column: pd.Series, levels: Sequence[str], name: str) -> Array:
    """Return the position, from 1, of each row's category.

    Raises
    ------
    InputError
        For a category that is none of the levels.
    """
    position = {level: k for k, level in enumerate(levels, start=1)}
    codes = [position.get(label(value), 0) for value in column.tolist()]
    if 0 in codes:
        row = codes.index(0)
        raise InputError(
            f"response '{name}' is '{column.iloc[row]}' in row {row + 1}, which is none of its "
            f"categories {', '.join(levels)}"
        )
    return np.array(codes, dtype=float)


def with_levels(formula: Formula, levels: Sequence[str]) -> Formula:
    """Give each category from the third on a predictor, that of eta where it has none.

    Raises
    ------
    InputError
        If the formula names the predictor of the first or the second category.
    """
    _check_own(formula, levels)
    names = [predictor_name(level) for level in levels[2:]]
    return parse_formula(with_predictors(formula.text, names))


def of_levels(levels: tuple[str, ...]) -> Family:
    """Return the record of unordered categories, whose names may not be known yet."""
    names, K = tuple(predictor_name(level) for level in levels[1:]), len(levels)
    columns = [f"logits[ : , {k}] = {name};" for k, name in enumerate(("eta", *names[1:]), 2)]
    return Family(
        name=CATEGORICAL,
        link="logit",
        aliases=(),
        parameters=tuple(
            Dispersion(name, f"log odds of {level} against {levels[0]}", "", link="identity")
            for name, level in zip(names[1:], levels[2:], strict=True)
        ),
        integer=True,
        support=lambda y: (y >= 1) & (y == np.floor(y)) & (y <= (K or np.inf)),
        support_text="categories",
        eta_units=lambda y, _: (log_odds(y, 2), 1.0),
        mean=None,
        log_lik=partial(log_lik, names[1:]),
        rng=partial(rng, names[1:]),
        density="categorical_logit_lpmf({y} | {eta}')",
        stan_rng="categorical_logit_rng({eta}')",
        by_row=True,
        on_default=("logits", ""),
        stan_local=(
            "// Log odds of each category against the first one.",
            f"matrix[{{rows}}, {K}] logits = rep_matrix(0, {{rows}}, {K});",
            *columns,
        ),
        text=f"{CATEGORICAL}({', '.join(levels)})" if levels else "",
        locations=partial(locations, names[1:]),
        probabilities=partial(probabilities, names[1:]),
        levels=levels,
        is_concave=True,
    )


def read_levels(
    name: str, record: Callable[[tuple[str, ...]], Family], options: list[str]
) -> Family:
    """Return a family's record of the levels in brackets, which may be none yet."""
    refuse_many(name, len(options))
    return record(tuple(options))


read = partial(read_levels, CATEGORICAL, of_levels)


def refuse_many(family: str, K: int) -> None:
    """Refuse more categories than a family can have, each of which has a network of its own."""
    if K > MOST:
        raise InputError(f"family {family} has at most {MOST} categories, got {K}")
