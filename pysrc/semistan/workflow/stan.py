"""A bundle as a folder that Stan runs without semistan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semistan.bundle.bundle import read_bundle
from semistan.data.pixels import Reading
from semistan.errors import InputError
from semistan.posterior.manifest import MARKER, read_manifest
from semistan.posterior.run import subspace_folder
from semistan.workflow.fit import export_stan, run_options
from semistan.workflow.prepare import Say, training_rows


def stan(
    bundle: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path = "stan-model",
    prior_only: bool = False,
    overwrite: bool = False,
    include: bool = False,
    overrides: dict[str, Any] | None = None,
    reading: Reading | None = None,
    say: Say = lambda _: None,
) -> Path:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts, scripts.

    Parameters
    ----------
    bundle : path
        A bundle's folder.
    data : path, optional
        The training data, if they are no longer where they were.
    out : path
        The folder.
    prior_only : bool
        Whether the likelihood is left out.
    overwrite : bool
        Whether an older folder there may be replaced.
    include : bool
        Whether the hand-written functions are put into a file to be included.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"sample.chains": 2}``.
    reading : callable, optional
        As of ``fit_model``.
    say : callable, optional
        As of ``fit_model``.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If it is a run's folder and no bundle's, or the rows are not those of the training.
    """
    bundle, out = Path(bundle), Path(out)
    if (bundle / MARKER).is_file():
        raise InputError(f"'{bundle}' is a run; name the bundle in it, as '{bundle_of(bundle)}'")
    trained = read_bundle(bundle)
    rows = training_rows(trained, data, reading)
    export_stan(
        trained, rows, out, run_options(trained, overrides or {}),
        prior_only=prior_only, overwrite=overwrite, include=include, say=say,
    )  # fmt: skip
    return out


def bundle_of(run: Path) -> Path:
    """Return the folder of a run's bundle, or of the first of several."""
    several = read_manifest(run).subspaces is not None
    return (subspace_folder(run, 1) if several else run) / "bundle"
