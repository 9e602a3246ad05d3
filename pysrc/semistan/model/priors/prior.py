"""The priors of one model: as written, as used, and as lines and data of the program.

``phi = "auto"`` is normal(0, 2 s_j) for coordinate j, where s_j is the standard deviation of the
control points along direction j: the subspace's own extent decides how far phi may move, and the
control points lie within one to two standard deviations. The subspace around a single network has
no control points to be spread; its own scale of each coordinate is s_j.

``b = "horseshoe()"`` is the regularised horseshoe of Piironen and Vehtari (2017), for many
coefficients of which few matter, with brms's arguments and defaults: scale_global is the expected
ratio of those that matter to the others, over sqrt(N). It is in the units of each coefficient, not
of sigma, and has parameters of its own, of which the coefficients are made,

    theta_j = zb_j / sqrt(1 / (tau lambda_j)^2 + 1 / c^2),    zb_j ~ normal(0, 1),
    tau = scale_global hs_global,    hs_global ~ student_t(df_global, 0, 1) above 0,
    lambda_j = hs_local_j ~ student_t(df, 0, 1) above 0,
    c^2 = scale_slab^2 hs_slab,    hs_slab ~ inv_gamma(df_slab / 2, df_slab / 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.config import ModelConfig, PriorConfig
from semistan.model.design import Design
from semistan.model.families.families import Dispersion, family
from semistan.model.networks.mlp import Array
from semistan.model.predictor import ParameterDesign
from semistan.model.priors.density import AUTO, Density, Prior, parse_prior
from semistan.model.units import Units
from semistan.model.varying import parameters_text, scalar_parameters

if TYPE_CHECKING:
    from semistan.model.bundle import Bundle

AUTO_FACTOR = 2.0  # standard deviations of the control points in one of the prior's
LATER = "known after training"
INTERCEPT = "student_t(3, 0, 2.5)"  # of a dispersion parameter's log, over its unit, as in brms
COEFFICIENT = "normal(0, 2.5)"  # in a dispersion parameter's predictor, over the column's unit


@dataclass(frozen=True, slots=True)
class PriorGroup:
    """Priors of the same density on parameters of one class: one statement of the program.

    Attributes
    ----------
    label : str
        The user's name of the class: ``b``, ``phi``, ``sigma``.
    parameter : str
        The parameter's name in the program: ``theta``, ``phi``, ``sigma``.
    density : Density
        What they share.
    priors : tuple of Prior
        As written: one for each member, or one for a class without a list of members.
    members : tuple of int, optional
        Positions among the coefficients, if there are others with another density.
    positive : bool
        Whether the parameter is restricted to positive values.
    """

    label: str
    parameter: str
    density: Density
    priors: tuple[Prior, ...]
    members: tuple[int, ...] | None = None
    positive: bool = False

    @property
    def is_vector(self) -> bool:
        """Whether the parameter is a vector, each element with a prior of its own scale."""
        return self.label == "phi" or self.is_coefficients

    @property
    def is_coefficients(self) -> bool:
        """Whether the parameter is the mean's theta, or that of a dispersion parameter."""
        return self.parameter.partition("_")[0] == "theta"

    @property
    def number(self) -> str:
        """Name of the number of coefficients in the data block."""
        return f"P{self.parameter.removeprefix('theta')}"

    def by_element(self, name: str) -> bool:
        """Say whether an argument, by its name in the data block, has a value for each element."""
        if not self.density.is_horseshoe:
            return self.is_vector
        return name.removeprefix(f"{self.stem}_") in self.density.carriers

    @property
    def is_truncated(self) -> bool:
        """Whether the density is cut off at zero."""
        return self.positive and not (self.density.positive or self.density.is_constant)

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
    """

    parameter: str
    written: str
    used: str
    source: str


def prior_groups(config: ModelConfig, design: Design) -> tuple[PriorGroup, ...]:
    """Return the priors of phi, theta (unless the subspace holds it), dispersion and spread."""
    phi = parse_prior(config.priors.phi, "phi")
    groups = [PriorGroup("phi", "phi", phi.density, (phi,))]
    if not config.subspace.holds_theta:
        of_class = parse_prior(config.priors.b, "b")
        groups += _coefficient_groups(config.priors, design.coefficients, of_class)
    for parameter in design.parameters:
        groups += _parameter_groups(config.priors, parameter)
    for item in scalar_parameters(family(config.family), design):
        prior = _dispersion_prior(config.priors, item)
        groups.append(PriorGroup(item.name, item.name, prior.density, (prior,), positive=True))
    for name in spread_units(design):
        prior = _spread_prior(config.priors, name)
        groups.append(PriorGroup(name, name, prior.density, (prior,), positive=True))
    return tuple(groups)


def _parameter_groups(config: PriorConfig, item: ParameterDesign) -> list[PriorGroup]:
    """Return the priors of the predictor of one dispersion parameter."""
    groups = []
    if item.has_tau:
        prior = _intercept_prior(config, item)
        groups.append(PriorGroup(item.intercept, f"tau_{item.name}", prior.density, (prior,)))
    if item.coefficients:
        label, of_class = f"b_{item.name}", _class_prior(config, item)
        groups += _coefficient_groups(
            config, item.coefficients, of_class, label, f"theta_{item.name}"
        )
    return groups


def _intercept_prior(config: PriorConfig, item: ParameterDesign) -> Prior:
    return parse_prior(config.coefficients.get(item.intercept, INTERCEPT), item.intercept)


def _class_prior(config: PriorConfig, item: ParameterDesign) -> Prior:
    label, default = f"b_{item.name}", COEFFICIENT if item.link == "log" else config.b
    return parse_prior(config.coefficients.get(label, default), label)


def spread_units(design: Design) -> dict[str, float]:
    """Return the standard deviations of penalised coefficients with their units.

    Those of group-level slopes are in units of the linear predictor over those of their column.
    """
    return {
        name: 1 / float(units)
        for term in design.penalised
        for name, units in zip(term.spread, term.units, strict=True)
    }


def _spread_prior(config: PriorConfig, name: str) -> Prior:
    of_class = config.sds if name.startswith("sds_") else config.sd
    return parse_prior(config.coefficients.get(name, of_class), name)


def prior_data(bundle: Bundle) -> dict[str, Any]:
    """Return the arguments of every prior as used, under their names in the data block."""
    data: dict[str, Any] = {}
    for group in prior_groups(bundle.config, bundle.design):
        if group.members is not None:
            data[f"n_{group.stem}"] = len(group.members)
            data[group.stem] = np.array(group.members) + 1
        used = _used(group, bundle)
        for index, name in enumerate(group.data_names):
            values = np.array([prior.values[index] for prior in used])
            data[name] = values if group.by_element(name) else float(values[0])
    if any(group.correlated for group in bundle.design.groups):
        data["prior_cor_shape"] = parse_prior(bundle.config.priors.cor, "cor").argument("shape")
    return data


def phi_units(bundle: Bundle) -> Array:
    """Return what the scale of phi's prior is multiplied by, shape (k,)."""
    scale = bundle.subspace.phi_scale
    if bundle.config.priors.phi.strip() != AUTO:
        return scale
    points = bundle.trained.control_points.reshape(-1, bundle.subspace.d)
    if len(points) == 1:
        return AUTO_FACTOR * scale
    return np.asarray(AUTO_FACTOR * bundle.subspace.project(points).std(axis=0, ddof=1))


