"""Draws made without sampling, for the fast tests: normal around the trained state."""

import numpy as np
import torch

from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.model.families.ordinal import intercept_names
from semistan.model.layout import column_names
from semistan.model.parameter import CORRELATION, POSITIVE
from semistan.model.priors.section import PriorConfig
from semistan.model.terms.term import element_labels
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
            **{slope.name: generator.normal(size=shape) for slope in bundle.design.mean.slopes},
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
        **_of_terms(bundle, np.random.default_rng(seed + 1), shape),
    )


def _intercepts(bundle, values):
    """The intercept, or thresholds that rise from it."""
    names = intercept_names(bundle.family.reported_categories, bundle.design.intercept)
    return {name: values + j for j, name in enumerate(names)}


def _varying(bundle, generator, shape):
    """Coefficients of dispersion parameters around the trained ones."""
    found = {}
    for item in bundle.design.others:
        trained, (_, scale) = bundle.trained.linear[item.name], bundle.units.columns[item.name]
        found[item.intercept] = generator.normal(size=shape)
        for j, name in enumerate(item.coefficients):
            found[name] = trained[j] + 0.1 / scale[j] * generator.normal(size=shape)
        found |= {slope.name: generator.normal(size=shape) for slope in item.slopes}
    return found


def _of_terms(bundle, generator, shape):
    """What the terms make of parameters around the trained ones, with any spreads."""
    spread, terms = {}, {}
    every = [{} for _ in range(np.prod(shape))]  # a term's state may depend on those before it
    for predictor in bundle.design.predictors:
        trained, scale = bundle.trained.terms[predictor.name], bundle.units.scale(predictor.name)
        for term in predictor.terms:
            x, trained = trained[: term.training_size], trained[term.training_size :]
            states = [
                _state(term, x * (1 + 0.1 * generator.normal(size=len(x))), scale, generator)
                for _ in range(np.prod(shape))
            ]
            every = [{**state, **before} for state, before in zip(states, every, strict=True)]
            made = [{**term.made(state), **term.quantities(state)} for state in every]
            named = {name: np.stack([item[name] for item in made]) for name in made[0]}
            named = {name: x.reshape(*shape, *x.shape[1:]) for name, x in named.items()}
            terms |= {name: named.pop(name) for name in term.made_shapes}
            for name, made_shape in term.made_shapes.items():
                columns = column_names(name, made_shape).items()
                shown = element_labels(term)
                spread |= {shown[column]: terms[name][:, :, *place] for column, place in columns
                           if shown.get(column) in term.reported}  # fmt: skip
            spread |= named
            for item in term.hyperparameters():
                state = np.array([float(state[item.name]) for state in states]).reshape(shape)
                noise = generator.normal(size=shape)
                spread[item.name] = np.exp(noise) if item.kind is POSITIVE else state + 0.1 * noise
    return {"spread": spread, "terms": terms}


def _state(term, x, scale, generator):
    """The parameters of a term at trained x, with any correlations."""
    state = term.start(x, scale)
    for item in term.parameters(PriorConfig()):
        if item.kind is CORRELATION:
            state[item.name] = item.prior.draw(generator, 1, item.shape)[0]
    return {name: torch.as_tensor(value, dtype=torch.float64) for name, value in state.items()}
