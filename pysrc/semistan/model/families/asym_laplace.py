"""Quantiles of a real response, by the asymmetric Laplace distribution with a smooth kink.

eta is the quantile of y with probability q, the parameter ``quantile``, which is mostly fixed:
``y ~ x + nn(u), quantile = 0.9``. With z = (y - eta) / sigma and the smoothing lambda,

    p(y) = exp((1 - q) z) / (1 + exp(z / lambda))^lambda / (lambda sigma B),
    B = gamma(lambda (1 - q)) gamma(lambda q) / gamma(lambda)

As lambda goes to 0, -log p becomes the check loss of Koenker and Bassett (1978, Econometrica 46),
max(q z, (q - 1) z), and p the asymmetric Laplace density of Yu and Moyeed (2001, Statistics and
Probability Letters 54) and of brms. Its kink at each response is what Hamiltonian trajectories
stumble over; the smooth one is the density of Fasiolo, Wood, Zaffran, Nedellec and Goude (2021,
JASA 116). It takes eta off the quantile by about lambda^2, and is narrower the more rows there are:
lambda^3 = 36 / N, at most 1, so that this stays within the standard error of eta.

It is a working likelihood: data rarely follow it, and intervals are those of a model in which they
do. As in brms, predictions of the mean are of the mean of y, and those of the linear predictor are
of the quantile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.common import log_gamma, mean_and_sd
from semistan.model.families.family import (
    SIGMA,
    Constant,
    Dispersion,
    Family,
    Given,
    Predicted,
)

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

NAME = "asym_laplace"
ROWS = 36.0  # that have a smoothing of 1
SCALE = replace(SIGMA, text="scale: the mean check loss")
QUANTILE = Dispersion(
    "quantile", "probability below the linear predictor", "beta(1, 1)", start=0.5, link="logit"
)


def log_lik(smoothing: float, y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    """Return the log density of responses whose quantile is eta."""
    sigma, q = dispersion["sigma"], dispersion["quantile"]
    z = (y - eta) / sigma
    size = torch.as_tensor(smoothing, dtype=q.dtype)
    below, above = size * (1 - q), size * q
    log_beta = below.lgamma() + above.lgamma() - size.lgamma()
    kink = smoothing * functional.logsigmoid(-z / smoothing)
    return (1 - q) * z + kink - sigma.log() - size.log() - log_beta


def rng(
    smoothing: float, eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    """Draw responses: smoothing times sigma times the logit of a beta variable beside eta."""
    q = np.broadcast_to(dispersion["quantile"], eta.shape)
    above, below = log_gamma(generator, smoothing * np.stack([1 - q, q]))
    return np.asarray(eta + smoothing * dispersion["sigma"] * (above - below))


def mean(smoothing: float, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the mean of y, which is eta where the quantile is the median."""
    from scipy.special import digamma

    q = dispersion["quantile"]
    shift = digamma(smoothing * (1 - q)) - digamma(smoothing * q)
    return np.asarray(eta + smoothing * dispersion["sigma"] * shift)


def variance(smoothing: float, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the variance of y, which is the same at each eta."""
    from scipy.special import polygamma

    q = dispersion["quantile"]
    of_logit = polygamma(1, smoothing * (1 - q)) + polygamma(1, smoothing * q)
    return np.asarray((smoothing * dispersion["sigma"]) ** 2 * of_logit + 0 * eta)


def of_smoothing(smoothing: float) -> Family:
    """Return the record with a smoothing, in sigmas."""
    return Family(
        name=NAME,
        link="identity",
        aliases=(),
        parameters=(SCALE, QUANTILE),
        integer=False,
        support=np.isfinite,
        support_text="finite numbers",
        eta_units=mean_and_sd,
        mean=partial(mean, smoothing),
        log_lik=partial(log_lik, smoothing),
        rng=partial(rng, smoothing),
        density="asym_laplace_lpdf({y} | {eta}, {sigma}, {quantile}, smoothing)",
        stan_rng="asym_laplace_rng({eta}, {sigma}, {quantile}, smoothing)",
        density_functions=("asym_laplace.stanfunctions",),
        by_row=True,
        variance=partial(variance, smoothing),
        text=f"{NAME}({smoothing:g})",
        predicted=Predicted("Q[y]", "quantile of {y}"),
        constants=(
            Constant("smoothing", "real", "width of the kink, in sigmas", np.array(smoothing)),
        ),
    )


def _learn(y: Array, _: Given) -> Family:
    """Return the record with the smoothing for so many rows."""
    return of_smoothing(float(f"{min(1.0, (ROWS / len(y)) ** (1 / 3)):.3g}"))


ASYM_LAPLACE = replace(of_smoothing(1.0), text="", learn=_learn)


def read(options: list[str]) -> Family:
    """Return the record of the smoothing in brackets, or one that has it from the training rows."""
    rest = [option for option in options if option != ASYM_LAPLACE.link]
    if not rest:
        return ASYM_LAPLACE
    try:
        (smoothing,) = map(float, rest)
    except ValueError:
        smoothing = np.nan
    if not 1e-4 <= smoothing <= 100:
        raise InputError(
            f"family {NAME} takes the width of its kink in sigmas, from 0.0001 to 100, as "
            f"{NAME}(0.1), got '{', '.join(options)}'; without, it is narrower the more rows "
            "there are"
        )
    return of_smoothing(smoothing)
