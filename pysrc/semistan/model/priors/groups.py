"""The priors of one model, as statements of the program: as written, and in the units of the data.

How wide that of phi is may depend on the subspace, and is known after training (``used.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semistan.errors import InputError
from semistan.model.bounded import bounded
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.families.families import SEVERAL
from semistan.model.families.family import Dispersion
from semistan.model.families.measured import response_family
from semistan.model.parameter import POSITIVE, REAL, UNIT_INTERVAL, Choice, Kind
from semistan.model.predictor import Predictor
from semistan.model.priors.classes import CLASSES
from semistan.model.priors.densities import SUPPORT, VALUES, parse_prior
from semistan.model.priors.density import Density, Prior
from semistan.model.priors.section import PriorConfig
from semistan.model.priors.weight_scales import SD_W
from semistan.model.terms.term import Hyperparameter
from semistan.model.units import Units
from semistan.model.varying import scalar_parameters

PHI = "phi"
WEIGHTS = "w"
INTERCEPT = "student_t(3, 0, 2.5)"  # of a dispersion parameter's log, over its unit, as in brms
COEFFICIENT = CLASSES["b"].default  # in a dispersion parameter's predictor, over the column's unit


@dataclass(frozen=True, slots=True, eq=False)
class PriorGroup:
    """Priors of the same density on the elements of one parameter: a statement of the program.

    Attributes
    ----------
    label : str
        What the group's names in the data block start with: ``b``, ``phi``, ``sigma``.
    key : str
        The key of ``[priors]`` that they have with their like: ``b``, ``phi``, ``sd``.
    parameter : str
        The parameter's name in the program: ``theta``, ``phi``, ``sigma``.
    density : Density
        What they share.
    written : tuple of Prior
        As written, one for each member.
    used : tuple of Prior
        In the units of the data, one for each member; that of phi is known after training.
    names : tuple of str
        The members' names in the table.
    sources : tuple of str
        ``default``, ``class`` (given for all of its kind) or ``coefficient``, one each.
    size : str
        The number of the parameter's elements as the program has it; empty of a scalar.
    members : tuple of int, optional
        Positions among the elements, if there are others with another density.
    kind : Kind
        The constraint of a scalar, or of these elements.
    text : str
        What the parameter is, of a scalar.

    Raises
    ------
    InputError
        If the density has fewer values than the parameter can have, or a constant is none of them.
    """

    label: str
    key: str
    parameter: str
    density: Density
    written: tuple[Prior, ...]
    used: tuple[Prior, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]
    size: str = ""
    members: tuple[int, ...] | None = None
    kind: Kind = REAL
    text: str = ""

    def __post_init__(self) -> None:
        density, (least, most) = self.density, SUPPORT[self.density.support]
        lower, upper = self.kind.limits
        if density.is_constant:
            self._check_constants()
        elif np.any(np.less(lower, least) | np.greater(upper, most)):
            other = "any positive number" if np.all(np.equal(lower, 0)) else "any number"
            raise InputError(
                f"prior '{self.names[0]}': {density} allows only {VALUES[density.support]}, and "
                f"the parameter can be {other}"
            )

    def by_element(self, argument: str) -> bool:
        """Say whether an argument of the density has a value for each element."""
        if self.density.joint:
            return argument in self.density.carriers
        return bool(self.size)

    def _check_constants(self) -> None:
        least, most = self.kind.limits
        for prior, name in zip(self.written, self.names, strict=True):
            if not least < prior.argument("value") < most:
                raise InputError(
                    f"prior '{name}': the parameter can have only {VALUES[self.kind.name]}, got "
                    f"'{prior}'"
                )

    @property
    def is_phi(self) -> bool:
        """Whether it is the prior of the subspace's coordinates."""
        return self.parameter == PHI

    @property
    def is_truncated(self) -> bool:
        """Whether the density is cut off at the bounds that a parameter has by itself."""
        return self.kind in (POSITIVE, UNIT_INTERVAL) and self.density.support != self.kind.name

    @property
    def stem(self) -> str:
        """How the group's names in the data block start: also the name of its index set."""
        if self.density.explains:  # which all that have it share
            return f"prior_{self.density.name}"
        group = "" if self.members is None else f"_{self.density.name}"
        return f"prior_{self.label}{group}"

    @property
    def data_names(self) -> tuple[str, ...]:
        """Names of the density's arguments in the data block."""
        return tuple(f"{self.stem}_{name}" for name in self.density.arguments)

    @property
    def target(self) -> str:
        """The parameters in the program, as ``theta[prior_b_normal]`` if they are some of many."""
        return self.parameter if self.members is None else f"{self.parameter}[{self.stem}]"

    def arguments(self, used: Sequence[Prior]) -> dict[str, Any]:
        """Return the density's arguments by their names in the data block."""
        data: dict[str, Any] = {}
        for index, (argument, name) in enumerate(
            zip(self.density.arguments, self.data_names, strict=True)
        ):
            values = np.array([prior.values[index] for prior in used])
            data[name] = values if self.by_element(argument) else float(values[0])
        return data


