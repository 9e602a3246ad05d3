"""Elliptical slice sampling of q in PyTorch: for networks and data that Stan does not hold.

The posterior is written as a Gaussian N(m, C), the reference, times what is left of it,

    p(q | y) = N(q; m, C) L(q),    L = p(q | y) / N(q; m, C).

From q = m + C^(1/2) z, a draw v ~ N(0, I) gives an ellipse through z; an angle on it is drawn
uniformly, and the bracket of angles shrinks towards z until L exceeds the slice's level. There
is nothing to tune, no gradient, and no proposal is rejected. It is exact for every reference,
which only decides how far the chain moves:

- Where the chain climbed to a mode, the reference is the Laplace approximation of all of q there.
  During warm-up, mean and covariance of the draws so far take its place. It is wider than
  these by 1 + 4 / sqrt(n), because a chain is slow to leave where a reference has too light a tail.
- Without a mode, it is the normal prior of (phi, theta), as in the paper that found the method,
  and each other element of q takes a slice step: the log of a dispersion parameter with the linear
  predictor held, if there is nothing else.

The log-likelihood is summed over chunks of rows. One draw is the last of ``STEPS`` steps.

Murray, Adams and MacKay (2010), AISTATS; Nishihara, Murray and Adams (2014), JMLR 15; Neal
(2003), Annals of Statistics 31(3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from semistan.density.mode import Mode
from semistan.density.target import (
    Target,
    log_lik,
    log_prior,
    negative_log_posterior,
)
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import Report
from semistan.infer.method import Method
from semistan.infer.resumable_chain import ChainState, run_to_end
from semistan.infer.stan_csv import Origin, sampled_columns, stan_csv
from semistan.infer.task import ChainTask
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.parameter import REAL
from semistan.model.priors.groups import joint_prior

Density = Callable[[Array], float]

STEPS = 5  # between draws that are kept
ADAPTATIONS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)  # shares of warm-up after which C is estimated anew
WIDER = 4.0  # the reference's covariance is that of the draws times 1 + WIDER / sqrt(n)
SLICE_WIDTH = 1.0  # of the log of a dispersion parameter
STEPS_OUT = 20
ABOUT = "drawn by elliptical slice sampling in PyTorch; n_leapfrog__ counts likelihoods"


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A Gaussian over the first m elements of q.

    Attributes
    ----------
    mean : array, shape (m,)
        Its mean.
    factor : array, shape (m, m) or (m,)
        Cholesky factor of its covariance, or standard deviations.
    is_prior : bool
        Whether it is the prior of (phi, theta), which stays.
    """

    mean: Array
    factor: Array
    is_prior: bool

    def point(self, z: Array) -> Array:
        """Map a standard normal z (m,) to q's elements."""
        return self.mean + (self.factor * z if self.is_prior else self.factor @ z)

    def standardise(self, q: Array) -> Array:
        """Map q's elements to z (m,)."""
        deviation = q - self.mean
        if self.is_prior:
            return np.asarray(deviation / self.factor)
        return np.asarray(np.linalg.solve(self.factor, deviation))


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A chain between two steps: q (n,), its standardised part z (m,), log p(q | y)."""

    q: Array
    z: Array
    log_density: float


def elliptical_slice_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; one that was interrupted goes on from where it was left.

    Raises
    ------
    InputError
        If there is no mode to refer to and a prior on b or phi is not normal.
    SemistanError
        If the density is not finite where the chain starts.
    """
    options, target = task.options, task.target().single()
    assert options.warmup != "auto"
    q, mode = task.begin(target)
    reference = reference_of(target, mode)
    adaptations = {round(share * options.warmup) for share in ADAPTATIONS} - {0}
    drawn = run_to_end(
        task,
        lambda _: _packed(_first(target, q, reference, task.number), reference),
        lambda chain, generator: _moved(target, adaptations, chain, generator),
        report,
    )
    columns = sampled_columns(
        target,
        drawn["q"],
        drawn["log_density"],
        drawn["evaluations"],
        task.outside(target, len(drawn["q"])),
    )
    origin = Origin("elliptical_slice", ABOUT, task.number, options.seed, options.warmup)
    return stan_csv(columns, origin)


