"""Shares of categories that add up to 1: the Dirichlet model of a composition.

As in the categorical model, each category but the first has a predictor of its own, here of the
mean of its share, and one precision says how far shares are from their means,

    (y_i1, ..., y_iK) ~ Dirichlet(precision p_i),
    p_ik = exp(mu_ik) / (exp(mu_i1) + ... + exp(mu_iK)),    mu_i1 = 0

so that the variance of y_ik is p_ik (1 - p_ik) / (1 + precision). The formula has the columns in
``cbind(a, b, c)``, and the predictors are called after them, ``mub`` and ``muc``, as in brms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families import categorical, multinomial
from semistan.model.families.beta import BETA, PRECISION, TINY
from semistan.model.families.common import log_gamma
from semistan.model.families.family import Family
from semistan.model.formula.formula import Formula

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

DIRICHLET = "dirichlet"


def log_lik(
    names: Sequence[str], y: Tensor, eta: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """Return the log density of shares (..., K); ``names`` are those of mu_3, ..., mu_K."""
    precision = parameters["precision"]
    log_p = categorical.log_probabilities(names, eta, parameters)
    log_a = precision.log().unsqueeze(-1) + log_p
    a = log_a.exp()
    # 1 / gamma(a) = a / gamma(1 + a) is finite where a underflows
    of_share = log_a - (1 + a).lgamma() + (a - 1) * y.log()
    return precision.lgamma() + of_share.sum(dim=-1)


def rng(
    names: Sequence[str],
    eta: Array,
    parameters: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw the shares (..., K) of each element of eta."""
    p = categorical.probabilities(names, eta, parameters)
    a = np.maximum(np.asarray(parameters["precision"])[..., None] * p, TINY)
    logs = log_gamma(generator, a)
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def composed_categories(formula: Formula, _: pd.DataFrame, first: Sequence[str]) -> tuple[str, ...]:
    """Return the categories: the columns of the response, the reference first.

    Raises
    ------
    InputError
        If the response is one column, has very many, or if the family names others.
    """
    what = f"family {DIRICHLET} has the share of each of several categories, each in a column"
    return multinomial.columns_of(DIRICHLET, what, "cbind(a, b, c) ~ ...", formula, first)


def of_levels(levels: tuple[str, ...]) -> Family:
    """Return the record of shares of categories, whose names may not be known yet."""
    names, of_counts = categorical.other_names(levels), multinomial.of_levels(levels)
    return replace(
        of_counts,
        name=DIRICHLET,
        parameters=(*of_counts.parameters, PRECISION),
        integer=False,
        support=BETA.support,
        support_text=BETA.support_text,
        log_lik=partial(log_lik, names),
        rng=partial(rng, names),
        density="dirichlet_logit_lpdf({y} | {eta}', {precision})",
        stan_rng="dirichlet_logit_rng({eta}', {precision})",
        density_functions=("dirichlet_logit.stanfunctions",),
        given=(),
        is_concave=False,
        text=f"{DIRICHLET}({', '.join(levels)})" if levels else "",
    )


read = partial(categorical.read_levels, DIRICHLET, of_levels)
