"""The priors of a model, before anything is trained, or of what was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle
from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.modules import Given
from semistan.model.priors.lines import priors_as_used, priors_before_training
from semistan.posterior.implied import Implied, implied
from semistan.posterior.manifest import MARKER as RUN
from semistan.posterior.run import Run, read_run
from semistan.workflow.dimension import with_dimension
from semistan.workflow.prepare import prepared_of, training_rows

if TYPE_CHECKING:
    import pandas as pd


def priors(
    model: str | Path | ModelConfig | Bundle | Run,
    data: Table | str | Path | None = None,
    *,
    networks: Given | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """List every prior, as written and as used; nothing is trained.

    Parameters
    ----------
    model, data, networks
        As of ``semistan.priors``; also a bundle, or its folder.
    overrides : mapping, optional
        Dotted keys of a model's configuration, as ``{"priors.b": "normal(0, 1)"}``.

    Returns
    -------
    pandas.DataFrame
        As of ``semistan.priors``.

    Raises
    ------
    InputError
        If the model or the data cannot be used.
    """
    import pandas as pd

    columns, bundle = ["parameter", "written", "used", "source"], _trained(model, networks)
    if bundle is not None:
        if data is not None or overrides:
            raise InputError(f"'{model}' is trained, with priors and data of its own")
        return pd.DataFrame(map(asdict, priors_as_used(bundle)), columns=columns)
    prepared = with_dimension(prepared_of(model, data, networks, overrides)).prepared
    return pd.DataFrame(map(asdict, priors_before_training(prepared.model)), columns=columns)


def implied_prior(
    model: str | Path | ModelConfig | Bundle | Run,
    data: Table | str | Path | None = None,
    *,
    networks: Given | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 1,
) -> tuple[Implied, ...]:
    """Say how far the networks vary under their prior; nothing is trained.

    Parameters
    ----------
    model
        As of ``priors``.
    data, networks, overrides
        As of ``priors``. A bundle needs the rows that it was trained on.
    seed : int
        Of the draws from the prior.

    Returns
    -------
    tuple of Implied
        One for each predictor with a network; none where that is known after training.

    Raises
    ------
    InputError
        If the model or the data cannot be used.
    """
    generator = np.random.default_rng(seed)
    bundle = _trained(model, networks)
    if bundle is None:
        prepared = prepared_of(model, data, networks, overrides)
        return implied(prepared.model, prepared.rows, generator)
    run = model if isinstance(model, Run) else None
    if isinstance(model, str | Path) and (Path(model) / RUN).is_file():
        run = read_run(model, networks)
    return implied(bundle, run.rows() if run else training_rows(bundle), generator)


def _trained(model: Any, networks: Given | None) -> Bundle | None:
    """Return the bundle of what was trained, or None if it was not."""
    if isinstance(model, Bundle | Run):
        return model if isinstance(model, Bundle) else model.bundle
    if not isinstance(model, str | Path) or "~" in str(model):
        return None
    if (Path(model) / RUN).is_file():
        return read_run(model, networks).bundle
    return read_bundle(model, networks) if (Path(model) / BUNDLE).is_file() else None
