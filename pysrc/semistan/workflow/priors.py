"""The priors of a model, before anything is trained, or of what was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle
from semistan.errors import InputError
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.priors.prior import priors_as_used, priors_before_training
from semistan.posterior.run import MARKER as RUN
from semistan.posterior.run import Run, read_run
from semistan.workflow.prepare import configure, prepare

if TYPE_CHECKING:
    import pandas as pd


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

    columns, bundle = ["parameter", "written", "used", "source"], _trained(model)
    if bundle is not None:
        if data is not None or overrides:
            raise InputError(f"'{model}' is trained, with priors and data of its own")
        return pd.DataFrame(map(asdict, priors_as_used(bundle)), columns=columns)
    settings, frame = dict(overrides or {}), data
    if isinstance(data, str | Path):
        frame, settings["data"] = None, str(data)
    assert not isinstance(model, Bundle | Run)
    prepared = prepare(configure(model, settings), frame)
    return pd.DataFrame(map(asdict, priors_before_training(prepared.model)), columns=columns)


def _trained(model: Any) -> Bundle | None:
    """Return the bundle of what was trained, or None if it was not."""
    if isinstance(model, Bundle | Run):
        return model if isinstance(model, Bundle) else model.bundle
    if not isinstance(model, str | Path) or "~" in str(model):
        return None
    if (Path(model) / RUN).is_file():
        return read_run(model).bundle
    return read_bundle(model) if (Path(model) / BUNDLE).is_file() else None
