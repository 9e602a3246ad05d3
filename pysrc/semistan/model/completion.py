"""The completion: what the weights outside the subspace add, to first order.

NUTS samples a = (phi, theta, dispersion) in the subspace. The weights outside it have the normal
approximation of the posterior of all weights at a mode inside the subspace, jointly with a
(``subspace/completion.py``). With psi ~ normal(0, I) of K dimensions, independent of a,

    delta = step + along psi,
    f(u) = f(u; p_bar + Pi phi) + J(u) delta,    J(u) = d f(u; w) / d w at the mode,

and coefficients and intercepts move by a step and along psi too: they give way to what the network
takes over.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.construction import Moves
from semistan.model.design import Design
from semistan.model.networks.networks import Networks
from semistan.model.orthogonal import in_model

MOST_WEIGHTS = 50_000  # of which a program reads how each moves along psi
MOST_COEFFICIENTS = 2000  # of other terms, which are among what is sampled beside them
PSI = "psi"  # in the program


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What the weights outside a subspace add.

    Attributes
    ----------
    at : array, shape (d,)
        The weights at the mode, around which the network is linear in delta.
    weights : array, shape (d, 1 + K)
        How the weights change: the Newton step, and along each element of psi.
    others : dict of arrays, shape (size, 1 + K)
        How intercepts, coefficients, and what other terms make of theirs change, by their names in
        the program and in the order of their elements in its files.
    information : array, shape (K,)
        The share of the linearised posterior variance, times the rows' information on it, that each
        element of psi has: from 0, where the prior rules, to 1.
    share : float
        What the K directions have of the linearised predictive variance outside the subspace.
    stride : float
        Root mean square of what the step does to the linearised predictors, over that of their
        standard deviation outside the subspace: how far the mode in it is from that of all weights.
    """

    at: Array
    weights: Array
    others: dict[str, Array]
    information: Array
    share: float
    stride: float

    @property
    def K(self) -> int:
        """Number of directions."""
        return int(self.weights.shape[1]) - 1

    @property
    def text(self) -> str:
        """How many directions there are, and what they hold, in words."""
        return f"{self.K} directions with {100 * self.share:.1f}% of the linearised variance there"

    def change(self, name: str, psi: Array) -> Array:
        """Return how a named quantity changes, (..., size), at psi (..., K)."""
        return changed(self.others[name], psi)


def completed_name(name: str) -> str:
    """Return what a program calls coefficients that have moved."""
    return f"{name}_completed"


def changed(by: Array, psi: Array) -> Array:
    """Return a step and what is along psi (..., K), given both as (size, 1 + K)."""
    return by[:, 0] + psi @ by[:, 1:].T


def obstacle(config: ModelConfig, design: Design, networks: Networks, moves: Moves) -> str:
    """Say why a model's subspace is not completed, or nothing if it is.

    Parameters
    ----------
    config, design
        The model; ``[subspace] completion`` may be ``none``.
    networks : Networks
        Those whose weights are Bayesian.
    moves : str
        What phi moves.
    """
    if config.subspace.completion == "none":
        return "subspace.completion is 'none'"
    if moves == "all":
        return "all weights are sampled"
    if not config.priors.on_weights:
        return "prior phi takes the place of that of the weights"
    if config.subspace.holds_theta:
        return f"construction '{config.subspace.construction}' holds the coefficients"
    if in_model(config, design):
        return "the program samples orthogonalised coefficients"
    if config.sample.temperature != 1:
        return "the posterior is tempered"
    if not networks.in_stan:
        return f"PyTorch alone computes {networks.text}"
    if not networks.kind.stan_text(several=False, predictors=False, kernel=False).along:
        return f"the derivatives of {networks.text} are not known to Stan"
    others = sum(p.size for term in design.terms for p in term.parameters(config.priors))
    if others > MOST_COEFFICIENTS:
        return f"its other terms have {others:,} coefficients, more than {MOST_COEFFICIENTS:,}"
    if networks.d > MOST_WEIGHTS:
        return f"it has {networks.d:,} weights, more than {MOST_WEIGHTS:,}"
    return ""
