"""Responses that are 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from semistan.lazy import functional
from semistan.model.families.common import expit, logit_of_mean
from semistan.model.families.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def _log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return functional.logsigmoid((2 * y - 1) * eta)


BERNOULLI = Family(
    name="bernoulli",
    link="logit",
    aliases=(),
    parameters=(),
    integer=True,
    support=lambda y: (y == 0) | (y == 1),
    support_text="0 or 1",
    eta_units=logit_of_mean,
    mean=lambda eta, _: expit(eta),
    log_lik=_log_lik,
    rng=lambda eta, _, generator: (generator.random(eta.shape) < expit(eta)).astype(float),
    density="bernoulli_logit_lpmf({y} | {eta})",
    stan_rng="bernoulli_logit_rng({eta})",
    glm="bernoulli_logit_glm_lpmf",
    has_log_lik=True,
    links=("probit", "cloglog", "cauchit"),
    binary=True,
    variance=lambda eta, _: expit(eta) * expit(-eta),
    cumulant="cumulant_bernoulli.stanfunctions",
)
