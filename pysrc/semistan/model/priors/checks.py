"""Which priors a model cannot have: of what it lacks, or does not sample."""

from __future__ import annotations

from semistan.errors import InputError, did_you_mean
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.families.measured import response_family
from semistan.model.predictor import Predictor
from semistan.model.priors.classes import CLASSES
from semistan.model.priors.densities import AUTO, parse_prior
from semistan.model.priors.density import Density
from semistan.model.priors.groups import PHI, all_choices
from semistan.model.priors.section import PriorConfig
from semistan.model.priors.weight_scales import NO_SCALES, SD_W
from semistan.model.varying import parameters_text, terms_text

DISPERSION = ("sigma", "shape", "nu", "precision", "gap")  # that PriorConfig has fields of


def check_priors(config: ModelConfig, design: Design) -> None:
    """Refuse priors of coefficients that the model does not have or does not sample.

    Raises
    ------
    InputError
        Naming the nearest coefficient.
    """
    of_all = parse_prior(config.priors.b, "b")
    if of_all.density.joint:
        _check_joint(of_all.density, config, design)
    _check_explained(config.priors, design)
    if of_all.is_bounded and config.subspace.holds_theta:
        raise InputError(
            f"prior 'b': in the construction '{config.subspace.construction}' the coefficients lie "
            "in the subspace, and no bounds can hold them"
        )
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
    own = [item.own for item in all_choices(config, design)]
    weights = [slope.weights for slope in design.slopes]
    return list(design.coefficients), [*others, *keys, *own, *weights]


def _has_steps(predictor: Predictor) -> bool:
    """Say whether scalars of a predictor's terms have the prior of its coefficients."""
    scalars = (item for term in predictor.terms for item in term.hyperparameters())
    return any(item.prior_class == "b" for item in scalars)


def _check_varying(config: PriorConfig, design: Design) -> None:
    """Refuse a prior of a dispersion parameter that has a predictor."""
    for item in design.of_dispersion:
        if config.source(item.name) != "default":
            key = item.intercept if item.has_tau else PHI
            raise InputError(
                f"prior '{item.name}': {item.name} has a predictor; what it is made of has "
                f"priors, as '{key}'"
            )


def _check_classes(config: ModelConfig, design: Design) -> None:
    """Refuse a prior of a parameter that neither the family nor a term has."""
    record = response_family(config.family, design.formula)
    known = {item.key for item in record.parameters}
    known |= {item.prior_class for term in design.terms for item in term.hyperparameters()}
    for key in (*config.priors.classes, *DISPERSION):
        if key not in known and config.priors.source(key) != "default":
            raise InputError(
                f"prior '{key}': the model has no {CLASSES[key].of}."
                if key in CLASSES
                else f"prior '{key}': family {record.name} has no such parameter."
                f"{did_you_mean(key, sorted(known))}"
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


def _check_explained(config: PriorConfig, design: Design) -> None:
    """Refuse a prior of what is explained where that is not the variance of one mean."""
    keys = {key: parse_prior(getattr(config, key), key) for key in ("b", SD_W)
            if getattr(config, key) not in (AUTO, NO_SCALES)}  # fmt: skip
    given = {key: prior.density for key, prior in keys.items() if prior.density.explains}
    elsewhere = []
    for predictor in design.predictors:
        for item in (item for term in predictor.terms for item in term.hyperparameters()):
            text, _ = config.chosen(item.name, item.within, item.prior_class, default=item.default)
            density = parse_prior(text, item.name).density if text else None
            if density and density.explains and item.prior_class != "b":
                given.setdefault(item.prior_class, density)
                elsewhere += [] if predictor.is_mean else [(item, predictor.words)]
    for key, density in given.items():
        if design.categories:
            raise InputError(f"prior '{key}': {density}() does not know several categories' means")
        if "sigma" in design.varying:
            raise InputError(
                f"prior '{key}': {density}() shares out variance in units of one sigma, which has "
                "a predictor here; use another prior, or leave the predictor out"
            )
    for item, words in elsewhere:
        key = item.prior_class
        raise InputError(
            f"prior '{key}': {given[key]}() is of what explains the mean, and {item.name} is of "
            f"{words}; give it a prior of its own, as {item.name} = '{CLASSES[key].default}'"
        )


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
