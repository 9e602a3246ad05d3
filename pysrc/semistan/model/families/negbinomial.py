"""Counts whose variance is mean + mean^2 / shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.common import counts, is_count, log_of_mean
from semistan.model.families.family import SHAPE, Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    shape = dispersion["shape"]
    total = shape.log().logaddexp(eta)
    ways = (y + shape).lgamma() - shape.lgamma() - (y + 1).lgamma()
    return ways + y * (eta - total) + shape * (shape.log() - total)


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    """Draw counts whose log mean varies by a gamma variable of mean 1."""
    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    with np.errstate(divide="ignore"):
        varied = np.log(generator.gamma(shape, 1 / shape))
    return counts(eta + varied, {}, generator)


NEGBINOMIAL = Family(
    name="negbinomial",
    link="log",
    aliases=("neg_binomial_2", "negative_binomial"),
    parameters=(SHAPE,),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, _: np.exp(eta),
    log_lik=_log_lik,
    rng=_rng,
    density="neg_binomial_2_log_lpmf({y} | {eta}, {shape})",
    stan_rng="poisson_log_safe_rng({eta} + log(gamma_rng({shape}, {shape})))",
    glm="neg_binomial_2_log_glm_lpmf",
    variance=lambda eta, disp: np.exp(eta) + np.exp(2 * eta) / disp["shape"],
    stan_functions=("poisson_log_safe_rng.stanfunctions",),
)
