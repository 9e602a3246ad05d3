"""Response families as a table of frozen records; a new family is one record.

A record holds everything that depends on the family: link, support, units, likelihood,
random generation, and the lines of the Stan program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.network import Array

if TYPE_CHECKING:
    from torch import Tensor

    Dispersion = Mapping[str, Tensor]

LARGE_LOG_MEAN = math.log(1e9)  # as in poisson_log_safe_rng.stanfunctions


@dataclass(frozen=True, slots=True)
class Family:
    """One response distribution with its link.

    Attributes
    ----------
    name, link : str
        The family's and its link's name.
    aliases : tuple of str
        Other names by which users know it.
    dispersion : tuple of str
        Names of its positive dispersion parameters.
    integer : bool
        Whether the response is a whole number.
    support : callable
        Maps a response to a boolean array: which values are possible.
    support_text : str
        The support in words, for error messages.
    eta_units : callable
        Maps a response to the location and scale of the linear predictor, in whose units
        the network and the default priors work.
    mean : callable
        Inverse link: maps ``eta`` to ``mu``.
    log_lik : callable
        Maps torch tensors ``(y, eta, dispersion)`` to elementwise log densities.
    rng : callable
        Maps ``(eta, dispersion, numpy generator)`` to one response per element.
    glm : str
        Stan's GLM density.
    density, stan_rng : str
        Stan's density of one response, and its random generation, by ``eta`` and dispersion.
    stan_functions : tuple of str
        Files of ``stan/`` that ``stan_rng`` needs.
    """

    name: str
    link: str
    aliases: tuple[str, ...]
    dispersion: tuple[str, ...]
    integer: bool
    support: Callable[[Array], np.ndarray]
    support_text: str
    eta_units: Callable[[Array], tuple[float, float]]
    mean: Callable[[Array], Array]
    log_lik: Callable[[Tensor, Tensor, Dispersion], Tensor]
    rng: Callable[[Array, Mapping[str, Array], np.random.Generator], Array]
    glm: str
    density: str
    stan_rng: str
    stan_functions: tuple[str, ...] = ()


def _gaussian_log_lik(y: Tensor, eta: Tensor, dispersion: Dispersion) -> Tensor:
    sigma = dispersion["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)


def _poisson_log_lik(y: Tensor, eta: Tensor, _: Dispersion) -> Tensor:
    return y * eta - eta.exp() - (y + 1).lgamma()


def _bernoulli_log_lik(y: Tensor, eta: Tensor, _: Dispersion) -> Tensor:
    from torch.nn.functional import logsigmoid

    return logsigmoid((2 * y - 1) * eta)


def _poisson_rng(eta: Array, _: Mapping[str, Array], generator: np.random.Generator) -> Array:
    """Draw counts; NumPy stops near a mean of 1e19, the normal limit is used above 1e9."""
    large = eta > LARGE_LOG_MEAN
    counts = generator.poisson(np.exp(np.where(large, 0.0, eta))).astype(float)
    if large.any():
        with np.errstate(over="ignore"):
            mean = np.exp(eta[large])
        noise = np.exp(-0.5 * eta[large]) * generator.standard_normal(mean.shape)
        counts[large] = np.round(mean * (1 + noise))
    return counts


def _expit(eta: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -eta))


def _log_mean(y: Array) -> tuple[float, float]:
    return float(np.log(y.mean())), 1.0


def _logit_mean(y: Array) -> tuple[float, float]:
    return float(np.log(y.mean()) - np.log1p(-y.mean())), 1.0


FAMILIES: tuple[Family, ...] = (
    Family(
        name="gaussian",
        link="identity",
        aliases=("normal",),
        dispersion=("sigma",),
        integer=False,
        support=np.isfinite,
        support_text="finite numbers",
        eta_units=lambda y: (float(y.mean()), float(y.std(ddof=1))),
        mean=lambda eta: eta,
        log_lik=_gaussian_log_lik,
        rng=lambda eta, disp, generator: generator.normal(eta, disp["sigma"]),
        glm="normal_id_glm_lpdf",
        density="normal_lpdf",
        stan_rng="normal_rng",
    ),
    Family(
        name="poisson",
        link="log",
        aliases=(),
        dispersion=(),
        integer=True,
        support=lambda y: (y >= 0) & (y == np.floor(y)) & np.isfinite(y),
        support_text="counts 0, 1, 2, ...",
        eta_units=_log_mean,
        mean=np.exp,
        log_lik=_poisson_log_lik,
        rng=_poisson_rng,
        glm="poisson_log_glm_lpmf",
        density="poisson_log_lpmf",
        stan_rng="poisson_log_safe_rng",
        stan_functions=("poisson_log_safe_rng.stanfunctions",),
    ),
    Family(
        name="bernoulli",
        link="logit",
        aliases=(),
        dispersion=(),
        integer=True,
        support=lambda y: (y == 0) | (y == 1),
        support_text="0 or 1",
        eta_units=_logit_mean,
        mean=_expit,
        log_lik=_bernoulli_log_lik,
        rng=lambda eta, _, generator: (generator.random(eta.shape) < _expit(eta)).astype(float),
        glm="bernoulli_logit_glm_lpmf",
        density="bernoulli_logit_lpmf",
        stan_rng="bernoulli_logit_rng",
    ),
)


def family(name: str) -> Family:
    """Look up a family by its name or alias.

    Raises
    ------
    InputError
        If no family has this name.
    """
    for record in FAMILIES:
        if name == record.name or name in record.aliases:
            return record
    known = [alias for record in FAMILIES for alias in (record.name, *record.aliases)]
    raise InputError(f"unknown family '{name}'.{did_you_mean(name, known)}")


def check_response(record: Family, y: Array, name: str) -> None:
    """Refuse a response outside the family's support, or without variation.

    Raises
    ------
    InputError
        Naming the response, the first impossible value and its row.
    """
    bad = np.flatnonzero(~record.support(y))
    if bad.size:
        raise InputError(
            f"family {record.name} expects {record.support_text}, but response '{name}' is "
            f"{y[bad[0]]:g} in row {bad[0] + 1} ({bad.size} of {y.size} rows). "
            "Choose another family or mend the response."
        )
    if np.ptp(y) == 0:
        raise InputError(f"response '{name}' is constant ({y[0]:g}): there is nothing to explain")
