"""Numbers of successes in known numbers of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import functional
from semistan.model.families.common import expit, is_count, logit_of_mean
from semistan.model.families.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    n = dispersion["trials"]
    ways = (n + 1).lgamma() - (y + 1).lgamma() - (n - y + 1).lgamma()
    return ways + y * functional.logsigmoid(eta) + (n - y) * functional.logsigmoid(-eta)


BINOMIAL = Family(
    name="binomial",
    link="logit",
    aliases=(),
    parameters=(),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=logit_of_mean,
    mean=lambda eta, disp: disp["trials"] * expit(eta),
    log_lik=_log_lik,
    rng=lambda eta, disp, generator: generator.binomial(
        np.broadcast_to(disp["trials"], eta.shape).astype(np.int64), expit(eta)
    ).astype(float),
    density="binomial_by_logit_lpmf({y} | {trials}, {eta})",
    stan_rng="binomial_rng({trials}, inv_logit({eta}))",
    has_log_lik=True,
    given=("trials",),
    variance=lambda eta, disp: disp["trials"] * expit(eta) * expit(-eta),
    links=("probit", "cloglog", "cauchit"),
    density_functions=("binomial_by_logit.stanfunctions",),
    by_row=True,
)
