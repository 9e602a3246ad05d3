"""The priors of one model: as written, as used, and as lines and data of the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from semistan.model.config import ModelConfig
from semistan.model.families import Family
from semistan.model.network import Array
from semistan.model.priors import Prior, parse_prior
from semistan.subspace.problem import Units


@dataclass(frozen=True, slots=True)
class ClassPrior:
    """The prior of one class of parameters.

    Attributes
    ----------
    label : str
        The user's name of the class: ``b``, ``phi``, ``sigma``.
    parameter : str
        The parameter's name in the program: ``theta``, ``phi``, ``sigma``.
    prior : Prior
        As written.
    positive : bool
        Whether the parameter is restricted to positive values.
    """

    label: str
    parameter: str
    prior: Prior
    positive: bool

    @property
    def is_vector(self) -> bool:
        """Whether the parameter is a vector, each element with a prior of its own scale."""
        return self.label in ("b", "phi")

    @property
    def data_names(self) -> tuple[str, ...]:
        """Names of the density's arguments in the data block."""
        return tuple(f"prior_{self.label}_{name}" for name in self.prior.density.arguments)


def class_priors(config: ModelConfig, family: Family) -> tuple[ClassPrior, ...]:
    """Return the priors of phi, theta (unless the subspace holds it) and the dispersion."""
    priors = config.priors.model_dump()
    classes = [("phi", "phi", False)]
    if not config.subspace.holds_theta:
        classes.append(("b", "theta", False))
    classes += [(name, name, True) for name in family.dispersion]
    return tuple(
        ClassPrior(label, parameter, parse_prior(priors[label], label), positive)
        for label, parameter, positive in classes
    )


def sampled_dispersion(config: ModelConfig, family: Family) -> tuple[str, ...]:
    """Return the dispersion parameters that are sampled, not fixed by a constant() prior."""
    priors = class_priors(config, family)
    return tuple(p.label for p in priors if p.positive and not p.prior.density.is_constant)


def prior_data(
    config: ModelConfig, family: Family, units: Units, phi_scale: Array
) -> dict[str, Any]:
    """Return the arguments of every prior as used, under their names in the data block."""
    data: dict[str, float | Array] = {}
    for item in class_priors(config, family):
        used = [_used(item, config, scale) for scale in _scales(item, units, phi_scale)]
        for index, name in enumerate(item.data_names):
            values = np.array([prior.values[index] for prior in used])
            data[name] = values if item.is_vector else float(values[0])
    return data


def priors_as_used(
    config: ModelConfig,
    family: Family,
    units: Units,
    phi_scale: Array,
    coefficients: tuple[str, ...],
) -> Iterator[tuple[str, str, str]]:
    """Yield (parameter, prior as written, prior as used), phi as one unless its scales differ."""
    one_scale = np.ptp(phi_scale) == 0
    phi = ("phi",) if one_scale else tuple(f"phi[{j + 1}]" for j in range(len(phi_scale)))
    names = {"b": coefficients, "phi": phi}
    for item in class_priors(config, family):
        scales = _scales(item, units, phi_scale[: len(phi)])
        for name, scale in zip(names.get(item.label, (item.label,)), scales, strict=True):
            yield name, str(item.prior), str(_used(item, config, scale))


def _scales(item: ClassPrior, units: Units, phi_scale: Array) -> list[float]:
    if item.label == "phi":
        return [float(scale) for scale in phi_scale]
    if item.label == "b":
        return [float(scale) for scale in units.theta_scale]
    return [units.eta_scale]


def _used(item: ClassPrior, config: ModelConfig, scale: float) -> Prior:
    fixed = item.prior.density.is_constant or not config.priors.autoscale
    if fixed and item.label != "phi":  # phi's scales are the subspace's, not the data's
        return item.prior
    return item.prior.rescaled(scale)
