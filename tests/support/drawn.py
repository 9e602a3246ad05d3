"""Draws made without sampling, for the fast tests: normal around the trained state."""

import numpy as np

from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.model.families.cumulative import intercept_names
from semistan.posterior.draws import Draws


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
            **_intercepts(bundle, generator.normal(size=shape)),
            **{name: theta[..., j] for j, name in enumerate(names)},
            **_varying(bundle, np.random.default_rng(seed + 2), shape),
        },
        dispersion={
            name: value * np.exp(0.1 * generator.normal(size=shape))
            for name, value in bundle.trained.dispersion.items()
            if name not in bundle.design.varying
        },
        lprior=generator.normal(size=shape),
        sampler={
            **{name: generator.normal(size=shape) for name in NUTS_COLUMNS},
            "tree_depth": np.full(shape, 3.0),
            "n_steps": np.full(shape, 7.0),
            "diverging": np.zeros(shape),
        },
        max_treedepth=10,
        **_penalised(bundle, np.random.default_rng(seed + 1), shape),
    )


def _intercepts(bundle, values):
    """The intercept, or thresholds that rise from it."""
    names = intercept_names(bundle.family.categories, bundle.design.intercept)
    return {name: values + j for j, name in enumerate(names)}


def _varying(bundle, generator, shape):
    """Coefficients of dispersion parameters around the trained ones."""
    found = {}
    for item in bundle.design.others:
        trained, (_, scale) = bundle.trained.linear[item.name], bundle.units.columns[item.name]
        found[item.intercept] = generator.normal(size=shape)
        for j, name in enumerate(item.coefficients):
            found[name] = trained[j] + 0.1 / scale[j] * generator.normal(size=shape)
    return found


def _penalised(bundle, generator, shape):
    """Coefficients of smooths and groups around the trained ones, with any spreads."""
    spread, terms = {}, {}
    r = np.concatenate([bundle.trained.terms[item.name] for item in bundle.design.predictors])
    for term in bundle.design.terms:
        m, levels = term.size, term.n_levels
        trained, r = r[: levels * m].reshape(levels, m), r[levels * m :]
        noise = generator.normal(size=(*shape, levels, m))
        ((name, made),) = term.made_shapes.items()
        terms[name] = (trained * (1 + 0.1 * noise)).reshape(*shape, *made)
        spread |= {name: np.exp(generator.normal(size=shape)) for name in term.spread}
        rows = generator.normal(size=(*shape, m, m + 2))
        rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
        pairs = ((a, b) for a in range(m) for b in range(a))
        names = zip(getattr(term, "correlations", ()), pairs, strict=False)
        spread |= {name: (rows[..., a, :] * rows[..., b, :]).sum(-1) for name, (a, b) in names}
    return {"spread": spread, "terms": terms}
