"""The priors of one model: as written, as used, and as lines and data of the program.

``phi = "auto"`` is normal(0, 2 s_j) for coordinate j, where s_j is the standard deviation of the
control points along direction j: the subspace's own extent decides how far phi may move, and the
control points lie within one to two standard deviations. The subspace around a single network has
no control points to be spread; its own scale of each coordinate is s_j.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig, PriorConfig
from semistan.model.design import Design
from semistan.model.families.families import family
from semistan.model.families.family import Dispersion
from semistan.model.parameter import POSITIVE, REAL, Choice, Kind
from semistan.model.predictor import Predictor
from semistan.model.priors.classes import CLASSES
from semistan.model.priors.densities import AUTO, VALUES, parse_prior
from semistan.model.priors.density import Density, Prior
from semistan.model.priors.weight_scales import GROUPS, SD_W, WeightScales
from semistan.model.terms.term import Hyperparameter
from semistan.model.units import Units
from semistan.model.varying import parameters_text, scalar_parameters, terms_text

if TYPE_CHECKING:
    from torch import Tensor

    from semistan.model.bundle import Bundle
    from semistan.model.model import Model

AUTO_FACTOR = 2.0  # standard deviations of the control points in one of the prior's
LATER = "known after training"
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
        The parameter's constraint.
    text : str
        What the parameter is, of a scalar.
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

    def by_element(self, argument: str) -> bool:
        """Say whether an argument of the density has a value for each element."""
        if self.density.joint:
            return argument in self.density.carriers
        return bool(self.size)

    @property
    def is_phi(self) -> bool:
        """Whether it is the prior of the subspace's coordinates."""
        return self.parameter == PHI

    @property
    def is_truncated(self) -> bool:
        """Whether the density is cut off at the bounds of the parameter."""
        return bool(self.kind.bounds) and self.density.support != self.kind.name

    @property
    def stem(self) -> str:
        """How the group's names in the data block start: also the name of its index set."""
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


@dataclass(frozen=True, slots=True)
class PriorLine:
    """One parameter's prior, as written and as used, and what decided it.

    Attributes
    ----------
    parameter : str
        Its name in the tables: ``b_age``, ``phi``, ``sigma``.
    written, used : str
        The prior, with the scales of the user's text and of the program's data.
    source : str
        ``default``, ``class`` (given for all of its kind) or ``coefficient``.
    key : str
        The key of ``[priors]`` that it has with its like: ``b``, ``sd``.
    """

    parameter: str
    written: str
    used: str
    source: str
    key: str


PHI = "phi"
WEIGHTS = "w"


def prior_groups(
    config: ModelConfig, design: Design, units: Units, scales: Sequence[str] = ()
) -> tuple[PriorGroup, ...]:
    """Return the priors of phi, of coefficients (unless the subspace holds them) and of scalars.

    ``scales`` names the groups of weights whose scales are sampled.
    """
    groups = [_phi_group(config)]
    if scales:
        groups.append(_weight_scales_group(config.priors, scales))
    for predictor in design.predictors:
        groups += _predictor_groups(config, predictor, units)
    for item in scalar_parameters(family(config.family), design):
        groups.append(_dispersion_group(config.priors, item, units))
    for predictor in design.predictors:
        groups += [
            _hyperparameter_group(config.priors, item, predictor, units)
            for term in predictor.terms
            for item in term.hyperparameters()
        ]
    return tuple(groups)


def _phi_group(config: ModelConfig) -> PriorGroup:
    prior, key = _phi_prior(config.priors)
    source = _source(config.priors, key)
    return PriorGroup(
        PHI, PHI, PHI, prior.density, (prior,), (prior,), (PHI,), (source,), "k", None
    )


def _weight_scales_group(config: PriorConfig, scales: Sequence[str]) -> PriorGroup:
    G, prior = len(scales), parse_prior(config.sd_w or "", SD_W)
    return PriorGroup(
        SD_W, SD_W, SD_W, prior.density, (prior,) * G, (prior,) * G,
        tuple(f"{SD_W}[{name}]" for name in scales), ("class",) * G, f"n_{SD_W}", kind=POSITIVE,
    )  # fmt: skip


def _phi_prior(config: PriorConfig) -> tuple[Prior, str]:
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
        prior = parse_prior(own.get(name, INTERCEPT), name)
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
    priors = [parse_prior(own[name], name) if name in own else of_class for name in names]
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
            )
        )  # fmt: skip
    return groups


