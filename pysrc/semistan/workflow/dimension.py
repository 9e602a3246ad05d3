"""The dimension of the subspace and the number of subspaces, where ``auto`` leaves them open.

The posterior of all weights is the one that subspaces imitate. It is taken wherever there are up to
75 of them, or where it can be sampled in the time that ``[sample] budget`` gives. Elsewhere it is
the span of a curve from each of three trainings, whose posteriors are pooled: one training does not
see how far trainings differ, which is the more of all that is uncertain the more rows there are.
The weights outside each have their normal approximation (``subspace/completion.py``). Constant
layers differ between trainings too, and have no other uncertainty: there are three trainings where
a model has some, and five where the weights behind them are not all sampled either.

Seconds are predicted as

    subspaces x rounds of chains x iterations x leapfrog steps x seconds per gradient,

which are counted (``work.py``): the same model and table, on as many cores, have the same k on a
busy machine as on an idle one. What was chosen is part of the configuration that is kept.

In a subspace of up to 75 dimensions the Gauss-Newton metric of a mode makes some 15 steps of NUTS
enough, and 10 in the span of a curve around one mode. All weights, whose posterior has many modes,
are taken to need the longest trees that are allowed (``infer/trees.py``): where the data say much,
they do. A response of 0 and 1 says little: up to 1,500 rows, all trees had one length.

``draws = "auto"`` is decided here too. Wide intervals of few draws are worth more than narrow ones
of many: before the weights are confined to a subspace, chains of 1,000 draws become shorter, as
short as the budget asks for. They have 600 draws at the least, since cut trees give one effective
draw in three or four. Chains of several subspaces, whose draws are pooled, have 250 to 500, and
where four short ones of each would still be over the budget, there are two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import NamedTuple

from semistan.errors import InputError
from semistan.infer.methods import method_of
from semistan.infer.plan import plan_in_torch, plan_threads
from semistan.infer.starts import DIAGONAL_WARMUP, SHORT_WARMUP, WARMUP
from semistan.infer.trees import MOST_GAUSSIAN, trees_of
from semistan.model.config import DRAWS, ModelConfig, SampleConfig, with_overrides
from semistan.model.construction import NARROW
from semistan.model.model import Model
from semistan.model.priors.weight_scales import NO_SCALES, SD_W
from semistan.workflow.prepare import Prepared
from semistan.workflow.watch import Say
from semistan.workflow.work import gradient_seconds

COMPLETED = 2  # dimensions of a curve beside which the weights have their normal approximation
TRAININGS, OF_CONSTANTS = 3, 5  # of a subspace, and of one behind constant layers
WITH_MODE, IN_SPAN = 15, 10  # leapfrog steps of an iteration with the metric of a mode
POOLED, FEWEST, STEP = 500, 250, 50  # draws of a chain: of several subspaces, least, in steps
FEW_CHAINS = 2  # of each of several subspaces, where the budget asks for it
ENOUGH = 600  # least draws of a chain where all weights move
SHALLOW = {500: 7, 1500: 8}  # depth of all trees of a bernoulli response, up to so many rows

Seconds = Callable[[Prepared], float]


class Length(NamedTuple):
    """How many draws each chain may have."""

    least: int
    most: int

    def at_least(self, draws: int) -> Length:
        """Return it with no fewer draws than these, unless it has fewer at the most."""
        return Length(max(self.least, min(draws, self.most)), self.most)


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """A model whose k is a number, and why: empty where the user gave it."""

    prepared: Prepared
    reason: str = ""


def resolved(prepared: Prepared, *, say: Say) -> Prepared:
    """Replace ``k = "auto"`` by the dimension that the budget allows, and say why."""
    found = with_dimension(prepared)
    if found.reason:
        say(found.reason)
    return found.prepared


def with_dimension(prepared: Prepared, seconds: Seconds = gradient_seconds) -> Dimension:
    """Replace ``k = "auto"`` by a number.

    Parameters
    ----------
    prepared : Prepared
        The model and its rows.
    seconds : callable
        Says how long a gradient of a model takes.
    """
    config, d = prepared.config.subspace, prepared.model.network.d
    if config.k != "auto":
        return Dimension(_with_scales(_longest(_with_trainings(prepared, 1))))
    if not config.widens:
        narrow = _resolved(prepared, NARROW, None)
        return Dimension(_with_scales(_longest(_with_trainings(narrow, 1))))
    curve = min(config.curve or NARROW, min(prepared.model.network.sizes) - 1)
    several = TRAININGS if prepared.model.leading.any else 1
    options = prepared.config.sample
    every = _resolved(_with_trainings(prepared, several), d, curve)
    cost = _cost(every, seconds)
    length = _length(every.config).at_least(ENOUGH)
    draws = cost.longest(d, length, every=True)
    most = method_of(options).dimensions
    limited = most is not None and d > most
    if not limited and (draws or d <= MOST_GAUSSIAN):
        return _all_weights(every, cost, draws or length.least)
    reason = (
        f"method = '{options.method}' works well in up to {most} dimensions"
        if limited
        else f"all would take up to {_time(cost.seconds(d, length.least, every=True))} to sample "
        f"({cost.counted}), which is more than the budget of {options.budget:g} min"
    )
    return _of_a_curve(prepared, curve, seconds, reason)


def _all_weights(every: Prepared, cost: _Cost, draws: int) -> Dimension:
    """Let all weights move, with so many draws of each chain."""
    subspaces, d = every.config.subspace.trainings, every.model.network.d
    each = f" in each of {subspaces} subspaces" if subspaces > 1 else ""
    if each and every.model.leading.any:
        each += " with constant layers of their own"
    reason = f"k = all {d} weights{each}"
    if d <= MOST_GAUSSIAN:
        reason += f", as always where there are up to {MOST_GAUSSIAN}"
    reason += f": sampling takes up to {_time(cost.seconds(d, draws, every=True))} ({cost.counted})"
    if draws < _length(every.config).most:
        reason += f", with {draws} draws of each chain for the budget"
    return Dimension(_of_length(every, draws), reason)


def _with_trainings(prepared: Prepared, number: int) -> Prepared:
    """Let ``auto`` be so many subspaces."""
    config = prepared.config
    if config.subspace.subspaces != "auto":
        return prepared
    subspace = config.subspace.model_copy(update={"subspaces": number})
    return replace(prepared, config=config.model_copy(update={"subspace": subspace}))


def _length(config: ModelConfig) -> Length:
    """Return how many draws each chain may have."""
    if config.sample.draws != "auto":
        return Length(config.sample.draws, config.sample.draws)
    return Length(FEWEST, POOLED if config.subspace.trainings > 1 else DRAWS)


def _longest(prepared: Prepared) -> Prepared:
    """Give chains all the draws that they may have."""
    return _of_length(prepared, _length(prepared.config).most)


def _of_length(prepared: Prepared, draws: int) -> Prepared:
    sample = prepared.config.sample.model_copy(update={"draws": draws})
    return replace(prepared, config=prepared.config.model_copy(update={"sample": sample}))


def _of_a_curve(prepared: Prepared, k: int, seconds: Seconds, reason: str) -> Dimension:
    """Take the dimensions of a curve from several trainings, with chains for the budget."""
    found, d = _resolved(prepared, k, None), prepared.model.network.d
    if found.model.completes and prepared.config.subspace.curve is None:
        k = min(k, COMPLETED)
        found = _resolved(prepared, k, None)
    if prepared.config.priors.scales_all:
        found = replace(found, config=with_overrides(found.config, {"priors.sd_w": NO_SCALES}))
        reason += f"; prior {SD_W} is left out, which needs all weights"
    found = _with_trainings(found, OF_CONSTANTS if found.model.leading.any else TRAININGS)
    number = found.config.subspace.trainings
    length, cost = _length(found.config), _cost(found, seconds)
    draws = cost.longest(k, length)
    if draws is None and number > 1 and found.config.sample.chains == "auto":
        found = replace(found, config=with_overrides(found.config, {"sample.chains": FEW_CHAINS}))
        cost = _cost(found, seconds)
        draws = cost.longest(k, length)
    if draws is None:
        draws = length.least
        reason += f"; these take up to {_time(cost.seconds(k, draws))}"
        if number > 1:
            reason += ", and without them intervals would be too narrow (--subspaces 1 has one)"
    each = f" in each of {number} subspaces" if number > 1 else ""
    others = ", the others by their normal approximation" if found.model.completes else ""
    return Dimension(_of_length(found, draws), f"k = {k} of {d} weights{each}{others}: {reason}")


def _with_scales(prepared: Prepared) -> Prepared:
    """Refuse sampled scales of weights where not all weights are sampled."""
    config, network = prepared.config, prepared.model.network
    if config.priors.scales_all and prepared.model.moves != "all":
        raise InputError(
            f"prior '{SD_W}' is of the scales of all weights, and k = {config.subspace.k} of "
            f"{network.d} weights move in a subspace ({config.subspace.construction}); leave k "
            f"out, or prior {SD_W}"
        )
    return prepared


def _resolved(prepared: Prepared, k: int, curve: int | None) -> Prepared:
    overrides = {"subspace.k": k, "subspace.curve": curve}
    return replace(prepared, config=with_overrides(prepared.config, overrides))


def _at_once(prepared: Prepared) -> int:
    """Return how many chains run at a time."""
    options, method = prepared.config.sample, method_of(prepared.config.sample)
    if method.by_stan:
        return plan_threads(options)[0]
    return plan_in_torch(options, method, len(prepared.rows) * prepared.model.network.widest)


def _cost(prepared: Prepared, seconds: Seconds) -> _Cost:
    return _Cost(
        prepared.config.sample, prepared.model, len(prepared.rows), seconds(prepared),
        _at_once(prepared), prepared.config.subspace.trainings,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cost:
    """What sampling takes.

    Attributes
    ----------
    options : SampleConfig
        How it is sampled.
    model : Model
        What is sampled.
    rows : int
        Rows of the table.
    gradient : float
        Seconds of a gradient.
    at_once : int
        Chains that run at a time.
    subspaces : int
        That are sampled, one after the other.
    """

    options: SampleConfig
    model: Model
    rows: int
    gradient: float
    at_once: int
    subspaces: int

    @property
    def most(self) -> float:
        """The seconds that it may take."""
        return 60 * self.options.budget

    @property
    def counted(self) -> str:
        """What the prediction rests on."""
        return f"counting {1e3 * self.gradient:.2g} ms per gradient"

    def seconds(self, k: int, draws: int, *, every: bool = False) -> float:
        """Return the seconds that k dimensions take, or all weights (``every``)."""
        warmup, each = self._iterations(k, every=every)
        return (warmup + draws) * each

    def _iterations(self, k: int, *, every: bool) -> tuple[int, float]:
        """Return those of warm-up, and the seconds of one of all chains of all subspaces."""
        method, with_mode = method_of(self.options), k <= MOST_GAUSSIAN and not every
        of_mode = IN_SPAN if k <= COMPLETED and self._one_mode else WITH_MODE
        depth = trees_of(self.model, k, self.rows).resolve(self.options).max_treedepth
        assert depth != "auto"
        most = 2 ** min(depth, self._turns_at if every else depth)
        steps = method.gradients or (min(of_mode, most) if with_mode else most)
        warmup = self._warmup(k) if self.options.warmup == "auto" else self.options.warmup
        rounds = ceil(self.options.chain_count / self.at_once)
        return warmup, float(self.subspaces * rounds * steps * self.gradient)

    @property
    def _turns_at(self) -> float:
        """The depth at which trees turn by themselves where all weights move; inf if not known."""
        if self.model.family.name != "bernoulli" or self.model.design.terms:
            return inf
        return next((depth for most, depth in SHALLOW.items() if self.rows <= most), inf)

    def _warmup(self, k: int) -> int:
        """Return the iterations of warm-up: few where all chains start at one mode."""
        if k > MOST_GAUSSIAN:
            return DIAGONAL_WARMUP
        return SHORT_WARMUP if self._one_mode else WARMUP

    @property
    def _one_mode(self) -> bool:
        return self.model.completes and not self.model.design.terms

    def longest(self, k: int, length: Length, *, every: bool = False) -> int | None:
        """Return the most draws of a chain that the budget allows, if any are."""
        warmup, each = self._iterations(k, every=every)
        if each * (warmup + length.most) <= self.most:
            return length.most
        affordable = floor(self.most / each) - warmup
        if affordable < length.least:
            return None
        return max(length.least, affordable // STEP * STEP)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
