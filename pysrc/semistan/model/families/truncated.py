"""Responses that were recorded only if they lie between bounds: ``y | trunc(lb, ub)``, as in brms.

    p(y | lb <= Y <= ub) = p(y) / P(lb <= Y <= ub)

Either bound may be missing. A count may be the lower bound itself, so that ``trunc(lb=1)`` takes
zeros away. A response may be censored too: what is known of it is then divided in the same way.
Means and random responses are those of the truncated distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.family import Family, Tails
from semistan.model.families.inside import log_inside

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

BOUNDS = ("lb", "ub")


def with_truncation(record: Family, given: Sequence[str]) -> Family:
    """Return the record of responses between bounds, or the same if there are none.

    Parameters
    ----------
    record : Family
        The family, of responses that may be censored.
    given : sequence of str
        What is known of each row: ``lb``, ``ub`` or both; a sum is multiplied by ``weights``.
    """
    known, tails = tuple(name for name in BOUNDS if name in given), record.tails
    if not known or tails is None:
        return record
    texts = _bounds_in_stan(record, known)
    density = f"{record.density} - {_with(tails.inside, texts)}"
    return replace(
        record,
        log_lik=partial(log_lik, record, tails),
        mean=partial(mean, record, tails),
        rng=partial(rng, record, tails),
        variance=None,
        given=(*record.given, *known),
        density=f"({density})" if "weights" in given else density,
        stan_rng=_with(tails.inside_rng, texts),
        density_functions=_unique((*record.density_functions, *tails.inside_files)),
        stan_functions=_unique((*record.stan_functions, *tails.rng_files)),
        by_row=True,
        glm="",
        has_log_lik=False,
        is_normal=False,
        cumulant="",
    )


def log_lik(record: Family, tails: Tails, y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log density of responses given that they lie between their bounds."""
    lb, ub = dispersion.get("lb"), dispersion.get("ub")
    lower = lb - 1 if record.integer and lb is not None else lb
    inside = log_inside(tails, lower, ub, eta, dispersion)
    return record.log_lik(y, eta, dispersion) - inside


def mean(record: Family, tails: Tails, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the mean between the bounds."""
    lb, ub = _bounds(record, dispersion)
    return np.clip(tails.mean(eta, dispersion, lb, ub), lb + record.integer, ub)


def rng(
    record: Family,
    tails: Tails,
    eta: Array,
    dispersion: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw responses between the bounds."""
    lb, ub = _bounds(record, dispersion)
    return np.clip(tails.rng(eta, dispersion, lb, ub, generator), lb + record.integer, ub)


def _bounds(record: Family, dispersion: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return what responses are above, and what they are at most."""
    lb = np.asarray(dispersion.get("lb", -np.inf), dtype=float) - record.integer
    ub = np.asarray(dispersion.get("ub", np.inf), dtype=float)
    return lb, ub


def _bounds_in_stan(record: Family, known: tuple[str, ...]) -> dict[str, str]:
    """Return what stands for the bounds in Stan."""
    lower = "{lb} - 1" if record.integer else "{lb}"
    return {
        "lb": lower if "lb" in known else "negative_infinity()",
        "ub": "{ub}" if "ub" in known else "positive_infinity()",
    }


def _with(text: str, bounds: Mapping[str, str]) -> str:
    for name, written in bounds.items():
        text = text.replace(f"{{{name}}}", written)
    return text


def _unique(names: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(names))
