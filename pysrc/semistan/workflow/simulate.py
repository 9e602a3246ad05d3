"""New responses of a model's rows, from its posterior or from its prior.

Before training, the prior is that of all weights of the networks, and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.infer.backends.backend import SILENT
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig, with_overrides
from semistan.model.design import apply_design
from semistan.model.families.family import Family
from semistan.model.formula.formula import parse_formula
from semistan.model.modules import Given
from semistan.model.table.rows import Rows
from semistan.model.table.scale import LARGEST_COUNT, whole
from semistan.posterior.categories import named
from semistan.posterior.effects.estimates import apart
from semistan.posterior.manifest import MARKER
from semistan.posterior.posterior import Posterior, SubspacePosterior, read_posterior
from semistan.posterior.predictive import posterior_predict
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.run import Run
from semistan.workflow.prepare import Prepared, prepared_of
from semistan.workflow.runs import opened
from semistan.workflow.train import TrainTask

if TYPE_CHECKING:
    import pandas as pd

Model = str | Path | ModelConfig


def simulate(
    model: Model | Run,
    data: Table | str | Path | None = None,
    *,
    draws: int = 1,
    prior: bool = False,
    seed: int = 1,
    networks: Given | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Draw new responses of the rows of a run, or of a model that is not trained.

    Parameters
    ----------
    model, data, prior, networks
        As of ``semistan.simulate``, but a fit.
    draws : int
        How many times each row gets a response.
    seed : int
        Of everything that is drawn.
    overrides : mapping, optional
        Dotted keys of the configuration.

    Returns
    -------
    pandas.DataFrame
        As of ``semistan.simulate``.

    Raises
    ------
    InputError
        If the model or the data cannot be used, the response is no column of the table, or there
        are fewer draws than asked for.
    """
    import pandas as pd

    generator = np.random.default_rng(seed)
    posterior, rows = _source(model, data, draws, prior, generator, networks, overrides)
    if not 1 <= draws <= posterior.size:
        raise InputError(f"--times is from 1 to {posterior.size} here, got {draws}")
    enough = posterior.thin(min(draws * posterior.chains, posterior.size))
    responses = posterior_predict(enough, rows, generator)
    chosen = responses[np.linspace(0, len(responses) - 1, draws).round().astype(int)]
    bundle = posterior.members[0].bundle
    frames = [with_response(bundle, rows, y) for y in chosen]
    table, number = pd.concat(frames, ignore_index=True), np.arange(1, len(chosen) + 1)
    table.insert(0, apart(".draw", table), np.repeat(number, [len(frame) for frame in frames]))
    return table


def check_simulated(family: Family) -> None:
    """Refuse responses that may be censored: the model does not say when an observation ends.

    Raises
    ------
    InputError
        If the formula has ``cens()``.
    """
    if family.censored:
        raise InputError(
            "the response may be censored, and the model does not say when observing a new "
            "response would end: leave cens() out of the formula to simulate complete ones"
        )


def with_response(bundle: Bundle, rows: Rows, y: Array) -> pd.DataFrame:
    """Return the columns of rows with another response (N,), or counts or shares (N, K).

    Raises
    ------
    InputError
        If the response is an expression, whose column is not known from its values, or may be
        censored.
    """
    check_simulated(bundle.family)
    formula = parse_formula(bundle.config.formula)
    frame, response = rows.frame, formula.response.strip("`")
    values: Any = whole(y) if bundle.family.integer else y
    if formula.counted and frame is not None:
        return frame.assign(**dict(zip(formula.counted, values.T, strict=True)))
    if frame is None or response not in frame:
        raise InputError(
            f"responses are simulated of a column, and '{response}' is none: put it into the table "
            "as a column of its own"
        )
    if bundle.design.categories:
        values = named(y, bundle.design.categories)
    return frame.assign(**{response: values})


def simulated(prepared: Prepared, bundle: Bundle, y: Array) -> Prepared:
    """Return a model with another response of its rows; its units, so its priors, stay.

    Raises
    ------
    InputError
        If it has counts that Stan cannot hold.
    """
    if bundle.family.integer and y.max() > LARGEST_COUNT:
        raise InputError(
            f"the priors allow counts as large as {y.max():.3g}, and whole numbers in Stan end at "
            f"{LARGEST_COUNT}: such a response cannot be fitted. Narrow the priors until the "
            "responses of 'semistan simulate' are of a plausible size, as by --prior-b 'normal(0, "
            "0.5)'"
        )
    frame = with_response(bundle, prepared.rows, y)
    rows = apply_design(prepared.design, frame, response=True)
    return replace(prepared, rows=rows, units=prepared.model.units)


def every_weight(prepared: Prepared) -> Bundle:
    """Return a model in which all weights move, so that its prior is known before training.

    Raises
    ------
    InputError
        If the prior of the coordinates is one around weights that were trained.
    """
    if prepared.config.priors.phi is not None:
        raise InputError(
            f"priors.phi ('{prepared.config.priors.phi}') is around the trained weights: without "
            "training, take the prior of the weights (w), or a fixed subspace"
        )
    settings = {
        "subspace.construction": "full", "subspace.k": prepared.model.network.d,
        "subspace.subspaces": 1, "subspace.free": "none", "train.epochs": 1,
    }  # fmt: skip
    config = with_overrides(prepared.config, settings)
    return TrainTask(replace(prepared, config=config, units=prepared.model.units)).run(SILENT)


def _source(
    model: Model | Run,
    data: Table | str | Path | None,
    draws: int,
    prior: bool,
    generator: np.random.Generator,
    networks: Given | None,
    overrides: Mapping[str, Any] | None,
) -> tuple[Posterior, Rows]:
    """Return what responses are drawn from, and the rows."""
    if isinstance(model, Run) or _is_run(model):
        run = opened(model)  # type: ignore[arg-type]
        if data is not None or overrides:
            raise InputError(f"'{run.path}' is a run, with data and settings of its own")
        rows = run.rows()
        if not prior:
            return read_posterior(run), rows
        member = run.members[int(generator.integers(len(run.members)))]
        return SubspacePosterior(member.bundle, _prior(member.bundle, rows, draws, generator)), rows
    prepared = prepared_of(model, data, networks, overrides)
    bundle = every_weight(prepared)
    return SubspacePosterior(bundle, _prior(bundle, prepared.rows, draws, generator)), prepared.rows


def _prior(bundle: Bundle, rows: Rows, draws: int, generator: np.random.Generator) -> Any:
    return prior_draws(bundle, rows, (1, max(1, draws)), generator)


def _is_run(model: Any) -> bool:
    return (
        not isinstance(model, ModelConfig)
        and "~" not in str(model)
        and ((Path(model) / MARKER).is_file())
    )
