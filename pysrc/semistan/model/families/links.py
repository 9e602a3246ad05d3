"""Links besides the default one of a family, as a table of frozen records.

A family's record works on the scale of its default link: a logit for probabilities, the mean itself
for gaussian. Another link is a map to that scale,

    default(eta) = logit(p) = log p - log(1 - p),    p = Phi(eta), 1 - exp(-exp(eta)), ...

computed from both logarithms, so that neither tail is lost, and everything else stays the record's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT, SMALL_RATE, Given, log_Phi

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Link:
    """A link that is not a family's default one.

    Attributes
    ----------
    name : str
        Its name in R.
    default : str
        The default link of the families that can have it.
    to_default : callable
        Maps eta to the scale of the default link, in NumPy.
    tensor : callable
        The same in torch.
    stan : tuple of str
        The name of a vector on the default link's scale, and how it is computed from ``eta``.
    units : callable
        Maps location, scale and offsets (N,) of the default link's predictor, without offsets, to
        location and scale of eta.
    stan_functions : tuple of str
        Files of ``stan/`` that ``stan`` needs.
    in_units_of_y : bool
        Whether a residual standard deviation is in units of y, and these are not those of eta.
    """

    name: str
    default: str
    to_default: Callable[[Array], Array]
    tensor: Callable[[Tensor], Tensor]
    stan: tuple[str, str]
    units: Callable[[float, float, Array], tuple[float, float]]
    stan_functions: tuple[str, ...] = ()
    in_units_of_y: bool = False


def _probit(eta: Array) -> Array:
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(eta) - log_ndtr(-eta))


def _probit_tensor(eta: Tensor) -> Tensor:
    logit_p: Tensor = log_Phi(eta) - log_Phi(-eta)
    return logit_p


def _cloglog(eta: Array) -> Array:
    """Return log(exp(t) - 1), t = exp(eta)."""
    t = np.exp(np.clip(eta, SMALL_RATE, LARGEST_EXPONENT))
    return np.where(eta < SMALL_RATE, eta, t + np.log(-np.expm1(-t)))


def _cloglog_tensor(eta: Tensor) -> Tensor:
    t = eta.clamp(SMALL_RATE, LARGEST_EXPONENT).exp()
    return torch.where(eta < SMALL_RATE, eta, t + (-(-t).expm1()).log())


def _cauchit(eta: Array) -> Array:
    return np.log(np.arctan2(1.0, -eta)) - np.log(np.arctan2(1.0, eta))


def _cauchit_tensor(eta: Tensor) -> Tensor:
    one = torch.ones_like(eta)
    return torch.atan2(one, -eta).log() - torch.atan2(one, eta).log()


def _probit_units(logit: float, _: float, offsets: Array) -> tuple[float, float]:
    from scipy.special import expit, ndtri

    return float(ndtri(expit(logit)) - offsets.mean()), 1.0


def _cloglog_units(logit: float, _: float, offsets: Array) -> tuple[float, float]:
    return float(np.log(np.logaddexp(0, logit)) - offsets.mean()), 1.0


def _cauchit_units(logit: float, _: float, offsets: Array) -> tuple[float, float]:
    return math.tan(math.pi / 2 * math.tanh(logit / 2)) - float(offsets.mean()), 1.0


def _log_units(mean: float, sd: float, offsets: Array) -> tuple[float, float]:
    """Return the log mean, and the coefficient of variation, with which log y varies, up to 1."""
    if not mean > 0:
        raise InputError(
            f"the log link needs a response with a positive mean, got {mean:g}; use the link "
            "identity"
        )
    exposure = np.exp(offsets - offsets.max()).mean()
    return float(np.log(mean) - np.log(exposure) - offsets.max()), min(1.0, sd / mean)


LINKS: tuple[Link, ...] = (
    Link(
        name="probit",
        default="logit",
        to_default=_probit,
        tensor=_probit_tensor,
        stan=("logit_p", "probit_to_logit(eta)"),
        units=_probit_units,
        stan_functions=("log_Phi.stanfunctions", "probit.stanfunctions"),
    ),
    Link(
        name="cloglog",
        default="logit",
        to_default=_cloglog,
        tensor=_cloglog_tensor,
        stan=("logit_p", "cloglog_to_logit(eta)"),
        units=_cloglog_units,
        stan_functions=("cloglog.stanfunctions",),
    ),
    Link(
        name="cauchit",
        default="logit",
        to_default=_cauchit,
        tensor=_cauchit_tensor,
        stan=("logit_p", "cauchit_to_logit(eta)"),
        units=_cauchit_units,
        stan_functions=("cauchit.stanfunctions",),
    ),
    Link(
        name="log",
        default="identity",
        to_default=np.exp,
        tensor=lambda eta: eta.exp(),
        stan=("mu", "exp(eta)"),
        units=_log_units,
        in_units_of_y=True,
    ),
)


def linked_units(
    link: Link, units: Callable[[Array, Given], tuple[float, float]], y: Array, given: Given
) -> tuple[float, float]:
    """Return the units of a predictor with a link, from those under the default one."""
    rest = {name: values for name, values in given.items() if name != "offsets"}
    return link.units(*units(y, rest), given.get("offsets", np.zeros(1)))


def refuse_link(name: str, link: str, known: tuple[str, ...]) -> None:
    """Refuse a link that a family does not have."""
    raise InputError(f"family {name} has no link '{link}'; it has {', '.join(known)}")
