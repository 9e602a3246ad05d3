"""Microcanonical Langevin Monte Carlo of q in PyTorch: a sampler by gradients, without a check.

With L = -log p(q | y), n the number of coordinates and u a velocity of length 1, the chain follows

    dq/dt = S u,    du/dt = -(1 - u u') S grad L(q) / (n - 1),

S a diagonal of scales. It keeps the energy E = L + (n - 1) log r, with r the magnitude of the
momentum, which is never held: only its changes are known. Along a typical trajectory q has the
posterior's density. What changes the velocity at a place, the B-step, has a solution,

    u <- [u + e (sinh d + (e'u) (cosh d - 1))] / [cosh d + (e'u) sinh d],
    e = -S grad L / |S grad L|,    d = time |S grad L| / (n - 1),

and so has what moves q along u. A step of the minimal-norm integrator has three of the first and
two of the second, with two new gradients. After each, some noise turns the velocity,

    u <- (u + nu z) / |u + nu z|,    z ~ N(0, I),    nu^2 = (exp(2 step / length) - 1) / n,

so that it forgets its direction over a distance ``length``. No proposal is rejected: the error of
the energy, which a smaller step makes smaller, is a bias that more draws do not remove. The step is
such that a typical squared error in a step is ``ENERGY_VARIANCE`` for each coordinate; where the
posterior has narrow places, some are far larger, and count little.

An iteration, of warm-up as of what is kept, has ``STEPS`` steps, and so ten gradients: 1,000
draws take 10,000 of them. A chain starts on the trained curve and looks for no mode. In warm-up,
the step is adapted throughout; after a quarter, a half and three quarters of it, S becomes the
standard deviations of the draws since the time before, and the length that of the typical set,
sqrt(n) in these units; at its end, the length becomes a share of that over which draws are
correlated.

Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24;
Robnik and Seljak (2024), Fluctuation without dissipation: microcanonical Langevin Monte Carlo;
Sommer et al. (2025), Microcanonical Langevin ensembles, ICLR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from semistan.density.target import value_and_gradient
from semistan.errors import SemistanError
from semistan.infer.backends.backend import Report
from semistan.infer.method import Method
from semistan.infer.microcanonical import (
    COLUMNS,
    ENERGY_VARIANCE,
    GRADIENTS,
    STEPS,
    TEXT,
    check_dimensions,
)
from semistan.infer.resumable_chain import ChainState, run_to_end
from semistan.infer.stan_csv import Origin, sampled_columns, stan_csv
from semistan.infer.task import ChainTask
from semistan.model.arrays import Array

Density = Callable[[Array], tuple[float, Array]]

MINIMAL_NORM = 0.1931833275037836  # share of the step that the first and the last B-step take
ESTIMATES = (1 / 4, 1 / 2, 3 / 4)  # shares of warm-up after which the scales are estimated
FIRST_STEP = 0.05  # for each sqrt(n); the first steps adapt it
OF_CORRELATION = 0.4  # length over which the velocity is forgotten, in that of the draws
TRUST = 9.0  # width, in logs, within which an energy's error says what the step should be
MEMORY = 150  # steps that the adapted step averages over
SHRINKAGE = 5.0  # draws that the scales before count as
LARGEST_ERROR = 1.0  # of the energy for each coordinate, above which a step is not taken
NO_ERROR, TINY = 1e-8, 1e-300  # whose logs are still finite
ABOUT = (
    "drawn by unadjusted microcanonical Langevin Monte Carlo in PyTorch; n_leapfrog__ counts "
    "gradients"
)


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """A place of the chain: q (n,), L there and its gradient (n,)."""

    q: Array
    L: float
    gradient: Array


@dataclass(frozen=True, slots=True, eq=False)
class Motion:
    """How the chain moves.

    Attributes
    ----------
    step : float
        Length of a step, in units of ``scale``.
    length : float
        Distance over which the velocity forgets its direction, in units of ``scale``.
    scale : array, shape (n,)
        Diagonal of S.
    """

    step: float
    length: float
    scale: Array


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What the adapted step is made of.

    Attributes
    ----------
    total, weight : float
        Of the squared energy errors, over the sixth power of their steps: decaying sums.
    largest : float
        Above which steps have left the density's support.
    """

    total: float = 0.0
    weight: float = 0.0
    largest: float = math.inf


