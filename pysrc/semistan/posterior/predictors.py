"""Draws of predictors and parameters at some rows, of one subspace, as S x N arrays.

The linear predictor has parts besides the intercept,

    eta = b_Intercept + x' theta + f_c(u) + smooths + group-level effects + offsets,

where f_c is the network's part, centred over the training rows in each draw. Where coefficients
are orthogonalised to the network, they hold what it says along their columns, and f_c is without.
"""

from __future__ import annotations

import numpy as np

from semistan.density.features import at_features
from semistan.density.pieces import pieces_of
from semistan.density.predictor import network_output
from semistan.model.bundle import Bundle
from semistan.model.predictor import Predictor
from semistan.model.table.rows import Rows
from semistan.posterior.draws import Array, Draws, level
from semistan.posterior.engine import Engine, torch_engine

CHUNK_ACTIVATIONS = 4_000_000  # activations of the widest layer held at a time


def predictor_draws(
    bundle: Bundle, draws: Draws, rows: Rows, name: str | None, part: str, engine: Engine | None
) -> Array:
    """Return draws (S, N) of eta or a part of it, or of the predictor of a named parameter.

    ``Posterior.predictor`` says what the arguments mean; the engine is PyTorch by default.
    """
    if name is not None:
        return _other_predictor(bundle, draws, rows, name)
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    structured = draws.flat(draws.effects) @ rows.X.T
    if part == "structured":
        return structured
    if part == "penalised":
        return _terms(bundle.design.mean, draws, rows)
    if engine is None:
        bundle, rows = at_features(bundle, rows)
    compute = engine or torch_engine(bundle)
    pieces = pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS)
    eta = np.concatenate([compute(rows.X, rows.U, phi[piece], theta[piece]) for piece in pieces])
    if part == "nn":
        return eta - structured - draws.flat(level(bundle, draws))[:, None]
    return eta + _rest(bundle.design.mean, draws, rows)


def parameter_draws(bundle: Bundle, draws: Draws, rows: Rows) -> dict[str, Array]:
    """Return draws of dispersion parameters: (S, 1), or (S, N) of those with a predictor."""
    sampled = {name: draws.flat(values)[:, None] for name, values in draws.dispersion.items()}
    varying = {
        item.name: np.asarray(
            bundle.family.parameter(item.name).value(_own_predictor(bundle, draws, rows, item))
        )
        for item in bundle.design.others
    }
    return sampled | varying


def _other_predictor(bundle: Bundle, draws: Draws, rows: Rows, name: str) -> Array:
    """Return draws (S, N) of the predictor of a dispersion parameter that may have none."""
    if name in bundle.design.varying:
        return _own_predictor(bundle, draws, rows, bundle.design.predictor(name))
    values = draws.flat(draws.dispersion[name])[:, None]
    return np.repeat(bundle.family.parameter(name).predictor(values), len(rows), axis=1)


def _own_predictor(bundle: Bundle, draws: Draws, rows: Rows, item: Predictor) -> Array:
    X, theta = rows.predictors[item.name].X, np.zeros((draws.size, len(item.coefficients)))
    for j, name in enumerate(item.coefficients):
        theta[:, j] = draws.flat(draws.coefficients[name])
    if not item.networks:
        level = draws.flat(draws.coefficients[item.intercept])[:, None]
        return np.asarray(level + theta @ X.T + _rest(item, draws, rows))
    bundle, rows = at_features(bundle, rows)
    start = bundle.units.location(bundle.family, item.name)
    predictor = start + theta @ (X - bundle.units.columns[item.name][0]).T
    phi = draws.flat(draws.phi)
    for piece in pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS):
        w = bundle.subspace.lift(phi[piece])
        predictor[piece] += network_output(bundle.network, bundle.units, w, rows.U, item.name)
    return np.asarray(predictor + _rest(item, draws, rows))


def _rest(predictor: Predictor, draws: Draws, rows: Rows) -> Array | float:
    """Return what terms and offset add to a predictor, (S, N) or one that broadcasts to it."""
    offset = rows.predictors[predictor.name].offset
    terms = _terms(predictor, draws, rows) if predictor.terms else 0.0
    return terms if offset is None else terms + offset


def _terms(predictor: Predictor, draws: Draws, rows: Rows) -> Array:
    """Return the sum (S, N) of a predictor's other terms."""
    total = np.zeros((draws.size, len(rows)))
    values = {name: draws.flat(x) for name, x in {**draws.spread, **draws.terms}.items()}
    blocks = rows.predictors[predictor.name].blocks
    for term, block in zip(predictor.terms, blocks, strict=True):
        total += term.predicted(values, block)
    return total
