"""NUTS of q in PyTorch: CmdStan's algorithm, for networks that Stan does not compute.

With L = -log p(q | y), C the inverse metric and p a momentum from N(0, C^-1), the chain follows

    H(q, p) = L(q) + p' C p / 2,    dq/dt = C p,    dp/dt = -grad L(q),

by leapfrog steps. The trajectory is doubled, forward or backward in time at random, until it turns
round, and one of its places is drawn with probability proportional to exp(-H), the latest half
being preferred. It turns round where rho' C p is not positive at both ends, rho being the momenta's
sum over all of it, or over one half and the first place of the other. Where H rises by more than
``DIVERGENT`` nats, it has diverged.

Warm-up is CmdStan's, with the same options: dual averaging of the step towards the acceptance
``adapt_delta``, and windows, each twice as long as the one before, at whose ends C becomes the
covariance of the window's draws, or their variances, shrunk to a small multiple of the unit matrix.
The random numbers are others, so that draws agree in distribution and not one by one.

Libraries have the algorithm, but not a chain that depends on its task alone and goes on, where it
was interrupted, to the same bytes: so it is written out.

Hoffman and Gelman (2014), JMLR 15; Betancourt (2017), arXiv:1701.02434; the Stan reference manual,
"MCMC sampling".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from semistan.density.target import value_and_gradient
from semistan.errors import SemistanError
from semistan.infer.backends.backend import Report
from semistan.infer.method import Method
from semistan.infer.resumable_chain import ChainState, State, run_to_end
from semistan.infer.stan_csv import NUTS_COLUMNS, Origin, sampled_columns, stan_csv
from semistan.infer.task import ChainTask
from semistan.model.arrays import Array
from semistan.model.config import SampleConfig

Density = Callable[[Array], tuple[float, Array]]

DIVERGENT = 1000.0  # nats
FIRST_ACCEPTANCE = 0.8  # of one step, at which the search for a first step size ends
SHORTEST_STEP, LONGEST_STEP = 1e-14, 1e7  # beyond which no step is looked for
GAMMA, KAPPA, T0 = 0.05, 0.75, 10.0  # of dual averaging
BEFORE, FIRST_WINDOW, AFTER = 75, 25, 50  # iterations of warm-up's phases
LEAST_BEFORE, LEAST_AFTER = 0.15, 0.1  # shares of a warm-up too short for them
SHORTEST = 20  # iterations of warm-up in which a metric is adapted
PRIOR_DRAWS, PRIOR_VARIANCE = 5.0, 1e-3  # of the unit matrix to which a covariance is shrunk
ABOUT = "drawn by NUTS in PyTorch"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The inverse metric: a covariance (n, n), or variances (n,).

    ``factor`` maps a standard normal to a momentum.
    """

    inverse: Array
    factor: Array

    def momentum(self, z: Array) -> Array:
        """Return the momentum (n,) that a standard normal z (n,) makes."""
        return np.asarray(self.factor * z if self.factor.ndim == 1 else self.factor @ z)

    def velocity(self, p: Array) -> Array:
        """Return C p."""
        return np.asarray(self.inverse * p if self.inverse.ndim == 1 else self.inverse @ p)


@dataclass(frozen=True, slots=True, eq=False)
class PhasePoint:
    """A place of a trajectory: q (n,), momentum p (n,), velocity C p, L and its gradient (n,)."""

    q: Array
    p: Array
    v: Array
    L: float
    gradient: Array

    @property
    def energy(self) -> float:
        """H, infinite where it is no number."""
        energy = self.L + float(self.p @ self.v) / 2
        return energy if math.isfinite(energy) else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """Consecutive places.

    Attributes
    ----------
    first, last : PhasePoint
        Its ends, in the order of time.
    rho : array, shape (n,)
        Sum of the momenta.
    drawn : PhasePoint
        One of the places, drawn by their weights.
    log_weight : float
        Log of the sum of exp(H_0 - H), with H_0 that of the start.
    accepted : float
        Sum of min(1, exp(H_0 - H)) over the steps.
    steps : int
        Leapfrog steps.
    diverged, turned : bool
        Why it does not go on.
    """

    first: PhasePoint
    last: PhasePoint
    rho: Array
    drawn: PhasePoint
    log_weight: float = 0.0
    accepted: float = 0.0
    steps: int = 0
    diverged: bool = False
    turned: bool = False

    @property
    def ended(self) -> bool:
        """Whether it does not go on."""
        return self.diverged or self.turned