def mclmc_torch_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; one that was interrupted goes on from where it was left.

    Raises
    ------
    InputError
        If there is only one coordinate, in which a velocity has nowhere to turn.
    SemistanError
        If the density is not finite where the chain starts.
    """
    options, target = task.options, task.target().single()
    q = task.begin(target)[0]
    check_dimensions(len(q))

    def density(x: Array) -> tuple[float, Array]:
        return value_and_gradient(target, x)

    drawn = run_to_end(
        task,
        lambda generator: _first(density, q, task.number, generator),
        lambda chain, generator: _moved(density, task, chain, generator),
        report,
    )
    columns = sampled_columns(
        target,
        drawn["q"],
        drawn["log_density"],
        drawn["gradients"],
        task.outside(target, len(drawn["q"])),
    )
    columns |= {"energy_error__": drawn["energy_error"]}
    assert options.warmup != "auto"
    return stan_csv(columns, Origin("mclmc", ABOUT, task.number, options.seed, options.warmup))


def turned(u: Array, slope: Array, time: float) -> tuple[Array, float]:
    """Let a slope turn the velocity for some time: the B-step.

    Parameters
    ----------
    u : array, shape (n,)
        Velocity, of length 1.
    slope : array, shape (n,)
        S grad L.
    time : float
        How long.

    Returns
    -------
    array, shape (n,), and float
        The velocity, of length 1, and the gain of (n - 1) log r.
    """
    norm, n = float(np.linalg.norm(slope)), len(u)
    if norm == 0:
        return u, 0.0
    e, d = -slope / norm, time * norm / (n - 1)
    along, decay = float(e @ u), math.exp(-d)  # both sides of the solution, over exp(d) / 2
    new = 2 * decay * u + e * (1 - decay) * (1 + decay + along * (1 - decay))
    length, half = float(np.linalg.norm(new)), (1 + along + (1 - along) * decay**2) / 2
    if min(length, half) < TINY:  # straight up a steep slope, where nothing turns
        return u, -(n - 1) * d
    return new / length, (n - 1) * (d + math.log(half))


def integrated(
    density: Density, place: Position, u: Array, motion: Motion
) -> tuple[Position, Array, float]:
    """Take a step of the minimal-norm integrator.

    Parameters
    ----------
    density : callable
        Returns L and its gradient (n,) at q (n,).
    place : Position
        Where the chain is.
    u : array, shape (n,)
        Its velocity, of length 1.
    motion : Motion
        How it moves.

    Returns
    -------
    Position, array and float
        The place and the velocity after the step, and the error of the energy: not finite where
        L is not.
    """
    b, before = MINIMAL_NORM * motion.step, place.L
    u, energy = turned(u, motion.scale * place.gradient, b)
    for time in (motion.step - 2 * b, b):
        q = place.q + motion.step / 2 * motion.scale * u
        place = Position(q, *density(q))
        if not _finite(place):
            return place, u, math.nan
        u, gain = turned(u, motion.scale * place.gradient, time)
        energy += gain
    return place, u, energy + place.L - before


def refreshed(u: Array, motion: Motion, generator: np.random.Generator) -> Array:
    """Turn the velocity at random, by as much as a step makes it forget."""
    n = len(u)
    nu = math.sqrt(math.expm1(2 * motion.step / motion.length) / n)
    new = u + nu * generator.normal(size=n)
    return np.asarray(new / np.linalg.norm(new))


def adapted(
    adaptation: Adaptation, step: float, energy_error: float, n: int
) -> tuple[Adaptation, float]:
    """Return the step at which the energy's error has the variance that it should have.

    The squared error is taken to grow with the step's sixth power. An error far from what it should
    be says little: its weight is less the further it is.
    """
    if not math.isfinite(energy_error):
        largest = 0.8 * step
        return replace(adaptation, largest=largest), largest
    error = energy_error**2 / (n * ENERGY_VARIANCE) + NO_ERROR
    weight = math.exp(-((math.log(error) / TRUST) ** 2) / 2)
    keep = (MEMORY - 1) / (MEMORY + 1)
    total = keep * adaptation.total + weight * error / step**6
    weight = keep * adaptation.weight + weight
    step = min((weight / total) ** (1 / 6), adaptation.largest)
    return replace(adaptation, total=total, weight=weight), step


def correlation_time(draws: Array) -> float:
    """Return the average over coordinates of the draws (S, n) that one independent draw takes.

    Autocorrelations are summed in pairs until a pair is negative (Geyer, 1992).
    """
    S, deviations = len(draws), draws - draws.mean(axis=0)
    spectrum = np.fft.rfft(deviations, 2 * S, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:S]
    moving = covariance[0] > 0
    if not moving.any():
        return 1.0
    rho = covariance[:, moving] / covariance[0, moving]
    pairs = rho[0 : S - S % 2 : 2] + rho[1::2]
    before_negative = np.cumprod(pairs > 0, axis=0)
    times = 2 * (pairs * before_negative).sum(axis=0) - 1
    return float(np.clip(times, 1, S).mean())


def _first(
    density: Density, q: Array, chain: int, generator: np.random.Generator
) -> dict[str, Array]:
    place, n = Position(q, *density(q)), len(q)
    if not _finite(place):
        raise SemistanError(f"chain {chain} starts where the posterior is not finite")
    motion = Motion(FIRST_STEP * math.sqrt(n), math.sqrt(n), np.ones(n))
    return _packed(place, _direction(n, generator), motion, Adaptation())


def _moved(
    density: Density, task: ChainTask, chain: ChainState, generator: np.random.Generator
) -> tuple[dict[str, Array], Mapping[str, Array | float]]:
    """Take a chain to its next draw; in warm-up, adapt how it moves."""
    warmup = task.options.warmup
    assert warmup != "auto"
    place, u, motion, adaptation = _unpacked(chain.state)
    n = len(u)
    motion, adaptation = _estimated(chain, warmup, motion, adaptation)
    squares = 0.0
    for _ in range(STEPS):
        there, new, error = integrated(density, place, u, motion)
        if abs(error) <= LARGEST_ERROR * n:
            place, u = there, refreshed(new, motion, generator)
        else:  # or not finite: the chain stays where it is, and turns
            error, u = math.nan, _direction(n, generator)
        if chain.done < warmup:
            adaptation, step = adapted(adaptation, motion.step, error, n)
            motion = replace(motion, step=step)
        squares += error**2
    brought: dict[str, Array | float] = {"q": place.q, "log_density": -place.L}
    brought |= {"gradients": GRADIENTS * STEPS, "energy_error": squares / STEPS / n}
    return _packed(place, u, motion, adaptation), brought


def _estimated(
    chain: ChainState, warmup: int, motion: Motion, adaptation: Adaptation
) -> tuple[Motion, Adaptation]:
    """Return how the chain moves, anew when it is time to ask the draws of warm-up."""
    times = [0, *(round(share * warmup) for share in ESTIMATES), warmup]
    if not chain.done or chain.done not in times:
        return motion, adaptation
    draws = chain.past("q", times[times.index(chain.done) - 1])
    variance, S = draws.var(axis=0), len(draws)
    if not variance.any():
        return motion, adaptation
    if chain.done == warmup:
        length = OF_CORRELATION * STEPS * correlation_time(draws) * motion.step
        return replace(motion, length=length), adaptation
    scale = np.sqrt((S * variance + SHRINKAGE * motion.scale**2) / (S + SHRINKAGE))
    # The step is as long as it was, in the new units, and adapted anew from there.
    step = motion.step * math.sqrt(float(np.mean(motion.scale**2) / np.mean(scale**2)))
    return Motion(step, math.sqrt(len(scale)), scale), Adaptation()


def _direction(n: int, generator: np.random.Generator) -> Array:
    z = generator.normal(size=n)
    return np.asarray(z / np.linalg.norm(z))


def _finite(place: Position) -> bool:
    return math.isfinite(place.L) and bool(np.isfinite(place.gradient).all())


def _packed(place: Position, u: Array, motion: Motion, adaptation: Adaptation) -> dict[str, Array]:
    numbers = {
        "L": place.L, "step": motion.step, "length": motion.length, "total": adaptation.total,
        "weight": adaptation.weight, "largest": adaptation.largest,
    }  # fmt: skip
    arrays = {"q": place.q, "gradient": place.gradient, "u": u, "scale": motion.scale}
    return arrays | {name: np.asarray(value) for name, value in numbers.items()}


def _unpacked(values: Mapping[str, Array]) -> tuple[Position, Array, Motion, Adaptation]:
    def number(name: str) -> float:
        return float(values[name])

    return (
        Position(values["q"], number("L"), values["gradient"]),
        values["u"],
        Motion(number("step"), number("length"), values["scale"]),
        Adaptation(number("total"), number("weight"), number("largest")),
    )


MCLMC_TORCH = Method(
    "mclmc-torch", TEXT, mclmc_torch_chain, approximate=False, by_stan=False, has_warmup=True,
    columns=COLUMNS, from_mode=False, unadjusted=True, gradients=GRADIENTS * STEPS,
)  # fmt: skip
