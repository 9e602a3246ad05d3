"""Runs by their folder or in memory."""

from __future__ import annotations

from pathlib import Path

from semistan.errors import InputError
from semistan.posterior.run import Run, read_run

RunLike = Run | str | Path


def opened(run: RunLike) -> Run:
    """Read a run unless it is one already."""
    return run if isinstance(run, Run) else read_run(run)


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
