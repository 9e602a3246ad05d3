"""What a model samples: its parameters in the order in which the program declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.model import Model
from semistan.model.parameter import POSITIVE, REAL, Parameter
from semistan.model.predictor import Predictor
from semistan.model.priors.groups import PHI, PriorGroup, kind_of_coefficients
from semistan.model.priors.weight_scales import SD_W


def parameters_of(
    model: Model,
    phi_scale: Array | None = None,
    prior_data: Mapping[str, Any] | None = None,
    information: Mapping[str, Array] | None = None,
) -> tuple[Parameter, ...]:
    """Return the parameters in the program's order.

    Parameters
    ----------
    model : Model
        The model.
    phi_scale : array, shape (k,), optional
        The units of the subspace's coordinates, which are known after training.
    prior_data : mapping, optional
        The arguments of the priors as used, which the parameters of a joint prior need.
    information : mapping, optional
        The rows' information on standardised coefficients, by the parameter.
    """
    scale = np.zeros(0) if phi_scale is None else phi_scale
    text = "subspace coordinates"
    found = [Parameter(PHI, text, scale.shape, ("k",), unit=scale, multiplier="phi_scale")]
    if scales := model.weight_scales:
        text = "factor of the scale of each group of weights"
        found.append(Parameter(SD_W, text, (len(scales.names),), (f"n_{SD_W}",), POSITIVE))
    for predictor in model.design.predictors:
        found += _linear_parameters(model, predictor, prior_data or {})
    found += [
        Parameter(group.parameter, group.text, kind=group.kind)
        for group in scalar_priors(model)
        if not group.density.is_constant
    ]
    sampled = {parameter.name for parameter in found}
    for term in model.design.terms:  # their units may depend on what stands above
        for item in term.parameters(model.config.priors):
            by_sampled = item.centring is None or sampled.issuperset(item.centring.by)
            known = (information or {}).get(item.name, 0.0)
            found.append(item.informed(known) if by_sampled else replace(item, centring=None))
    return tuple(found)


def scalar_priors(model: Model) -> tuple[PriorGroup, ...]:
    """Return the priors of dispersion parameters and of the terms' scalars."""
    taus = {predictor.tau for predictor in model.design.predictors}
    return tuple(group for group in model.priors if not group.size and group.parameter not in taus)


def _linear_parameters(
    model: Model, predictor: Predictor, prior_data: Mapping[str, Any]
) -> list[Parameter]:
    """Return a predictor's intercept and coefficients."""
    of = "" if predictor.is_mean else f" of {predictor.words}"
    found = []
    if predictor.has_tau:
        over = "over its location" if predictor.link == "identity" else "over its unit"
        found.append(Parameter(predictor.tau, f"{predictor.words} at average columns, {over}"))
    if predictor.is_mean and model.config.subspace.holds_theta:
        return found
    P = len(predictor.coefficients)
    if predictor.is_mean and model.joint:
        return [*found, *model.joint.parameters(prior_data, P)]
    if P or predictor.is_mean:
        kind = kind_of_coefficients(model.config.priors, predictor)
        theta = Parameter(
            predictor.theta, f"structured coefficients{of}", (P,), (f"P{predictor.suffix}",), kind
        )  # fmt: skip
        if kind is REAL:
            unit = model.units.coefficient_scale(predictor.name)
            theta = replace(theta, unit=unit, multiplier=f"theta_scale{predictor.suffix}")
        found.append(theta)
    return found
