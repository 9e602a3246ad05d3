"""The cumulative model of ordered categories (McCullagh, 1980, JRSS B 42).

The category is the interval between thresholds in which eta plus noise falls, F being the logistic
or the standard normal distribution function of the noise, so that the thresholds are in order:

    P(y <= k) = F(tau_k - eta),    tau_k - tau_{k-1} = gap_k > 0,    k < K
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.family import Dispersion, Family, Predicted
from semistan.model.families.noise import NOISE, Noise
from semistan.model.families.ordinal import (
    gap_names,
    ordinal_family,
    picked,
    share_of_first,
    thresholds,
)

if TYPE_CHECKING:
    from torch import Tensor


def log_lik(
    noise: Noise, K: int, y: Tensor, eta: Tensor, dispersion: Mapping[str, Tensor]
) -> Tensor:
    """Return log P(y) of each row; ``dispersion`` has the gaps."""
    tau = thresholds(dispersion, K)
    inner = (y > 1) & (y < K)
    lower = picked(y, dict(enumerate(tau, start=2)))
    upper = picked(y, dict(enumerate(tau, start=1)))
    width = torch.where(
        inner, picked(y, {k: dispersion[name] for k, name in enumerate(gap_names(K), start=2)}), 1.0
    )
    a = torch.where(inner, lower - eta, -0.5)
    inside = noise.log_between(a, torch.where(inner, upper - eta, 0.5), width)
    outside = noise.log_cdf(torch.where(y == 1, -eta, eta - lower))
    return torch.where(inner, inside, outside)


def mean(noise: Noise, K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the expected category, 1 + P(y > 1) + ... + P(y > K - 1)."""
    tau = thresholds(dispersion, K)
    return np.asarray(1 + sum(noise.cdf(eta - each) for each in tau))


def probabilities(noise: Noise, K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return P(y = k) of each category, shape (..., K)."""
    tau = thresholds(dispersion, K)
    below = np.stack(
        np.broadcast_arrays(np.zeros_like(eta), *(noise.cdf(each - eta) for each in tau),
                            np.ones_like(eta)),
        axis=-1,
    )  # fmt: skip
    return np.diff(below, axis=-1)


def rng(
    noise: Noise,
    K: int,
    eta: Array,
    dispersion: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw a category for each element of eta."""
    tau = thresholds(dispersion, K)
    latent = eta + noise.draw(generator, eta.shape)
    return np.asarray(1.0 + sum((latent > each).astype(float) for each in tau))


NAME, LINKS = "cumulative", tuple(NOISE)
GAP = Dispersion("gap", "", "lognormal(0, 1)")  # 95% from 0.14 to 7.1; normal as NUTS moves it
CUMULATIVE_PROBIT = ("log_Phi.stanfunctions", "cumulative_probit.stanfunctions")


def of_categories(link: str, K: int) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet."""
    noise, probit = NOISE[link], link == "probit"
    density = "cumulative_probit_lpmf" if probit else "ordered_logistic_lpmf"
    return ordinal_family(
        NAME,
        link,
        K,
        GAP,
        eta_units=partial(share_of_first, link),
        mean=partial(mean, noise, K),
        log_lik=partial(log_lik, noise, K),
        rng=partial(rng, noise, K),
        density=density + "({y} | {eta}, tau)",
        stan_rng=f"ordered_{'probit' if probit else 'logistic'}_rng({{eta}}, tau)",
        density_functions=CUMULATIVE_PROBIT if probit else (),
        by_row=probit,
        probabilities=partial(probabilities, noise, K),
        predicted=Predicted(
            "{link} P[y > k]", "latent {y}", "a higher category, at each threshold"
        ),
    )
