"""Responses of which a bound is known alone: censored to the right, to the left, or in an interval.

The codes are brms's: 0 is an observed response, 1 one above y, -1 one below y, and 2 one between y
and y2. Instead of a density, a censored response has the probability of where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.families.family import Family
from semistan.model.families.inside import log_inside

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def with_censoring(record: Family, given: Sequence[str]) -> Family:
    """Return the record of responses that may be censored, or the same if none is.

    Parameters
    ----------
    record : Family
        The family.
    given : sequence of str
        What is known of each row: ``cens``, and ``y2`` if there are intervals.
    """
    if "cens" not in given or record.tails is None:
        return record
    known = tuple(name for name in ("cens", "y2") if name in given)
    density = record.tails.density
    return replace(
        record,
        log_lik=partial(log_lik, record),
        given=(*record.given, *known),
        density=density if "y2" in given else density.replace("{y2}", "{y}"),
        density_functions=(*record.density_functions, *record.tails.files),
        by_row=True,
        glm="",
        has_log_lik=False,
        is_normal=False,
        cumulant="",
    )


def log_lik(record: Family, y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log density of observed responses, log probabilities of the others."""
    tails, code = record.tails, dispersion["cens"]
    assert tails is not None
    found = torch.where(code == 0, record.log_lik(y, eta, dispersion), 0.0)
    found = torch.where(code == 1, tails.log_above(y, eta, dispersion), found)
    found = torch.where(code == -1, tails.log_below(y, eta, dispersion), found)
    if "y2" not in dispersion:
        return found
    end = torch.where(code == 2, dispersion["y2"], y + y.abs() + 1)
    return torch.where(code == 2, log_inside(tails, y, end, eta, dispersion), found)
