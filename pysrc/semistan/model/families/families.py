"""Response families as a table of frozen records; a new family is one record.

A record holds everything that depends on the family: link, support, units, likelihood,
random generation, and the lines of the Stan program. Under another link than its default one, and
for the response's categories, a record is made of it: ``bernoulli(probit)``,
``cumulative(logit, 5)``, ``categorical(setosa, versicolor, virginica)``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.lazy import functional
from semistan.model.arrays import Array
from semistan.model.families import categorical, ordinal
from semistan.model.families.links import LINKS, Link
from semistan.model.parameter import POSITIVE, REAL, UNIT_INTERVAL, Kind

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Given = Mapping[str, Array]
TINY = 1e-300  # of a beta distribution's parameter, which may underflow but not be 0
LARGE_LOG_MEAN = math.log(1e9)  # as in poisson_log_safe_rng.stanfunctions


@dataclass(frozen=True, slots=True)
class Dispersion:
    """One parameter of a response distribution beside the linear predictor.

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
    of_class : str
        The key of its prior in ``[priors]``, if several parameters share it.
    link : str
        ``log`` of a positive parameter, ``logit`` of one between 0 and 1; one with link
        ``identity`` always has a predictor.
    """

    name: str
    text: str
    prior: str
    has_units: bool = False
    start: float = 1.0
    of_class: str = ""
    link: str = "log"

    def value(self, predictor: Any) -> Any:
        """Return the parameter where its predictor is an array or a tensor."""
        return INVERSE_LINKS[self.link](predictor)

    def moved(self, start: float, predictor: Any) -> Any:
        """Return the parameter where its predictor is this much above that of ``start``."""
        if self.link == "log":
            return start * self.value(predictor)
        return self.value(self.predictor(start) + predictor)

    def predictor(self, value: Any) -> Any:
        """Return the predictor of a value, or of several."""
        return PARAMETER_LINKS[self.link](value)

    @property
    def kind(self) -> Kind:
        """The constraint of the parameter where it has no predictor."""
        return KINDS_BY_LINK[self.link]

    @property
    def key(self) -> str:
        """The key of its prior in ``[priors]``."""
        return self.of_class or self.name


def _inverse_log(predictor: Any) -> Any:
    return predictor.exp() if hasattr(predictor, "exp") else np.exp(predictor)


def _inverse_logit(predictor: Any) -> Any:
    return predictor.sigmoid() if hasattr(predictor, "sigmoid") else _expit(predictor)


# What the predictor of a parameter is of, and the parameter's own constraint without a predictor.
INVERSE_LINKS: dict[str, Callable[[Any], Any]] = {
    "log": _inverse_log, "logit": _inverse_logit, "identity": lambda predictor: predictor,
}  # fmt: skip
PARAMETER_LINKS: dict[str, Callable[[Any], Any]] = {
    "log": np.log, "logit": lambda p: np.log(p) - np.log1p(-p), "identity": lambda value: value,
}  # fmt: skip
KINDS_BY_LINK = {"log": POSITIVE, "logit": UNIT_INTERVAL, "identity": REAL}

SIGMA = Dispersion("sigma", "residual standard deviation", "student_t(3, 0, 2.5)", has_units=True)
SHAPE = Dispersion("shape", "shape: small values are more dispersed", "exponential(0.2)", start=3.0)
GAP_PRIOR = "lognormal(0, 1)"  # 95% from 0.14 to 7.1; normal on the scale on which NUTS works


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
    mean : callable or None
        Maps ``eta`` and the dispersion to the mean of the response, which unordered categories do
        not have.
    log_lik : callable
        Maps torch tensors ``(y, eta, dispersion)`` to elementwise log densities.
    rng : callable
        Maps ``(eta, dispersion, numpy generator)`` to one response per element.
    density, stan_rng : str
        Stan's density of a response, and its random generation, with ``{y}`` and ``{eta}`` in
        place of the response and the linear predictor, ``{sigma}`` and the like in place of its
        parameters, and ``{trials}`` where they are given. The density takes vectors too; a product
        with a parameter is ``{times}`` there.
    glm : str
        Stan's GLM density, if it has one.
    has_log_lik : bool
        Whether ``log_lik.hpp`` has its likelihood, in one pass with the network.
    stan_functions : tuple of str
        Files of ``stan/`` that ``stan_rng`` needs.
    given : tuple of str
        What must be known of each row: ``trials``. ``mean``, ``log_lik`` and ``rng`` find it
        beside the dispersion.
    links : tuple of str
        Other links that it can have.
    under_link : dict
        Fields that replace these under another link, which reaches further into the tails.
    text : str
        How users write it, with its link unless that is the default one; the name by default.
    categories : int
        Number of ordered categories, 0 as long as it is unknown and for other families.
    density_functions : tuple of str
        Files of ``stan/`` that ``density`` needs.
    by_row : bool
        Whether the density takes one response, not vectors.
    on_default : tuple of str
        Name of the vector that stands for eta in ``density`` and ``stan_rng``, on the scale of the
        default link, and how the program computes it from eta.
    stan_local : tuple of str
        Lines with what both need besides, ``{rows}`` standing for the number of rows.
    in_units_of_y : bool
        Whether dispersion that has units is in those of y, and these are not those of eta.
    locations : callable
        Maps a response to where training starts the dispersion parameters that are no positive
        numbers, by name.
    probabilities : callable, optional
        Maps ``eta`` and the dispersion to the probability of each category, on a last axis.
    levels : tuple of str
        Names of unordered categories, the reference first.
    binary : bool
        Whether the response is 0 or 1, so that its mean is the probability of 1.
    """

    name: str
    link: str
    aliases: tuple[str, ...]
    parameters: tuple[Dispersion, ...]
    integer: bool
    support: Callable[[Array], np.ndarray]
    support_text: str
    eta_units: Callable[[Array, Given], tuple[float, float]]
    mean: Callable[[Array, Mapping[str, Array]], Array] | None
    log_lik: Callable[[Tensor, Tensor, Values], Tensor]
    rng: Callable[[Array, Mapping[str, Array], np.random.Generator], Array]
    density: str
    stan_rng: str
    glm: str = ""
    has_log_lik: bool = False
    stan_functions: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    under_link: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    categories: int = 0
    density_functions: tuple[str, ...] = ()
    by_row: bool = False
    on_default: tuple[str, str] = ("eta", "")
    stan_local: tuple[str, ...] = ()
    in_units_of_y: bool = False
    locations: Callable[[Array], dict[str, float]] = lambda _: {}
    probabilities: Callable[[Array, Mapping[str, Array]], Array] | None = None
    levels: tuple[str, ...] = ()
    binary: bool = False

    def __str__(self) -> str:
        return self.text or self.name

    @property
    def dispersion(self) -> tuple[str, ...]:
        """Names of the dispersion parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    def parameter(self, name: str) -> Dispersion:
        """Return a dispersion parameter by its name."""
        return next(parameter for parameter in self.parameters if parameter.name == name)


def _gaussian_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    sigma = dispersion["sigma"]
    return -0.5 * ((y - eta) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)


def _poisson_log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return y * eta - eta.exp() - (y + 1).lgamma()


def _bernoulli_log_lik(y: Tensor, eta: Tensor, _: Values) -> Tensor:
    return functional.logsigmoid((2 * y - 1) * eta)


def _binomial_log_lik(y: Tensor, eta: Tensor, dispersion: Values) -> Tensor:
    n = dispersion["trials"]
    ways = (n + 1).lgamma() - (y + 1).lgamma() - (n - y + 1).lgamma()
    return ways + y * functional.logsigmoid(eta) + (n - y) * functional.logsigmoid(-eta)


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
    log_a, log_b = (precision.log() + functional.logsigmoid(sign * eta) for sign in (1, -1))
    a, b = log_a.exp(), log_b.exp()
    # 1 / gamma(a) = a / gamma(1 + a) is finite where a underflows
    ways = precision.lgamma() + log_a - (1 + a).lgamma() + log_b - (1 + b).lgamma()
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
    a, b = (np.maximum(precision * _expit(sign * eta), TINY) for sign in (1, -1))
    return np.asarray(generator.beta(a, b))


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
        density="normal_lpdf({y} | {eta}, {sigma})",
        stan_rng="normal_rng({eta}, {sigma})",
        glm="normal_id_glm_lpdf",
        has_log_lik=True,
        links=("log",),
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
        has_log_lik=True,
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
        has_log_lik=True,
        links=("probit", "cloglog", "cauchit"),
        binary=True,
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
        has_log_lik=True,
        given=("trials",),
        links=("probit", "cloglog", "cauchit"),
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
        density="neg_binomial_2_log_lpmf({y} | {eta}, {shape})",
        stan_rng="poisson_log_safe_rng({eta} + log(gamma_rng({shape}, {shape})))",
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
        density="student_t_lpdf({y} | {nu}, {eta}, {sigma})",
        stan_rng="student_t_rng({nu}, {eta}, {sigma})",
        links=("log",),
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
        density="lognormal_lpdf({y} | {eta}, {sigma})",
        stan_rng="lognormal_rng({eta}, {sigma})",
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
        density="gamma_lpdf({y} | {shape}, {shape} {times} exp(-{eta}))",
        stan_rng="gamma_rng({shape}, {shape} * exp(-{eta}))",
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
        density="beta_proportion_lpdf({y} | inv_logit({eta}), {precision})",
        stan_rng="beta_proportion_rng(inv_logit({eta}), {precision})",
        links=("probit", "cloglog"),
        under_link={
            "density": "beta_logit_lpdf({y} | {eta}, {precision})",
            "stan_rng": "beta_logit_rng({eta}, {precision})",
            "density_functions": ("beta_logit.stanfunctions",),
            "by_row": True,
        },
    ),
)


CUMULATIVE = "cumulative"
BY_CATEGORIES = (CUMULATIVE, categorical.CATEGORICAL)  # whose records depend on them
CUMULATIVE_PROBIT = ("log_Phi.stanfunctions", "cumulative_probit.stanfunctions")


def dispersion_keys() -> set[str]:
    """Return the keys in ``[priors]`` of all families' dispersion parameters."""
    return {item.key for record in FAMILIES for item in record.parameters} | {"gap"}


