"""What smooths and group-level terms add to the linear predictor, in each draw.

Levels that the model was not trained on are drawn from the distribution of the levels, normal with
the draw's standard deviations and correlations: the same for all rows of a level, and whenever it
is predicted.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from semistan.model.bundle import Bundle
from semistan.model.table.rows import Block, Rows
from semistan.model.terms.group import Group
from semistan.posterior.draws import Array, Draws


def penalised_predictor(bundle: Bundle, draws: Draws, rows: Rows) -> Array:
    """Return the sum of these terms, shape (S, N)."""
    total = np.zeros((draws.size, len(rows)))
    for term, r, block in zip(bundle.design.penalised, draws.penalised, rows.blocks, strict=True):
        coefficients = draws.flat(r)
        if isinstance(term, Group):
            coefficients = _with_new_levels(term, draws, coefficients, block)
        total += _product(coefficients, block)
    return total


def _product(r: Array, block: Block) -> Array:
    """Return Z[n] r[level[n]], shape (S, N), of coefficients r (S, levels, m); 0 at level -1."""
    if r.shape[1] == 1:
        return np.asarray(r[:, 0] @ block.Z.T)
    total = np.zeros((len(r), len(block.Z)))
    for j, column in enumerate(block.Z.T):
        total += r[:, block.level, j] * (column * (block.level >= 0))
    return total


def _with_new_levels(group: Group, draws: Draws, r: Array, block: Block) -> Array:
    if not block.new:
        return r
    sd = np.stack([draws.flat(draws.spread[name]) for name in group.spread], axis=-1)
    root = sd[:, :, None] * _correlation_root(group, draws)
    new = []
    for label in block.new:
        seed = (crc32(group.name.encode()), crc32(label.encode()))
        z = np.random.default_rng(seed).normal(size=(draws.size, group.size))
        new.append(np.einsum("sij,sj->si", root, z))
    return np.concatenate([r, np.stack(new, axis=1)], axis=1)


def _correlation_root(group: Group, draws: Draws) -> Array:
    """Return Cholesky factors (S, m, m) of the effects' correlation matrices."""
    matrix = np.tile(np.eye(group.size), (draws.size, 1, 1))
    for name, (i, j) in zip(group.correlations, group.pairs, strict=True):
        matrix[:, i, j] = matrix[:, j, i] = draws.flat(draws.spread[name])
    return np.asarray(np.linalg.cholesky(matrix), dtype=float)