@dataclass(frozen=True, slots=True)
class Averaging:
    """Dual averaging of the log step, towards ``log_step``: Hoffman and Gelman, section 3.2."""

    mu: float
    error: float = 0.0
    log_step: float = 0.0
    count: int = 0

    def updated(self, acceptance: float, wanted: float) -> tuple[Averaging, float]:
        """Return what comes after an acceptance, and the next step."""
        count = self.count + 1
        share, slow = 1 / (count + T0), count**-KAPPA
        error = (1 - share) * self.error + share * (wanted - min(1.0, acceptance))
        x = self.mu - error * math.sqrt(count) / GAMMA
        log_step = slow * x + (1 - slow) * self.log_step
        return Averaging(self.mu, error, log_step, count), math.exp(x)


@dataclass(frozen=True, slots=True, eq=False)
class Dynamics:
    """The density with how the chain moves in it."""

    density: Density
    metric: Metric
    step: float

    def begun(
        self, q: Array, L: float, gradient: Array, generator: np.random.Generator
    ) -> PhasePoint:
        """Return a place with a new momentum."""
        p = self.metric.momentum(generator.normal(size=len(q)))
        return PhasePoint(q, p, self.metric.velocity(p), L, gradient)

    def moved(self, place: PhasePoint, direction: int) -> PhasePoint:
        """Take a leapfrog step, forward or backward in time."""
        step = direction * self.step
        half = place.p - step / 2 * place.gradient
        q = place.q + step * self.metric.velocity(half)
        L, gradient = self.density(q)
        if not is_finite(L, gradient):
            return PhasePoint(q, half, self.metric.velocity(half), math.inf, gradient)
        p = half - step / 2 * gradient
        return PhasePoint(q, p, self.metric.velocity(p), L, gradient)


def is_finite(L: float, gradient: Array) -> bool:
    """Say whether the chain can be at a place."""
    return math.isfinite(L) and bool(np.isfinite(gradient).all())