def _has_reference(config: ModelConfig) -> None:
    """Refuse a joint prior, in whose funnel no Gaussian is a reference.

    Raises
    ------
    InputError
        Naming other methods.
    """
    if joint := joint_prior(config):
        raise InputError(
            f"method = '{config.sample.method}' moves on ellipses of a Gaussian reference, which "
            f"{joint}() does not have; use method = 'nuts' or 'flow'"
        )
    if config.priors.scales_all:
        raise InputError(
            f"method = '{config.sample.method}' moves on ellipses of a Gaussian reference, which "
            "weights of sampled scales do not have; leave prior sd_w out, or use method = 'nuts'"
        )


def reference_of(target: Target, mode: Mode | None) -> Reference:
    """Return the Laplace approximation at a mode, or the prior if there is none.

    Raises
    ------
    InputError
        If there is no mode and a prior on b or phi is not normal.
    """
    if mode is not None:
        return _gaussian(mode.q, mode.inv_metric)
    scales = {"phi": target.bundle.subspace.phi_scale, "theta": target.bundle.units.theta_scale}
    for group in target.bundle.model.priors:
        if group.size and (group.density.name != "normal" or group.kind is not REAL):
            raise InputError(
                f"elliptical slice sampling found no mode in the subspace and needs a normal "
                f"prior instead: prior '{group.label}' is {group.written[0]}; write "
                "normal(0, scale), or choose method = 'nuts'"
            )
    normal = {p.parameter: p.distribution for p in target.priors if p.parameter in scales}
    parts = [
        [getattr(prior, moment).numpy() / scales[name] for name, prior in normal.items()]
        for moment in ("loc", "scale")
    ]
    mean, sd = (np.concatenate(part) for part in parts)
    return Reference(mean, sd, is_prior=True)


def elliptical_step(
    density: Density, reference: Reference, state: State, generator: np.random.Generator
) -> tuple[State, int]:
    """Move the first m elements of q along an ellipse.

    Parameters
    ----------
    density : callable
        log p(q | y) at q (n,), up to a constant; minus infinity where it is not finite.
    reference : Reference
        The Gaussian.
    state : State
        Where the chain is.
    generator : numpy.random.Generator
        Random numbers.

    Returns
    -------
    State and int
        The new state, and the evaluations of the density.
    """
    v = generator.normal(size=len(state.z))
    level = state.log_density + _half_square(state.z) + np.log(generator.uniform())
    angle = generator.uniform(0, 2 * np.pi)
    lower, upper, evaluations = angle - 2 * np.pi, angle, 0
    while True:
        z = state.z * np.cos(angle) + v * np.sin(angle)
        q = np.concatenate([reference.point(z), state.q[len(z) :]])
        log_density, evaluations = density(q), evaluations + 1
        if log_density + _half_square(z) > level:
            return State(q, z, log_density), evaluations
        if upper - lower < 1e-12:  # rounding keeps even the state itself off the slice
            return state, evaluations
        lower, upper = (angle, upper) if angle < 0 else (lower, angle)
        angle = generator.uniform(lower, upper)


def slice_step(
    density: Callable[[float], float], x: float, value: float, generator: np.random.Generator
) -> tuple[float, float]:
    """Take a univariate slice step from x, whose log density is ``value``, by stepping out."""
    level = value + np.log(generator.uniform())
    lower = x - SLICE_WIDTH * generator.uniform()
    upper = lower + SLICE_WIDTH
    below = int(generator.integers(STEPS_OUT))
    above = STEPS_OUT - 1 - below
    while below and density(lower) > level:
        lower, below = lower - SLICE_WIDTH, below - 1
    while above and density(upper) > level:
        upper, above = upper + SLICE_WIDTH, above - 1
    while True:
        proposal = generator.uniform(lower, upper)
        new = density(proposal)
        if new > level:
            return proposal, new
        if upper - lower < 1e-12:
            return x, value
        lower, upper = (proposal, upper) if proposal < x else (lower, proposal)


def _half_square(z: Array) -> float:
    return float(z @ z) / 2


def _gaussian(mean: Array, covariance: Array) -> Reference:
    """Return a reference that is wider than the draws."""
    wider = 1 + WIDER / np.sqrt(len(mean))
    return Reference(mean, np.linalg.cholesky(wider * covariance), is_prior=False)


