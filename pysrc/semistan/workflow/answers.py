"""What was learnt: from a finished run to predictions, scores and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle
from semistan.density.problem import make_problem
from semistan.errors import InputError, did_you_mean
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula, variables
from semistan.model.priors.prior import priors_as_used, priors_before_training
from semistan.model.table.rows import Rows
from semistan.model.units import units_of
from semistan.posterior.categories import category_position
from semistan.posterior.draws import Draws, read_draws
from semistan.posterior.effects.effect import Effect, conditional_effect, partial_dependence
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.engine import engine_named
from semistan.posterior.prediction import (
    Prediction,
    check_prediction,
    draws_of,
    predict_chunks,
    summarise_prediction,
)
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.run import MARKER as RUN
from semistan.posterior.run import Run, read_run
from semistan.posterior.scoring import loo as psis
from semistan.posterior.scoring.loo import Loo
from semistan.posterior.scoring.scores import (
    Pointwise,
    check_interval,
    pointwise,
    scores,
    scores_table,
)
from semistan.show.tables import check_table_path, table_writer
from semistan.subspace.measures import measure
from semistan.workflow.prepare import Say, configure, new_rows, prepare

if TYPE_CHECKING:
    import pandas as pd

RunLike = Run | str | Path

EFFECT_KINDS = ("pd", "conditional")
PAIR_DRAWS = 1000  # for a grid over two columns
MOST_ROWS = 1000  # over which partial dependence is averaged


def priors(
    model: str | Path | ModelConfig | Bundle | Run,
    data: pd.DataFrame | str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """List every prior, as written and as used; nothing is trained.

    Parameters
    ----------
    model : str, Path, ModelConfig, Bundle or Run
        A formula, the path of a ``model.toml``, a configuration, or what was trained, or its
        folder.
    data : pandas.DataFrame or path, optional
        The table of a model; by default the one that ``model.toml`` names.
    overrides : mapping, optional
        Dotted keys of a model's configuration, as ``{"priors.b": "normal(0, 1)"}``.

    Returns
    -------
    pandas.DataFrame
        ``parameter``, ``written``, ``used`` (in the units of the data) and ``source``: a default,
        given for the class, or for the one coefficient. How wide phi's prior is may be known
        after training only.

    Raises
    ------
    InputError
        If the model or the data cannot be used.
    """
    import pandas as pd

    bundle = _trained(model)
    if bundle is not None:
        if data is not None or overrides:
            raise InputError(f"'{model}' is trained, with priors and data of its own")
        return pd.DataFrame(map(asdict, priors_as_used(bundle)))
    settings, frame = dict(overrides or {}), data
    if isinstance(data, str | Path):
        frame, settings["data"] = None, str(data)
    assert not isinstance(model, Bundle | Run)
    prepared = prepare(configure(model, settings), frame)
    assert prepared.rows.y is not None
    units = units_of(prepared.design, family(prepared.config.family), prepared.rows)
    lines = priors_before_training(prepared.config, prepared.design, units)
    return pd.DataFrame(map(asdict, lines))


def predict(
    run: RunLike,
    frame: pd.DataFrame,
    *,
    kind: str | None = None,
    part: str = "all",
    dpar: str | None = None,
    interval: float = 0.95,
    seed: int = 1,
    engine: str = "torch",
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    say: Say | None = None,
    prior: bool = False,
) -> pd.DataFrame:
    """Predict new rows: one line per row, or row and category, with mean, error and interval.

    Parameters
    ----------
    run : Run or path
        A finished run.
    frame : pandas.DataFrame
        The new rows; the response is not needed.
    kind : str, optional
        ``epred`` (the mean, or the probability of each category), ``linpred`` (the linear
        predictor) or ``predict`` (responses); by default ``epred``, or ``linpred`` where a part is
        asked for.
    part : str
        Of the linear predictor: ``all``, ``structured`` (x' theta), ``nn`` (the network, centred
        over the training rows) or ``penalised`` (smooths without their straight parts, and
        group-level effects); b_Intercept, offsets and the parts add up to all. Where
        coefficients are orthogonalised, the parts are those of b_x_orth and b_Intercept_orth.
    dpar : str, optional
        A parameter of the response's distribution, as ``sigma`` or ``muvirginica``, of which to
        predict the value (``epred``) or the predictor (``linpred``) instead.
    interval : float
        Probability of the interval.
    seed : int
        Seed of new responses.
    engine : str
        ``torch``, or ``onnx`` for the bundle's ``predictor.onnx``.
    drop_missing : bool
        Whether rows with missing values are left out.
    allow_new_levels : bool
        Whether group-level terms may have levels that the model was not trained on; their effects
        are drawn from the distribution of the levels.
    say : callable, optional
        Receives one line about dropped rows.
    prior : bool
        Whether to predict from the priors, with as many draws by the seed as the run has; the
        run needs no chains then.

    Raises
    ------
    InputError
        If the rows or an option cannot be used.
    """
    import pandas as pd

    check_interval(interval)
    chunks = _predictions(
        opened(run),
        frame,
        kind=kind,
        part=part,
        dpar=dpar,
        seed=seed,
        engine=engine,
        drop_missing=drop_missing,
        allow_new_levels=allow_new_levels,
        say=say,
        prior=prior,
    )
    return pd.concat([summarise_prediction(chunk, interval) for chunk in chunks], ignore_index=True)


def write_predictions(
    run: RunLike,
    frame: pd.DataFrame,
    table: Path | TextIO,
    draws: Path | None = None,
    *,
    kind: str | None = None,
    part: str = "all",
    dpar: str | None = None,
    interval: float = 0.95,
    seed: int = 1,
    engine: str = "torch",
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    say: Say | None = None,
    prior: bool = False,
) -> None:
    """Write what ``predict`` returns, and all draws on request, holding only some rows at a time.

    Parameters
    ----------
    table : Path or stream
        File (``.csv`` or ``.parquet``) or stream that gets the table.
    draws : Path, optional
        File that gets one line per row and draw.

    Notes
    -----
    The other parameters and the errors are those of ``predict``.
    """
    from contextlib import ExitStack

    check_interval(interval)
    for path in (table, draws):
        if isinstance(path, Path):
            check_table_path(path)
    chunks = _predictions(
        opened(run),
        frame,
        kind=kind,
        part=part,
        dpar=dpar,
        seed=seed,
        engine=engine,
        drop_missing=drop_missing,
        allow_new_levels=allow_new_levels,
        say=say,
        prior=prior,
    )
    with ExitStack() as stack:
        append = stack.enter_context(table_writer(table))
        append_draws = stack.enter_context(table_writer(draws)) if draws else None
        for chunk in chunks:
            append(summarise_prediction(chunk, interval))
            if append_draws:
                append_draws(draws_of(chunk))


def score(
    run: RunLike,
    frame: pd.DataFrame,
    *,
    interval: float = 0.9,
    seed: int = 1,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    say: Say | None = None,
) -> pd.DataFrame:
    """Score a run's predictions of rows with a known response.

    Returns
    -------
    pandas.DataFrame
        ``score``, ``Estimate`` and ``SE``: LPPD, RMSE, MAE, CRPS, AUC and Brier score of a
        bernoulli response, accuracy of an ordinal one, coverage and width of the predictive
        interval, all means over rows, by their weights if the formula has them. Of an
        unordered response LPPD, accuracy and Brier score.

    Raises
    ------
    InputError
        If the rows cannot be used.
    """
    run = opened(run)
    judged = judge(
        run, frame, interval=interval, seed=seed, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, say=say,
    )  # fmt: skip
    return scores_table(scores(run.bundle, judged, interval))


def judge(
    run: RunLike,
    frame: pd.DataFrame,
    *,
    interval: float = 0.9,
    seed: int = 1,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    say: Say | None = None,
) -> Pointwise:
    """Return everything that the scores are means of, row by row."""
    run = opened(run)
    absent = set(variables(parse_formula(run.bundle.config.formula).response)) - set(frame.columns)
    if absent:
        raise InputError(
            f"scoring needs the response, but the rows have no column '{absent.pop()}'; "
            "'semistan predict' needs none"
        )
    rows = new_rows(
        run.bundle, frame, response=True, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, say=say,
    )  # fmt: skip
    generator = np.random.default_rng(seed)
    return pointwise(run.bundle, read_draws(run), rows, interval=interval, generator=generator)


def loo(run: RunLike) -> Loo:
    """Compute a run's PSIS-LOO, which is conditional on its subspace.

    Raises
    ------
    InputError
        If the run draws from the prior or an approximation or lacks chains, or if p(y | phi) is
        tempered.
    """
    run = posterior_run(run)
    draws = read_draws(run)
    try:
        return psis.loo(run.bundle, draws, run.rows())
    except InputError as error:
        raise InputError(f"'{run.path}': {error}") from None


def effect(
    run: RunLike,
    variables: str | Sequence[str],
    *,
    kind: str = "pd",
    scale: str = "response",
    at: Mapping[str, Any] | None = None,
    resolution: int | None = None,
    rows: int = MOST_ROWS,
    curves: int = 0,
    seed: int = 1,
    category: str | None = None,
) -> Effect:
    """Vary one or two columns of the training table.

    Parameters
    ----------
    run : Run or path
        A finished run.
    variables : str or sequence of str
        One or two columns.
    kind : str
        ``pd`` (partial dependence: the mean over rows) or ``conditional`` (all other columns
        at their mean or first level, or ``at`` given values).
    scale : str
        ``response`` (mu, or the probability of each category) or ``linpred`` (eta, of an unordered
        response the log odds of its second category).
    at : mapping, optional
        Values at which a conditional effect holds other columns.
    resolution : int, optional
        Points of a numeric column; 25, or 15 where two columns vary. A column of few whole
        numbers has these instead.
    rows : int
        Most rows over which partial dependence is averaged, drawn by the seed.
    curves : int
        How many of them are kept as individual curves.
    seed : int
        Draws the rows.
    category : str, optional
        One category of the response, instead of all.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    run = opened(run)
    if category is not None:
        category_position(run.bundle, category)
    several = not isinstance(variables, str) and len(set(variables)) > 1
    draws = read_draws(run)
    if several:
        draws = draws.thin(PAIR_DRAWS)
    resolution = resolution or (15 if several else 25)
    if kind == "conditional":
        found = conditional_effect(
            run.bundle, draws, run.table(), variables, scale=scale, at=at, resolution=resolution
        )
        return found.of_category(category) if category is not None else found
    if kind != "pd":
        raise InputError(f"unknown kind of effect '{kind}'.{did_you_mean(kind, EFFECT_KINDS)}")
    if at:
        raise InputError(
            "only a conditional effect holds columns at given values: --kind conditional"
        )
    found = partial_dependence(
        run.bundle, draws, run.table(), variables, scale=scale, resolution=resolution, rows=rows,
        curves=curves, generator=np.random.default_rng(seed),
    )  # fmt: skip
    return found.of_category(category) if category is not None else found


