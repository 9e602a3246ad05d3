"""The model: resolved once from the configuration, the formula and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.completion import obstacle
from semistan.model.config import ModelConfig, NetworkConfig, SubspaceConfig, with_options
from semistan.model.construction import Moves
from semistan.model.design import Design
from semistan.model.explained import explained_by, spreads
from semistan.model.families.censored import with_censoring
from semistan.model.families.family import Family
from semistan.model.families.measured import response_family
from semistan.model.families.truncated import with_truncation
from semistan.model.formula.formula import Network, parse_formula
from semistan.model.formula.syntax import MODULE
from semistan.model.integral import Integral, integral_of
from semistan.model.modules import Modules
from semistan.model.networks.architecture import Architecture
from semistan.model.networks.leading import Leading
from semistan.model.networks.multiplied import Multiplied
from semistan.model.networks.networks import Networks, prior_scales
from semistan.model.networks.residual import check_options
from semistan.model.orthogonal import in_model, orthogonal_columns
from semistan.model.priors.density import Joint
from semistan.model.priors.groups import PriorGroup, joint_prior, prior_groups
from semistan.model.priors.r2d2 import Explained
from semistan.model.priors.weight_scales import (
    NO_SCALES,
    WeightScales,
    effect_scales,
    output_scales,
    weight_scales,
)
from semistan.model.table.multiplied import inputs_of_layers
from semistan.model.temper import Temper, temper_of
from semistan.model.terms.term import Term
from semistan.model.units import Units
from semistan.model.varying import scalar_parameters

MOST_WEIGHTS = 10_000_000  # a curve has nine such vectors, and Adam two more of each


@dataclass(frozen=True, eq=False)
class Model:
    """All that can be known before training.

    Attributes
    ----------
    config : ModelConfig
        The model as written, and how to fit it.
    design : Design
        The learnt design state.
    units : Units
        Locations and scales of the training rows.
    modules : mapping
        The user's modules among the networks, by name.
    """

    config: ModelConfig
    design: Design
    units: Units
    modules: Modules = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        # What was resolved holds functions, which cannot be pickled; it is resolved anew.
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def replace(self, **changes: object) -> Model:
        """Return the model with other configuration, design or units."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @cached_property
    def family(self) -> Family:
        """The response family's record."""
        given = self.design.given
        record = response_family(self.config.family, self.design.formula)
        if record.varied and self.design.varying:
            record = record.varied(record, self.design.varying)
        return with_truncation(with_censoring(record, given), given)

    @cached_property
    def leading(self) -> Leading:
        """The networks with all layers, of which leading ones may be constants."""
        return whole_networks(self.config, self.design, self.modules)

    @cached_property
    def network(self) -> Networks:
        """The network, or several, whose weights are Bayesian: without constant layers."""
        return self.leading.heads

    @cached_property
    def priors(self) -> tuple[PriorGroup, ...]:
        """The priors that the user can choose, a statement of the program each."""
        scales = self.weight_scales
        return prior_groups(self.config, self.design, self.units, scales.names if scales else ())

    @cached_property
    def constants(self) -> dict[str, float]:
        """The parameters that a prior fixes, by name."""
        fixed = (item for item in self.priors if item.density.is_constant)
        return {item.parameter: item.used[0].argument("value") for item in fixed}

    @cached_property
    def weight_scales(self) -> WeightScales | None:
        """Which weights share a scale that is sampled, if any is."""
        priors = self.config.priors
        if priors.sd_w == NO_SCALES or self.moves != "all":
            return None
        if priors.scales_outputs:
            return output_scales(self.network)
        if priors.scales_all:
            inputs = [inputs_of_layers(terms) for terms in self.design.networks]
            return weight_scales(self.network, inputs, self.leading.frozen)
        free = [item for item in self.design.slopes if item.weights not in priors.coefficients]
        if not (free and priors.on_weights and self.integral and self.integral.phi):
            return None
        return effect_scales(self.network, {item.network: item.effect for item in free})

    @property
    def moves(self) -> Moves:
        """What phi moves: weights along directions, single weights, or all of them."""
        subspace = self.config.subspace
        every = subspace.widens and subspace.k == self.network.d
        return "all" if every else subspace.moves

    @cached_property
    def weight_scale(self) -> Array | None:
        """Standard deviations (d,) of the weights' prior, unless phi has a prior of its own."""
        priors = self.config.priors
        if not priors.on_weights:
            return None
        own = {slope.network: priors.scale_of_slope(slope.weights) for slope in self.design.slopes}
        return prior_scales(self.network, priors.scale_of("w"), priors.scale_of("Intercept"), own)

    @cached_property
    def orthogonal(self) -> tuple[int, ...]:
        """Positions of the structured columns that are orthogonalised to the network."""
        return orthogonal_columns(self.config, self.design)

    @cached_property
    def samples_orthogonal(self) -> bool:
        """Whether the program samples orthogonalised coefficients."""
        return in_model(self.config, self.design)

    @cached_property
    def temper(self) -> Temper | None:
        """How the posterior is tempered, if it is."""
        return temper_of(self.config, self.design)

    @cached_property
    def integral(self) -> Integral | None:
        """What is integrated out and drawn afterwards, if anything is."""
        priors = prior_groups(self.config, self.design, self.units)  # scales depend on the integral
        return integral_of(self.config, self.design, self.family, self.network, self.moves, priors)

    @property
    def drawn(self) -> tuple[str, ...]:
        """Names of the parameters that are integrated out as a whole."""
        return self.integral.parameters if self.integral else ()

    @property
    def sampled_terms(self) -> tuple[Term, ...]:
        """The terms of all predictors that are not integrated out."""
        integrated: tuple[Term, ...] = self.integral.terms if self.integral else ()
        return tuple(term for term in self.design.terms if term not in integrated)

    @cached_property
    def completes(self) -> bool:
        """Whether the weights outside the subspace have their normal approximation."""
        return not self.not_completed

    @cached_property
    def not_completed(self) -> str:
        """Why they have not, in words."""
        return obstacle(self.config, self.design, self.network, self.moves)

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out to temper phi, in pure Stan on one thread."""
        return self.temper is not None and self.temper.integral is not None

    @cached_property
    def joint(self) -> Joint | None:
        """What the coefficients are made of, if they have a prior together."""
        density = joint_prior(self.config)
        return density.joint if density else None

    @cached_property
    def explained(self) -> Explained | None:
        """The parts of the predictor that share an R2D2 prior, if there are some."""
        of_networks = np.zeros(0)
        if self.config.priors.scales_outputs and self.weight_scales:
            assert self.weight_scale is not None
            of_networks = self.units.eta_scale * spreads(self.network, self.weight_scale)
        return explained_by(self.priors, self.design, self.family.dispersion, of_networks)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Names of the dispersion parameters without a predictor."""
        return tuple(item.name for item in scalar_parameters(self.family, self.design))