def priors_as_used(bundle: Bundle) -> tuple[PriorLine, ...]:
    """Return every prior of a trained model, phi's as one unless its scales differ."""
    return tuple(_lines(bundle.config, bundle.design, bundle.units, phi_units(bundle)))


def priors_before_training(
    config: ModelConfig, design: Design, units: Units
) -> tuple[PriorLine, ...]:
    """Return every prior of a model; how wide phi's is may depend on the subspace."""
    return tuple(_lines(config, design, units, None))


def check_priors(config: ModelConfig, design: Design) -> None:
    """Refuse priors of coefficients that the model does not have or does not sample.

    Raises
    ------
    InputError
        Naming the nearest coefficient.
    """
    if _is_horseshoe(config.priors):
        _check_horseshoe(config, design)
    _check_varying(config.priors, design)
    for name in config.priors.coefficients:
        if config.subspace.holds_theta and name.startswith("b_"):
            raise InputError(
                f"prior '{name}': in the construction '{config.subspace.construction}' the "
                "coefficients lie in the subspace and have no priors of their own"
            )
        if name.partition("[")[0] == design.intercept:
            raise InputError(
                f"prior '{name}': the intercept is the mean of the network's output, which has "
                "the prior of phi"
            )
        if name in [item.intercept for item in design.parameters if item.networks]:
            raise InputError(
                f"prior '{name}': this intercept is the mean of a network's output, which has the "
                "prior of phi"
            )
        known = (*design.coefficients, *spread_units(design), *_parameter_keys(design))
        if name not in known:
            kind = "coefficient" if name.startswith("b_") else "standard deviation"
            raise InputError(
                f"prior '{name}': the model has no such {kind}.{did_you_mean(name, known)}"
            )


