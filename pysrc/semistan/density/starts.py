"""The trained parameters as values of what the program samples, and where chains start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.parameter import REAL
from semistan.model.priors.weight_scales import SD_W


def trained_values(bundle: Bundle) -> dict[str, Any]:
    """Return what training found, by the parameters' names in the program."""
    trained, units = bundle.trained, bundle.units
    values: dict[str, Any] = dict(trained.dispersion)
    if scales := bundle.model.weight_scales:
        values[SD_W] = np.ones(len(scales.names))
    for predictor in bundle.design.predictors:
        values[predictor.theta] = trained.linear[predictor.name]
        if predictor.has_tau:
            item = bundle.family.parameter(predictor.name)
            level = item.predictor(trained.dispersion[predictor.name])
            values[predictor.tau] = level - units.location(bundle.family, predictor.name)
        x = trained.terms.get(predictor.name, np.zeros(0))
        for term in predictor.terms:
            own, x = x[: term.training_size], x[term.training_size :]
            values |= term.start(own, units.scale(predictor.name))
    return values


def trained_phi(bundle: Bundle) -> Array:
    """Return the coordinates (k,) of the trained network, or 0 at the centre of a curve."""
    points = bundle.trained.control_points
    return bundle.subspace.project(points[0]) if len(points) == 1 else np.zeros(bundle.subspace.k)


def start_state(bundle: Bundle, values: dict[str, Any]) -> Array:
    """Return q (n,) at values of the parameters, theta among them also where it is made.

    Coefficients that are at a bound of theirs, or beyond it, start a little inside.
    """
    if joint := bundle.model.joint:
        data = bundle.prior_data | values
        values = values | joint.start(np.asarray(values["theta"]), data)
    kinds = {item.name: item.kind for item in bundle.layout.parameters}
    inside = {
        name: kinds[name].inside(values[name], unit)
        for name, unit in _units_of_coefficients(bundle)
        if name in kinds and kinds[name] is not REAL
    }
    return bundle.layout.pack(values | inside)


def _units_of_coefficients(bundle: Bundle) -> Iterator[tuple[str, Any]]:
    """Yield the names of what may have bounds that the user gives, with the units."""
    for predictor in bundle.design.predictors:
        yield predictor.theta, bundle.units.coefficient_scale(predictor.name)
        for term in predictor.terms:
            for item in term.hyperparameters():
                if item.kind is REAL:
                    yield item.name, bundle.units.scale(predictor.name) * item.unit
