"""Tempered posteriors: the likelihood to the power 1 / T.

Equation 7 of Dold et al. (2024) tempers the likelihood as it is,

    p_T(phi, theta | y) ~ p(y | phi, theta)^(1 / T) p(phi) p(theta),

and so theta with it. Equation 8 tempers phi alone: theta given phi is left as it is,

    p_T(phi, theta | y) ~ p(theta | phi, y) p(y | phi)^(1 / T) p(phi)
                        ~ p(y | phi, theta) p(theta) p(phi) p(y | phi)^(1 / T - 1),

    p(y | phi) = integral of p(y | phi, theta) p(theta) d theta.

The integral is exact for a gaussian response and a normal prior on theta, and Laplace's method
otherwise. Without coefficients both equations are the same.

A dispersion parameter is treated like phi: p(y | phi) stands for p(y | phi, sigma), and sigma's
part of the posterior is tempered with phi's. Then theta given all else is the untempered one, and
the integral is exact where it can be. But sigma's posterior widens with T, and theta's with it:
theta stays put only as far as it does not depend on phi and sigma. A sigma that is fixed by a
constant() prior leaves the dependence on phi alone (``benchmarks/temperature.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.families.families import FAMILIES
from semistan.model.families.measured import response_family
from semistan.model.priors.groups import priors_of_coefficients
from semistan.model.varying import parameters_text, terms_text


@dataclass(frozen=True, slots=True)
class Temper:
    """How a posterior is tempered.

    Attributes
    ----------
    temperature : float
        T; not 1.
    integral : str or None
        How theta is integrated out (equation 8): ``exact`` or ``laplace``; None if it is not
        (equation 7).
    """

    temperature: float
    integral: Literal["exact", "laplace"] | None

    @property
    def text(self) -> str:
        """The header's words."""
        what = "p(y | phi)" if self.integral else "the likelihood"
        method = " by Laplace's method" if self.integral == "laplace" else ""
        return f"temperature: {self.temperature:g}, of {what}{method}"


def temper_of(config: ModelConfig, design: Design) -> Temper | None:
    """Return how a model's posterior is tempered, or None if its temperature is 1.

    Raises
    ------
    InputError
        If theta is to be integrated out but is no parameter, or the family has no method.
    """
    options = config.sample
    if options.temperature == 1:
        return None
    if options.temper == "likelihood":
        return Temper(options.temperature, None)
    if config.subspace.holds_theta:
        raise InputError(
            "temper = 'subspace' leaves theta given phi untempered, but in the construction "
            f"'{config.subspace.construction}' theta moves with phi; use temper = 'likelihood'"
        )
    if design.terms:
        raise InputError(
            f"temper = 'subspace' has no {terms_text(design)}; use temper = 'likelihood'"
        )
    if not design.coefficients:
        return Temper(options.temperature, None)
    priors = priors_of_coefficients(config.priors, design.mean)
    densities = {prior.density for prior in priors}
    names = {density.name for density in densities}
    if len(densities) > 1:
        raise InputError(
            "temper = 'subspace' needs priors of the same density on all coefficients, got "
            f"{', '.join(sorted(names))}; use temper = 'likelihood'"
        )
    known = (*(["offset()"] if design.mean.offsets else []), *design.given)
    if known or design.others:
        others = ", ".join(known) or parameters_text(design)
        raise InputError(f"temper = 'subspace' has no {others}; use temper = 'likelihood'")
    for density in densities:
        if density.joint:
            raise InputError(f"temper = 'subspace' has no {density}(); use temper = 'likelihood'")
    if any(prior.is_bounded for prior in priors):
        raise InputError(
            "temper = 'subspace' has no coefficients with bounds; use temper = 'likelihood'"
        )
    record = response_family(config.family, design.formula)
    if names == {"normal"} and record.is_normal:
        return Temper(options.temperature, "exact")
    if not record.cumulant:
        able = ", ".join(record.name for record in FAMILIES if record.cumulant)
        raise InputError(
            f"temper = 'subspace' is for the families {able}, got {record}; "
            "use temper = 'likelihood'"
        )
    return Temper(options.temperature, "laplace")