def _parameter_keys(design: Design) -> list[str]:
    """Return the keys of priors in the predictors of dispersion parameters."""
    return [
        key
        for item in design.parameters
        for key in (
            *([item.intercept] if item.has_tau else []),
            *([f"b_{item.name}"] if item.coefficients else []),
            *item.coefficients,
        )
    ]


def _check_varying(config: PriorConfig, design: Design) -> None:
    """Refuse a prior of a dispersion parameter that has a predictor."""
    for item in design.parameters:
        if item.link == "log" and _source(config, item.name) != "default":
            key = item.intercept if item.has_tau else "phi"
            raise InputError(
                f"prior '{item.name}': {item.name} has a predictor; what it is made of has "
                f"priors, as '{key}'"
            )


def has_horseshoe(config: ModelConfig) -> bool:
    """Say whether the coefficients are made of a horseshoe's parameters."""
    return _is_horseshoe(config.priors) and not config.subspace.holds_theta


def check_free_theta(config: ModelConfig, design: Design) -> None:
    """Refuse penalised coefficients and predictors of dispersion where the subspace holds theta.

    Raises
    ------
    InputError
        Naming the terms and the construction.
    """
    further = penalised_text(design) or parameters_text(design)
    if config.subspace.holds_theta and further:
        raise InputError(
            f"the construction '{config.subspace.construction}' holds the coefficients in the "
            f"subspace and has no {further}; use another construction"
        )


def penalised_text(design: Design) -> str:
    """Name the smooths and group-level terms, or return an empty text if there are none."""
    smooths = (f"s({smooth.expression})" for smooth in design.smooths)
    groups = (f"(... | {':'.join(group.by)})" for group in design.groups)
    return ", ".join((*smooths, *groups))


def _is_horseshoe(config: PriorConfig) -> bool:
    return parse_prior(config.b, "b").density.is_horseshoe


def _check_horseshoe(config: ModelConfig, design: Design) -> None:
    others = _parameter_keys(design)
    names = (name for name in config.priors.coefficients if name not in others)
    own = [name for name in names if name.startswith("b_")]
    if own:
        name = own[0]
        raise InputError(
            f"prior '{name}': horseshoe() is for all coefficients together, none can have another"
        )
    if not design.coefficients:
        raise InputError("prior 'b': horseshoe() is for coefficients, but the model has none")
    if design.categories:
        raise InputError("prior 'b': horseshoe() does not know several categories' coefficients")


def _coefficient_groups(
    config: PriorConfig,
    names: Sequence[str],
    of_class: Prior,
    label: str = "b",
    parameter: str = "theta",
) -> list[PriorGroup]:
    """Group the coefficients by their density; one group of all has no list of members."""
    own = {
        name: parse_prior(text, name)
        for name, text in config.coefficients.items()
        if name.startswith("b_")
    }
    priors = [own.get(name, of_class) for name in names]
    densities = sorted({prior.density for prior in priors} or {of_class.density}, key=str)
    if len(densities) == 1:
        return [PriorGroup(label, parameter, densities[0], tuple(priors))]
    groups = []
    for density in densities:
        members = tuple(j for j, prior in enumerate(priors) if prior.density == density)
        chosen = tuple(priors[j] for j in members)
        groups.append(PriorGroup(label, parameter, density, chosen, members))
    return groups


def _used(group: PriorGroup, bundle: Bundle) -> list[Prior]:
    """Return the prior of each member as used; phi's is written once for all."""
    if group.label == "phi":  # its scales are the subspace's, not the data's
        return [group.priors[0].rescaled(float(scale)) for scale in phi_units(bundle)]
    if group.is_coefficients:
        further = bundle.units.further.get(group.label.removeprefix("b_"))
        scale = bundle.units.theta_scale if further is None else 1 / further[1]
        scale = scale if group.members is None else scale[list(group.members)]
    elif group.parameter.startswith("tau_"):
        scale = np.ones(1)
    elif group.label in (spreads := spread_units(bundle.design)):
        scale = np.array([bundle.units.eta_scale * spreads[group.label]])
    else:
        scale = np.array(
            [
                _dispersion_units(item, bundle.units)
                for item in bundle.family.parameters
                if item.name == group.label
            ]
        )
    return [
        _autoscaled(prior, float(units), bundle.config.priors)
        for prior, units in zip(group.priors, scale, strict=True)
    ]