def network_spec(
    config: ModelConfig, design: Design, modules: Modules = MappingProxyType({})
) -> Networks:
    """Return the networks whose weights are Bayesian."""
    return whole_networks(config, design, modules).heads


def whole_networks(
    config: ModelConfig, design: Design, modules: Modules = MappingProxyType({})
) -> Leading:
    """Combine the inputs that each network has with its layers, by default the configured ones."""
    written = parse_formula(design.formula).networks
    options = [with_options(config.network, network.layers) for network in written]
    for network, own in zip(written, options, strict=True):
        if MODULE not in network.options:
            check_options(own.hidden, own.skip, own.norm)
    parts = tuple(
        _of_module(modules[network.options[MODULE]], network)
        if MODULE in network.options
        else inputs.architecture(own, len(network.of))
        for network, inputs, own in zip(written, design.networks, options, strict=True)
    )
    weights = sum(part.d for part in parts)
    if weights > MOST_WEIGHTS:
        text = " + ".join(part.text for part in parts)
        raise InputError(
            f"the network {text} has {weights:,} weights, and at most {MOST_WEIGHTS:,} can be "
            "trained; choose fewer or smaller hidden layers"
        )
    dimensions = own_dimensions(config.subspace, [network.options.get("k") for network in written])
    networks = Networks(parts, design.network_predictors, dimensions)
    return Leading(networks, frozen_layers(config.network, written))


def _of_module(module: Architecture, network: Network) -> Architecture:
    return Multiplied(module) if network.times else module


def own_dimensions(config: SubspaceConfig, given: Sequence[int | None]) -> tuple[int, ...]:
    """Return the dimension of each network's subspace, if the formula gives that of one.

    Raises
    ------
    InputError
        If others are to have as many as the budget allows.
    """
    if not any(given):
        return ()
    if config.k == "auto" and not all(given):
        raise InputError(
            "k in nn() is the dimension of one network's subspace, and that of the others is not "
            "known: give it by --k NUMBER (subspace.k), or k in each nn()"
        )
    return tuple(k or config.dimension for k in given)


def frozen_layers(config: NetworkConfig, networks: Sequence[Network]) -> tuple[int, ...]:
    """Return how many leading layers of each network in a formula are constants.

    By default, these are the layers of an image before the fully connected ones.
    """
    return tuple(_frozen(with_options(config, network.layers), network) for network in networks)


def _frozen(options: NetworkConfig, network: Network) -> int:
    if options.frozen != "auto":
        return options.frozen
    convolutional = network.of_images and options.kind != "mlp" and MODULE not in network.options
    return len(options.channels) if convolutional else 0
