"""Fit a run's model once more: with another formula, with other data, or with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.model.config import ModelConfig, with_overrides
from semistan.model.modules import codes
from semistan.posterior.run import Run
from semistan.workflow.fit import fit_model
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.sample import Fitted
from semistan.workflow.watch import NOBODY, Watch

if TYPE_CHECKING:
    import pandas as pd


# What auto became for one method, and is found anew for another.
OF_A_METHOD = ("sample.warmup", "sample.metric", "sample.adapt_delta", "sample.max_treedepth")


def update(
    run: RunLike,
    *,
    out: str | Path,
    formula: str | None = None,
    data: Table | str | Path | None = None,
    overrides: dict[str, Any] | None = None,
    overwrite: bool = False,
    watch: Watch = NOBODY,
    backend: Backend | None = None,
) -> Fitted:
    """Fit a run's model once more, with its settings and seeds.

    Parameters
    ----------
    run, formula, data
        As of ``semistan.update``.
    out : path
        Folder of the new run.
    overrides : dict, optional
        Dotted keys of the configuration that change.
    overwrite, watch, backend
        As of ``fit_model``.

    Raises
    ------
    InputError
        If the model or the data cannot be used, or the new run would replace the old one.
    """
    run = opened(run)
    if Path(out).resolve() == run.path.resolve():
        raise InputError(f"'{out}' is the run to be updated: name another folder by --out")
    config = _changed(run, formula)
    if (overrides or {}).get("sample.method", config.sample.method) != config.sample.method:
        config = with_overrides(config, dict.fromkeys(OF_A_METHOD, "auto"))
    if overrides:
        config = with_overrides(config, overrides)
    return fit_model(
        config, _data(run, formula, data),
        out=out, networks=codes(run.bundle.modules) or None, overwrite=overwrite,
        watch=watch, backend=backend,
    )  # fmt: skip


def _changed(run: Run, formula: str | None) -> ModelConfig:
    config = run.config.model_copy(update={"data": None})
    if formula is None:
        return config
    anew = config.subspace.widens and run.bundle.model.moves == "all"
    found = {"subspace.k": "auto", "subspace.curve": None} if anew else {}
    return with_overrides(config, {"formula": formula, **found})


def _data(
    run: Run, formula: str | None, data: Table | str | Path | None
) -> pd.DataFrame | str | Path:
    """Return the new data, or the old: the whole file where a new formula may need more columns."""
    if data is not None:
        return data
    path = run.bundle.source.path
    if formula is not None and path is not None and Path(path).is_file():
        return path
    return run.table()
