"""Numbers of successes in known numbers of trials, whose probability varies by a beta distribution.

Its mean is expit(eta) and its precision is the sum of its two parameters, brms's phi, so that the
variance is that of a binomial response times (precision + trials) / (precision + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.beta import PRECISION, beta_rng
from semistan.model.families.common import (
    LARGE_SHAPE,
    expit,
    is_count,
    log_rising,
    logit_of_mean,
)
from semistan.model.families.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_rising(log_a: Tensor, y: Tensor) -> Tensor:
    """Return log(gamma(a + y) / gamma(a)) - y log(a), finite where a underflows."""
    a, some, far = log_a.exp(), y > 0, log_a > math.log(LARGE_SHAPE)
    near = torch.where(far, LARGE_SHAPE, a)
    above = (near + torch.where(some, y, 1)).lgamma() - (1 + near).lgamma() + (1 - y) * log_a
    return torch.where(far, log_rising(torch.where(far, a, LARGE_SHAPE), y), some * above)


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    n, precision = dispersion["trials"], dispersion["precision"].log()
    log_p, log_q = (functional.logsigmoid(sign * eta) for sign in (1, -1))
    ways = (n + 1).lgamma() - (y + 1).lgamma() - (n - y + 1).lgamma()
    varied = _log_rising(precision + log_p, y) + _log_rising(precision + log_q, n - y)
    return ways + y * log_p + (n - y) * log_q + varied - _log_rising(precision, n)


def _variance(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    n, precision = dispersion["trials"], dispersion["precision"]
    return np.asarray(n * expit(eta) * expit(-eta) * (precision + n) / (precision + 1))


def _rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    n = np.broadcast_to(dispersion["trials"], eta.shape).astype(np.int64)
    return generator.binomial(n, beta_rng(eta, dispersion, generator)).astype(float)


BETA_BINOMIAL = Family(
    name="beta_binomial",
    link="logit",
    aliases=(),
    parameters=(PRECISION,),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=logit_of_mean,
    mean=lambda eta, disp: disp["trials"] * expit(eta),
    log_lik=_log_lik,
    rng=_rng,
    density="beta_binomial_lpmf({y} | {trials}, {precision} {times} inv_logit({eta}), "
    "{precision} {times} inv_logit(-{eta}))",
    variance=_variance,
    stan_rng="beta_binomial_rng({trials}, {precision} * inv_logit({eta}), "
    "{precision} * inv_logit(-{eta}))",
    given=("trials",),
)
