"""Tails of normal responses, on their own scale or another, and of times with a hazard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families import normal_inside
from semistan.model.families.common import LARGEST_EXPONENT, log_Phi
from semistan.model.families.family import Tails
from semistan.model.families.shares import log_not_zero

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Parameters = Mapping[str, Array]
FAR_HAZARD = 300.0  # exp(-H) of it has all digits


def normal_tails(
    name: str,
    mean: Callable[[Array, Parameters, Array, Array], Array],
    *,
    least: float = -np.inf,
    to_normal: Callable[[Tensor], Tensor] = lambda y: y,
    from_normal: Callable[[Array], Array] = lambda x: x,
) -> Tails:
    """Return the tails of a response that is normal on a scale.

    Parameters
    ----------
    name : str
        The family's, which begins that of its Stan density.
    mean, least
        As of ``Tails``.
    to_normal, from_normal : callable
        Map responses to that scale, in torch, and back.
    """

    def z(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
        return (to_normal(y) - eta) / dispersion["sigma"]

    def rng(
        eta: Array, disp: Parameters, lb: Array, ub: Array, generator: np.random.Generator
    ) -> Array:
        sigma = disp["sigma"]
        lower, upper = (to_normal(torch.tensor(np.maximum(x, least))).numpy() for x in (lb, ub))
        z = normal_inside.draw((lower - eta) / sigma, (upper - eta) / sigma, generator)
        return from_normal(eta + sigma * z)

    own = () if name == "gaussian" else (f"{name}_inside.stanfunctions",)
    inside = ("log_Phi.stanfunctions", "censored.stanfunctions", "gaussian_inside.stanfunctions",
              *own)  # fmt: skip
    own = () if name == "gaussian" else (f"{name}_censored.stanfunctions",)
    own_rng = () if name == "gaussian" else (f"{name}_inside_rng.stanfunctions",)
    return Tails(
        log_below=lambda y, eta, values: log_Phi(z(y, eta, values)),
        log_above=lambda y, eta, values: log_Phi(-z(y, eta, values)),
        least=least,
        density=f"{name}_censored_lpdf({{y}} | {{eta}}, {{sigma}}, {{cens}}, {{y2}})",
        files=(*inside, "gaussian_censored.stanfunctions", *own),
        inside=f"{name}_inside({{lb}}, {{ub}}, {{eta}}, {{sigma}})",
        inside_rng=f"{name}_inside_rng({{lb}}, {{ub}}, {{eta}}, {{sigma}})",
        inside_files=inside,
        rng_files=("gaussian_inside_rng.stanfunctions", *own_rng),
        rng=rng,
        mean=mean,
    )


def hazard_tails(
    name: str, log_hazard: Callable[[Tensor, Tensor, Values], Tensor], arguments: str
) -> Tails:
    """Return the tails of a time with mean exp(eta), P(Y > y) = exp(-H(y)), H(y) ~ y^shape.

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

    inside = ("log_not_zero.stanfunctions", "weibull_inside.stanfunctions")
    own = () if name == "weibull" else (f"{name}_censored.stanfunctions",)
    of_inside = arguments if name == "weibull" else f"{arguments}, 1"
    return Tails(
        log_below=lambda y, eta, values: log_not_zero(log_hazard(y, eta, values)),
        log_above=log_above,
        least=0.0,
        density=f"{name}_censored_lpdf({{y}} | {arguments}, {{cens}}, {{y2}})",
        files=(*inside, "weibull_censored.stanfunctions", *own),
        inside=f"weibull_inside({{lb}}, {{ub}}, {of_inside})",
        inside_rng=f"weibull_inside_rng({{lb}}, {{ub}}, {of_inside})",
        inside_files=inside,
        rng_files=("weibull_inside_rng.stanfunctions",),
        rng=_time_inside,
        mean=_mean_time,
    )


def _hazards(
    eta: Array, dispersion: Parameters, lb: Array, ub: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the shape, log scale, and the cumulative hazards at the bounds."""
    from scipy.special import gammaln

    shape = np.asarray(dispersion.get("shape", 1.0))
    log_scale = eta - gammaln(1 + 1 / shape)
    with np.errstate(divide="ignore", over="ignore"):
        at = [np.exp(shape * (np.log(np.maximum(x, 0)) - log_scale)) for x in (lb, ub)]
    return shape, log_scale, at[0], at[1]


def _time_inside(
    eta: Array, dispersion: Parameters, lb: Array, ub: Array, generator: np.random.Generator
) -> Array:
    """Draw times, whose cumulative hazard is that of an exponential time."""
    shape, log_scale, start, end = _hazards(eta, dispersion, lb, ub)
    u = generator.random(np.broadcast_shapes(np.shape(start), np.shape(end)))
    hazard = start - np.log1p(u * np.expm1(start - end))
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(log_scale + np.log(hazard) / shape))


def _mean_time(eta: Array, dispersion: Parameters, lb: Array, ub: Array) -> Array:
    """Return mean times by incomplete gamma functions; far out, by the mean hazard."""
    from scipy.special import gammainc, gammaincc

    shape, log_scale, start, end = _hazards(eta, dispersion, lb, ub)
    a = 1 + 1 / shape
    partial = np.where(
        start < 1, gammainc(a, end) - gammainc(a, start), gammaincc(a, start) - gammaincc(a, end)
    )
    grows = np.minimum(end - start, LARGEST_EXPONENT)
    far = start > FAR_HAZARD
    share = np.where(far, 1.0, np.exp(-np.where(far, 0, start)) * -np.expm1(-grows))
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.exp(eta) * partial / share
        hazard = start + 1 - np.where(grows > 0, grows / np.expm1(grows), 1.0)
        return np.asarray(np.where(far, np.exp(log_scale + np.log(hazard) / shape), near))
