"""Draws of all parameters from their priors, made without Stan.

The parameters are independent, but for weights and their scales; a density that is cut off at
zero is drawn by inversion,

    sigma = S^-1(u S(0)),    u ~ U(0, 1),    S(x) = P(sigma > x).

What the program derives from the parameters, such as b_Intercept, is derived here as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistan.density.target import make_target
from semistan.infer.stan_csv import sampled_columns
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.priors.prior import PHI, PriorGroup, scipy_priors
from semistan.model.priors.weight_scales import SD_W
from semistan.model.table.rows import Rows
from semistan.posterior.draws import Draws, draws_of_columns, orthogonalised
from semistan.posterior.orthogonal import network_along


def prior_draws(
    bundle: Bundle, rows: Rows, shape: tuple[int, int], generator: np.random.Generator
) -> Draws:
    """Draw every parameter from its prior.

    Parameters
    ----------
    bundle : Bundle
        The trained model; its subspace is given, as in a run with ``--prior-only``.
    rows : Rows
        The training rows, over which b_Intercept is a mean.
    shape : tuple of int
        Chains and draws of each; all draws are independent.
    generator : numpy.random.Generator
        The source of all randomness.

    Returns
    -------
    Draws
        As if read from a run.
    """
    size = shape[0] * shape[1]
    target = make_target(bundle, rows, prior_only=True)
    zeros = np.zeros(size)
    columns = sampled_columns(target, _states(bundle, size, generator), zeros, zeros)
    chains = [
        {name: values.reshape(shape)[chain] for name, values in columns.items()}
        for chain in range(shape[0])
    ]
    draws = draws_of_columns(bundle, chains, SampleConfig())
    orthogonal = bundle.model.orthogonal
    if not orthogonal or draws.orthogonal:
        return draws
    return orthogonalised(bundle, draws, network_along(bundle, rows, draws.phi, orthogonal))


def _states(bundle: Bundle, size: int, generator: np.random.Generator) -> Array:
    """Return draws (size, n) of q."""
    layout = bundle.layout
    values = {p.name: np.zeros((size, *p.shape)) for p in layout.parameters}
    for group, prior in scipy_priors(bundle):
        chosen = slice(None) if group.members is None else list(group.members)
        part = values[group.parameter]
        part[..., chosen] = _drawn(group, prior, part[..., chosen].shape, generator)
    if scales := bundle.model.weight_scales:
        factor = np.column_stack([np.ones(size), values[SD_W]])[:, scales.of]
        centre = bundle.subspace.phi_location
        values[PHI] = centre + factor * (values[PHI] - centre)
    for p in layout.parameters:
        if p.prior is not None:
            values[p.name] = p.prior.draw(generator, size, p.shape)
    return np.stack([layout.pack({name: x[i] for name, x in values.items()}) for i in range(size)])


def _drawn(
    group: PriorGroup, distribution: Any, shape: tuple[int, ...], generator: np.random.Generator
) -> Array:
    if group.is_truncated:
        return np.asarray(distribution.isf(generator.random(shape) * distribution.sf(0)))
    return np.asarray(distribution.rvs(size=shape, random_state=generator))