def _adapted(reference: Reference, draws: Array) -> Reference:
    """Return the Gaussian of the later half of some draws, shrunk to the one before.

    The draws count as much as two for each element of q do for the reference.
    """
    later = draws[len(draws) // 2 :]
    n = len(reference.mean)
    if reference.is_prior or len(later) < 2:
        return reference
    weight = len(later) / (len(later) + 2 * n)
    before = reference.factor @ reference.factor.T / (1 + WIDER / np.sqrt(n))
    return _gaussian(later.mean(axis=0), weight * np.cov(later.T) + (1 - weight) * before)


def _first(target: Target, q: Array, reference: Reference, chain: int) -> State:
    value = _log_density(target, q)
    if not np.isfinite(value):
        raise SemistanError(f"chain {chain} starts where the posterior is not finite")
    return State(q, reference.standardise(q[: len(reference.mean)]), value)


def _moved(
    target: Target, adaptations: set[int], chain: ChainState, generator: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array | float]]:
    """Take a chain to its next draw, with a new reference where it is time for one."""
    state, reference = _unpacked(chain.state)
    if chain.done in adaptations:
        reference = _adapted(reference, chain.past("q"))
        state = replace(state, z=reference.standardise(state.q[: len(state.z)]))
    state, evaluations = _draw(target, reference, state, generator)
    brought: dict[str, Array | float] = {"q": state.q, "log_density": state.log_density}
    return _packed(state, reference), brought | {"evaluations": evaluations}


def _packed(state: State, reference: Reference) -> dict[str, Array]:
    numbers = {"log_density": state.log_density, "is_prior": reference.is_prior}
    arrays = {"q": state.q, "z": state.z, "mean": reference.mean, "factor": reference.factor}
    return arrays | {name: np.asarray(value) for name, value in numbers.items()}


def _unpacked(values: Mapping[str, Array]) -> tuple[State, Reference]:
    reference = Reference(values["mean"], values["factor"], bool(values["is_prior"]))
    return State(values["q"], values["z"], float(values["log_density"])), reference


def _draw(
    target: Target, reference: Reference, state: State, generator: np.random.Generator
) -> tuple[State, int]:
    """Take the steps between two draws."""
    evaluations = 0
    for _ in range(STEPS):
        state, more = elliptical_step(
            lambda q: _log_density(target, q), reference, state, generator
        )
        evaluations += more
        if len(state.z) < len(state.q):
            state = _dispersion_step(target, state, generator)
            evaluations += 1
    return state, evaluations


def _dispersion_step(target: Target, state: State, generator: np.random.Generator) -> State:
    """Move the elements of q that are on no ellipse, as the log of a dispersion parameter."""
    density, q, value = _given_predictor(target, state.q), state.q.copy(), state.log_density
    for j in range(len(state.z), len(q)):

        def along(x: float, j: int = j, q: Array = q) -> float:
            moved = q.copy()
            moved[j] = x
            return density(moved)

        q[j], value = slice_step(along, float(q[j]), value, generator)
    return State(q, state.z, value)


def _given_predictor(target: Target, q: Array) -> Density:
    """Return the log density of q's with the same (phi, theta), eta computed once if it can be."""
    design = target.bundle.design
    if target.prior_only or target.integrates_theta or design.terms or design.others:
        return lambda moved: _log_density(target, moved)
    with torch.no_grad():
        eta = target.predictors(target.values(torch.tensor(q)))

    def density(moved: Array) -> float:
        with torch.no_grad():
            state = torch.tensor(moved)
            values, value = target.values(state), torch.zeros((), dtype=torch.float64)
            for chunk, held in zip(target.chunks, eta, strict=True):
                value = value + log_lik(target, chunk, held, values).sum()
            return _finite(float(log_prior(target, state) + target.power * value))

    return density


def _log_density(target: Target, q: Array) -> float:
    return _finite(-negative_log_posterior(target, torch.tensor(q)))


def _finite(value: float) -> float:
    return value if np.isfinite(value) else -np.inf


ELLIPTICAL_SLICE = Method(
    "elliptical-slice", "elliptical slice sampling", elliptical_slice_chain, approximate=False,
    by_stan=False, has_warmup=True, columns={"lp": "lp__"}, check=_has_reference,
    dimensions=40,
)  # fmt: skip
