"""Draws of all parameters from their priors, made without Stan.

What the program derives from the parameters, such as b_Intercept, is derived here as well.
"""

from __future__ import annotations

import numpy as np

from semistan.density.prior_states import prior_states
from semistan.density.target import make_target
from semistan.infer.stan_csv import sampled_columns
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
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
    columns = sampled_columns(target, prior_states(bundle, size, generator), zeros, zeros)
    chains = [
        {name: values.reshape(shape)[chain] for name, values in columns.items()}
        for chain in range(shape[0])
    ]
    draws = draws_of_columns(bundle, chains, SampleConfig())
    orthogonal = bundle.model.orthogonal
    if not orthogonal or draws.orthogonal:
        return draws
    return orthogonalised(bundle, draws, network_along(bundle, rows, draws.phi, orthogonal))
