"""ArviZ's figures of arrays, by whichever release is installed.

Release 1 computes on arrays in a package of its own, ``arviz_stats``; before, ``arviz`` has all. It
is imported where it is used: it takes more than a second.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Literal

import numpy as np

from semistan.model.arrays import Array


@cache
def has_release_1() -> bool:
    """Say whether the installed ArviZ is release 1 or later."""
    from importlib.metadata import version

    return int(version("arviz").split(".")[0]) >= 1


def arviz_0() -> Any:
    """Import ArviZ before release 1, without the notice that it prints of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except FileNotFoundError:  # another process wrote the file of that notice just then
            import arviz
    return arviz


def _arrays() -> Any:
    """Return what has functions of arrays."""
    if has_release_1():
        from arviz_stats.base import array_stats

        return array_stats
    return arviz_0()


def rhat(values: Array) -> float:
    """Return the rank-normalised split Rhat of draws (C, S)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(_arrays().rhat(values))


def ess(values: Array, method: Literal["bulk", "tail"]) -> float:
    """Return the effective sample size of draws (C, S)."""
    between = {"tail": (0.05, 0.95)}.get(method)
    return float(_arrays().ess(values, method=method, prob=between))


def mcse(values: Array, method: str = "mean", prob: float | None = None) -> float:
    """Return the Monte Carlo standard error of a mean, an sd or a quantile of draws (C, S)."""
    return float(_arrays().mcse(values, method=method, prob=prob))


def kde(values: Array, **options: Any) -> tuple[Array, Array]:
    """Return a grid and a kernel density estimate of values (S,) there."""
    grid, density, *_ = _arrays().kde(values, **options)
    return grid, density


def as_installed(tree: Any) -> Any:
    """Return an ``xarray.DataTree`` as the type that the installed ArviZ takes.

    Release 1 takes the tree itself, earlier ones their own ``InferenceData``.
    """
    return tree if has_release_1() else arviz_0().from_datatree(tree)