def nuts_torch_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; one that was interrupted goes on from where it was left.

    Raises
    ------
    SemistanError
        If the density is not finite where the chain starts.
    """
    options, target = task.options, task.target().single()
    assert options.warmup != "auto"
    q, mode = task.begin(target)
    metric = first_metric(len(q), options, None if mode is None else mode.inv_metric)
    ends = () if task.keep_metric or options.metric == "unit_e" else windows(options.warmup)

    def density(x: Array) -> tuple[float, Array]:
        return value_and_gradient(target, x)

    drawn = run_to_end(
        task,
        lambda generator: first_state(density, q, metric, task.number, generator),
        lambda chain, generator: _next(density, options, ends, chain, generator),
        report,
    )
    columns = sampled_columns(
        target,
        drawn["q"],
        drawn["log_density"],
        drawn["n_leapfrog__"],
        task.outside(target, len(drawn["q"])),
    )
    kinetic = drawn["energy"] + drawn["log_density"]
    columns |= {name: drawn[name] for name in columns if name in drawn}
    columns |= {"energy__": kinetic - columns["lp__"]}
    return stan_csv(columns, Origin("hmc", ABOUT, task.number, options.seed, options.warmup))


def first_metric(n: int, options: SampleConfig, of_mode: Array | None) -> Metric:
    """Return the metric in which warm-up begins: that of a mode, or of unit variances."""
    if options.metric == "ggn" and of_mode is not None:
        return metric_of(of_mode)
    return metric_of(np.eye(n) if options.metric == "dense_e" else np.ones(n))


def metric_of(inverse: Array) -> Metric:
    """Return the metric with some covariance (n, n), or variances (n,), of q."""
    if inverse.ndim == 1:
        return Metric(inverse, 1 / np.sqrt(inverse))
    root = np.linalg.cholesky(inverse)
    return Metric(inverse, solve_triangular(root, np.eye(len(root)), lower=True).T)


def windows(warmup: int) -> tuple[int, ...]:
    """Return where the windows begin, and where the last one ends; nothing if there are none."""
    if warmup < SHORTEST:
        return ()
    before, size, after = BEFORE, FIRST_WINDOW, AFTER
    if before + size + after > warmup:
        before, after = int(LEAST_BEFORE * warmup), int(LEAST_AFTER * warmup)
        size = warmup - before - after
    ends, last = [before], warmup - after
    while ends[-1] < last:
        end = ends[-1] + size
        # A window is followed by one of twice its size, or else goes on to the last one's end.
        ends.append(last if end + 2 * size > last else end)
        size *= 2
    return tuple(ends)


def adapted(draws: Array, metric: Metric) -> Metric:
    """Return the metric of the covariance, or variances, of draws (S, n)."""
    S, n = draws.shape
    weight = S / (S + PRIOR_DRAWS)
    if metric.inverse.ndim == 1:
        return metric_of(weight * draws.var(axis=0, ddof=1) + (1 - weight) * PRIOR_VARIANCE)
    covariance = np.atleast_2d(np.cov(draws.T))
    return metric_of(weight * covariance + (1 - weight) * PRIOR_VARIANCE * np.eye(n))


def first_step(dynamics: Dynamics, place: PhasePoint, generator: np.random.Generator) -> float:
    """Double or halve the step until the acceptance of one such step crosses a level.

    Raises
    ------
    SemistanError
        If the posterior is flat, or no step is short enough.
    """

    def rises_too_much(step: float) -> bool:
        start = dynamics.begun(place.q, place.L, place.gradient, generator)
        there = replace(dynamics, step=step).moved(start, 1)
        return start.energy - there.energy < math.log(FIRST_ACCEPTANCE)

    step = dynamics.step
    halve = rises_too_much(step)
    while SHORTEST_STEP < step < LONGEST_STEP:
        step *= 0.5 if halve else 2
        if rises_too_much(step) != halve:
            return step
    raise SemistanError(
        "NUTS found no step size: where the chain is, the posterior is flat or not continuous; use "
        "narrower priors, or another network"
    )


def transition(
    dynamics: Dynamics, start: PhasePoint, depth: int, generator: np.random.Generator
) -> tuple[Trajectory, int]:
    """Double a trajectory until it ends, or to some depth.

    Its depth, which is returned with it, counts the doublings that came to their end.
    """
    tree, reached = Trajectory(start, start, start.p, start), 0
    while reached < depth:
        direction = 1 if generator.uniform() < 0.5 else -1
        end = tree.last if direction == 1 else tree.first
        more = extended(dynamics, end, direction, reached, start.energy, generator)
        tree = joined(tree, more, direction, generator, prefer_new=True)
        if more.ended:
            break
        reached += 1
        if tree.ended:
            break
    return tree, reached


def extended(
    dynamics: Dynamics,
    end: PhasePoint,
    direction: int,
    depth: int,
    level: float,
    generator: np.random.Generator,
) -> Trajectory:
    """Return the 2^depth places behind an end, or fewer if they diverge or turn round.

    Parameters
    ----------
    dynamics : Dynamics
        How to move.
    end : PhasePoint
        Where they begin.
    direction : int
        1 forward in time, -1 backward.
    depth : int
        Of the tree.
    level : float
        H at the start of the whole trajectory.
    generator : numpy.random.Generator
        Draws one of the places.
    """
    if depth == 0:
        place = dynamics.moved(end, direction)
        gain = level - place.energy
        accepted = math.exp(min(0.0, gain))
        return Trajectory(
            place, place, place.p, place, gain, accepted, 1, diverged=gain < -DIVERGENT
        )
    one = extended(dynamics, end, direction, depth - 1, level, generator)
    if one.ended:
        return one
    end = one.last if direction == 1 else one.first
    other = extended(dynamics, end, direction, depth - 1, level, generator)
    return joined(one, other, direction, generator)


def joined(
    old: Trajectory,
    new: Trajectory,
    direction: int,
    generator: np.random.Generator,
    *,
    prefer_new: bool = False,
) -> Trajectory:
    """Join two consecutive trajectories; no place is drawn from a new one that has ended.

    With ``prefer_new``, the new one's place is taken with probability min(1, its weight over that
    of the old one), else over that of both.
    """
    steps, accepted = old.steps + new.steps, old.accepted + new.accepted
    if new.ended:
        return replace(
            old, steps=steps, accepted=accepted, diverged=new.diverged, turned=new.turned
        )
    total = float(np.logaddexp(old.log_weight, new.log_weight))
    chance = new.log_weight - (old.log_weight if prefer_new else total)
    drawn = new.drawn if math.log(1 - generator.uniform()) < chance else old.drawn
    left, right = (old, new) if direction == 1 else (new, old)
    rho = left.rho + right.rho
    goes_on = (
        _goes_on(left.first, right.last, rho)
        and _goes_on(left.first, right.first, left.rho + right.first.p)
        and _goes_on(left.last, right.last, left.last.p + right.rho)
    )
    return Trajectory(
        left.first, right.last, rho, drawn, total, accepted, steps, turned=not goes_on
    )


def _goes_on(first: PhasePoint, last: PhasePoint, rho: Array) -> bool:
    return bool(first.v @ rho > 0 and last.v @ rho > 0)


def first_state(
    density: Density, q: Array, metric: Metric, chain: int, generator: np.random.Generator
) -> State:
    """Return the state of a new chain, whose momentum is drawn anew in each iteration.

    Raises
    ------
    SemistanError
        If the density is not finite where it starts.
    """
    L, gradient = density(q)
    if not is_finite(L, gradient):
        raise SemistanError(f"chain {chain} starts where the posterior is not finite")
    place = PhasePoint(q, np.zeros_like(q), np.zeros_like(q), L, gradient)
    return _packed(place, *_restarted(Dynamics(density, metric, 1.0), place, generator))


def _restarted(
    dynamics: Dynamics, place: PhasePoint, generator: np.random.Generator
) -> tuple[Dynamics, Averaging]:
    """Look for a step size in a new metric, and begin to average around ten times it."""
    step = first_step(dynamics, place, generator)
    return replace(dynamics, step=step), Averaging(math.log(10 * step))


def _next(
    density: Density,
    options: SampleConfig,
    ends: tuple[int, ...],
    chain: ChainState,
    generator: np.random.Generator,
) -> tuple[State, Mapping[str, Array | float]]:
    """Take a chain to its next draw; in warm-up, adapt how it moves."""
    assert options.warmup != "auto"
    place, dynamics, averaging = _unpacked(density, chain.state)
    if chain.done in ends[1:]:
        draws = chain.past("q", ends[ends.index(chain.done) - 1])
        dynamics = replace(dynamics, metric=adapted(draws, dynamics.metric))
        dynamics, averaging = _restarted(dynamics, place, generator)
    if chain.done == options.warmup:
        dynamics = replace(dynamics, step=math.exp(averaging.log_step))
    start = dynamics.begun(place.q, place.L, place.gradient, generator)
    assert options.max_treedepth != "auto" and options.adapt_delta != "auto"
    tree, depth = transition(dynamics, start, options.max_treedepth, generator)
    acceptance, used, place = tree.accepted / tree.steps, dynamics.step, tree.drawn
    if chain.done < options.warmup:
        averaging, step = averaging.updated(acceptance, options.adapt_delta)
        dynamics = replace(dynamics, step=step)
    return _packed(place, dynamics, averaging), {
        "q": place.q, "log_density": -place.L, "energy": place.energy,
        "accept_stat__": acceptance, "stepsize__": used, "treedepth__": depth,
        "n_leapfrog__": tree.steps, "divergent__": tree.diverged,
    }  # fmt: skip


def _packed(place: PhasePoint, dynamics: Dynamics, averaging: Averaging) -> State:
    metric = dynamics.metric
    numbers = {
        "L": place.L, "step": dynamics.step, "mu": averaging.mu, "error": averaging.error,
        "log_step": averaging.log_step, "count": averaging.count,
    }  # fmt: skip
    arrays = {"q": place.q, "gradient": place.gradient, "inverse": metric.inverse}
    arrays |= {"factor": metric.factor}
    return arrays | {name: np.asarray(value) for name, value in numbers.items()}


def _unpacked(density: Density, state: State) -> tuple[PhasePoint, Dynamics, Averaging]:
    q, number = state["q"], {name: float(x) for name, x in state.items() if x.ndim == 0}
    place = PhasePoint(q, np.zeros_like(q), np.zeros_like(q), number["L"], state["gradient"])
    averaging = Averaging(number["mu"], number["error"], number["log_step"], int(number["count"]))
    metric = Metric(state["inverse"], state["factor"])
    return place, Dynamics(density, metric, number["step"]), averaging


NUTS_TORCH = Method(
    "nuts-torch", "NUTS", nuts_torch_chain, approximate=False, by_stan=False, has_warmup=True,
    columns=NUTS_COLUMNS, hamiltonian=True,
)  # fmt: skip
