"""How well a finished run predicts: scores of rows with a known response, and leave-one-out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from semistan.data.frames import Table, as_frame
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import parse_formula
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import Loo, leave_one_out
from semistan.posterior.scoring.loo_repairs import keep_repairs, read_repairs
from semistan.posterior.scoring.loo_subsample import SubsampledLoo, subsampled
from semistan.posterior.scoring.moment_match import match_moments, unconstrained
from semistan.posterior.scoring.scores import Pointwise, pointwise, scores, scores_table
from semistan.workflow.prepare import new_rows
from semistan.workflow.reloo import without_rows
from semistan.workflow.runs import RunLike, opened, posterior_run
from semistan.workflow.watch import NOBODY, Say, Watch, silent

if TYPE_CHECKING:
    import pandas as pd


def score(
    run: RunLike,
    newdata: Table,
    *,
    interval: float = 0.9,
    seed: int = 1,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    watch: Watch = NOBODY,
) -> pd.DataFrame:
    """Score a run's predictions of rows with a known response.

    Returns
    -------
    pandas.DataFrame
        ``score``, ``Estimate`` and ``SE``: LPPD, RMSE, MAE, CRPS, AUC and Brier score of a
        binary response, accuracy of an ordinal one, coverage and width of the predictive
        interval, all means over rows, by their weights if the formula has them. Of an
        unordered response LPPD, accuracy and Brier score. One row has no standard errors, rows
        of one class no AUC. A discrete response also has the randomised coverage, which is that
        of the interval's probability if the model is right: the interval itself holds more.

    Raises
    ------
    InputError
        If the rows cannot be used.
    """
    run = opened(run)
    judged = judge(
        run, newdata, interval=interval, seed=seed, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, watch=watch,
    )  # fmt: skip
    return scores_table(scores(run.bundle.family, judged, interval))


def judge(
    run: RunLike,
    newdata: Table,
    *,
    interval: float = 0.9,
    seed: int = 1,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    watch: Watch = NOBODY,
) -> Pointwise:
    """Return everything that the scores are means of, row by row."""
    run, frame = opened(run), as_frame(newdata)
    absent = set(variables(parse_formula(run.bundle.config.formula).response)) - set(frame.columns)
    if absent:
        raise InputError(
            f"scoring needs the response, but the rows have no column '{absent.pop()}'; "
            "'semistan predict' needs none"
        )
    rows = new_rows(
        run.bundle, frame, response=True, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, watch=watch,
    )  # fmt: skip
    generator = np.random.default_rng(seed)
    posterior = read_posterior(run).seeded(seed)
    return pointwise(posterior, rows, interval=interval, generator=generator)


@overload
def loo(
    run: RunLike,
    *,
    moment_match: bool = ...,
    reloo: bool = ...,
    subsample: None = ...,
    seed: int = ...,
    say: Say = ...,
    backend: Backend = ...,
) -> Loo: ...


@overload
def loo(
    run: RunLike,
    *,
    moment_match: bool = ...,
    reloo: bool = ...,
    subsample: int | None,
    seed: int = ...,
    say: Say = ...,
    backend: Backend = ...,
) -> Loo | SubsampledLoo: ...


def loo(
    run: RunLike,
    *,
    moment_match: bool = False,
    reloo: bool = False,
    subsample: int | None = None,
    seed: int = 1,
    say: Say = silent,
    backend: Backend = LOCAL,
) -> Loo | SubsampledLoo:
    """Compute a run's PSIS-LOO, which is conditional on its subspace.

    What moment matching and sampling anew find of rows is kept in the run's folder ``loo/``, and is
    part of every later answer, of ``compare`` and of the report, until that folder is deleted.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    moment_match : bool
        Whether rows with a high Pareto k are found by moment matching, in one subspace.
    reloo : bool
        Whether rows with a Pareto k that is still high are left out by sampling without them. The
        subspace, the units and the design are those of all rows: that is what it is conditional on.
    subsample : int, optional
        How many rows are looked at under all draws: the others are estimated from these and from
        200 draws, in a fraction of the time where there are many.
    seed : int
        Draws these rows.
    say : callable
        Receives one line for each row that is sampled without.
    backend : Backend, optional
        What draws the chains then; by default this machine.

    Raises
    ------
    InputError
        If the run draws from the prior or an approximation or lacks chains, or if p(y | phi) is
        tempered, or moments cannot be matched, or a subsample is of no size or to be repaired.
    """
    if subsample is not None and (moment_match or reloo):
        raise InputError(
            "moment matching and sampling anew are for all rows with a high Pareto k, of which a "
            "subsample has only some; leave --subsample out"
        )
    run = posterior_run(run)
    posterior, rows = read_posterior(run), run.rows()
    try:
        repaired = read_repairs(run)
        if subsample is not None:
            return subsampled(posterior, rows, subsample, np.random.default_rng(seed), repaired)
        found = leave_one_out(posterior, rows).with_all(repaired)
        if moment_match:
            found = _matched(run, found, rows)
        if reloo:
            keep = partial(keep_repairs, run)
            found = without_rows(run, found, rows, say=say, keep=keep, backend=backend)
        return found
    except InputError as error:
        raise InputError(f"'{run.path}': {error}") from None


def _matched(run: Run, found: Loo, rows: Rows) -> Loo:
    if run.parts:
        raise InputError(
            f"the densities of {len(run.parts)} subspaces are of different coordinates, which "
            "cannot be moved together: match the moments of one of them, as "
            f"'{run.parts[0].path}', or use --reloo"
        )
    if run.bundle.completion:
        raise InputError(
            "the draws of a completed subspace are not of a density whose moments could be "
            "matched; use --reloo"
        )
    if not len(found.unreliable):
        return found
    matched = match_moments(found, unconstrained(run), run.bundle, rows)
    keep_repairs(run, matched)
    return matched
