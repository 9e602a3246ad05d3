"""What everything else must know of a response's distribution.

A family is a record in a file of its own: link, support, units, likelihood, random generation, and
the lines of the Stan program. Its parameters beside the linear predictor have a link of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.common import expit
from semistan.model.parameter import POSITIVE, REAL, UNIT_INTERVAL, Kind
from semistan.model.table.scale import check_count, check_spread

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

Given = Mapping[str, Array]
FROM_ONE = 1e-6  # how far the sum of shares may be from 1, as of numbers in single precision


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
    in_predictor : str
        Default prior of intercept and coefficients of its predictor, if not those of others.
    """

    name: str
    text: str
    prior: str
    has_units: bool = False
    start: float = 1.0
    of_class: str = ""
    link: str = "log"
    in_predictor: str = ""

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
    return predictor.sigmoid() if hasattr(predictor, "sigmoid") else expit(predictor)


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


@dataclass(frozen=True, slots=True)
class Tails:
    """The probabilities below and above a response, with which it can be censored or truncated.

    A bound is None, or a number for each row.

    Attributes
    ----------
    log_below, log_above : callable
        Map torch tensors ``(y, eta, dispersion)`` to log P(Y <= y) and log P(Y > y).
    least : float
        No response is at this value or below.
    density : str
        Stan's density of a response that may be censored, as ``Family.density``, with ``{cens}``
        and ``{y2}`` in place of its code and the end of its interval; empty if it cannot be.
    files : tuple of str
        Files of ``stan/`` that it needs.
    inside, inside_rng : str
        Stan's log probability of what lies above ``{lb}`` and at most at ``{ub}``, and a random
        response there.
    inside_files, rng_files : tuple of str
        Files of ``stan/`` that these need.
    rng : callable
        Maps arrays ``(eta, dispersion, lb, ub, numpy generator)`` to responses above lb and at
        most at ub.
    mean : callable
        Maps arrays ``(eta, dispersion, lb, ub)`` to their mean.
    """

    log_below: Callable[[Tensor, Tensor, Values], Tensor]
    log_above: Callable[[Tensor, Tensor, Values], Tensor]
    least: float
    density: str
    files: tuple[str, ...]
    inside: str
    inside_rng: str
    inside_files: tuple[str, ...]
    rng_files: tuple[str, ...]
    rng: Callable[[Array, Mapping[str, Array], Array, Array, np.random.Generator], Array]
    mean: Callable[[Array, Mapping[str, Array], Array, Array], Array]


class Constant(NamedTuple):
    """What the density needs that all rows share and that follows from the training rows.

    Attributes
    ----------
    name, kind, text : str
        Its name and type in the program's data block, and what it is.
    value : array
        The data.
    """

    name: str
    kind: str
    text: str
    value: Array


class Curve(NamedTuple):
    """A function of a row's response, linear in parameters: columns made once, times these.

    Attributes
    ----------
    name : str
        What is written for it in the density; if that is given of each row, as ``lb``, the density
        has the function's value there instead.
    vector : str
        The program's name of its values over some rows.
    of : str
        What it is a function of: ``y``, or something given of each row.
    columns : str
        What makes its columns in the program.
    size : int
        How many there are.
    coefficients : str
        The vector that they are multiplied by, among ``stan_local``.
    by_row : bool
        Whether that is a matrix, of which each row has its own.
    """

    name: str
    vector: str
    of: str
    columns: str
    size: int
    coefficients: str
    by_row: bool = False

    @property
    def matrix(self) -> str:
        """The program's name of its columns."""
        return f"{self.vector}_columns"

    def times(self, columns: str) -> str:
        """Write columns, of all rows or some, times the coefficients."""
        if self.by_row:
            return f"rows_dot_product({columns}, {self.coefficients})"
        return f"{columns} * {self.coefficients}"


