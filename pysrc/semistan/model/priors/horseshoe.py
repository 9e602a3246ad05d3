"""The regularised horseshoe, ``b = "horseshoe()"``: a prior of all coefficients together.

It is for many coefficients of which few matter (Piironen and Vehtari, 2017, Electron. J. Stat. 11),
with brms's arguments and defaults. scale_global is the expected ratio of those that matter to the
others, over sqrt(N); it is in the units of each coefficient, not of sigma.

    theta_j = zb_j / sqrt(1 / (tau lambda_j)^2 + 1 / c^2),    zb_j ~ normal(0, 1),
    tau = scale_global hs_global,    hs_global ~ student_t(df_global, 0, 1) above 0,
    lambda_j = hs_local_j ~ student_t(df, 0, 1) above 0,
    c^2 = scale_slab^2 hs_slab,    hs_slab ~ inv_gamma(df_slab / 2, df_slab / 2).

scale_global and scale_slab are those of the program's data, in the units of each coefficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.parameter import POSITIVE, STANDARD_NORMAL, OwnPrior, Parameter, Shape
from semistan.model.priors.density import Density, Joint, summed
from semistan.model.stan_text import WIDTH, call

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "prior_b_"
SCALES = ("hs_local", "hs_global * prior_b_scale_global", "sqrt(hs_slab) * prior_b_scale_slab")
THETA = "vector[P] theta  // structured coefficients\n" + call(
    "  = horseshoe", ["zb", *SCALES], ";", WIDTH - 2
)
SPREAD = f"horseshoe({', '.join(['rep_vector(1, P)', *SCALES])})"


def _parameters(data: Mapping[str, Any], P: int) -> tuple[Parameter, ...]:
    """Return what is sampled in place of P coefficients; ``data`` has the prior's arguments."""
    df, df_global, df_slab = (
        float(data.get(f"{PREFIX}{name}", 1.0)) for name in ("df", "df_global", "df_slab")
    )
    return (
        Parameter("zb", "standardised coefficients", (P,), ("P",), prior=STANDARD_NORMAL),
        Parameter(
            "hs_local", "lambda: scale of each coefficient", (P,), ("P",), POSITIVE,
            prior=_half_t(df, "hs_local", "df", " + P * log(2)"),
        ),
        Parameter(
            "hs_global", "tau: scale of all, over prior_b_scale_global", kind=POSITIVE,
            prior=_half_t(df_global, "hs_global", "df_global", " + log(2)"),
        ),
        Parameter(
            "hs_slab", "square of the largest scale, over prior_b_scale_slab^2", kind=POSITIVE,
            prior=_inverse_gamma(df_slab),
        ),
    )  # fmt: skip


def _theta(values: Mapping[str, Tensor], data: Mapping[str, Any]) -> Tensor:
    """Return theta (P,) in the user's units, given the parameters by name."""
    tau, c = (torch.as_tensor(data[f"{PREFIX}scale_{name}"]) for name in ("global", "slab"))
    scale = (values["hs_global"] * tau * values["hs_local"]).square().reciprocal()
    slab = (values["hs_slab"] * c.square()).reciprocal()
    return values["zb"] / (scale + slab).sqrt()


def _start(theta: Array, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that make theta, each within its own scale."""
    tau, c = data[f"{PREFIX}scale_global"], data[f"{PREFIX}scale_slab"]
    local = np.maximum(1, np.abs(theta) / tau)
    zb = theta * np.sqrt(1 / (tau * local) ** 2 + 1 / c**2)
    return {"zb": zb, "hs_local": local, "hs_global": 1.0, "hs_slab": 1.0}


def _half_t(df: float, name: str, argument: str, constant: str) -> OwnPrior:
    def log_density(value: Tensor) -> Tensor:
        total: Tensor = summed("StudentT", df)(value) + value.numel() * np.log(2)
        return total

    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        from scipy import stats

        drawn = stats.t(df).rvs(size=(size, *shape), random_state=generator)
        return np.asarray(np.abs(drawn))

    text = f"student_t_lpdf({name} | {PREFIX}{argument}, 0, 1){constant}"
    return OwnPrior(lambda _: text, log_density, draw)


def _inverse_gamma(df: float) -> OwnPrior:
    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        from scipy import stats

        prior = stats.invgamma(df / 2, scale=df / 2)
        return np.asarray(prior.rvs(size=(size, *shape), random_state=generator))

    text = f"inv_gamma_lpdf(hs_slab | {PREFIX}df_slab / 2, {PREFIX}df_slab / 2)"
    return OwnPrior(lambda _: text, summed("InverseGamma", df / 2, df / 2), draw)


HORSESHOE = Density(
    "horseshoe", ("df", "scale_global", "df_global", "scale_slab", "df_slab"),
    ("scale_global", "scale_slab"), defaults=(1, 1, 1, 2, 4),
    joint=Joint(
        _parameters, _theta, _start, THETA, ("horseshoe.stanfunctions",),
        "zb", SPREAD,
        {
            "scale_global": "scale of tau", "df_global": "degrees of freedom of tau",
            "scale_slab": "scale of c", "df_slab": "degrees of freedom of c",
        },
    ),
)  # fmt: skip
