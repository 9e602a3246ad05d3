"""What is integrated out: what the linear predictor is linear in, given the rest.

Of a gaussian response with identity link,

    y ~ normal(known + A beta, sigma),    beta ~ normal(location, scale),

where beta has those coordinates of phi that move weights or biases of output layers by themselves,
theta, and the coefficients of smooths, Gaussian processes and groups, standardised. The matrix A
depends on what is sampled: the inputs of the output layers are columns of it, and those of a smooth
are multiplied by its standard deviation. The program samples all but beta, from a posterior of far
fewer stiff directions and without the funnels of standard deviations, and draws beta, given the
rest and y, from its normal distribution in the generated quantities.

The output layers stay sampled behind ``skip`` or ``norm``, in a ``subnetwork``, with a prior other
than a normal one, where sigma is known, and in the span of a curve, where nothing moves them by
themselves. They stay sampled too where they are many beside the other weights, as of one wide
hidden layer: the products of all pairs of m coordinates then take longer than shorter trees save.
Of the other terms those with the fewest coefficients are integrated out first, up to
``MOST_COLUMNS`` in all, whose Cholesky factor each gradient needs; groups of several effects with
covariances between levels stay sampled. Theta alone is no
reason for an integral, since in the span of a curve chains move as well with theta as without; it
stays sampled if its prior is not normal or has bounds; those of ``horseshoe()`` and ``R2D2()`` are,
given their scales.

Nothing is integrated out with a temperature other than 1, of censored or truncated responses, where
sigma has a predictor, where coefficients are orthogonalised in the program or follow phi, and by
other methods than those that sample the compiled program by iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from semistan.model.arrays import Index
from semistan.model.config import ModelConfig
from semistan.model.construction import Moves
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, output_layers
from semistan.model.orthogonal import in_model
from semistan.model.parameter import REAL
from semistan.model.priors.density import Joint
from semistan.model.priors.groups import PriorGroup, joint_prior
from semistan.model.subspace import Subspace
from semistan.model.terms.penalised import Penalised
from semistan.model.terms.term import Integrable, Term
from semistan.words import listed

SAMPLERS = ("nuts", "mclmc")  # methods that sample the compiled program by iterations
NORMAL = "normal"
MOST_PAIRS = 6  # for each weight of the networks: a gradient takes some four times as long there
MOST_COLUMNS = 128  # that are integrated out: the work of their Cholesky factor grows cubically
PHI_SAMPLED = "phi_sampled"  # in the program, where phi is not sampled as a whole


@dataclass(frozen=True, slots=True)
class Integral:
    """What is integrated out.

    Attributes
    ----------
    phi : bool
        Whether those coordinates of phi are that move weights of output layers by themselves.
    theta : bool
        Whether the structured coefficients are.
    terms : tuple of Integrable
        The terms whose coefficients are.
    joint : Joint, optional
        What theta is made of, if it is of standard normal coefficients, which are then.
    """

    phi: bool
    theta: bool
    terms: tuple[Integrable, ...] = ()
    joint: Joint | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that are, as a whole: theta, or what it is made of, and z's."""
        of_theta = (self.joint.z,) if self.joint else ("theta",) if self.theta else ()
        return (*of_theta, *(term.names[0] for term in self.terms))

    @property
    def text(self) -> str:
        """It in words."""
        found = ["theta"] if self.theta else []
        if self.terms:
            terms = listed(term.text for term in self.terms)
            found.append(f"the standardised coefficients of {terms}")
        if self.phi:
            found.append("those coordinates of phi that move single weights of output layers")
        return listed(found)


def integral_of(
    config: ModelConfig,
    design: Design,
    family: Family,
    networks: Networks,
    moves: Moves,
    priors: tuple[PriorGroup, ...],
) -> Integral | None:
    """Return what is integrated out of a model's posterior, or None if nothing is.

    Parameters
    ----------
    config, design, family
        The model; ``[sample] integrate`` may be ``none``.
    networks : Networks
        Those whose weights are Bayesian.
    moves : str
        What phi moves.
    priors : tuple of PriorGroup
        Of all parameters.
    """
    options = config.sample
    wanted = options.integrate == "auto" and options.method in SAMPLERS
    if not wanted or options.temperature != 1:
        return None
    if not family.is_normal or design.others or not networks.in_stan:
        return None
    if config.subspace.holds_theta or in_model(config, design):
        return None
    of_theta = [item for item in priors if item.parameter == design.mean.theta]
    normal = all(item.density.name == NORMAL and item.kind is REAL for item in of_theta)
    theta = bool(design.coefficients) and bool(of_theta) and normal
    outputs = sum(len(layer) for layer in output_layers(networks, MU))
    beside = len(design.mean.coefficients) if theta else 0
    pairs = outputs**2 + 2 * outputs * beside
    many = outputs < networks.d and pairs > MOST_PAIRS * networks.d
    phi = moves in ("both", "all") and not many and _free_output_layers(networks, priors)
    if phi:
        beside += outputs
    if joint := _joint(config, design, beside):
        beside += len(design.mean.coefficients)
    terms = _few_columns(design, beside)
    found = Integral(phi, theta or joint is not None, terms, joint)
    return found if phi or terms or joint else None


def _joint(config: ModelConfig, design: Design, others: int) -> Joint | None:
    """Return what theta is made of, if that can be integrated out beside others."""
    density = joint_prior(config)
    fits = others + len(design.mean.coefficients) <= MOST_COLUMNS
    joint = density.joint if density else None
    return joint if joint and joint.z and fits else None


def _is_integrable(term: Term) -> TypeGuard[Integrable]:
    return isinstance(term, Penalised) and bool(term.columns_text)


def _few_columns(design: Design, others: int) -> tuple[Integrable, ...]:
    """Return the terms of the mean, in its order, that can be integrated out beside others."""
    able = [term for term in design.mean.terms if _is_integrable(term)]
    fitting = set[str]()
    for term in sorted(able, key=lambda term: term.training_size):
        others += term.training_size
        if others <= MOST_COLUMNS:
            fitting.add(term.names[0])
    return tuple(term for term in able if term.names[0] in fitting)


def _free_output_layers(networks: Networks, priors: tuple[PriorGroup, ...]) -> bool:
    """Say whether coordinates of output layers can be integrated out.

    Where sigma is known, all that is sampled might be: a chain needs something to move in.
    """
    several = len(networks.parts) > 1
    text = networks.kind.stan_text(several=several, predictors=False, kernel=False)
    (of_phi,) = (item for item in priors if item.is_phi)
    known = any(item.density.is_constant for item in priors if item.parameter == "sigma")
    return bool(text.output_inputs) and of_phi.density.name == NORMAL and not known


def output_coordinates(networks: Networks, subspace: Subspace) -> Index:
    """Return which coordinates of phi move a weight of an output layer by itself."""
    outputs = np.concatenate(output_layers(networks, MU))
    return np.flatnonzero(np.isin(subspace.axes, outputs))
