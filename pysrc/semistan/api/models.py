"""What can be asked of a model that is not fitted: its priors, its responses, its calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from semistan.api.settings import Settings, dotted, with_settings
from semistan.data.frames import Table
from semistan.model.config import ModelConfig
from semistan.model.modules import Given
from semistan.terminal import screen
from semistan.workflow import priors as of_priors
from semistan.workflow import sbc as calibrating
from semistan.workflow import simulate as simulating
from semistan.workflow.runs import HasRun, RunLike
from semistan.workflow.sbc import Calibration
from semistan.workflow.watch import silent

if TYPE_CHECKING:
    import pandas as pd


@with_settings
def priors(
    model: RunLike | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    networks: Given | None = None,
    **settings: Unpack[Settings],
) -> pd.DataFrame:
    """List every prior, as written and as used; nothing is trained.

    Parameters
    ----------
    model : str, Path, ModelConfig, Fit or Run
        A formula, the path of a ``model.toml``, a configuration, or what was fitted, or its folder.
    data : pandas.DataFrame, a table of another library, or path, optional
        The table of a model; by default the one that ``model.toml`` names.
    networks : mapping, optional
        The modules that the formula names, as of ``semistan.fit``.
    **settings
        Of a model, as of ``semistan.fit``.

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
    return of_priors.priors(_source(model), data, networks=networks, overrides=dotted(settings))


@with_settings
def simulate(
    model: RunLike | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    times: int = 1,
    prior: bool = False,
    networks: Given | None = None,
    **settings: Unpack[Settings],
) -> pd.DataFrame:
    """Draw new responses of the rows of a run, or of a model that is not trained.

    Parameters
    ----------
    model : Fit, Run, str, Path or ModelConfig
        A fit or run, or its folder: responses from its posterior. Or a formula, the path of a
        ``model.toml`` or a configuration: responses from its prior, with all weights of the
        networks.
    data : pandas.DataFrame, a table of another library, or path, optional
        The table of a model that is not trained, by default the one that ``model.toml`` names. Its
        response sets the units of the priors.
    times : int
        How many times each row gets a response, each time from another draw of the parameters.
    prior : bool
        Whether a run's responses come from its prior, in its subspaces, instead.
    networks : mapping, optional
        The modules that the formula names, as of ``semistan.fit``.
    **settings
        As of ``semistan.fit``; a run takes ``seed`` alone, which is 1 by default.

    Returns
    -------
    pandas.DataFrame
        ``.draw``, from 1 (``..draw`` beside a column of that name), and the columns that the
        formula uses, with the new response.

    Raises
    ------
    InputError
        If the model or the data cannot be used, the response is no column of the table, or there
        are fewer draws than asked for.
    """
    others: dict[str, Any] = dict(settings)
    seed = others.pop("seed", 1)
    return simulating.simulate(
        _source(model), data,
        draws=times, prior=prior, seed=seed, networks=networks, overrides=dotted(others),
    )  # fmt: skip


@with_settings
def sbc(
    model: str | Path | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    out: str | Path,
    replications: int = 100,
    fixed_subspace: bool = False,
    truth: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
    networks: Given | None = None,
    **settings: Unpack[Settings],
) -> Calibration:
    """Check a model by simulation: draw parameters from the prior, fit, and rank the truth.

    Parameters
    ----------
    model : str, Path or ModelConfig
        A formula, the path of a ``model.toml`` or a configuration.
    data : pandas.DataFrame, a table of another library, or path, optional
        By default that of ``model.toml``. Its response sets the priors' units, and is replaced.
    out : path
        Folder of what is found; what is there is kept, so that an interrupted study goes on.
    replications : int
        How many data sets are simulated and fitted.
    fixed_subspace : bool
        Whether one subspace, trained on the table, holds the truth of all replications and is
        sampled in all; by default each draws its weights from their prior and trains anew.
    truth : mapping, optional
        Keywords that differ in the model from whose prior the true values are drawn, as
        ``{"priors": {"b": "normal(0, 5)"}}``: what a wrong prior does.
    jobs : int, optional
        Fits at a time; by default one for each core.
    overwrite : bool
        Whether an older study there may be replaced.
    progress : bool
        Whether standard error says which replications are done.
    networks, **settings
        As of ``semistan.fit``.

    Returns
    -------
    Calibration
        Its ``table()`` says for each parameter how uniform the ranks are.

    Raises
    ------
    InputError
        If the model cannot be used, or ``out`` holds replications of other settings.
    SemistanError
        If a replication fails; run it again to continue.
    """
    return calibrating.sbc(
        model, data,
        out=out, replications=replications, fixed_subspace=fixed_subspace,
        truth=None if truth is None else dotted(truth), seed=settings.get("seed", 1), jobs=jobs,
        overwrite=overwrite, networks=networks, overrides=dotted(settings),
        say=screen.say if progress else silent,
    )  # fmt: skip


def _source(model: Any) -> Any:
    """Return the run of a fit, and anything else as it is."""
    return model.run if isinstance(model, HasRun) else model
