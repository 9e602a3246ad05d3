"""Positive times with a Weibull distribution, whose hazard rises (shape > 1) or falls (shape < 1).

    S(t) = exp(-(t / scale)^shape),    mean = exp(eta) = scale gamma(1 + 1 / shape)

As in brms, eta is the predictor of the mean. Coefficients are those of an accelerated failure time
model: exp(b) multiplies every quantile of the time, and exp(-b shape) the hazard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT, log_of_mean
from semistan.model.families.family import Dispersion, Family
from semistan.model.families.tails import hazard_tails

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_hazard(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log of the cumulative hazard at y."""
    shape = dispersion["shape"]
    return shape * (y.log() - eta + (1 + 1 / shape).lgamma())


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    log_hazard = _log_hazard(y, eta, dispersion)
    hazard = log_hazard.clamp(max=LARGEST_EXPONENT).exp()
    return dispersion["shape"].log() - y.log() + log_hazard - hazard


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    from scipy.special import gammaln

    inverse = 1 / dispersion["shape"]
    ratio = gammaln(1 + 2 * inverse) - 2 * gammaln(1 + inverse)
    return np.asarray(np.exp(2 * eta) * np.expm1(ratio))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    from scipy.special import gammaln

    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    return np.asarray(np.exp(eta - gammaln(1 + 1 / shape)) * generator.weibull(shape))


WEIBULL = Family(
    name="weibull",
    link="log",
    aliases=(),
    parameters=(
        Dispersion("shape", "shape: above 1 the hazard rises, below it falls", "lognormal(0, 1)"),
    ),
    integer=False,
    support=lambda y: (y > 0) & np.isfinite(y),
    support_text="positive numbers",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=_log_lik,
    rng=_rng,
    density="weibull_lpdf({y} | {shape}, exp({eta} - lgamma(1 + inv({shape}))))",
    variance=_variance,
    tails=hazard_tails("weibull", _log_hazard, "{eta}, {shape}"),
    stan_rng="weibull_rng({shape}, exp({eta} - lgamma(1 + inv({shape}))))",
)