def _autoscaled(prior: Prior, units: float, config: PriorConfig) -> Prior:
    fixed = prior.density.is_constant or not config.autoscale
    return prior if fixed else prior.rescaled(units)


def _lines(
    config: ModelConfig, design: Design, units: Units, phi_scales: Array | None
) -> Iterator[PriorLine]:
    yield from _phi_lines(config, phi_scales)
    if not config.subspace.holds_theta:
        yield from _coefficient_lines(config.priors, design.coefficients, units.theta_scale)
    for parameter in design.parameters:
        yield from _parameter_lines(config.priors, parameter, units)
    for item in scalar_parameters(family(config.family), design):
        prior, scale = _dispersion_prior(config.priors, item), _dispersion_units(item, units)
        source = _source(config.priors, item.key)
        used = _autoscaled(prior, scale, config.priors)
        yield PriorLine(item.name, str(prior), str(used), source)
    for name, scale in spread_units(design).items():
        prior, of_class = _spread_prior(config.priors, name), name.partition("_")[0]
        own = "coefficient" if name in config.priors.coefficients else None
        used = _autoscaled(prior, units.eta_scale * scale, config.priors)
        source = own or _source(config.priors, of_class)
        yield PriorLine(name, str(prior), str(used), source)
    if any(group.correlated for group in design.groups):
        yield PriorLine("cor", config.priors.cor, config.priors.cor, _source(config.priors, "cor"))


def _parameter_lines(
    config: PriorConfig, item: ParameterDesign, units: Units
) -> Iterator[PriorLine]:
    if item.has_tau:
        prior = str(_intercept_prior(config, item))
        source = "coefficient" if item.intercept in config.coefficients else "default"
        yield PriorLine(f"tau_{item.name}", prior, prior, source)
    label, scale = f"b_{item.name}", 1 / units.further[item.name][1]
    source = _source(config, "b") if item.link == "identity" else "default"
    source = "class" if label in config.coefficients else source
    of_class = _class_prior(config, item)
    yield from _coefficient_lines(config, item.coefficients, scale, of_class, source)


def _coefficient_lines(
    config: PriorConfig,
    names: Sequence[str],
    units: Array,
    of_class: Prior | None = None,
    source: str | None = None,
) -> Iterator[PriorLine]:
    of_class, source = of_class or parse_prior(config.b, "b"), source or _source(config, "b")
    for name, scale in zip(names, units, strict=True):
        own = config.coefficients.get(name)
        prior, decided = (parse_prior(own, "b"), "coefficient") if own else (of_class, source)
        yield PriorLine(name, str(prior), str(_autoscaled(prior, float(scale), config)), decided)


def _dispersion_prior(config: PriorConfig, item: Dispersion) -> Prior:
    return parse_prior(getattr(config, item.key) or item.prior, item.name)


def _dispersion_units(item: Dispersion, units: Units) -> float:
    return units.of_dispersion if item.has_units else 1.0


def _phi_lines(config: ModelConfig, scales: Array | None) -> Iterator[PriorLine]:
    prior, source = parse_prior(config.priors.phi, "phi"), _source(config.priors, "phi")
    automatic = config.priors.phi.strip() == AUTO
    written = AUTO if automatic else str(prior)
    if scales is None:
        known = not automatic and not config.subspace.scales_phi
        yield PriorLine("phi", written, written if known else LATER, source)
    elif np.ptp(scales) == 0:
        yield PriorLine("phi", written, str(prior.rescaled(float(scales[0]))), source)
    else:
        for j, scale in enumerate(scales, start=1):
            yield PriorLine(f"phi[{j}]", written, str(prior.rescaled(float(scale))), source)


def _source(config: PriorConfig, label: str) -> str:
    """Say whether a class's prior is the default one."""
    default = PriorConfig.model_fields[label].default
    return "default" if getattr(config, label) == default else "class"
