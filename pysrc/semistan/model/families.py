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

    Values = Mapping[str, Tensor]

Given = Mapping[str, Array]
LARGE_LOG_MEAN = math.log(1e9)  # as in poisson_log_safe_rng.stanfunctions


@dataclass(frozen=True, slots=True)
class Dispersion:
    """One positive parameter of a response distribution beside the linear predictor.

    Attributes
    ----------
    name : str
        Its name in the program and the table.
    text : str
        What it is, in a few words.
    prior : str
        Its default prior.
    has_units : bool
        Whether it is in units of the linear predictor, and its prior is autoscaled.
    start : float
        Where training starts, in those units.
    """

    name: str
    text: str
    prior: str
    has_units: bool = False
    start: float = 1.0


SIGMA = Dispersion("sigma", "residual standard deviation", "student_t(3, 0, 2.5)", has_units=True)
SHAPE = Dispersion("shape", "shape: small values are more dispersed", "exponential(0.2)", start=3.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One response distribution with its link.

    Attributes
    ----------
    name, link : str
        The family's and its link's name.
    aliases : tuple of str
        Other names by which users know it.
    parameters : tuple of Dispersion
        Its dispersion parameters.
    integer : bool
        Whether the response is a whole number.
    support : callable
        Maps a response to a boolean array: which values are possible.
    support_text : str
        The support in words, for error messages.
    eta_units : callable
        Maps a response and what is given of each row to the location and scale of the linear
        predictor without offsets, in whose units the network and the default priors work.
    mean : callable
        Maps ``eta`` and the dispersion to the mean of the response.
    log_lik : callable
        Maps torch tensors ``(y, eta, dispersion)`` to elementwise log densities.
    rng : callable
        Maps ``(eta, dispersion, numpy generator)`` to one response per element.
    density, stan_rng : str
        Stan's density of a response, and its random generation, with ``{y}`` and ``{eta}`` in
        place of the response and the linear predictor, and ``{trials}`` where they are given; the
        density takes vectors too.
    glm : str
        Stan's GLM density, if it has one.
    has_kernel : bool
        Whether ``log_lik.hpp`` has a function for it.
    stan_functions : tuple of str
        Files of ``stan/`` that ``stan_rng`` needs.
    given : tuple of str
        What must be known of each row: ``trials``. ``mean``, ``log_lik`` and ``rng`` find it
        beside the dispersion.
    """

    name: str
    link: str
    aliases: tuple[str, ...]
    parameters: tuple[Dispersion, ...]
    integer: bool
    support: Callable[[Array], np.ndarray]
    support_text: str
    eta_units: Callable[[Array, Given], tuple[float, float]]
    mean: Callable[[Array, Mapping[str, Array]], Array]
    log_lik: Callable[[Tensor, Tensor, Values], Tensor]
    rng: Callable[[Array, Mapping[str, Array], np.random.Generator], Array]
    density: str
    stan_rng: str
    glm: str = ""
    has_kernel: bool = False
    stan_functions: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def dispersion(self) -> tuple[str, ...]:
        """Names of the dispersion parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    def text_of(self, name: str) -> str:
        """Say what a dispersion parameter is."""
        return next(parameter.text for parameter in self.parameters if parameter.name == name)


def _gaussian_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    sigma = dispersion["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)


def _poisson_log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return y * eta - eta.exp() - (y + 1).lgamma()


def _bernoulli_log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    from torch.nn.functional import logsigmoid

    return logsigmoid((2 * y - 1) * eta)


def _binomial_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    from torch.nn.functional import logsigmoid

    n = dispersion["trials"]
    ways = (n + 1).lgamma() - (y + 1).lgamma() - (n - y + 1).lgamma()
    return ways + y * logsigmoid(eta) + (n - y) * logsigmoid(-eta)


def _negbinomial_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    shape = dispersion["shape"]
    total = shape.log().logaddexp(eta)
    ways = (y + shape).lgamma() - shape.lgamma() - (y + 1).lgamma()
    return ways + y * (eta - total) + shape * (shape.log() - total)


def _student_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    nu, sigma = dispersion["nu"], dispersion["sigma"]
    tails = (((y - eta) / sigma) ** 2 / nu).log1p()
    constant = ((nu + 1) / 2).lgamma() - (nu / 2).lgamma() - (math.pi * nu).log() / 2
    return constant - sigma.log() - (nu + 1) / 2 * tails


def _lognormal_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    return _gaussian_log_lik(y.log(), eta, dispersion) - y.log()


def _gamma_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    shape = dispersion["shape"]
    by_mean = shape * (y.log() - eta - y * (-eta).exp())
    return by_mean - y.log() + shape * shape.log() - shape.lgamma()


def _beta_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    precision = dispersion["precision"]
    a, b = precision * eta.sigmoid(), precision * (-eta).sigmoid()
    ways = precision.lgamma() - a.lgamma() - b.lgamma()
    return ways + (a - 1) * y.log() + (b - 1) * (-y).log1p()


def _negbinomial_rng(
    eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    """Draw counts whose log mean varies by a gamma variable of mean 1."""
    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    with np.errstate(divide="ignore"):
        varied = np.log(generator.gamma(shape, 1 / shape))
    return _poisson_rng(eta + varied, {}, generator)


def _student_rng(
    eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    nu = np.broadcast_to(dispersion["nu"], eta.shape)
    return np.asarray(eta + dispersion["sigma"] * generator.standard_t(nu))


def _gamma_rng(
    eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator
) -> Array:
    shape = np.broadcast_to(dispersion["shape"], eta.shape)
    return np.asarray(np.exp(eta) * generator.gamma(shape, 1 / shape))


def _beta_rng(eta: Array, dispersion: Mapping[str, Array], generator: np.random.Generator) -> Array:
    precision = dispersion["precision"]
    return np.asarray(generator.beta(precision * _expit(eta), precision * _expit(-eta)))


def _lognormal_mean(eta: Array, dispersion: Mapping[str, Array]) -> Array:
    return np.asarray(np.exp(eta + dispersion["sigma"] ** 2 / 2))


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


def _units(y: Array, given: Given) -> tuple[float, float]:
    rest = y - given.get("offsets", 0.0)
    return float(rest.mean()), float(rest.std(ddof=1))


def _is_count(y: Array) -> np.ndarray:
    return np.asarray((y >= 0) & (y == np.floor(y)) & np.isfinite(y))


def _log_mean(y: Array, given: Given) -> tuple[float, float]:
    offsets = given.get("offsets", np.zeros(1))
    exposure = np.exp(offsets - offsets.max()).mean()
    return float(np.log(y.mean()) - np.log(exposure) - offsets.max()), 1.0


def _logit_mean(y: Array, given: Given) -> tuple[float, float]:
    trials = given.get("trials", np.ones(len(y)))
    mean = y.sum() / trials.sum()
    offset = float(np.mean(given.get("offsets", 0.0)))
    return float(np.log(mean) - np.log1p(-mean)) - offset, 1.0


FAMILIES: tuple[Family, ...] = (
    Family(
        name="gaussian",
        link="identity",
        aliases=("normal",),
        parameters=(SIGMA,),
        integer=False,
        support=np.isfinite,
        support_text="finite numbers",
        eta_units=_units,
        mean=lambda eta, _: eta,
        log_lik=_gaussian_log_lik,
        rng=lambda eta, disp, generator: generator.normal(eta, disp["sigma"]),
        density="normal_lpdf({y} | {eta}, sigma)",
        stan_rng="normal_rng({eta}, sigma)",
        glm="normal_id_glm_lpdf",
        has_kernel=True,
    ),
    Family(
        name="poisson",
        link="log",
        aliases=(),
        parameters=(),
        integer=True,
        support=_is_count,
        support_text="counts 0, 1, 2, ...",
        eta_units=_log_mean,
        mean=lambda eta, _: np.exp(eta),
        log_lik=_poisson_log_lik,
        rng=_poisson_rng,
        density="poisson_log_lpmf({y} | {eta})",
        stan_rng="poisson_log_safe_rng({eta})",
        glm="poisson_log_glm_lpmf",
        has_kernel=True,
        stan_functions=("poisson_log_safe_rng.stanfunctions",),
    ),
    Family(
        name="bernoulli",
        link="logit",
        aliases=(),
        parameters=(),
        integer=True,
        support=lambda y: (y == 0) | (y == 1),
        support_text="0 or 1",
        eta_units=_logit_mean,
        mean=lambda eta, _: _expit(eta),
        log_lik=_bernoulli_log_lik,
        rng=lambda eta, _, generator: (generator.random(eta.shape) < _expit(eta)).astype(float),
        density="bernoulli_logit_lpmf({y} | {eta})",
        stan_rng="bernoulli_logit_rng({eta})",
        glm="bernoulli_logit_glm_lpmf",
        has_kernel=True,
    ),
    Family(
        name="binomial",
        link="logit",
        aliases=(),
        parameters=(),
        integer=True,
        support=_is_count,
        support_text="counts 0, 1, 2, ...",
        eta_units=_logit_mean,
        mean=lambda eta, disp: disp["trials"] * _expit(eta),
        log_lik=_binomial_log_lik,
        rng=lambda eta, disp, generator: generator.binomial(
            np.broadcast_to(disp["trials"], eta.shape).astype(np.int64), _expit(eta)
        ).astype(float),
        density="binomial_logit_lpmf({y} | {trials}, {eta})",
        stan_rng="binomial_rng({trials}, inv_logit({eta}))",
        has_kernel=True,
        given=("trials",),
    ),
    Family(
        name="negbinomial",
        link="log",
        aliases=("neg_binomial_2", "negative_binomial"),
        parameters=(SHAPE,),
        integer=True,
        support=_is_count,
        support_text="counts 0, 1, 2, ...",
        eta_units=_log_mean,
        mean=lambda eta, _: np.exp(eta),
        log_lik=_negbinomial_log_lik,
        rng=_negbinomial_rng,
        density="neg_binomial_2_log_lpmf({y} | {eta}, shape)",
        stan_rng="poisson_log_safe_rng({eta} + log(gamma_rng(shape, shape)))",
        glm="neg_binomial_2_log_glm_lpmf",
        stan_functions=("poisson_log_safe_rng.stanfunctions",),
    ),
    Family(
        name="student",
        link="identity",
        aliases=("student_t",),
        parameters=(SIGMA, Dispersion("nu", "degrees of freedom", "gamma(2, 0.1)", start=10.0)),
        integer=False,
        support=np.isfinite,
        support_text="finite numbers",
        eta_units=_units,
        mean=lambda eta, _: eta,
        log_lik=_student_log_lik,
        rng=_student_rng,
        density="student_t_lpdf({y} | nu, {eta}, sigma)",
        stan_rng="student_t_rng(nu, {eta}, sigma)",
    ),
    Family(
        name="lognormal",
        link="identity",
        aliases=(),
        parameters=(SIGMA,),
        integer=False,
        support=lambda y: (y > 0) & np.isfinite(y),
        support_text="positive numbers",
        eta_units=lambda y, given: _units(np.log(y), given),
        mean=_lognormal_mean,
        log_lik=_lognormal_log_lik,
        rng=lambda eta, disp, generator: generator.lognormal(eta, disp["sigma"]),
        density="lognormal_lpdf({y} | {eta}, sigma)",
        stan_rng="lognormal_rng({eta}, sigma)",
    ),
    Family(
        name="gamma",
        link="log",
        aliases=(),
        parameters=(SHAPE,),
        integer=False,
        support=lambda y: (y > 0) & np.isfinite(y),
        support_text="positive numbers",
        eta_units=_log_mean,
        mean=lambda eta, _: np.exp(eta),
        log_lik=_gamma_log_lik,
        rng=_gamma_rng,
        density="gamma_lpdf({y} | shape, shape * exp(-{eta}))",
        stan_rng="gamma_rng(shape, shape * exp(-{eta}))",
    ),
    Family(
        name="beta",
        link="logit",
        aliases=(),
        parameters=(
            Dispersion(
                "precision",
                "precision: large values are less dispersed",
                "exponential(0.05)",
                start=10.0,
            ),
        ),
        integer=False,
        support=lambda y: (y > 0) & (y < 1),
        support_text="numbers between 0 and 1, both excluded",
        eta_units=_logit_mean,
        mean=lambda eta, _: _expit(eta),
        log_lik=_beta_log_lik,
        rng=_beta_rng,
        density="beta_proportion_lpdf({y} | inv_logit({eta}), precision)",
        stan_rng="beta_proportion_rng(inv_logit({eta}), precision)",
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