@cache
def family(text: str) -> Family:
    """Look up a family by its name or alias, with a link or a number of categories in brackets.

    Parameters
    ----------
    text : str
        As ``"bernoulli"``, ``"bernoulli(probit)"`` or ``"cumulative(logit, 5)"``.

    Raises
    ------
    InputError
        If no family has this name, or it has not this link.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    if match is None:
        raise InputError(f"a family is a name, or a name(link), got '{text}'")
    options = [option.strip() for option in (match[2] or "").split(",") if option.strip()]
    if match[1] == CUMULATIVE:
        return _cumulative_of(options)
    if match[1] == categorical.CATEGORICAL:
        return _categorical(tuple(options))
    record = _named(match[1])
    if len(options) > 1:
        raise InputError(f"family {record.name} takes a link alone, got '{text}'")
    return _linked(record, *options) if options else record


def _named(name: str) -> Family:
    for record in FAMILIES:
        if name == record.name or name in record.aliases:
            return record
    known = [alias for record in FAMILIES for alias in (record.name, *record.aliases)]
    raise InputError(f"unknown family '{name}'.{did_you_mean(name, [*known, *BY_CATEGORIES])}")


def _linked(record: Family, name: str) -> Family:
    """Return the record under one of its links."""
    if name == record.link:
        return record
    if name not in record.links:
        _refuse_link(record.name, name, (record.link, *record.links))
    link = next(link for link in LINKS if link.name == name and link.default == record.link)
    mean = record.mean
    assert mean is not None
    return replace(
        record,
        link=name,
        text=f"{record.name}({name})",
        eta_units=lambda y, given: _linked_units(record, link, y, given),
        mean=lambda eta, disp: mean(link.to_default(eta), disp),
        log_lik=lambda y, eta, disp: record.log_lik(y, link.tensor(eta), disp),
        rng=lambda eta, disp, generator: record.rng(link.to_default(eta), disp, generator),
        glm="",
        has_log_lik=False,
        on_default=link.stan,
        in_units_of_y=link.in_units_of_y,
        **_under_link(record, link),
    )


def _under_link(record: Family, link: Link) -> dict[str, Any]:
    fields = dict(record.under_link)
    own = fields.pop("density_functions", ())
    return {**fields, "density_functions": (*link.stan_functions, *own)}


def _linked_units(record: Family, link: Link, y: Array, given: Given) -> tuple[float, float]:
    rest = {name: values for name, values in given.items() if name != "offsets"}
    return link.units(*record.eta_units(y, rest), given.get("offsets", np.zeros(1)))


def _refuse_link(name: str, link: str, known: tuple[str, ...]) -> None:
    raise InputError(f"family {name} has no link '{link}'; it has {', '.join(known)}")


def _cumulative_of(options: list[str]) -> Family:
    """Read a link, a number of categories, or both."""
    numbers = [option for option in options if option.isdecimal()]
    links = [option for option in options if option not in numbers]
    if len(numbers) > 1 or len(links) > 1:
        raise InputError(
            f"family {CUMULATIVE} takes a link and a number of categories, as "
            f"'{CUMULATIVE}(logit, 5)', got '{', '.join(options)}'"
        )
    link, K = (links or ["logit"])[0], int((numbers or ["0"])[0])
    if link not in ordinal.NOISE:
        _refuse_link(CUMULATIVE, link, tuple(ordinal.NOISE))
    if numbers and K < 2:
        raise InputError(f"family {CUMULATIVE} needs two categories or more, got {K}")
    return _cumulative(link, K)


def _cumulative(link: str, K: int) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet."""
    noise, gaps = ordinal.NOISE[link], ordinal.gap_names(K)
    tau = f"cumulative_sum([{', '.join(('0', *gaps))}]')"
    written = ", ".join((link, *([str(K)] if K else [])))
    probit = link == "probit"
    density = "cumulative_probit_lpmf" if probit else "ordered_logistic_lpmf"
    return Family(
        name=CUMULATIVE,
        link=link,
        aliases=(),
        parameters=tuple(_gap(name) for name in gaps),
        integer=True,
        support=lambda y: (y >= 1) & (y == np.floor(y)) & (y <= (K or np.inf)) & np.isfinite(y),
        support_text=f"categories 1, 2, ..., {K or 'K'}",
        eta_units=lambda y, given: _first_threshold(link, y, given),
        mean=partial(ordinal.mean, noise, K),
        log_lik=partial(ordinal.log_lik, noise, K),
        rng=partial(ordinal.rng, noise, K),
        density=density + "({y} | {eta}, tau)",
        stan_rng=f"ordered_{'probit' if probit else 'logistic'}_rng({{eta}}, tau)",
        density_functions=CUMULATIVE_PROBIT if probit else (),
        by_row=probit,
        stan_local=(f"vector[{K - 1}] tau = {tau};",),
        probabilities=partial(ordinal.probabilities, noise, K),
        text=f"{CUMULATIVE}({written})" if written != "logit" else CUMULATIVE,
        categories=K,
    )


