"""The R2D2 prior, ``b = "R2D2()"``: a prior of what the coefficients explain together.

It says how much of the variance they explain, and shares that out among them (Zhang, Naughton,
Bondell and Reich, 2022, JASA 117; Aguilar and Buerkner, 2023, Electron. J. Stat. 17), with brms's
arguments and defaults:

    theta_j = zb_j sigma / sd(x_j) sqrt(R2 / (1 - R2) share_j),    zb_j ~ normal(0, 1),
    R2 = R2D2_R2 ~ beta(mean_R2 prec_R2, (1 - mean_R2) prec_R2),
    share ~ dirichlet(cons_D2, ..., cons_D2), as R2D2_share over its sum, R2D2_share_j ~ gamma

so that the variance of x' theta, for columns that are not correlated, is R2 / (1 - R2) sigma^2. In
families without a residual standard deviation sigma is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.parameter import (
    POSITIVE,
    STANDARD_NORMAL,
    UNIT_INTERVAL,
    OwnPrior,
    Parameter,
    Shape,
)
from semistan.model.priors.density import Density, Joint, summed
from semistan.model.stan_text import WIDTH, call

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "prior_b_"
ARGUMENTS = ["R2D2_R2", "R2D2_share", "{residual}theta_scale / eta_scale"]
THETA = "vector[P] theta  // structured coefficients\n" + call(
    "  = r2d2", ["zb", *ARGUMENTS], ";", WIDTH - 2
)
SPREAD = f"r2d2({', '.join(['rep_vector(1, P)', *ARGUMENTS])})"
INSIDE = 0.02, 0.98  # where R2 starts


def _parameters(data: Mapping[str, Any], P: int) -> tuple[Parameter, ...]:
    """Return what is sampled in place of P coefficients; ``data`` has the prior's arguments."""
    mean, precision, concentration = (
        float(data.get(f"{PREFIX}{name}", default))
        for name, default in zip(R2D2.arguments, R2D2.defaults, strict=True)
    )
    return (
        Parameter("zb", "standardised coefficients", (P,), ("P",), prior=STANDARD_NORMAL),
        Parameter(
            "R2D2_R2", "share of the variance that the coefficients explain", kind=UNIT_INTERVAL,
            prior=_beta(mean * precision, (1 - mean) * precision),
        ),
        Parameter(
            "R2D2_share", "what each has of it, over their sum", (P,), ("P",), POSITIVE,
            prior=_gamma(concentration),
        ),
    )  # fmt: skip


def _unit(values: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
    """Return sigma over the standard deviation of each column."""
    return values.get("sigma", data["eta_scale"]) * data["theta_scale"] / data["eta_scale"]


def _theta(values: Mapping[str, Tensor], data: Mapping[str, Any]) -> Tensor:
    """Return theta (P,) in the user's units, given the parameters by name."""
    like = values["zb"]
    units = {name: like.new_tensor(data[name]) for name in ("eta_scale", "theta_scale")}
    R2, share = values["R2D2_R2"], values["R2D2_share"]
    variance = R2 / (1 - R2) * share / share.sum(dim=-1, keepdim=True)
    theta: Tensor = like * _unit(values, units) * variance.sqrt()
    return theta


def _start(theta: Array, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that make theta, each within its own scale."""
    square = (theta / _unit(data, data)) ** 2
    explained = square.sum()
    R2 = float(np.clip(explained / (1 + explained), *INSIDE))
    share = square / max(explained, 1e-300) + 1 / len(theta)
    variance = R2 / (1 - R2) * share / share.sum()
    zb = theta / _unit(data, data) / np.sqrt(variance)
    return {"zb": zb, "R2D2_R2": R2, "R2D2_share": share}


def _beta(alpha: float, beta: float) -> OwnPrior:
    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        return generator.beta(alpha, beta, (size, *shape))

    mean, precision = f"{PREFIX}mean_R2", f"{PREFIX}prec_R2"
    arguments = f"{mean} * {precision}, (1 - {mean}) * {precision}"
    return OwnPrior(
        lambda name: f"beta_lpdf({name} | {arguments})", summed("Beta", alpha, beta), draw
    )


def _gamma(concentration: float) -> OwnPrior:
    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        return generator.gamma(concentration, size=(size, *shape))

    log_density = summed("Gamma", concentration, 1.0)
    return OwnPrior(lambda name: f"gamma_lpdf({name} | {PREFIX}cons_D2, 1)", log_density, draw)


R2D2 = Density(
    "R2D2", ("mean_R2", "prec_R2", "cons_D2"), (), defaults=(0.5, 2, 0.5), shares=("mean_R2",),
    joint=Joint(
        _parameters, _theta, _start, THETA, ("r2d2.stanfunctions",), "zb", SPREAD,
        {
            "mean_R2": "mean of R2", "prec_R2": "precision of R2",
            "cons_D2": "concentration of the shares",
        },
        ("R2D2_R2",),
    ),
)  # fmt: skip
