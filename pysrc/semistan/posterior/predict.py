"""Posterior predictions: linear predictor, mean, and new responses, as S x N arrays.

The linear predictor has parts besides the intercept,

    eta = b_Intercept + x' theta + f_c(u) + smooths + group-level effects + offsets,

where f_c is the network's part, centred over the training rows in each draw. Where coefficients
are orthogonalised to the network, they hold what it says along their columns, and f_c is without.
A response of K categories has a probability of each in place of a mean, S x N x K. ``dpar`` asks
for a parameter of the response's distribution, as in brms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from semistan.density.predictor import network_output
from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.model.predictor import ParameterDesign
from semistan.model.table.rows import Rows
from semistan.model.varying import predictor_start
from semistan.posterior.categories import category_names
from semistan.posterior.draws import Array, Draws
from semistan.posterior.engine import Engine, torch_engine
from semistan.posterior.penalised import penalised_predictor

CHUNK_ACTIVATIONS = 4_000_000  # activations of the widest layer held at a time
CHUNK_PREDICTIONS = 2_000_000  # predictions (draws times rows) held at a time


def posterior_linpred(
    bundle: Bundle,
    draws: Draws,
    rows: Rows,
    *,
    part: str = "all",
    dpar: str | None = None,
    engine: Engine | None = None,
) -> Array:
    """Draws of the linear predictor eta, or of that of another parameter, shape (S, N).

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    draws : Draws
        Posterior draws, S over all chains.
    rows : Rows
        Rows at which to predict.
    part : str
        ``all``, ``structured`` (x' theta alone, orthogonalised where it is), ``nn`` (f_c alone) or
        ``penalised`` (smooths without their straight parts, and group-level effects).
    dpar : str, optional
        A parameter beside eta, as ``sigma`` or ``muvirginica``: its predictor, which is log sigma
        of sigma, also where the formula has none for it. The name of eta itself, as
        ``muversicolor``, is known too.
    engine : callable, optional
        What computes eta; PyTorch by default.

    Raises
    ------
    InputError
        For a parameter that the family does not have, or a part of one.
    """
    if dpar is not None:
        check_dpar(bundle, dpar, part)
    if dpar is not None and dpar != bundle.design.mean_name:
        return _further_predictor(bundle, draws, rows, dpar)
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    structured = draws.flat(draws.effects) @ rows.X.T
    if part == "structured":
        return structured
    if part == "penalised":
        return penalised_predictor(bundle, draws, rows)
    compute = engine or torch_engine(bundle)
    pieces = _pieces(len(phi), len(rows) * bundle.network.widest)
    eta = np.concatenate([compute(rows.X, rows.U, phi[piece], theta[piece]) for piece in pieces])
    if part == "nn":
        return eta - structured - draws.flat(draws.intercept)[:, None]
    further = penalised_predictor(bundle, draws, rows) if rows.blocks else 0.0
    return eta + further + rows.given.get("offsets", 0.0)


def posterior_epred(
    bundle: Bundle,
    draws: Draws,
    rows: Rows,
    *,
    dpar: str | None = None,
    engine: Engine | None = None,
) -> Array:
    """Draws of the mean mu = g^-1(eta), or of the probability of each category.

    Parameters
    ----------
    bundle, draws, rows, engine
        As for ``posterior_linpred``.
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
    eta = posterior_linpred(bundle, draws, rows, dpar=dpar, engine=engine)
    if dpar is not None:
        names = bundle.family.dispersion
        return np.asarray(bundle.family.parameter(dpar).value(eta)) if dpar in names else eta
    return expected(bundle, eta, distribution(bundle, draws, rows))


def expected(bundle: Bundle, eta: Array, parameters: Mapping[str, Array]) -> Array:
    """Return means (S, N), or probabilities (S, N, K), at eta (S, N)."""
    family = bundle.family
    what = family.probabilities or family.mean
    assert what is not None
    return what(eta, parameters)


def posterior_predict(
    bundle: Bundle,
    draws: Draws,
    rows: Rows,
    generator: np.random.Generator,
    *,
    engine: Engine | None = None,
) -> Array:
    """Draws of new responses, shape (S, N)."""
    eta = posterior_linpred(bundle, draws, rows, engine=engine)
    return bundle.family.rng(eta, distribution(bundle, draws, rows), generator)


def log_lik(bundle: Bundle, draws: Draws, rows: Rows) -> Array:
    """Log-likelihood of each row under each draw, times the row's weight, shape (S, N)."""
    eta = posterior_linpred(bundle, draws, rows)
    density = log_density(bundle, rows, eta, distribution(bundle, draws, rows))
    return density * rows.given.get("weights", 1.0)


def log_density(bundle: Bundle, rows: Rows, eta: Array, parameters: Mapping[str, Array]) -> Array:
    """Log density of each row's response, given eta (S, N) and what ``distribution`` returns.

    Weights do not enter: p^w is no density.
    """
    assert rows.y is not None
    tensors = {name: torch.tensor(value) for name, value in parameters.items()}
    density = bundle.family.log_lik(torch.tensor(rows.y), torch.from_numpy(eta), tensors)
    return np.asarray(density.numpy())


def distribution(bundle: Bundle, draws: Draws, rows: Rows) -> dict[str, Array]:
    """Return what the response's distribution has beside eta.

    Columns (S, 1), rows (N,), or arrays (S, N) of dispersion parameters with a predictor.
    """
    sampled = {name: draws.flat(values)[:, None] for name, values in draws.dispersion.items()}
    varying = {p.name: _varying(bundle, draws, rows, p) for p in bundle.design.parameters}
    return sampled | varying | {name: rows.given[name] for name in bundle.family.given}


def check_dpar(bundle: Bundle, name: str, part: str = "all") -> None:
    """Refuse a parameter that the family does not have, and parts of another predictor than eta.

    Raises
    ------
    InputError
        Naming the nearest parameter.
    """
    family, mean = bundle.family, bundle.design.mean_name
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


def _further_predictor(bundle: Bundle, draws: Draws, rows: Rows, name: str) -> Array:
    """Return draws (S, N) of the predictor of a dispersion parameter that may have none."""
    for item in bundle.design.parameters:
        if item.name == name:
            return _own_predictor(bundle, draws, rows, item)
    values = draws.flat(draws.dispersion[name])[:, None]
    return np.repeat(np.log(values), len(rows), axis=1)


def _varying(bundle: Bundle, draws: Draws, rows: Rows, item: ParameterDesign) -> Array:
    """Return draws (S, N) of a dispersion parameter that has a predictor."""
    value = bundle.family.parameter(item.name).value
    return np.asarray(value(_own_predictor(bundle, draws, rows, item)))


def _own_predictor(bundle: Bundle, draws: Draws, rows: Rows, item: ParameterDesign) -> Array:
    X, theta = rows.further[item.name], np.zeros((draws.size, len(item.coefficients)))
    for j, name in enumerate(item.coefficients):
        theta[:, j] = draws.flat(draws.coefficients[name])
    if not item.networks:
        return np.asarray(draws.flat(draws.coefficients[item.intercept])[:, None] + theta @ X.T)
    start = predictor_start(bundle.family, bundle.units, item.name)
    predictor = start + theta @ (X - bundle.units.further[item.name][0]).T
    phi = draws.flat(draws.phi)
    for piece in _pieces(len(phi), len(rows) * bundle.network.widest):
        w = bundle.subspace.lift(phi[piece])
        predictor[piece] += network_output(
            bundle.network, bundle.units, bundle.trained.w_frozen, w, rows.U, item.name
        )
    return np.asarray(predictor)


def row_chunks(rows: Rows, draws: Draws, bundle: Bundle | None = None) -> Iterator[Rows]:
    """Yield the rows some at a time, so that predictions for them fit in memory.

    With a bundle, its response's categories count: there is a number for each.
    """
    each = max(1, len(category_names(bundle))) if bundle else 1
    for piece in _pieces(len(rows), draws.size * each, CHUNK_PREDICTIONS):
        yield rows.take(np.arange(len(rows))[piece])


def _pieces(items: int, elements_per_item: int, most: int = CHUNK_ACTIVATIONS) -> Iterator[slice]:
    size = max(1, most // elements_per_item)
    for start in range(0, items, size):
        yield slice(start, min(start + size, items))
