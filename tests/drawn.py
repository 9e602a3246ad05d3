"""Draws made without sampling, for the fast tests: normal around the trained state."""

import numpy as np

from semistan.posterior.draws import Draws
from semistan.stan.methods import NUTS_COLUMNS


def random_draws(bundle, *, chains=2, iterations=50, seed=0):
    """Return draws (C, S) of a bundle's parameters; they are from no posterior."""
    generator = np.random.default_rng(seed)
    shape = (chains, iterations)
    theta_scale = 0.1 * bundle.units.theta_scale
    theta = bundle.trained.theta + theta_scale * generator.normal(size=(*shape, len(theta_scale)))
    names = bundle.design.coefficients
    return Draws(
        phi=generator.normal(size=(*shape, bundle.subspace.k)),
        theta=theta,
        coefficients={
            "b_Intercept": generator.normal(size=shape),
            **{name: theta[..., j] for j, name in enumerate(names)},
        },
        dispersion={
            name: value * np.exp(0.1 * generator.normal(size=shape))
            for name, value in bundle.trained.dispersion.items()
        },
        lprior=generator.normal(size=shape),
        sampler={
            **{name: generator.normal(size=shape) for name in NUTS_COLUMNS},
            "tree_depth": np.full(shape, 3.0),
            "n_steps": np.full(shape, 7.0),
            "diverging": np.zeros(shape),
        },
        max_treedepth=10,
    )
