"""Runs by their folder, in memory, or as part of a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from semistan.errors import InputError
from semistan.posterior.run import Run, read_run


@runtime_checkable
class HasRun(Protocol):
    """What belongs to a run, as a ``semistan.Fit``."""

    @property
    def run(self) -> Run:
        """The run."""


RunLike = Run | HasRun | str | Path


def opened(run: RunLike) -> Run:
    """Read a run unless it is one already.

    Raises
    ------
    InputError
        If it is neither a run, nor a fit, nor the path of a run's folder.
    """
    if isinstance(run, Run):
        return run
    if isinstance(run, str | Path):
        return read_run(run)
    if isinstance(run, HasRun):
        return run.run
    raise InputError(
        f"a run, a fit or the path of a run's folder is needed, got a {type(run).__qualname__}"
    )


def one_subspace(run: RunLike) -> Run:
    """Read a run of one subspace.

    Raises
    ------
    InputError
        If it has several, of which one has to be named.
    """
    run = opened(run)
    if run.parts:
        raise InputError(
            f"'{run.path}' has {len(run.parts)} subspaces: name one of them, as "
            f"'{run.parts[0].path}'"
        )
    return run


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