def prior_groups(
    config: ModelConfig, design: Design, units: Units, scales: Sequence[str] = ()
) -> tuple[PriorGroup, ...]:
    """Return the priors of phi, of coefficients (unless the subspace holds them) and of scalars.

    ``scales`` names the groups of weights whose scales are sampled.

    Raises
    ------
    InputError
        If a parameter cannot have its prior, or one prior of several has different arguments.
    """
    groups = [_phi_group(config)]
    if scales:
        groups.append(_weight_scales_group(config.priors, scales))
    for predictor in design.predictors:
        groups += _predictor_groups(config, predictor, units)
    for item in scalar_parameters(response_family(config.family, design.formula), design):
        groups.append(_dispersion_group(config.priors, item, units))
    for predictor in design.predictors:
        groups += [
            _hyperparameter_group(config.priors, item, predictor, units)
            for term in predictor.terms
            for item in term.hyperparameters()
        ]
    return _with_shared_arguments(groups)


def _with_shared_arguments(groups: Sequence[PriorGroup]) -> tuple[PriorGroup, ...]:
    """Give all that share one prior its arguments, which may be written with one of them alone."""
    shared = [item for item in groups if item.density.explains and item.used]
    given = {item.written[0] for item in shared if item.written[0].values != item.density.defaults}
    if not given:
        return tuple(groups)
    prior, *others = sorted(given, key=str)
    if others:
        one, other = (
            next(item.key for item in shared if item.written[0] == each)
            for each in (prior, others[0])
        )
        raise InputError(
            f"priors '{one}' and '{other}' are one {prior.density}() prior of what both explain, "
            f"got '{prior}' and '{others[0]}'; write its arguments with one of them"
        )
    return tuple(
        replace(item, used=(prior,) * len(item.used)) if item in shared else item for item in groups
    )


def _phi_group(config: ModelConfig) -> PriorGroup:
    prior, key = phi_prior(config.priors)
    source = config.priors.source(key)
    return PriorGroup(
        PHI, PHI, PHI, prior.density, (prior,), (prior,), (PHI,), (source,), "k", None
    )


def _weight_scales_group(config: PriorConfig, scales: Sequence[str]) -> PriorGroup:
    G, prior = len(scales), parse_prior(config.prior_of_scales, SD_W)
    names = tuple(f"{SD_W}[{name}]" for name in scales)
    return PriorGroup(
        SD_W, SD_W, SD_W, prior.density, (prior,) * G, (prior,) * G, names,
        (config.source(SD_W),) * G, f"n_{SD_W}", kind=POSITIVE,
    )  # fmt: skip


def phi_prior(config: PriorConfig) -> tuple[Prior, str]:
    """Return the prior of phi, or that of the weights which it is carried from, and its key."""
    key = PHI if config.phi else WEIGHTS
    return parse_prior(config.of_class(key) or "", key), key


def _predictor_groups(config: ModelConfig, predictor: Predictor, units: Units) -> list[PriorGroup]:
    """Return the priors of a predictor's intercept and coefficients."""
    groups: list[PriorGroup] = []
    if predictor.is_mean and config.subspace.holds_theta:
        return groups
    own = config.priors.coefficients
    if predictor.has_tau:
        name = predictor.intercept
        default = _in_predictor(predictor) or INTERCEPT
        prior = parse_prior(own.get(name, default), name)
        source = "coefficient" if name in own else "default"
        groups.append(
            PriorGroup(name, name, predictor.tau, prior.density, (prior,), (prior,),
                           (predictor.tau,), (source,), text=predictor.words)
        )  # fmt: skip
    if predictor.coefficients or predictor.is_mean:
        groups += _coefficient_groups(config.priors, predictor, units)
    return groups


def _coefficient_groups(
    config: PriorConfig, predictor: Predictor, units: Units
) -> list[PriorGroup]:
    """Group the coefficients by their density; one group of all has no list of members."""
    of_class, class_source = _class_prior(config, predictor)
    names, own = predictor.coefficients, config.coefficients
    scales = units.coefficient_scale(predictor.name)
    priors = priors_of_coefficients(config, predictor)
    used = [
        autoscaled(prior, float(scale), config) for prior, scale in zip(priors, scales, strict=True)
    ]
    sources = ["coefficient" if name in own else class_source for name in names]
    densities = sorted({prior.density for prior in priors} or {of_class.density}, key=str)
    groups = []
    for density in densities:
        members = tuple(j for j, prior in enumerate(priors) if prior.density == density)

        def chosen(values: Sequence[Any], of: tuple[int, ...] = members) -> tuple[Any, ...]:
            return tuple(values[j] for j in of)

        groups.append(
            PriorGroup(
                f"b{predictor.suffix}", f"b{predictor.suffix}", predictor.theta, density,
                chosen(priors), chosen(used), chosen(names), chosen(sources),
                f"P{predictor.suffix}", members if len(densities) > 1 else None,
                _between([priors[j] for j in members], predictor.theta),
            )
        )  # fmt: skip
    return groups