def marginal_effects(
    run: RunLike,
    variables: Sequence[str] | None = None,
    *,
    scale: str = "response",
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
) -> pd.DataFrame:
    """Average marginal effects over the training rows: slopes, and differences to a level.

    Returns
    -------
    pandas.DataFrame
        ``term``, ``contrast``, ``Estimate``, ``Est.Error`` and an interval, and ``category`` where
        they are on the probability of each.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    run = opened(run)
    return average_marginal_effects(
        run.bundle, read_draws(run), run.table(), variables=variables, scale=scale,
        interval=interval, rows=rows, generator=np.random.default_rng(seed),
    )  # fmt: skip


def importance(
    run: RunLike,
    frame: pd.DataFrame | None = None,
    *,
    variables: Sequence[str] | None = None,
    repeats: int = 5,
    interval: float = 0.95,
    rows: int | None = None,
    seed: int = 1,
) -> pd.DataFrame:
    """Rank columns by what permuting them costs in mean log-likelihood.

    Parameters
    ----------
    run : Run or path
        A finished run.
    frame : pandas.DataFrame, optional
        Rows with their response that the fit has not seen; the training rows by default.

    Raises
    ------
    InputError
        If a column or an option cannot be used.
    """
    run = posterior_run(run)
    return permutation_importance(
        run.bundle, read_draws(run), run.table() if frame is None else frame,
        variables=variables, repeats=repeats, interval=interval, rows=rows,
        generator=np.random.default_rng(seed),
    )  # fmt: skip


def subspace_measures(bundle: Bundle, rows: Rows) -> pd.DataFrame:
    """Measure how much of the predictive uncertainty a bundle's subspace keeps.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows, as ``semistan.training_rows`` or ``Run.rows`` read them.

    Returns
    -------
    pandas.DataFrame
        ``measure`` and ``value``: sizes, arc length, and against the Laplace approximation of
        all weights, linearised at the trained ones, the relative error of the epistemic
        covariance (0 is best) and its trace, both in all weights and in the subspace.
    """
    import pandas as pd

    problem = make_problem(bundle.family, bundle.network, bundle.units, rows, "cpu")
    found = measure(problem, bundle.units, bundle.trained)
    values = {
        "weights d": bundle.subspace.d,
        "dimension k": bundle.subspace.k,
        "arc length": found.arc_length,
        "largest singular value": found.singular_values.max(),
        "smallest singular value": found.singular_values.min(),
        "relative error": found.relative_error,
        "trace in the subspace": found.trace,
        "trace in all weights": found.full_trace,
    }
    return pd.DataFrame({"measure": list(values), "value": [float(x) for x in values.values()]})


def opened(run: RunLike) -> Run:
    """Read a run unless it is one already."""
    return run if isinstance(run, Run) else read_run(run)


def _trained(model: Any) -> Bundle | None:
    """Return the bundle of what was trained, or None if it was not."""
    if isinstance(model, Bundle | Run):
        return model if isinstance(model, Bundle) else model.bundle
    if not isinstance(model, str | Path) or "~" in str(model):
        return None
    if (Path(model) / RUN).is_file():
        return read_run(model).bundle
    return read_bundle(model) if (Path(model) / BUNDLE).is_file() else None


def posterior_run(run: RunLike) -> Run:
    """Read a run whose draws are from the posterior.

    Raises
    ------
    InputError
        If they are from the prior.
    """
    run = opened(run)
    if run.prior_only:
        raise InputError(f"'{run.path}' draws from the prior: it predicts nothing to be judged")
    return run


def _predictions(
    run: Run,
    frame: pd.DataFrame,
    *,
    kind: str | None,
    part: str,
    dpar: str | None,
    seed: int,
    engine: str,
    drop_missing: bool,
    allow_new_levels: bool,
    say: Say | None,
    prior: bool,
) -> Iterator[Prediction]:
    kind = kind or ("epred" if part == "all" else "linpred")
    check_prediction(run.bundle, kind, part, dpar)
    compute = engine_named(engine, run.bundle, run.path / "bundle")
    positions = frame.reset_index(drop=True)
    rows = new_rows(
        run.bundle, positions, drop_missing=drop_missing, allow_new_levels=allow_new_levels, say=say
    )
    generator = np.random.default_rng(seed)
    draws = _prior_draws(run, generator) if prior else read_draws(run)
    return predict_chunks(run.bundle, draws, rows, kind, part, generator, compute, dpar)


def _prior_draws(run: Run, generator: np.random.Generator) -> Draws:
    """Draw from the priors, as many as the run has."""
    shape = (run.options.chains, run.options.draws)
    return prior_draws(run.bundle, run.rows(), shape, generator)
