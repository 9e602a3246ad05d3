"""Posterior predictions: linear predictor, mean, and new responses, as S x N arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.model.design import Rows
from semistan.posterior.draws import Array, Draws
from semistan.subspace.predictor import linear_predictor

Kind = Literal["epred", "linpred", "predict"]

CHUNK_ELEMENTS = 4_000_000  # activations of the widest layer held at a time


def posterior_linpred(bundle: Bundle, draws: Draws, rows: Rows) -> Array:
    """Draws of the linear predictor eta, shape (S, N).

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    draws : Draws
        Posterior draws, S over all chains.
    rows : Rows
        Rows at which to predict.
    """
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    chunks = [
        linear_predictor(
            bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi[part], theta[part]
        )
        for part in _chunks(len(phi), len(rows) * max(bundle.network.widths))
    ]
    return np.concatenate(chunks)


def posterior_epred(bundle: Bundle, draws: Draws, rows: Rows) -> Array:
    """Draws of the mean mu = g^-1(eta), shape (S, N)."""
    return bundle.family.mean(posterior_linpred(bundle, draws, rows))


def posterior_predict(
    bundle: Bundle, draws: Draws, rows: Rows, generator: np.random.Generator
) -> Array:
    """Draws of new responses, shape (S, N)."""
    eta = posterior_linpred(bundle, draws, rows)
    return bundle.family.rng(eta, _dispersion(draws), generator)


def log_lik(bundle: Bundle, draws: Draws, rows: Rows) -> Array:
    """Log-likelihood of each row under each draw, shape (S, N)."""
    import torch

    assert rows.y is not None
    eta = torch.from_numpy(posterior_linpred(bundle, draws, rows))
    dispersion = {name: torch.tensor(value) for name, value in _dispersion(draws).items()}
    return np.asarray(bundle.family.log_lik(torch.tensor(rows.y), eta, dispersion).numpy())


def _dispersion(draws: Draws) -> dict[str, Array]:
    """Return each dispersion parameter as a column (S, 1)."""
    return {name: draws.flat(values)[:, None] for name, values in draws.dispersion.items()}


def _chunks(draws: int, elements_per_draw: int) -> Iterator[slice]:
    size = max(1, CHUNK_ELEMENTS // elements_per_draw)
    for start in range(0, draws, size):
        yield slice(start, start + size)
