"""What is computed for a page: effects, scores, leave-one-out, and pictures of all of it.

Tables have the numbers that the commands print by default: the same functions compute both, from
the same rows, draws and seeds. Scores and leave-one-out of very many rows, and pictures of effects,
use a part of the rows or draws, and say which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from semistan.errors import InputError
from semistan.posterior.effects.answers import EffectTable, importance_answer, marginal_answer
from semistan.posterior.effects.decomposition import decompose
from semistan.posterior.effects.effect import conditional_effect, partial_dependence
from semistan.posterior.posterior import Posterior
from semistan.posterior.scoring.loo import Loo, leave_one_out, loo_obstacle
from semistan.posterior.scoring.scores import pointwise, scores, scores_table
from semistan.posterior.weighting import weighting
from semistan.show.report.blocks import Picture
from semistan.show.report.illustrate import (
    components_picture,
    effect_pictures,
    held_out_picture,
    run_pictures,
)
from semistan.show.report.results import Results
from semistan.words import count, part_of

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MOST_WORK = 1e9  # draws times rows times weights of the pictures of one kind of effect
FEWEST_DRAWS, MOST_DRAWS = 100, 1000
SEED = 1  # the default of 'semistan score'
PICTURES = 8  # effects shown of either kind
POINTS = 20  # of a numeric column in a partial dependence
AVERAGED_ROWS = 100  # rows of a partial dependence


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """A table, and on which draws and rows it rests."""

    frame: pd.DataFrame
    basis: str


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Pictures of effects, how many columns have none, and on what they rest."""

    pictures: tuple[Picture, ...] = ()
    left_out: int = 0
    basis: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What the mean's networks found: shares of their variance, how they look, and if additive."""

    totals: Estimates
    shares: pd.DataFrame
    picture: Picture
    additive: float


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """How well rows are predicted by fits that did not see them: elpd, scores, and a picture."""

    elpd: pd.DataFrame
    scores: Estimates
    picture: Picture
    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Computed from a run.

    Attributes
    ----------
    marginal : Estimates
        Average marginal effects.
    importance : Estimates or None
        Permutation importance; None for draws from the prior.
    scores : Estimates, str or None
        Scores on the training rows, or why there are none; None for draws from the prior.
    held_out : HeldOut, str or None
        What cross-validation found, if it was made, or why that cannot be shown.
    loo : Loo or None
        Leave-one-out; None for draws from the prior, and where weighting draws cannot give it.
    pictures : mapping
        Pictures of the whole run, by kind.
    conditional, dependence : Effects
        Conditional effects of structured terms, partial dependence of network inputs.
    components : Components or None
        The decomposition of what the mean's networks add; None for draws from the prior, and for
        networks that cannot be decomposed, as those of images.
    """

    marginal: Estimates
    importance: Estimates | None = None
    scores: Estimates | str | None = None
    loo: Loo | None = None
    held_out: HeldOut | str | None = None
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    conditional: Effects = field(default_factory=Effects)
    dependence: Effects = field(default_factory=Effects)
    components: Components | None = None


def gather(results: Results, generator: np.random.Generator) -> Evidence:
    """Compute what a page shows beyond the run's own files.

    Parameters
    ----------
    results : Results
        A finished run.
    generator : numpy.random.Generator
        Draws the rows over which effects are averaged in pictures.
    """
    judged = not results.prior_only
    importance = _importance(results) if judged else None
    return Evidence(
        marginal=_estimates(marginal_answer(results.posterior, results.table)),
        importance=importance,
        scores=_or_fault(_scores, results) if judged else None,
        held_out=_or_fault(_held_out, results),
        loo=_loo(results) if judged else None,
        pictures=run_pictures(results),
        conditional=_conditional(results, importance),
        dependence=_dependence(results, importance, generator),
        components=_components(results) if judged else None,
    )


def _or_fault(compute: Callable[[Results], T], results: Results) -> T | str:
    """Return what is computed, or why it cannot be."""
    try:
        return compute(results)
    except InputError as error:
        return f"{error}."


def _estimates(answer: EffectTable) -> Estimates:
    return Estimates(answer.frame, answer.basis)


def _importance(results: Results) -> Estimates:
    return _estimates(importance_answer(results.posterior, results.table))


def _scores(results: Results) -> Estimates:
    posterior, rows = results.judging, results.rows
    judged = pointwise(posterior, rows, generator=np.random.default_rng(SEED))
    frame = scores_table(scores(posterior.family, judged))
    return Estimates(frame, _basis(results, posterior, len(rows)) + _weighted(results))


def _components(results: Results) -> Components | None:
    generator = np.random.default_rng(SEED)
    try:
        found = decompose(results.posterior, results.table, generator=generator)
    except InputError:  # there is no network, or none of single inputs
        return None
    return Components(
        Estimates(found.totals(), found.basis.removeprefix("From ").removesuffix(".")),
        found.table(),
        components_picture(results, found),
        found.additive(),
    )


def _held_out(results: Results) -> HeldOut | None:
    found = results.kfold
    if found is None or results.prior_only:
        return None
    frame = scores_table(scores(results.posterior.family, found.rows, found.interval))
    basis = f"{count(len(found.fold), 'row')} in {found.fold.max()} folds{_weighted(results)}"
    picture = held_out_picture(results, found)
    return HeldOut(found.table(), Estimates(frame, basis), picture, tuple(sorted(found.failed)))


def _weighted(results: Results) -> str:
    weights = weighting(results.posterior.config)
    return f", {weights}" if weights else ""


def _loo(results: Results) -> Loo | None:
    if loo_obstacle(results.posterior) is not None:
        return None
    return leave_one_out(results.judging, results.rows).with_all(results.repaired)


def _conditional(results: Results, importance: Estimates | None) -> Effects:
    names = results.formula.mean.structured_variables
    shown, posterior = _most_important(names, importance), results.posterior.thin(MOST_DRAWS)
    effects = [conditional_effect(posterior, results.table, name) for name in shown]
    return Effects(
        effect_pictures(results, effects),
        len(names) - len(shown),
        part_of(posterior.size, results.posterior.size, "draw"),
    )


def _dependence(
    results: Results, importance: Estimates | None, generator: np.random.Generator
) -> Effects:
    names = results.formula.network_variables
    shown, rows = _most_important(names, importance), min(AVERAGED_ROWS, len(results.rows))
    posterior = _affordable(results, max(1, len(shown)) * POINTS * rows)
    effects = [
        partial_dependence(
            posterior, results.table, name,
            resolution=POINTS, rows=rows, generator=generator,
        )
        for name in shown
    ]  # fmt: skip
    return Effects(
        effect_pictures(results, effects),
        len(names) - len(shown),
        _basis(results, posterior, rows),
    )


def _affordable(results: Results, rows: int) -> Posterior:
    """Return as many draws as can be pushed through the network at so many rows."""
    bundle = results.bundle
    most = MOST_WORK / (rows * (bundle.network.d + len(bundle.trained.w_frozen)))
    return results.posterior.thin(int(np.clip(most, FEWEST_DRAWS, MOST_DRAWS)))


def _most_important(names: tuple[str, ...], importance: Estimates | None) -> tuple[str, ...]:
    """Return all names, or the most important ones, in the formula's order."""
    if importance is None or len(names) <= PICTURES:
        return names[:PICTURES]
    ranked = [name for name in importance.frame["term"] if name in names]
    return tuple(name for name in names if name in ranked[:PICTURES])


def _basis(results: Results, posterior: Posterior, rows: int) -> str:
    """Return ``490 of 4,000 draws, 442 rows``."""
    of_draws = part_of(posterior.size, results.posterior.size, "draw")
    return f"{of_draws}, {part_of(rows, len(results.rows), 'row')}"
