"""Posterior predictions: linear predictor, mean, new responses and log-likelihood, S x N arrays.

A response of K categories has a probability of each in place of a mean, S x N x K. ``dpar`` asks
for a parameter of the response's distribution, as in brms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from semistan.density.pieces import pieces_of
from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.table.rows import Rows
from semistan.posterior.categories import category_names
from semistan.posterior.marginal_groups import has_groups, over_groups
from semistan.posterior.options import MARGINAL, check_response_groups
from semistan.posterior.posterior import MEAN, Posterior

CHUNK_PREDICTIONS = 2_000_000  # predictions (draws times rows) held at a time


def posterior_linpred(
    posterior: Posterior, rows: Rows, *, part: str = "all", dpar: str | None = None
) -> Array:
    """Draws of the linear predictor eta, or of that of another parameter, shape (S, N).

    Parameters
    ----------
    posterior : Posterior
        The posterior, of S draws.
    rows : Rows
        Rows at which to predict.
    part : str
        ``all``, ``structured`` (x' theta alone, orthogonalised where it is), ``nn`` (the network,
        centred) or ``penalised`` (smooths without their straight parts, and group-level effects).
    dpar : str, optional
        A parameter other than eta, as ``sigma`` or ``muvirginica``: its predictor, which is log
        sigma of sigma, also where the formula has none for it. The name of eta itself, as
        ``muversicolor``, is known too.

    Raises
    ------
    InputError
        For a parameter that the family does not have, or a part of one.
    """
    if dpar is None:
        return posterior.predictor(rows, part=part)
    check_dpar(posterior.family, posterior.design, dpar, part)
    return posterior.predictor(rows, MEAN if dpar == posterior.design.mean_name else dpar)


def posterior_epred(posterior: Posterior, rows: Rows, *, dpar: str | None = None) -> Array:
    """Draws of the mean mu = g^-1(eta), or of the probability of each category.

    Where the effects of groups are ``marginal``, this is its expectation over them in each draw.

    Parameters
    ----------
    posterior : Posterior
        The posterior, of S draws.
    rows : Rows
        Rows at which to predict.
    dpar : str, optional
        A parameter of which to return the value instead, as ``sigma`` or ``muvirginica``.

    Returns
    -------
    array, shape (S, N), or (S, N, K) of a response of K categories

    Raises
    ------
    InputError
        For a parameter that the family does not have.
    """
    family, eta = posterior.family, posterior_linpred(posterior, rows, dpar=dpar)
    if dpar is not None:
        if dpar not in family.dispersion:
            return eta
        return over_groups(posterior, rows, {dpar: eta}, lambda at: _values(family, at)[dpar])
    predictors = {MEAN: eta}
    if posterior.groups == MARGINAL:
        names = (item.name for item in posterior.design.others if has_groups(item))
        predictors |= {name: posterior.predictor(rows, name) for name in names}
    given = distribution(posterior, rows)

    def mean(at: Mapping[str, Array]) -> Array:
        others = {name: x for name, x in at.items() if name != MEAN}
        return expected(family, at[MEAN], given | _values(family, others))

    return over_groups(posterior, rows, predictors, mean)


def _values(family: Family, predictors: Mapping[str, Array]) -> dict[str, Array]:
    """Return parameters of the distribution at their predictors."""
    return {name: np.asarray(family.parameter(name).value(x)) for name, x in predictors.items()}


def posterior_predict(posterior: Posterior, rows: Rows, generator: np.random.Generator) -> Array:
    """Draws of new responses, shape (S, N).

    Raises
    ------
    InputError
        If the effects of groups are ``marginal``.
    """
    check_response_groups(posterior.groups)
    eta = posterior.predictor(rows)
    return posterior.family.rng(eta, distribution(posterior, rows), generator)


def log_lik(posterior: Posterior, rows: Rows) -> Array:
    """Log-likelihood of each row under each draw, times the row's weight, shape (S, N)."""
    eta = posterior.predictor(rows)
    density = log_density(posterior.family, rows, eta, distribution(posterior, rows))
    return density * rows.given.get("weights", 1.0)


def distribution(posterior: Posterior, rows: Rows) -> dict[str, Array]:
    """Return what the response's distribution has apart from eta.

    Columns (S, 1), rows (N,), or arrays (S, N) of dispersion parameters with a predictor.
    """
    needed = posterior.family.given
    if rows.y is None:  # how a response is censored is not known without one
        needed = tuple(name for name in needed if name not in ("cens", "y2"))
    given = {name: rows.given[name] for name in needed}
    return posterior.parameters(rows) | given


def expected(family: Family, eta: Array, parameters: Mapping[str, Array]) -> Array:
    """Return means (S, N), or probabilities (S, N, K), at eta (S, N)."""
    what = family.probabilities or family.mean
    assert what is not None
    return what(eta, parameters)


def log_density(family: Family, rows: Rows, eta: Array, parameters: Mapping[str, Array]) -> Array:
    """Log density of each row's response, given eta (S, N) and what ``distribution`` returns.

    Weights do not enter: p^w is no density.

    Raises
    ------
    InputError
        If the rows have no response.
    """
    if rows.y is None:
        raise InputError(
            "the log density needs the rows' response: make them by new_rows(..., response=True)"
        )
    tensors = {name: torch.tensor(value) for name, value in parameters.items()}
    density = family.log_lik(torch.tensor(rows.y), torch.from_numpy(eta), tensors)
    return np.asarray(density.numpy())


def check_dpar(family: Family, design: Design, name: str, part: str = "all") -> None:
    """Refuse a parameter that the family does not have, and parts of another predictor than eta.

    Raises
    ------
    InputError
        Naming the nearest parameter.
    """
    mean = design.mean_name
    known = (*([mean] if mean else []), *family.dispersion)
    if not known:
        raise InputError(f"family {family.name} has no parameter '{name}' beside its mean")
    if name not in known:
        raise InputError(
            f"family {family.name} has no parameter '{name}'.{did_you_mean(name, known)}"
        )
    if part != "all":
        raise InputError(
            f"only the linear predictor eta is a sum of parts: ask for part '{part}' without a "
            f"parameter, or for '{name}' without a part"
        )


def row_chunks(posterior: Posterior, rows: Rows, numbers: int = 1) -> Iterator[Rows]:
    """Yield the rows some at a time, so that predictions for them fit in memory.

    There is a number for each category of a response that has some, and there may be more for each
    row and draw.
    """
    each = numbers * max(1, len(category_names(posterior.family, posterior.design)))
    for piece in pieces_of(len(rows), posterior.size * each, CHUNK_PREDICTIONS):
        yield rows.take(np.arange(len(rows))[piece])
