"""Responses that were measured with known standard errors, as estimates of studies are.

    y | se(s)                y ~ normal(eta, s)
    y | se(s, sigma=TRUE)    y ~ normal(eta, sqrt(sigma^2 + s^2))

They are written as in brms. Without ``sigma=TRUE`` there is no residual standard deviation to be
estimated; what varies between studies beyond their errors is then a group effect, as (1 | study).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.families.families import family
from semistan.model.families.family import SIGMA, Family, Tails
from semistan.model.formula.formula import Formula, parse_formula

MEASURED = ("gaussian", "student")  # whose scale is the residual standard deviation
STAN = "hypot({sigma}, {se})"


def response_family(name: str, formula: str) -> Family:
    """Return the record of a family, by its name, for the response of a formula."""
    return with_errors(family(name), parse_formula(formula))


def with_errors(record: Family, formula: Formula) -> Family:
    """Return the record of responses with known standard errors, or the same if there are none.

    Parameters
    ----------
    record : Family
        The family, neither censored nor truncated yet.
    formula : Formula
        The parsed formula.

    Raises
    ------
    InputError
        For a family that knows no standard errors.
    """
    if not formula.se:
        return record
    if record.name not in MEASURED:
        raise InputError(
            f"se() is for families {' and '.join(MEASURED)}, the family is {record.name}; choose "
            "another family"
        )
    scale = STAN if formula.se_and_sigma else "{se}"
    known = () if formula.se_and_sigma else (SIGMA.name,)
    variance, tails = record.variance, record.tails
    assert variance is not None
    return replace(
        record,
        parameters=tuple(item for item in record.parameters if item.name not in known),
        log_lik=lambda y, eta, disp: record.log_lik(y, eta, _with_scale(disp)),
        rng=lambda eta, disp, generator: record.rng(eta, _with_scale(disp), generator),
        variance=lambda eta, disp: variance(eta, _with_scale(disp)),
        tails=tails and _measured(tails, scale),
        given=(*record.given, "se"),
        density=_scaled(record.density, scale),
        stan_rng=_scaled(record.stan_rng, scale),
        glm="",
        has_log_lik=False,
        is_normal=False,
        cumulant="",
    )


def _measured(tails: Tails, scale: str) -> Tails:
    """Return tails of the same distributions around the response's own standard errors."""
    return replace(
        tails,
        log_below=lambda y, eta, disp: tails.log_below(y, eta, _with_scale(disp)),
        log_above=lambda y, eta, disp: tails.log_above(y, eta, _with_scale(disp)),
        rng=lambda eta, disp, *rest: tails.rng(eta, _with_scale(disp), *rest),
        mean=lambda eta, disp, *rest: tails.mean(eta, _with_scale(disp), *rest),
        density=_scaled(tails.density, scale),
        inside=_scaled(tails.inside, scale),
        inside_rng=_scaled(tails.inside_rng, scale),
    )


def _with_scale(dispersion: Mapping[str, Any]) -> dict[str, Any]:
    """Put the whole standard deviation in the place of sigma, of arrays or tensors."""
    scale = dispersion["se"]
    if SIGMA.name in dispersion:
        hypot = np.hypot if isinstance(scale, np.ndarray) else torch.hypot
        scale = hypot(dispersion[SIGMA.name], scale)
    return {**dispersion, SIGMA.name: scale}


def _scaled(text: str, scale: str) -> str:
    return text.replace("{sigma}", scale)
