"""A model file from a formula, after everything in it has been checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from semistan.bundle.files import check_output_file
from semistan.data.model_file import write_config
from semistan.data.tables import STDIN
from semistan.errors import InputError
from semistan.workflow.prepare import configure, prepare
from semistan.workflow.watch import NOBODY, Watch


def new(
    formula: str,
    data: str | Path | None = None,
    *,
    out: str | Path = "model.toml",
    overwrite: bool = False,
    overrides: dict[str, Any] | None = None,
    watch: Watch = NOBODY,
) -> Path:
    """Write a ``model.toml`` with every key and its value from a formula and a table.

    Parameters
    ----------
    formula : str
        As ``y ~ x1 + C(g) + nn(u1, u2)``.
    data : path
        The table; its path is written relative to the file.
    out : path
        The file.
    overwrite : bool
        Whether an older file there may be replaced.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"subspace.k": 8}``.
    reading : callable, optional
        As of ``fit_model``.
    say : callable, optional
        As of ``fit_model``.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If the model and the table do not fit, or the file exists.
    """
    given = {**(overrides or {}), **({} if data is None else {"data": str(data)})}
    check_output_file(Path(out), overwrite=overwrite)
    config = configure(formula, given)
    if config.data == STDIN:
        raise InputError("a model.toml names the file of its data; give --data FILE")
    for note in prepare(config, reading=watch.reading).notes:
        watch.say(note)
    path = os.path.relpath(str(config.data), Path(out).resolve().parent)
    write_config(config.model_copy(update={"data": path}), Path(out))
    return Path(out)
