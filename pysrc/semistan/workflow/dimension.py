"""The dimension of the subspace, where ``k = "auto"`` leaves it open.

The posterior of all weights is the one that narrower subspaces imitate. It is taken wherever there
are up to 75 of them, or where it can be sampled in the time that ``[sample] budget`` gives;
elsewhere, the widest subspace that can. Seconds are predicted as

    rounds of chains x iterations x leapfrog steps x seconds per gradient,

which are counted (``work.py``): the same model and table, on as many cores, have the same k on a
busy machine as on an idle one. What was chosen is part of the configuration that is kept.

In a subspace of up to 75 dimensions the Gauss-Newton metric of a mode makes some 15 steps of NUTS
enough. More dimensions, or all weights, whose posterior has many modes, are taken to need the
longest trees that are allowed (``infer/trees.py``): where the data say much, they do.

``draws = "auto"`` is decided here too. Wide intervals of few draws are worth more than narrow ones
of many: before the weights are confined to a subspace, chains of 1,000 draws become shorter, down
to 250. Those of several subspaces have 500 at the most, since all of their draws are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from semistan.errors import InputError
from semistan.infer.methods import method_of
from semistan.infer.plan import plan_in_torch, plan_threads
from semistan.infer.starts import DIAGONAL_WARMUP, WARMUP
from semistan.infer.trees import MOST_GAUSSIAN, trees_of
from semistan.model.config import DRAWS, ModelConfig, SampleConfig, with_overrides
from semistan.model.construction import NARROW
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.priors.weight_scales import SD_W
from semistan.workflow.prepare import Prepared, Say
from semistan.workflow.work import gradient_seconds

SIZES = (300, MOST_GAUSSIAN, 40, 20)  # that are tried where all weights take too long
WITH_MODE = 15  # leapfrog steps of an iteration with the metric of a mode
SHORTER = (DRAWS // 2, DRAWS // 4)  # chains, where the budget or several subspaces ask for them

Seconds = Callable[[Prepared], float]


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
        Says how long a gradient of a model with all weights takes.
    """
    config, d = prepared.config.subspace, prepared.model.network.d
    if config.k != "auto":
        return Dimension(_with_scales(_longest(prepared)))
    if not config.widens:
        return Dimension(_with_scales(_longest(_resolved(prepared, NARROW, None))))
    curve = min(config.curve or NARROW, min(prepared.model.network.sizes) - 1)
    options, every = prepared.config.sample, _resolved(prepared, d, curve)
    most = method_of(options).dimensions
    if most is not None and d > most:
        reason = f"method = '{options.method}' works well in up to {most} dimensions"
        return _narrowed(_longest(prepared), curve, [_possible(prepared, most)], reason)
    cost = _Cost(options, every.model, seconds(every), _at_once(prepared))
    lengths = _lengths(prepared.config)
    draws = cost.longest(d, lengths, every=True)
    if draws or d <= MOST_GAUSSIAN:
        return _all_weights(every, cost, draws or lengths[-1])
    reason = (
        f"all would take up to {_time(cost.seconds(d, lengths[-1], every=True))} to sample "
        f"({cost.counted}), which is more than the budget of {options.budget:g} min"
    )
    sizes = [_possible(prepared, size) for size in SIZES if size < d]
    found = _narrowed(prepared, curve, [k for k in sizes if cost.longest(k, lengths)], reason)
    draws = cost.longest(found.prepared.config.subspace.dimension, lengths) or lengths[-1]
    return replace(found, prepared=_of_length(found.prepared, draws))


def _all_weights(every: Prepared, cost: _Cost, draws: int) -> Dimension:
    """Let all weights move, with so many draws of each chain."""
    subspaces, d = every.config.subspace.subspaces, every.model.network.d
    reason = f"k = all {d} weights"
    if d <= MOST_GAUSSIAN:
        reason += f", as always where there are up to {MOST_GAUSSIAN}"
    reason += f": {cost.text(cost.seconds(d, draws, every=True), subspaces)}"
    if draws < _lengths(every.config)[0]:
        reason += f", with {draws} draws of each chain for the budget"
    return Dimension(_of_length(every, draws), reason)


