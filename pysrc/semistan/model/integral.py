"""What is integrated out: what the linear predictor is linear in, given the rest.

Of a gaussian response with identity link,

    y ~ normal(known + A beta, sigma),    beta ~ normal(location, scale),

where beta has those coordinates of phi that move weights or biases of output layers by themselves,
and theta. The matrix A depends on what is sampled: the inputs of the output layers are columns of
it. The program samples all but beta, from a posterior of far fewer stiff directions, and draws
beta, given the rest and y, from its normal distribution in the generated quantities.

That is done where the output layers can be integrated out: theta alone is no reason for it, since
in the span of a curve chains move as well with theta as without, at a lower cost of each step. The
output layers stay sampled behind ``skip`` or ``norm``, in a ``subnetwork``, with a prior other than
a normal one, or where sigma is known. They stay sampled too where they are many beside the other
weights, as of one wide hidden layer: the products of all pairs of m coordinates then take longer
than shorter trees save. Coefficients stay sampled whose prior is not normal, as do smooths, groups
and Gaussian processes. Nothing is integrated out with a temperature other than 1, of censored or
truncated responses, where sigma has a predictor, where coefficients are orthogonalised in the
program, and by other methods than those that sample the compiled program by iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.model.arrays import Index
from semistan.model.config import ModelConfig
from semistan.model.construction import Moves
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, output_layers
from semistan.model.orthogonal import in_model
from semistan.model.priors.groups import PriorGroup
from semistan.model.subspace import Subspace

SAMPLERS = ("nuts", "mclmc")  # methods that sample the compiled program by iterations
NORMAL = "normal"
MOST_PAIRS = 6  # for each weight of the networks: a gradient takes some four times as long there
PHI_SAMPLED = "phi_sampled"  # in the program, where phi is not sampled as a whole


@dataclass(frozen=True, slots=True)
class Integral:
    """What is integrated out.

    Attributes
    ----------
    theta : bool
        Whether the structured coefficients are, beside those coordinates of phi that move weights
        of output layers by themselves.
    """

    theta: bool

    @property
    def text(self) -> str:
        """It in words."""
        of_phi = "those coordinates of phi that move single weights of output layers"
        return f"theta and {of_phi}" if self.theta else of_phi


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
    if moves not in ("both", "all") or not _free_output_layers(networks, priors):
        return None
    of_theta = {item.density.name for item in priors if item.parameter == design.mean.theta}
    theta = bool(design.coefficients) and of_theta == {NORMAL}
    outputs = sum(len(layer) for layer in output_layers(networks, MU))
    m = outputs + theta * len(design.mean.coefficients)
    if outputs < networks.d and m**2 > MOST_PAIRS * networks.d:
        return None
    return Integral(theta)


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
