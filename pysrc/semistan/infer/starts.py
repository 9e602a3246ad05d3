"""Where each chain starts, and with which metric."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import hypot, inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.integral import log_integrated
from semistan.density.mode import Mode, find_mode
from semistan.density.prior_states import prior_states
from semistan.density.spread import held_coordinates
from semistan.density.starts import start_state
from semistan.density.target import Target, make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.trees import MOST_GAUSSIAN, STRAIGHT, WHOLE, Trees, trees_of
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.integral import PHI_SAMPLED
from semistan.model.priors.groups import PHI
from semistan.model.table.rows import Rows
from semistan.subspace.start_values import curve_values, sides

if TYPE_CHECKING:
    from torch import Tensor

JITTER = 0.1  # standard deviation of theta's initial values, in units of each coefficient
WARMUP = 1000  # to learn a dense metric
LEARNING = 300, 15  # the same without funnels: at the least, and for each dimension
DIAGONAL_WARMUP = 500  # a diagonal metric needs less to be learnt, or a kept one to be reached
SHORT_WARMUP = 150  # with a fixed metric, only the step size is adapted
SHORTEST_WARMUP = 100  # to a lower acceptance rate, where the posterior is nearly normal
SAME_DENSITY = 1.0  # nats within which two modes may be one
SAME_PLACE = 1.0  # standard deviations within which two modes may be one
MOST_DIMENSIONS = 2000  # of a subspace in which a mode is looked for, and of a dense metric
MOST_PENALISED = 500  # coefficients of smooths and groups beside which a metric is dense
LEARNT = 1e-5  # least variance that CmdStan learns in a window of 500 draws
LONG = 10.0  # seconds of a climb that are worth a line
ADAPTED = "the metric is adapted"
RESOLVED = ("chains", "warmup", "draws", "metric", "adapt_delta", "max_treedepth")  # were "auto"
NORMAL = 1.5  # nats by which a posterior departs from normal, up to which a mode's metric is right
OF_EACH = 0.5  # nats that each penalised coefficient may add, in the root of the sum of squares
PROBES = 50  # draws at which that is looked at
FURTHEST = 1.5  # that a log standard deviation or a correlation's coordinate starts from a mode
NEGLIGIBLE = 5.0  # nats of Laplace evidence below the best at which a mode has no mass


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Initial values of the chains, and the modes that they were drawn around.

    Attributes
    ----------
    values : tuple of dict
        Initial values in the user's units, one for each chain.
    found : tuple of Mode
        The mode that each chain climbed to, or none if they were not looked for or not found.
    narrows : bool
        Whether standard deviations of coefficients are sampled: the posterior narrows as they fall.
    penalised : int
        How many coefficients have them.
    dimensions : int
        In how many a chain moves.
    integrated : bool
        Whether coefficients of smooths, processes or groups are integrated out, and none sampled.
    large : bool
        Whether there are too many dimensions for a dense metric, or for one of a mode.
    at : str
        Where that is in words, if the user chose it.
    trees : Trees
        How far NUTS goes from there.
    departure : float
        Standard deviation of the posterior's log density less that of the normal approximation at
        the best mode, over draws from the latter, in nats; not finite where it was not looked for.
    """

    values: tuple[dict[str, Any], ...]
    found: tuple[Mode, ...] = ()
    narrows: bool = False
    penalised: int = 0
    dimensions: int = 0
    integrated: bool = False
    large: bool = False
    at: str = ""
    trees: Trees = WHOLE
    departure: float = inf

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The mode that each chain starts at."""
        return worth_sampling(self.found)

    @property
    def keeps_metric(self) -> bool:
        """Whether the modes' metric is kept.

        It is kept where there is one mode with a posterior near normal around it, and where the
        posterior is so narrow, as with very many rows, that CmdStan could not learn a better one:
        in a window of n draws it adds 5e-3 / (n + 5) to the variances, which would hide the
        smallest of them. Where the posterior narrows, it is also kept in many dimensions, of which
        CmdStan's first windows of 25 and 50 draws say too little.
        """
        if self.one_mode and self.is_near_normal:
            return True
        return self.has_many_dimensions if self.narrows else too_narrow(self.modes)

    @property
    def is_near_normal(self) -> bool:
        """Whether the posterior departs little from the normal approximation at the best mode."""
        return self.departure < hypot(NORMAL, OF_EACH * sqrt(self.penalised))

    @property
    def has_many_dimensions(self) -> bool:
        """Whether they are more than CmdStan's first windows have draws."""
        return bool(self.found) and self.dimensions > MOST_GAUSSIAN

    @property
    def one_mode(self) -> bool:
        """Whether all start at one mode that several climbed to: its metric can be trusted."""
        if not self.found:
            return False
        best = max(self.found, key=lambda mode: mode.evidence)
        climbed = sum(_same(best, mode) for mode in self.found)
        return climbed > 1 and all(_same(best, mode) for mode in self.modes)

    def resolve(self, options: SampleConfig) -> SampleConfig:
        """Replace ``auto`` by numbers, and a metric that was not found."""
        metric = options.metric
        if metric in ("auto", "ggn"):
            metric = "ggn" if self.found else "diag_e" if self.large else "dense_e"
        least, each = LEARNING
        dense = min(WARMUP, max(least, each * self.dimensions)) if self.integrated else WARMUP
        long = DIAGONAL_WARMUP if (options.metric, metric) == ("auto", "diag_e") else dense
        far = self.narrows and not self.is_near_normal  # where chains have some way to go
        short = SHORTEST_WARMUP if self.trees == STRAIGHT else SHORT_WARMUP
        kept = DIAGONAL_WARMUP if far else short
        automatic = kept if self.keeps_metric else long
        warmup = automatic if options.warmup == "auto" else options.warmup
        numbers = {"chains": options.chain_count, "draws": options.per_chain}
        update = {**numbers, "warmup": warmup, "metric": metric}
        return self.trees.resolve(options).model_copy(update=update)

    def text(self, options: SampleConfig, *, with_metric: bool) -> str:
        """Say what was found and what follows, given the resolved options.

        ``with_metric`` says whether the method has a metric to start with.
        """
        if self.at and not with_metric:
            return f"each chain starts at {self.at}"
        if not with_metric:
            return (
                "each starts around a mode in the subspace"
                if self.found
                else "they start on the curve"
            )
        if options.metric != "ggn":
            where = f"each chain starts at {self.at}; " if self.at else ""
            return f"{where}the metric ({options.metric}) is adapted during warm-up"
        then = "its metric is kept" if self.keeps_metric else f"{ADAPTED} from there"
        if len(self.found) == 1:
            return f"the chain climbed to a mode in the subspace; {then}"
        moved = sum(mode not in self.modes for mode in self.found)
        away = f"; {moved} without mass are left for the best" if moved else ""
        if self.one_mode:
            bent = "" if self.keeps_metric else ", but do not find it normal there"
            return f"the chains climbed to one mode in the subspace{away}{bent}; {then}"
        densities = ", ".join(f"{mode.log_density:.1f}" for mode in self.found)
        modes = f"the chains climbed to modes of log density {densities}{away}"
        return f"{modes}; {'their metrics are kept' if self.keeps_metric else ADAPTED}"