class Costly(NamedTuple):
    """A function of a parameter that the program computes for all rows at once.

    Attributes
    ----------
    name : str
        What is written for its value in the density.
    function : str
        The program's function, of a vector, which computes it once for rows that are alike.
    parameter : str
        What it is a function of.
    """

    name: str
    function: str
    parameter: str

    def over_rows(self, rows: str, *, varies: bool) -> str:
        """Write its values over some rows, among which the parameter may vary."""
        alike = "" if varies else f"rep_vector(0, {rows}) + "
        return f"{self.function}({alike}{self.parameter})"


class Predicted(NamedTuple):
    """What the link of the linear predictor is of.

    Attributes
    ----------
    equation : str
        The left side of the model's equation, with ``{link}`` in place of the link.
    words : str
        Its name, with ``{y}`` in place of the response.
    event : str
        Of ordered categories, whose odds or probability it is of, in words.
    """

    equation: str = "{link} E[y]"
    words: str = "mean of {y}"
    event: str = ""


MEAN = Predicted()


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
        beside the dispersion, and ``lb`` and ``ub``; ``cens`` and ``y2`` are for ``log_lik`` alone.
    links : tuple of str
        Other links that it can have.
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
    starts : callable, optional
        Maps residuals (N,) to where dispersion parameters start instead of at ``start``, at which
        the likelihood is flat whatever the responses: a mapping for each side of it, the likelier
        one first. Training starts at the first, and the climb to a mode at all.
    probabilities : callable, optional
        Maps ``eta`` and the dispersion to the probability of each category, on a last axis.
    ordered : bool
        Whether the response is one of ordered categories.
    by_row_thresholds : bool
        Whether thresholds between ordered categories differ between rows, as their distances have
        predictors.
    levels : tuple of str
        Names of unordered categories, the reference first.
    counted : int
        Number of categories that the response counts or has shares of, so that it has shape (N, K)
        and ``rng`` adds an axis of K; 0 where it is one number.
    binary : bool
        Whether the response is 0 or 1, so that its mean is the probability of 1.
    is_concave : bool
        Whether the log-likelihood of unordered categories is concave in all predictors together.
    is_normal : bool
        Whether the likelihood is normal in eta, so that coefficients can be integrated out exactly.
    variance : callable, optional
        Maps ``eta`` and the dispersion to the variance of the response, infinite where it has none.
    cumulant : str
        File of ``stan/`` with the derivatives of its log density in eta, with which coefficients
        are integrated out by Laplace's method; empty if there is none.
    tails : Tails, optional
        What a censored or truncated response needs.
    predicted : Predicted
        What the link of the linear predictor is of, where that is not the mean.
    learn : callable, optional
        Maps a response and what is given of each row to the record that fits them, where it
        depends on more of the training rows than their categories.
    constants : tuple of Constant
        Data of the program that the density needs.
    curves : tuple of Curve
        Functions of each row's response that it needs.
    costly : tuple of Costly
        Functions of its parameters that take long.
    several : Dispersion, optional
        What its parameters have in common if the training rows say how many there are: ``gap_2``,
        ... are several ``gap``.
    varied : callable, optional
        Maps the record, and the names of those of them that have predictors, to the record in which
        they differ between rows.
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
    text: str = ""
    categories: int = 0
    density_functions: tuple[str, ...] = ()
    by_row: bool = False
    on_default: tuple[str, str] = ("eta", "")
    stan_local: tuple[str, ...] = ()
    in_units_of_y: bool = False
    locations: Callable[[Array], dict[str, float]] = lambda _: {}
    starts: Callable[[Array], tuple[dict[str, float], ...]] | None = None
    probabilities: Callable[[Array, Mapping[str, Array]], Array] | None = None
    ordered: bool = False
    by_row_thresholds: bool = False
    levels: tuple[str, ...] = ()
    counted: int = 0
    binary: bool = False
    is_concave: bool = False
    is_normal: bool = False
    variance: Callable[[Array, Mapping[str, Array]], Array] | None = None
    cumulant: str = ""
    tails: Tails | None = None
    predicted: Predicted = MEAN
    learn: Callable[[Array, Given], Family] | None = None
    constants: tuple[Constant, ...] = ()
    curves: tuple[Curve, ...] = ()
    costly: tuple[Costly, ...] = ()
    several: Dispersion | None = None
    varied: Callable[[Family, Collection[str]], Family] | None = None

    def __str__(self) -> str:
        return self.text or self.name

    @property
    def words(self) -> str:
        """Its name, its link, and what it learnt of the training rows."""
        numbers = {c.name: np.atleast_1d(c.value) for c in self.constants}
        learnt = (f", {name} {', '.join(f'{x:g}' for x in of)}" for name, of in numbers.items())
        return f"{self.name}, link {self.link}{''.join(learnt)}"

    @property
    def censored(self) -> bool:
        """Whether some responses are known to lie in an interval alone."""
        return "cens" in self.given

    @property
    def truncated(self) -> bool:
        """Whether responses beyond some bounds could not be in the table."""
        return "lb" in self.given or "ub" in self.given

    @property
    def is_open(self) -> bool:
        """Whether training rows have yet to say how many parameters there are."""
        unknown = self.learn is not None or (self.ordered and not self.categories)
        return self.several is not None and unknown

    @property
    def reported_categories(self) -> int:
        """Number of ordered categories whose thresholds stand in the intercept's place, or 0."""
        return 0 if self.by_row_thresholds else self.categories

    @property
    def composed(self) -> bool:
        """Whether the response has the share of each of several categories."""
        return self.counted > 0 and not self.integer

    @property
    def dispersion(self) -> tuple[str, ...]:
        """Names of the dispersion parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def used_curves(self) -> tuple[Curve, ...]:
        """The curves of what is given of the rows."""
        return tuple(curve for curve in self.curves if curve.of in ("y", *self.given))

    def parameter(self, name: str) -> Dispersion:
        """Return a dispersion parameter by its name."""
        return next(parameter for parameter in self.parameters if parameter.name == name)


def check_response(record: Family, y: Array, name: str) -> None:
    """Refuse a response to be fitted that is outside the family's support, or does not vary.

    Raises
    ------
    InputError
        Naming the response, the first impossible value and its row.
    """
    check_support(record, y, name)
    if not np.ptp(y, axis=0).any():
        value = ", ".join(f"{each:g}" for each in np.atleast_1d(y[0]))
        raise InputError(f"response '{name}' is constant ({value}): there is nothing to explain")
    check_spread(f"response {name}", float(np.ptp(y)))


def check_support(record: Family, y: Array, name: str) -> None:
    """Refuse a response outside the family's support, be it to be fitted or to be predicted.

    Raises
    ------
    InputError
        Naming the response, the first impossible value and its row.
    """
    for own, values in zip(record.levels, y.T, strict=True) if record.counted else [(name, y)]:
        _check_values(record, values, own)
    if not record.composed:
        return
    total = y.sum(axis=1)
    bad = np.flatnonzero(np.abs(total - 1) > FROM_ONE)
    if bad.size:
        raise InputError(
            f"the shares '{name}' must add up to 1, but their sum is {total[bad[0]]:g} in row "
            f"{bad[0] + 1} ({bad.size} of {len(y)} rows); divide each column by the sum of all"
        )


def _check_values(record: Family, y: Array, name: str) -> None:
    bad = np.flatnonzero(~record.support(y))
    if bad.size:
        raise InputError(
            f"family {record.name} expects {record.support_text}, but response '{name}' is "
            f"{y[bad[0]]:g} in row {bad[0] + 1} ({bad.size} of {y.size} rows). "
            "Choose another family or mend the response."
        )
    if record.integer:
        check_count(f"response '{name}'", y)