def _gap(name: str) -> Dispersion:
    k = int(name.removeprefix("gap_"))
    return Dispersion(name, f"threshold {k} minus threshold {k - 1}", GAP_PRIOR, of_class="gap")


def _first_threshold(link: str, y: Array, given: Given) -> tuple[float, float]:
    """Return where the probability of a category above 1 is the observed one."""
    above = (y > 1).astype(float)
    if link == "logit":
        return _logit_mean(above, given)
    return _linked(_named("bernoulli"), link).eta_units(above, given)


def _categorical(levels: tuple[str, ...]) -> Family:
    """Return the record of unordered categories, whose names may not be known yet."""
    names, K = tuple(categorical.predictor_name(level) for level in levels[1:]), len(levels)
    columns = [f"logits[ : , {k}] = {name};" for k, name in enumerate(("eta", *names[1:]), 2)]
    return Family(
        name=categorical.CATEGORICAL,
        link="logit",
        aliases=(),
        parameters=tuple(
            Dispersion(name, f"log odds of {level} against {levels[0]}", "", link="identity")
            for name, level in zip(names[1:], levels[2:], strict=True)
        ),
        integer=True,
        support=lambda y: (y >= 1) & (y == np.floor(y)) & (y <= (K or np.inf)),
        support_text="categories",
        eta_units=lambda y, _: (categorical.first_odds(y), 1.0),
        mean=None,
        log_lik=partial(categorical.log_lik, names[1:]),
        rng=partial(categorical.rng, names[1:]),
        density="categorical_logit_lpmf({y} | {eta}')",
        stan_rng="categorical_logit_rng({eta}')",
        by_row=True,
        on_default=("logits", ""),
        stan_local=(
            "// Log odds of each category against the first one.",
            f"matrix[{{rows}}, {K}] logits = rep_matrix(0, {{rows}}, {K});",
            *columns,
        ),
        text=f"{categorical.CATEGORICAL}({', '.join(levels)})" if levels else "",
        locations=partial(categorical.locations, names[1:]),
        probabilities=partial(categorical.probabilities, names[1:]),
        levels=levels,
    )


def with_categories(record: Family, y: Array, name: str, known: int = 0) -> Family:
    """Give an ordinal family the number of its categories; others are returned as they are.

    Parameters
    ----------
    record : Family
        The family, which may know the number.
    y : array, shape (N,)
        The training rows' response.
    name : str
        The response's.
    known : int
        The number if the response is a column of ordered categories.

    Raises
    ------
    InputError
        If a category is empty.
    """
    if record.name != CUMULATIVE:
        return record
    K = record.categories or known or int(y.max())
    ordinal.check_categories(y, K, name)
    return _cumulative(record.link, K)


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