def find_starts(
    bundle: Bundle,
    rows: Rows,
    options: SampleConfig,
    *,
    prior_only: bool = False,
    from_mode: bool = True,
    hamiltonian: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Starts:
    """Spread the chains along the trained curve, and let each climb to a mode from there.

    In a completed subspace all start at the mode around which it is completed: what is outside the
    subspace is approximated there.

    With ``starts = "curve"`` and the metric ``ggn``, or ``auto`` in up to 75 dimensions of NUTS,
    each chain starts at a draw from the Laplace approximation at its mode, or at the best mode if
    its own has a negligible share of the posterior. Otherwise, or if no mode is found, or none is
    looked for because the method needs none (``from_mode``), in the funnel of a joint prior or of
    the weights' scales, or beside very many penalised coefficients, it starts on the curve, at
    t = (c - 1/2) / chains, with the trained theta jittered and the trained dispersion.

    With ``"mode"`` each starts at the very mode that it climbed to, whatever the metric; with
    ``"prior"`` at a draw from the prior, whatever was trained. ``say`` receives a line for each
    climb of more than ten seconds.

    Raises
    ------
    InputError
        If chains are to start at modes and there are none.
    """
    generator = np.random.default_rng(options.seed)
    on_curve = curve_values(bundle, options.chain_count)
    if completion := bundle.completion:
        at = {"phi": bundle.subspace.project(completion.at)}
        on_curve = [{**on_curve[0], **at} for _ in on_curve]
    most = MOST_GAUSSIAN if hamiltonian and options.metric == "auto" else MOST_DIMENSIONS
    blank = _without_values(bundle, len(rows), most)
    with_mode = from_mode and options.metric in ("auto", "ggn") and not blank.large
    climb = with_mode or options.starts == "mode"
    if options.starts == "prior":
        drawn = prior_states(bundle, options.chain_count, generator)
        priors = tuple(initial_values(bundle, state) for state in drawn)
        return replace(blank, values=priors, at="a draw from the prior")
    if options.starts == "mode":
        _check_has_mode(bundle)
    if climb or bundle.model.samples_orthogonal:
        target = make_target(bundle, rows, prior_only=prior_only)
        on_curve = [_sheared(target, values) for values in on_curve]
    if climb:
        found = _climbed(target, [sides(target, values) for values in on_curve], say)
        modes = tuple(mode for mode in found if mode is not None)
        if options.starts == "mode":
            values = _at(modes, bundle, options)
            return replace(blank, values=values, found=modes if with_mode else (), at="a mode")
        if len(modes) == options.chain_count:
            return _around_modes(blank, modes, target, bundle, len(rows), generator)
    return replace(blank, values=_beside_curve(bundle, on_curve, generator))


def _without_values(bundle: Bundle, rows: int, most: int) -> Starts:
    """Return what holds of all starts, where a mode is looked for in at most so many dimensions."""
    model, k = bundle.model, bundle.subspace.k
    penalised = sum(p.size for term in model.sampled_terms
                    for p in term.parameters(bundle.config.priors))  # fmt: skip
    funnel = model.joint is not None or model.weight_scales is not None
    narrows = len(model.sampled_terms) > 0
    return Starts(
        values=(),
        narrows=narrows,
        penalised=penalised,
        dimensions=len(bundle.layout.sampled),
        integrated=len(bundle.design.terms) > 0 and not narrows,
        large=k > most or funnel or penalised > MOST_PENALISED,
        trees=trees_of(model, k, rows),
    )


def _around_modes(
    blank: Starts,
    modes: tuple[Mode, ...],
    target: Target,
    bundle: Bundle,
    rows: int,
    generator: np.random.Generator,
) -> Starts:
    """Draw each chain's start around its mode, and look how normal the posterior is around one."""
    states = [_laplace_draw(target, mode, generator) for mode in worth_sampling(modes)]
    starts = tuple(initial_values(bundle, state) for state in states)
    found = replace(blank, values=starts, found=modes)
    if not found.one_mode:
        return found  # whose metric does not depend on it
    bent = departure(target, modes)
    trees = trees_of(bundle.model, bundle.subspace.k, rows, bent)
    return replace(found, departure=bent, trees=trees)


def _beside_curve(
    bundle: Bundle, on_curve: list[dict[str, Any]], generator: np.random.Generator
) -> tuple[dict[str, Any], ...]:
    """Return initial values on the curve, with the trained theta jittered."""
    theta = len(bundle.trained.theta) * (not bundle.subspace.holds_theta)
    jitter = JITTER * generator.normal(size=(len(on_curve), theta))
    for values, move in zip(on_curve, jitter, strict=True):
        if theta:
            values["theta"] = values["theta"] + bundle.units.theta_scale * move
    states = [start_state(bundle, values) for values in on_curve]
    return tuple(initial_values(bundle, state) for state in states)


def _check_has_mode(bundle: Bundle) -> None:
    """Refuse a search for modes where there is none, or in too many dimensions.

    Raises
    ------
    InputError
        Saying which.
    """
    model, reason = bundle.model, ""
    if model.joint:
        reason = "with a prior of all coefficients together"
    elif model.weight_scales:
        reason = "while scales of weights are sampled too (prior sd_w)"
    if reason:
        raise InputError(
            f"starts = 'mode': {reason} the posterior is a funnel, which has no mode; use starts = "
            "'curve'"
        )
    if bundle.subspace.k > MOST_DIMENSIONS:
        raise InputError(
            f"starts = 'mode': a mode is looked for in up to {MOST_DIMENSIONS} dimensions, got "
            f"k = {bundle.subspace.k}; use starts = 'curve'"
        )


def _at(
    modes: tuple[Mode, ...], bundle: Bundle, options: SampleConfig
) -> tuple[dict[str, Any], ...]:
    """Return the initial values of chains that start at the modes which each of them found."""
    if len(modes) < options.chain_count:
        raise InputError("starts = 'mode': no mode was found; use starts = 'curve'")
    return tuple(initial_values(bundle, mode.q) for mode in worth_sampling(modes))


def _climbed(
    target: Target, starts: list[list[dict[str, Any]]], say: Callable[[str], None]
) -> list[Mode | None]:
    """Climb for each chain, from each of its starts, and return the highest mode of each.

    From equal starts, as those of a single trained network, it is done once. With very many rows a
    climb takes minutes, and each is told of as it ends.
    """
    found: dict[bytes, Mode | None] = {}
    states = [[start_state(target.bundle, values) for values in each] for each in starts]
    for number, state in enumerate(flat := [x for each in states for x in each], start=1):
        if state.tobytes() not in found:
            started = time.monotonic()
            found[state.tobytes()] = find_mode(target, state)
            if (seconds := time.monotonic() - started) > LONG:
                say(f"start {number} of {len(flat)} was found in {seconds:.0f} s")
    return [_highest([found[state.tobytes()] for state in each]) for each in states]


def _highest(modes: list[Mode | None]) -> Mode | None:
    return max((mode for mode in modes if mode), key=lambda mode: mode.log_density, default=None)


def _sheared(target: Target, values: dict[str, Any]) -> dict[str, Any]:
    """Turn values with the trained theta, beside the network as it is, into the program's."""
    if target.shear is None:
        return values
    scale = target.bundle.units.theta_scale
    theta = torch.tensor(values["theta"] / scale)
    f = torch.cat(target.outputs(torch.tensor(values["phi"])))
    moved = 2 * theta - target.raw(theta, f)
    return {**values, "theta": moved.numpy() * scale}


def too_narrow(modes: tuple[Mode, ...]) -> bool:
    """Say whether each mode is too narrow somewhere for CmdStan to learn it."""
    return bool(modes) and all(
        np.linalg.eigvalsh(mode.inv_metric)[0] < LEARNT for mode in worth_sampling(modes)
    )


def departure(target: Target, modes: tuple[Mode, ...]) -> float:
    """Return how far from normal what chains sample is around the best mode, in nats.

    That is the standard deviation of the difference of log densities over draws from the normal
    approximation: 0 of a normal posterior, and large where it is bent, so that no metric holds for
    long.
    """
    best, generator = max(modes, key=lambda mode: mode.evidence), np.random.default_rng(PROBES)
    sampled = target.layout.sampled
    z = generator.normal(size=(PROBES, len(sampled)))
    covariance = best.inv_metric[np.ix_(sampled, sampled)]
    draws = torch.tensor(best.q[sampled] + z @ np.linalg.cholesky(covariance).T)
    log_density = log_integrated if target.bundle.model.integral else _log_density
    try:
        with torch.no_grad():
            found = [float(log_density(target, x)) for x in draws]
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # too far out for a factor
        return inf
    return float(np.std(np.square(z).sum(axis=1) / 2 + found))


def _log_density(target: Target, q: Tensor) -> float:
    return -negative_log_posterior(target, q)


def worth_sampling(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Replace modes whose Laplace evidence is negligible beside the best one's by that one.

    A chain that starts in a mode without mass may not leave it in any number of draws.
    """
    if not modes:
        return modes
    best = max(modes, key=lambda mode: mode.evidence)
    least = best.evidence - NEGLIGIBLE
    return tuple(mode if mode.evidence > least else best for mode in modes)


def initial_values(bundle: Bundle, state: Array) -> dict[str, Any]:
    """Turn an unconstrained state into values of what the program samples, in the user's units."""
    values = bundle.layout.unpack(torch.tensor(state))
    if integral := bundle.model.integral:
        values = {name: x for name, x in values.items() if name not in integral.parameters}
        if integral.phi:
            phi = np.delete(values.pop(PHI).numpy(), bundle.linear)
            values = {PHI_SAMPLED: torch.from_numpy(phi), **values}
    return {name: value.numpy() if value.ndim else float(value) for name, value in values.items()}


def _laplace_draw(target: Target, mode: Mode, generator: np.random.Generator) -> Array:
    """Draw a start; standard deviations of coefficients stay within a factor of the mode's.

    Of few levels their posterior is far from the normal one, which reaches to numbers at which
    nothing can be computed.
    """
    deviation = np.linalg.cholesky(mode.inv_metric) @ generator.normal(size=len(mode.q))
    furthest = np.abs(deviation[held_coordinates(target, len(mode.q))]).max(initial=FURTHEST)
    return np.asarray(mode.q + FURTHEST / furthest * deviation)


def _same(one: Mode, other: Mode) -> bool:
    gap = other.q - one.q
    distance = gap @ np.linalg.solve(one.inv_metric, gap) / len(gap)
    return bool(abs(one.log_density - other.log_density) < SAME_DENSITY and distance < SAME_PLACE)
