"""Draws of predictors and parameters at some rows, of one subspace, as S x N arrays.

The linear predictor has parts besides the intercept,

    eta = b_Intercept + x' theta + f_c(u) + smooths + group-level effects + offsets,

where f_c is the network's part, centred over the training rows in each draw. Where coefficients
are orthogonalised to the network, they hold what it says along their columns, and f_c is without.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from semistan.density.predictor import network_output
from semistan.model.bundle import Bundle
from semistan.model.predictor import ParameterDesign
from semistan.model.table.rows import Rows
from semistan.model.varying import predictor_start
from semistan.posterior.draws import Array, Draws
from semistan.posterior.engine import Engine, torch_engine
from semistan.posterior.penalised import penalised_predictor

CHUNK_ACTIVATIONS = 4_000_000  # activations of the widest layer held at a time


def predictor_draws(
    bundle: Bundle, draws: Draws, rows: Rows, name: str | None, part: str, engine: Engine | None
) -> Array:
    """Return draws (S, N) of eta or a part of it, or of the predictor of a named parameter.

    ``Posterior.predictor`` says what the arguments mean; the engine is PyTorch by default.
    """
    if name is not None:
        return _further_predictor(bundle, draws, rows, name)
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    structured = draws.flat(draws.effects) @ rows.X.T
    if part == "structured":
        return structured
    if part == "penalised":
        return penalised_predictor(bundle, draws, rows)
    compute = engine or torch_engine(bundle)
    pieces = pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS)
    eta = np.concatenate([compute(rows.X, rows.U, phi[piece], theta[piece]) for piece in pieces])
    if part == "nn":
        return eta - structured - draws.flat(draws.intercept)[:, None]
    further = penalised_predictor(bundle, draws, rows) if rows.blocks else 0.0
    return eta + further + rows.given.get("offsets", 0.0)


def parameter_draws(bundle: Bundle, draws: Draws, rows: Rows) -> dict[str, Array]:
    """Return draws of dispersion parameters: (S, 1), or (S, N) of those with a predictor."""
    sampled = {name: draws.flat(values)[:, None] for name, values in draws.dispersion.items()}
    return sampled | {p.name: _varying(bundle, draws, rows, p) for p in bundle.design.parameters}


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
    for piece in pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS):
        w = bundle.subspace.lift(phi[piece])
        predictor[piece] += network_output(
            bundle.network, bundle.units, bundle.trained.w_frozen, w, rows.U, item.name
        )
    return np.asarray(predictor)


def pieces_of(items: int, elements_per_item: int, most: int) -> Iterator[slice]:
    """Cut items into pieces of at most so many elements."""
    size = max(1, most // elements_per_item)
    for start in range(0, items, size):
        yield slice(start, min(start + size, items))
