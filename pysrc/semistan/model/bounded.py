"""Parameters between bounds that the user gives, as those of brms's ``prior(lb = , ub = )``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.parameter import REAL, Kind, Parameter, Shape

if TYPE_CHECKING:
    from torch import Tensor

BOUNDS = ("lower", "upper")  # in Stan


def bounded(lower: Array | float, upper: Array | float, name: str) -> Kind:
    """Return the kind of a scalar, or of a vector whose elements have bounds of their own.

    Parameters
    ----------
    lower, upper : float or array, shape (n,)
        The bounds, -inf and inf where there is none.
    name : str
        The parameter's. Bounds that differ are ``<name>_lower`` and ``<name>_upper`` in the
        program.
    """
    low, up = np.broadcast_arrays(np.atleast_1d(lower).astype(float), np.atleast_1d(upper))
    has_low, has_up = np.isfinite(low), np.isfinite(up)
    if not (has_low | has_up).any():
        return REAL
    both, one = has_low & has_up, has_low ^ has_up
    start = np.where(has_low, low, np.where(has_up, up, 0.0))
    width = np.where(both, np.where(both, up, 1.0) - np.where(both, low, 0.0), 1.0)
    sign = np.where(one & has_up, -1.0, 1.0)

    def value(x: Tensor, shape: Shape) -> Tensor:
        alone = torch.from_numpy(one)
        # The exponential of what has no bound may overflow, and so would its gradient.
        beyond = torch.from_numpy(sign).to(x) * torch.where(alone, x, 0.0).exp()
        inner = torch.where(alone, beyond, torch.from_numpy(width).to(x) * x.sigmoid())
        within = torch.from_numpy(start).to(x) + inner
        return REAL.value(torch.where(torch.from_numpy(both | one), within, x), shape)

    def coordinates(of: Array) -> Array:
        flat = REAL.coordinates(of)
        with np.errstate(all="ignore"):
            share = (flat - start) / width
            inner = np.where(one, np.log(sign * (flat - start)), np.log(share) - np.log1p(-share))
        return np.where(both | one, inner, flat)

    def log_jacobian(x: Tensor, _: Shape) -> Tensor:
        inner = functional.logsigmoid(x) + functional.logsigmoid(-x)
        inner = inner + torch.from_numpy(np.log(width)).to(x)
        alone = torch.where(torch.from_numpy(one), x, 0.0)
        return torch.where(torch.from_numpy(both), inner, alone).sum()

    limits = (lower, upper)
    return Kind("bounded", _bounds_text(limits, name), REAL.size, value, coordinates, log_jacobian,
                limits)  # fmt: skip


def _bounds_text(limits: tuple[Array | float, Array | float], name: str) -> str:
    """Return the constraint of a bounded parameter in Stan."""
    found = []
    for word, values in zip(BOUNDS, limits, strict=True):
        first, *others = np.unique(values)
        if others:
            found.append(f"{word}={name}_{word}")
        elif np.isfinite(first):
            found.append(f"{word}={in_stan(first)}")
    return f"<{', '.join(found)}>"


def in_stan(value: float) -> str:
    """Return a number as a program has it: 0, -1.5."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def bounds_of_each(parameter: Parameter) -> dict[str, Array]:
    """Return the bounds of elements that differ, (size,), by their names in the program."""
    return {
        f"{parameter.name}_{word}": np.ravel(values)
        for word, values in zip(BOUNDS, parameter.kind.limits, strict=True)
        if len(np.unique(values)) > 1
    }
