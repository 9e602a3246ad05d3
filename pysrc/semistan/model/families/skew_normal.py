"""Real responses with a skew normal distribution (Azzalini, 1985, Scand. J. Statist. 12).

As in brms, eta is the mean and sigma the standard deviation; alpha is the slant, 0 of a normal
distribution. With delta = alpha / sqrt(1 + alpha^2),

    omega = sigma / sqrt(1 - 2 delta^2 / pi),    xi = eta - omega delta sqrt(2 / pi)
    p(y) = 2 / omega phi(z) Phi(alpha z),        z = (y - xi) / omega

At alpha = 0 the likelihood has no slope in alpha, whatever the responses are, and on the wrong side
of it the way back is flat. Training starts at the skewness of the residuals, by moments; the climb
to a mode starts on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.common import log_Phi, mean_and_sd
from semistan.model.families.family import SIGMA, Dispersion, Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

MOST_SKEWED = 0.95  # of a skew normal distribution; its limit is 0.995


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    sigma, alpha = dispersion["sigma"], dispersion["alpha"]
    shift = alpha / (1 + alpha**2).sqrt() * math.sqrt(2 / math.pi)  # of the mean, over omega
    z = (y - eta) / sigma * (1 - shift**2).sqrt() + shift
    log_omega = sigma.log() - 0.5 * (-(shift**2)).log1p()
    return 0.5 * math.log(2 / math.pi) - log_omega - 0.5 * z**2 + log_Phi(alpha * z)


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    alpha = np.broadcast_to(dispersion["alpha"], eta.shape)
    delta = alpha / np.sqrt(1 + alpha**2)
    half, other = generator.standard_normal((2, *eta.shape))
    z = delta * np.abs(half) + np.sqrt(1 - delta**2) * other
    shift = delta * math.sqrt(2 / math.pi)
    return np.asarray(eta + dispersion["sigma"] * (z - shift) / np.sqrt(1 - shift**2))


def starts(residuals: Array) -> tuple[dict[str, float], ...]:
    """Return the slant, at least 1, whose skewness is that of residuals, and its opposite."""
    z = residuals - residuals.mean()
    skewness = float((z**3).mean() / (z**2).mean() ** 1.5)
    root = min(abs(skewness), MOST_SKEWED) ** (2 / 3)
    square = math.pi / 2 * root / (root + ((4 - math.pi) / 2) ** (2 / 3))  # of delta
    alpha = math.copysign(max(1.0, math.sqrt(square / (1 - square))), skewness)
    return {"alpha": alpha}, {"alpha": -alpha}


SKEW_NORMAL = Family(
    name="skew_normal",
    link="identity",
    aliases=(),
    parameters=(
        SIGMA,
        Dispersion(
            "alpha",
            "slant: skewed to the right above 0",
            "normal(0, 4)",
            start=0.0,
            link="identity",
        ),
    ),
    integer=False,
    support=np.isfinite,
    support_text="finite numbers",
    eta_units=mean_and_sd,
    starts=starts,
    mean=lambda eta, _: eta,
    log_lik=_log_lik,
    rng=_rng,
    density="skew_normal_mean_lpdf({y} | {eta}, {sigma}, {alpha})",
    variance=lambda eta, disp: disp["sigma"] ** 2 + 0 * eta,
    stan_rng="skew_normal_mean_rng({eta}, {sigma}, {alpha})",
    density_functions=("log_Phi.stanfunctions", "skew_normal.stanfunctions"),
    by_row=True,
)