def _lengths(config: ModelConfig) -> tuple[int, ...]:
    """Return how many draws each chain may have, the most first."""
    if config.sample.draws != "auto":
        return (config.sample.draws,)
    return SHORTER if config.subspace.subspaces > 1 else (DRAWS, *SHORTER)


def _longest(prepared: Prepared) -> Prepared:
    """Give chains all the draws that they may have."""
    return _of_length(prepared, _lengths(prepared.config)[0])


def _of_length(prepared: Prepared, draws: int) -> Prepared:
    sample = prepared.config.sample.model_copy(update={"draws": draws})
    return replace(prepared, config=prepared.config.model_copy(update={"sample": sample}))


def _narrowed(prepared: Prepared, curve: int, sizes: Sequence[int], reason: str) -> Dimension:
    """Take the largest of some sizes, or the curve's own dimensions if none is larger."""
    k, d = max([curve, *sizes]), prepared.model.network.d
    narrowed = _resolved(prepared, k, curve if k > curve else None)
    if prepared.config.priors.sd_w:
        narrowed = replace(narrowed, config=with_overrides(narrowed.config, {"priors.sd_w": None}))
        reason += f"; prior {SD_W} is left out, which needs all weights"
    return Dimension(narrowed, f"k = {k} of {d} weights: {reason}")


def _with_scales(prepared: Prepared) -> Prepared:
    """Refuse sampled scales of weights where not all weights are sampled."""
    config, network = prepared.config, prepared.model.network
    if config.priors.sd_w and prepared.model.moves != "all":
        raise InputError(
            f"prior '{SD_W}' is of the scales of all weights, and k = {config.subspace.k} of "
            f"{network.d} weights move in a subspace ({config.subspace.construction}); leave k "
            f"out, or prior {SD_W}"
        )
    return prepared


def _resolved(prepared: Prepared, k: int, curve: int | None) -> Prepared:
    overrides = {"subspace.k": k, "subspace.curve": curve}
    return replace(prepared, config=with_overrides(prepared.config, overrides))


def _possible(prepared: Prepared, size: int) -> int:
    """Return how many dimensions the rows' predictions and each network have, up to a size.

    That is none where other predictors have networks, whose curvature is not known.
    """
    network = prepared.model.network
    if any(of != MU for of in network.predictors):
        return 0
    return min(size, len(prepared.rows) // 2, min(network.sizes) - 1)


def _at_once(prepared: Prepared) -> int:
    """Return how many chains run at a time."""
    options, method = prepared.config.sample, method_of(prepared.config.sample)
    if method.by_stan:
        return plan_threads(options)[0]
    return plan_in_torch(options, method, len(prepared.rows) * prepared.model.network.widest)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What sampling takes.

    Attributes
    ----------
    options : SampleConfig
        How it is sampled.
    model : Model
        That of all weights.
    gradient : float
        Seconds of a gradient.
    at_once : int
        Chains that run at a time.
    """

    options: SampleConfig
    model: Model
    gradient: float
    at_once: int

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
        method, with_mode = method_of(self.options), k <= MOST_GAUSSIAN and not every
        depth = trees_of(self.model, k).resolve(self.options).max_treedepth
        assert depth != "auto"
        most = 2**depth
        steps = method.gradients or (min(WITH_MODE, most) if with_mode else most)
        automatic = WARMUP if k <= MOST_GAUSSIAN else DIAGONAL_WARMUP
        warmup = automatic if self.options.warmup == "auto" else self.options.warmup
        rounds = ceil(self.options.chains / self.at_once)
        return float(rounds * (warmup + draws) * steps * self.gradient)

    def longest(self, k: int, lengths: Sequence[int], *, every: bool = False) -> int | None:
        """Return the most of some numbers of draws that the budget allows, if any is."""
        return next((n for n in lengths if self.seconds(k, n, every=every) <= self.most), None)

    def text(self, predicted: float, subspaces: int) -> str:
        """Say what is predicted."""
        each = f" for each of {subspaces} subspaces" if subspaces > 1 else ""
        return f"sampling takes up to {_time(predicted)}{each} ({self.counted})"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