def _class_prior(config: PriorConfig, predictor: Predictor) -> tuple[Prior, str]:
    """Return the prior of a predictor's coefficients that have none of their own."""
    if predictor.is_mean:
        return parse_prior(config.b, "b"), _source(config, "b")
    label = f"b{predictor.suffix}"
    if label in config.coefficients:
        return parse_prior(config.coefficients[label], label), "class"
    if predictor.link == "identity":
        return parse_prior(config.b, label), _source(config, "b")
    return parse_prior(COEFFICIENT, label), "default"


def _dispersion_group(config: PriorConfig, item: Dispersion, units: Units) -> PriorGroup:
    prior = parse_prior(config.of_class(item.key) or item.prior, item.name)
    used = autoscaled(prior, units.of_dispersion if item.has_units else 1.0, config)
    return PriorGroup(
        item.name, item.key, item.name, prior.density, (prior,), (used,), (item.name,),
        (_source(config, item.key),), kind=item.kind, text=item.text,
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
    if prior.density.support not in ("real", item.kind.name) and not prior.density.is_constant:
        raise InputError(
            f"prior '{item.name}': {prior.density} allows only {VALUES[prior.density.support]}, "
            f"and it is {item.kind.name}"
        )
    scale = units.scale(predictor.name) * item.unit
    used = autoscaled(prior, scale, config) if item.has_units else prior
    return PriorGroup(
        item.name, item.prior_class, item.name, prior.density, (prior,), (used,), (item.name,),
        (source,), kind=item.kind, text=item.text,
    )  # fmt: skip


def autoscaled(prior: Prior, units: float, config: PriorConfig) -> Prior:
    """Return a prior in the units of its parameter, unless scales are to stay as written."""
    fixed = prior.density.is_constant or not config.autoscale
    return prior if fixed else prior.rescaled(units)


def prior_data(bundle: Bundle) -> dict[str, Any]:
    """Return the arguments of every prior as used, under their names in the data block."""
    scales = bundle.model.weight_scales
    data: dict[str, Any] = {f"n_{SD_W}": len(scales.names), GROUPS: scales.of + 1} if scales else {}
    for group in bundle.model.priors:
        if group.members is not None:
            data[f"n_{group.stem}"] = len(group.members)
            data[group.stem] = np.array(group.members) + 1
        data |= group.arguments(priors_of(group, bundle))
    for choice in choices(bundle.config.priors, bundle.design):
        data |= choice.data
    return data


def priors_of(group: PriorGroup, bundle: Bundle) -> Sequence[Prior]:
    """Return the prior of each member as used; phi's scales are the subspace's."""
    if not group.is_phi:
        return group.used
    subspace, normal = bundle.subspace, group.density
    if bundle.config.priors.on_weights:
        moments = zip(subspace.phi_location, subspace.phi_scale, strict=True)
        return [Prior(normal, (float(location), float(scale))) for location, scale in moments]
    return [group.written[0].rescaled(float(scale)) for scale in phi_units(bundle)]


def choices(config: PriorConfig, design: Design) -> tuple[Choice, ...]:
    """Return the arguments of priors that the terms' parameters bring, each of them once."""
    return tuple({item.parameter: item for item in _all_choices(config, design)}.values())


def _all_choices(config: PriorConfig, design: Design) -> Iterator[Choice]:
    for term in design.terms:
        for item in term.parameters(config):
            if item.prior and item.prior.choice:
                yield item.prior.choice


def phi_units(bundle: Bundle) -> Array:
    """Return what the scale of phi's prior is multiplied by, shape (k,)."""
    scale, phi = bundle.subspace.phi_scale, bundle.config.priors.phi
    if phi is None or phi.strip() != AUTO:
        return scale
    points = bundle.trained.control_points.reshape(-1, bundle.subspace.d)
    if len(points) == 1:
        return AUTO_FACTOR * scale
    return np.asarray(AUTO_FACTOR * bundle.subspace.project(points).std(axis=0, ddof=1))


def priors_as_used(bundle: Bundle) -> tuple[PriorLine, ...]:
    """Return every prior of a trained model, phi's as one unless its scales differ."""
    return _lines(bundle.config, bundle.design, bundle.model.priors, phi_units(bundle))


def priors_before_training(model: Model) -> tuple[PriorLine, ...]:
    """Return every prior of a model; how wide phi's is may depend on the subspace."""
    return _lines(model.config, model.design, model.priors, None)


def _lines(
    config: ModelConfig, design: Design, groups: Sequence[PriorGroup], phi_scales: Array | None
) -> tuple[PriorLine, ...]:
    by_parameter: dict[str, list[tuple[int, PriorLine]]] = {}
    for group in groups[1:]:
        members = group.members or range(len(group.names))
        lines = zip(members, group.names, group.written, group.used, group.sources, strict=True)
        by_parameter.setdefault(group.parameter, []).extend(
            (position, PriorLine(name, str(written), str(used), source, group.key))
            for position, name, written, used, source in lines
        )
    found = _phi_lines(config, groups, phi_scales)
    for lines_of in by_parameter.values():
        found += [line for _, line in sorted(lines_of, key=lambda item: item[0])]
    found += [
        PriorLine(item.parameter, item.written, item.written, item.source, item.key)
        for item in choices(config.priors, design)
    ]
    return tuple(found)


def _phi_lines(
    config: ModelConfig, groups: Sequence[PriorGroup], scales: Array | None
) -> list[PriorLine]:
    (prior, key), phi = _phi_prior(config.priors), config.priors.phi
    source = _source(config.priors, key)
    if phi is None:
        return _weight_lines(config.priors, scaled=any(group.label == SD_W for group in groups))
    automatic = phi.strip() == AUTO
    written = AUTO if automatic else str(prior)
    if scales is None:
        known = not automatic and not config.subspace.scales_phi
        return [PriorLine(PHI, written, written if known else LATER, source, PHI)]
    if np.ptp(scales) == 0:
        return [PriorLine(PHI, written, str(prior.rescaled(float(scales[0]))), source, PHI)]
    return [
        PriorLine(f"phi[{j}]", written, str(prior.rescaled(float(scale))), source, PHI)
        for j, scale in enumerate(scales, start=1)
    ]


def _weight_lines(config: PriorConfig, *, scaled: bool) -> list[PriorLine]:
    """Return the prior of the weights and biases, and that of the output biases."""
    scale = f"{config.scale_of(WEIGHTS):.6g}"
    if scaled:
        scale = f"{SD_W} {scale}"
    used = f"normal(0, {scale} / sqrt(inputs of the layer)), normal(0, {scale}) of biases"
    intercept = config.Intercept
    return [
        PriorLine(WEIGHTS, config.w, used, _source(config, WEIGHTS), WEIGHTS),
        PriorLine("output biases", intercept, intercept, _source(config, "Intercept"), "Intercept"),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class TorchPrior:
    """The user's prior of a parameter, or of some of its elements, in PyTorch."""

    parameter: str
    distribution: Any
    members: Tensor | None = None
    scales: WeightScales | None = None

    def log_density(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the log density of the parameter's value, summed."""
        value = values[self.parameter]
        chosen = value if self.members is None else value[self.members]
        if self.scales is None:
            total: Tensor = self.distribution.log_prob(chosen).sum()
            return total
        factor, loc = self.scales.factor(values[SD_W]), self.distribution.loc
        total = self.distribution.log_prob(loc + (chosen - loc) / factor).sum()
        return total - factor.log().sum()


def torch_priors(bundle: Bundle) -> tuple[TorchPrior, ...]:
    """Return the priors of what is sampled as distributions of PyTorch."""
    return tuple(
        TorchPrior(
            group.parameter,
            group.density.in_torch(*group.arguments(priors_of(group, bundle)).values()),
            None if group.members is None else torch.tensor(group.members),
            bundle.model.weight_scales if group.is_phi else None,
        )
        for group in bundle.model.priors
        if group.density.is_of_each
    )


def log_mass_inside(bundle: Bundle) -> float:
    """Return the log probability of the possible values under priors that are cut off, summed."""
    return sum(
        float(np.sum(distribution.logsf(0)))
        for group, distribution in scipy_priors(bundle)
        if group.is_truncated
    )


def scipy_priors(bundle: Bundle) -> list[tuple[PriorGroup, Any]]:
    """Return the priors of what is sampled with their distributions of ``scipy.stats``."""
    return [
        (group, group.density.in_scipy(*group.arguments(priors_of(group, bundle)).values()))
        for group in bundle.model.priors
        if group.density.is_of_each
    ]


def check_priors(config: ModelConfig, design: Design) -> None:
    """Refuse priors of coefficients that the model does not have or does not sample.

    Raises
    ------
    InputError
        Naming the nearest coefficient.
    """
    if (density := parse_prior(config.priors.b, "b").density).joint:
        _check_joint(density, config, design)
    _check_varying(config.priors, design)
    _check_classes(config, design)
    coefficients, others = _keys(config.priors, design)
    for name in config.priors.coefficients:
        if config.subspace.holds_theta and name not in others:
            raise InputError(
                f"prior '{name}': in the construction '{config.subspace.construction}' the "
                "coefficients lie in the subspace and have no priors of their own"
            )
        if name == design.intercept:
            raise InputError(
                f"prior '{name}': the intercept is the mean of the network's output, which has "
                "the prior of phi"
            )
        if name in [item.intercept for item in design.others if not item.has_tau]:
            raise InputError(
                f"prior '{name}': this intercept is the mean of a network's output, which has the "
                "prior of phi"
            )
        if name in [slope.name for slope in design.slopes]:
            raise InputError(
                f"prior '{name}': this coefficient is the mean of a network's output, which has "
                "the prior of phi; by default its output bias has that of Intercept"
            )
        if name not in (*coefficients, *others):
            raise InputError(
                f"prior '{name}': the model has no such parameter."
                f"{did_you_mean(name, (*coefficients, *others))}"
            )


def _keys(config: PriorConfig, design: Design) -> tuple[list[str], list[str]]:
    """Return the keys of single priors: the mean's coefficients, and all others."""
    others = [
        key
        for item in design.others
        for key in (
            *([item.intercept] if item.has_tau else []),
            *([f"b{item.suffix}"] if item.coefficients or _has_steps(item) else []),
            *item.coefficients,
        )
    ]
    scalars = [item for term in design.terms for item in term.hyperparameters()]
    keys = [key for item in scalars for key in (item.name, item.within) if key]
    own = [item.own for item in _all_choices(config, design)]
    return list(design.coefficients), [*others, *keys, *own]


def _has_steps(predictor: Predictor) -> bool:
    """Say whether scalars of a predictor's terms have the prior of its coefficients."""
    scalars = (item for term in predictor.terms for item in term.hyperparameters())
    return any(item.prior_class == "b" for item in scalars)


def _check_varying(config: PriorConfig, design: Design) -> None:
    """Refuse a prior of a dispersion parameter that has a predictor."""
    for item in design.of_dispersion:
        if _source(config, item.name) != "default":
            key = item.intercept if item.has_tau else PHI
            raise InputError(
                f"prior '{item.name}': {item.name} has a predictor; what it is made of has "
                f"priors, as '{key}'"
            )


def _check_classes(config: ModelConfig, design: Design) -> None:
    """Refuse a prior of a parameter that neither the family nor a term has."""
    known = {item.key for item in family(config.family).parameters}
    known |= {item.prior_class for term in design.terms for item in term.hyperparameters()}
    for key in config.priors.classes:
        if key not in known and _source(config.priors, key) != "default":
            raise InputError(
                f"prior '{key}': the model has no {CLASSES[key].of}."
                if key in CLASSES
                else f"prior '{key}': family {family(config.family).name} has no such parameter."
                f"{did_you_mean(key, sorted(known))}"
            )


def joint_prior(config: ModelConfig) -> Density | None:
    """Return the prior of all coefficients together, if they have one."""
    density = parse_prior(config.priors.b, "b").density
    return density if density.joint and not config.subspace.holds_theta else None


def check_free_theta(config: ModelConfig, design: Design) -> None:
    """Refuse terms and predictors of dispersion where the subspace holds theta.

    Raises
    ------
    InputError
        Naming the terms and the construction.
    """
    others = terms_text(design) or parameters_text(design)
    if config.subspace.holds_theta and others:
        raise InputError(
            f"the construction '{config.subspace.construction}' holds the coefficients in the "
            f"subspace and has no {others}; use another construction"
        )


def _check_joint(density: Density, config: ModelConfig, design: Design) -> None:
    own = [name for name in config.priors.coefficients if name in design.coefficients]
    if own:
        raise InputError(
            f"prior '{own[0]}': {density}() is for all coefficients together, none can have another"
        )
    if not design.coefficients:
        raise InputError(f"prior 'b': {density}() is for coefficients, but the model has none")
    if design.categories:
        raise InputError(f"prior 'b': {density}() does not know several categories' coefficients")


def _source(config: PriorConfig, label: str) -> str:
    """Say whether a class's prior is the default one."""
    return config.source(label)
