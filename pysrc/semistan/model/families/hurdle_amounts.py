"""Amounts that are 0 with a probability of its own, otherwise gamma or lognormal.

P(y = 0) = hu, and p(y) = (1 - hu) p0(y) above: costs, rain, time spent. As in brms, eta is the
predictor of the amounts that are not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT
from semistan.model.families.family import Family, Given, Predicted
from semistan.model.families.gamma import GAMMA
from semistan.model.families.lognormal import LOGNORMAL
from semistan.model.families.shares import HU, log1m_share, log_share, with_share

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _hurdle(amounts: Family) -> Family:
    """Return the family of some amounts behind a hurdle."""
    assert amounts.mean is not None
    assert amounts.variance is not None
    mean_above, variance_above = amounts.mean, amounts.variance

    def log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
        hu, zero = dispersion["hu"], y == 0
        if amounts.link == "log":
            eta = eta.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
        above = amounts.log_lik(torch.where(zero, 1.0, y), eta, dispersion)
        return torch.where(zero, log_share(hu), log1m_share(hu) + above)

    def mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
        return np.asarray((1 - dispersion["hu"]) * mean_above(eta, dispersion))

    def variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
        hu = dispersion["hu"]
        within = variance_above(eta, dispersion) + hu * mean_above(eta, dispersion) ** 2
        return np.asarray((1 - hu) * within)

    def rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
        return with_share(dispersion["hu"], 0.0, amounts.rng(eta, dispersion, generator), generator)

    name, own = f"hurdle_{amounts.name}", amounts.parameters[0].name
    return Family(
        name=name,
        link=amounts.link,
        aliases=(),
        parameters=(*amounts.parameters, HU),
        integer=False,
        support=lambda y: (y >= 0) & np.isfinite(y),
        support_text="0 and positive numbers",
        eta_units=lambda y, given: amounts.eta_units(*_above(y, given)),
        mean=mean,
        log_lik=log_lik,
        rng=rng,
        density=f"{name}_lpdf({{y}} | {{eta}}, {{{own}}}, {{hu}})",
        variance=variance,
        stan_rng=f"{name}_rng({{eta}}, {{{own}}}, {{hu}})",
        density_functions=("shares.stanfunctions", f"{name}.stanfunctions"),
        by_row=True,
        predicted=Predicted(
            amounts.predicted.equation.replace("]", " | y > 0]"),
            f"{amounts.predicted.words} above 0",
        ),
    )


def _above(y: Array, given: Given) -> tuple[Array, Given]:
    """Return the amounts that are not 0, with what is given of them."""
    above = y > 0
    return y[above], {name: values[above] for name, values in given.items()}


HURDLE_GAMMA = _hurdle(GAMMA)
HURDLE_LOGNORMAL = _hurdle(LOGNORMAL)