def priors_of_coefficients(config: PriorConfig, predictor: Predictor) -> list[Prior]:
    """Return the prior of each of a predictor's coefficients, as written."""
    (of_class, _), own = _class_prior(config, predictor), config.coefficients
    return [
        parse_prior(own[name], name) if name in own else of_class for name in predictor.coefficients
    ]


def kind_of_coefficients(config: PriorConfig, predictor: Predictor) -> Kind:
    """Return the constraint of all of a predictor's coefficients."""
    return _between(priors_of_coefficients(config, predictor), predictor.theta)


def _between(priors: Sequence[Prior], parameter: str) -> Kind:
    """Return the constraint of coefficients with these priors."""
    lower, upper = (np.array([getattr(prior, name) for prior in priors]) for name in ("lb", "ub"))
    return bounded(lower, upper, parameter)


def _class_prior(config: PriorConfig, predictor: Predictor) -> tuple[Prior, str]:
    """Return the prior of a predictor's coefficients that have none of their own."""
    if predictor.is_mean:
        return parse_prior(config.b, "b"), config.source("b")
    label = f"b{predictor.suffix}"
    if label in config.coefficients:
        return parse_prior(config.coefficients[label], label), "class"
    if predictor.link == "identity":
        return parse_prior(config.b, label), config.source("b")
    return parse_prior(_in_predictor(predictor) or COEFFICIENT, label), "default"


def _in_predictor(predictor: Predictor) -> str:
    """Return the default prior in the predictor of one of several parameters, if it has its own."""
    several = SEVERAL.get(predictor.name.rpartition("_")[0])
    return several.in_predictor if several else ""


def _dispersion_group(config: PriorConfig, item: Dispersion, units: Units) -> PriorGroup:
    prior = parse_prior(config.of_class(item.key) or item.prior, item.name)
    used = autoscaled(prior, units.of_dispersion if item.has_units else 1.0, config)
    return PriorGroup(
        item.name, item.key, item.name, prior.density, (prior,), (used,), (item.name,),
        (config.source(item.key),), kind=item.kind, text=item.text,
    )  # fmt: skip


def _hyperparameter_group(
    config: PriorConfig, item: Hyperparameter, predictor: Predictor, units: Units
) -> PriorGroup:
    if item.prior_class == "b" and item.name not in config.coefficients:
        prior, source = _class_prior(config, predictor)
        if prior.density.joint:  # which is of the structured coefficients
            prior, source = parse_prior(COEFFICIENT, item.name), "default"
    else:
        default = item.default or CLASSES[item.prior_class].default
        text, source = config.chosen(item.name, item.within, item.prior_class, default=default)
        prior = parse_prior(text, item.name)
    scale = units.scale(predictor.name) * item.unit
    used = autoscaled(prior, scale, config) if item.has_units else prior
    kind = bounded(prior.lb, prior.ub, item.name) if item.kind is REAL else item.kind
    return PriorGroup(
        item.name, item.prior_class, item.name, prior.density, (prior,), (used,), (item.name,),
        (source,), kind=kind, text=item.text,
    )  # fmt: skip


def autoscaled(prior: Prior, units: float, config: PriorConfig) -> Prior:
    """Return a prior in the units of its parameter, unless scales are to stay as written."""
    fixed = prior.density.is_constant or not config.autoscale
    return prior if fixed else prior.rescaled(units)


def choices(config: PriorConfig, design: Design) -> tuple[Choice, ...]:
    """Return the arguments of priors that the terms' parameters bring, each of them once."""
    return tuple({item.parameter: item for item in all_choices(config, design)}.values())


def all_choices(config: PriorConfig, design: Design) -> Iterator[Choice]:
    """Yield the arguments of priors that terms' parameters bring, as often as they do."""
    for term in design.terms:
        for item in term.parameters(config):
            if item.prior and item.prior.choice:
                yield item.prior.choice


def joint_prior(config: ModelConfig) -> Density | None:
    """Return the prior of all coefficients together, if they have one."""
    density = parse_prior(config.priors.b, "b").density
    return density if density.joint and not config.subspace.holds_theta else None
