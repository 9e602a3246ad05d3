"""Tails of normal responses, on their own scale or another, and of times with a hazard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from semistan.model.families.common import log_Phi
from semistan.model.families.family import Tails
from semistan.model.families.shares import LARGEST_EXPONENT, log_not_zero

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]


def normal_tails(name: str, scale: Callable[[Tensor], Tensor]) -> Tails:
    """Return the tails of a response that is normal on a scale.

    Parameters
    ----------
    name : str
        The family's, which begins that of its Stan density.
    scale : callable
        Maps responses to that scale.
    """

    def z(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
        return (scale(y) - eta) / dispersion["sigma"]

    own = () if name == "gaussian" else (f"{name}_censored.stanfunctions",)
    return Tails(
        log_below=lambda y, eta, values: log_Phi(z(y, eta, values)),
        log_above=lambda y, eta, values: log_Phi(-z(y, eta, values)),
        density=f"{name}_censored_lpdf({{y}} | {{eta}}, {{sigma}}, {{cens}}, {{y2}})",
        files=("log_Phi.stanfunctions", "censored.stanfunctions",
               "gaussian_censored.stanfunctions", *own),
    )  # fmt: skip


def hazard_tails(
    name: str, log_hazard: Callable[[Tensor, Tensor, Values], Tensor], arguments: str
) -> Tails:
    """Return the tails of a time, P(Y > y) = exp(-H(y)).

    Parameters
    ----------
    name : str
        The family's, which begins that of its Stan density.
    log_hazard : callable
        Maps ``(y, eta, dispersion)`` to log H(y), the cumulative hazard.
    arguments : str
        Of the Stan density, between y and how it is censored.
    """

    def log_above(y: Tensor, eta: Tensor, values: Values) -> Tensor:
        return -log_hazard(y, eta, values).clamp(max=LARGEST_EXPONENT).exp()

    own = () if name == "weibull" else (f"{name}_censored.stanfunctions",)
    return Tails(
        log_below=lambda y, eta, values: log_not_zero(log_hazard(y, eta, values)),
        log_above=log_above,
        density=f"{name}_censored_lpdf({{y}} | {arguments}, {{cens}}, {{y2}})",
        files=("log_not_zero.stanfunctions", "weibull_censored.stanfunctions", *own),
    )
