"""Coordinates q of the predictors of dispersion parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.predictor import ParameterDesign
from semistan.model.varying import predictor_start


def parameter_coordinates(design: Design) -> int:
    """Return the number of their unconstrained coordinates."""
    return sum(item.size for item in design.parameters)


def trained_coordinates(bundle: Bundle) -> Array:
    """Return the trained coefficients in the coordinates of q."""
    values: dict[str, Any] = {}
    for item in bundle.design.parameters:
        level = bundle.family.parameter(item.name).predictor(bundle.trained.dispersion[item.name])
        values[f"tau_{item.name}"] = level - predictor_start(bundle.family, bundle.units, item.name)
        values[f"theta_{item.name}"] = bundle.trained.further[item.name]
    return coordinates_at(bundle, values)


def split_coordinates(design: Design, x: Any) -> Iterator[tuple[ParameterDesign, Any, Any]]:
    """Yield each predictor with its tau (0 or 1 of them) and its coefficients, of q's part x."""
    start = 0
    for item in design.parameters:
        middle, stop = start + item.has_tau, start + item.size
        yield item, x[start:middle], x[middle:stop]
        start = stop


def parameter_values(bundle: Bundle, x: Any, like: Callable[[Array], Any]) -> dict[str, Any]:
    """Return the program's parameters by name at q's part x; ``like`` makes an array its kind."""
    values: dict[str, Any] = {}
    for item, tau, theta in split_coordinates(bundle.design, x):
        if item.has_tau:
            values[f"tau_{item.name}"] = tau[0]
        if item.coefficients:
            values[f"theta_{item.name}"] = theta * like(1 / bundle.units.further[item.name][1])
    return values


def coordinates_at(bundle: Bundle, values: Mapping[str, Any]) -> Array:
    """Return q's part (..., n) at the program's parameters, the inverse of ``parameter_values``."""
    found = []
    for item in bundle.design.parameters:
        if item.has_tau:
            found.append(np.asarray(values[f"tau_{item.name}"])[..., None])
        if item.coefficients:
            scale = bundle.units.further[item.name][1]
            found.append(np.asarray(values[f"theta_{item.name}"]) * scale)
    return np.concatenate(found, axis=-1) if found else np.zeros(0)


def parameters_log_slope(bundle: Bundle) -> float:
    """Return the log Jacobian of the parameters by q's part."""
    scales = (bundle.units.further[item.name][1] for item in bundle.design.parameters)
    return -sum(float(np.log(scale).sum()) for scale in scales)
