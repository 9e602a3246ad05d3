"""Ordered categories 1, ..., K: the cumulative model (McCullagh, 1980, JRSS B 42).

The category is the interval between thresholds in which eta plus noise falls, F being the logistic
or the standard normal distribution function of the noise:

    P(y <= k) = F(tau_k - eta),    tau_1 = 0,    tau_k = gap_2 + ... + gap_k,    k < K

The network's output bias is the intercept, and so the first threshold is 0. Reported are the
thresholds alone, as by brms: b_Intercept[k] is tau_k less the intercept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import functional, torch
from semistan.model.arrays import Array
from semistan.model.families.common import logit_of_mean
from semistan.model.families.family import Dispersion, Family, Given
from semistan.model.families.links import LINKS, refuse_link

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Noise:
    """What is added to eta.

    Attributes
    ----------
    cdf : callable
        Its distribution function F in NumPy.
    draw : callable
        Maps a NumPy generator and a shape to draws.
    log_cdf : callable
        log F in torch.
    log_between : callable
        Maps torch tensors a, b and b - a > 0 to log(F(b) - F(a)).
    """

    cdf: Callable[[Array], Array]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    log_cdf: Callable[[Tensor], Tensor]
    log_between: Callable[[Tensor, Tensor, Tensor], Tensor]


def gap_names(K: int) -> tuple[str, ...]:
    """Return the names of the distances between neighbouring thresholds."""
    return tuple(f"gap_{k}" for k in range(2, K))


def intercept_names(K: int, name: str) -> tuple[str, ...]:
    """Return the names of the intercept, or of the K - 1 thresholds in its place if K is not 0."""
    return tuple(f"{name}[{k}]" for k in range(1, K)) if K else (name,)


def thresholds(gaps: Sequence[Any]) -> list[Any]:
    """Return tau_1, ..., tau_{K-1} from the gaps, numbers or arrays or tensors."""
    found: list[Any] = [0.0]
    for gap in gaps:
        found.append(found[-1] + gap)
    return found


def log_lik(
    noise: Noise, K: int, y: Tensor, eta: Tensor, dispersion: Mapping[str, Tensor]
) -> Tensor:
    """Return log P(y) of each row; ``dispersion`` has the gaps."""
    gaps = [dispersion[name] for name in gap_names(K)]
    tau = thresholds(gaps)
    inner = (y > 1) & (y < K)
    lower = _picked(y, dict(enumerate(tau, start=2)))
    upper = _picked(y, dict(enumerate(tau, start=1)))
    width = torch.where(inner, _picked(y, dict(enumerate(gaps, start=2))), 1.0)
    a = torch.where(inner, lower - eta, -0.5)
    inside = noise.log_between(a, torch.where(inner, upper - eta, 0.5), width)
    outside = noise.log_cdf(torch.where(y == 1, -eta, eta - lower))
    return torch.where(inner, inside, outside)


def mean(noise: Noise, K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return the expected category, 1 + P(y > 1) + ... + P(y > K - 1)."""
    tau = thresholds([dispersion[name] for name in gap_names(K)])
    return np.asarray(1 + sum(noise.cdf(eta - each) for each in tau))


def probabilities(noise: Noise, K: int, eta: Array, dispersion: Mapping[str, Array]) -> Array:
    """Return P(y = k) of each category, shape (..., K)."""
    tau = thresholds([dispersion[name] for name in gap_names(K)])
    below = np.stack(
        np.broadcast_arrays(np.zeros_like(eta), *(noise.cdf(each - eta) for each in tau),
                            np.ones_like(eta)),
        axis=-1,
    )  # fmt: skip
    return np.diff(below, axis=-1)


def rng(
    noise: Noise,
    K: int,
    eta: Array,
    dispersion: Mapping[str, Array],
    generator: np.random.Generator,
) -> Array:
    """Draw a category for each element of eta."""
    tau = thresholds([dispersion[name] for name in gap_names(K)])
    latent = eta + noise.draw(generator, eta.shape)
    return np.asarray(1.0 + sum((latent > each).astype(float) for each in tau))


def check_categories(y: Array, K: int, name: str) -> None:
    """Refuse a response that lacks one of the categories 1, ..., K, or has only one.

    Raises
    ------
    InputError
        Naming the first empty category, or if there are too many.
    """
    _check_number(K)
    empty = sorted(set(range(1, K + 1)) - set(y.astype(int).tolist()))
    if empty:
        raise InputError(
            f"family cumulative: no row of response '{name}' is in category {empty[0]} of 1 to "
            f"{K}, so that its thresholds are not identified; merge or renumber the categories"
        )


def _check_number(K: int) -> None:
    """Refuse categories of which each would have a parameter, before any is made."""
    if K > MOST_CATEGORIES:
        raise InputError(
            f"family {CUMULATIVE} has at most {MOST_CATEGORIES} categories, got {K:.6g}; merge "
            "neighbouring ones, or take a family of numbers"
        )


def check_ordered(family: str, K: int, name: str, table: pd.DataFrame) -> int:
    """Return how many ordered categories the response has, 0 if it is no column of them.

    Parameters
    ----------
    family : str
        As users write it.
    K : int
        Number of categories that the family has, 0 if it is not known.
    name : str
        The response's.
    table : pandas.DataFrame
        The user's rows.

    Raises
    ------
    InputError
        If the family is for numbers, or for another number of categories.
    """
    column = table.get(name.strip("`"))
    if column is None or category_numbers(column) is None:
        return 0
    found = len(column.cat.categories)
    if not family.startswith(("cumulative", "categorical")):
        raise InputError(
            f"response '{name}' has {found} ordered categories, which family {family} does not "
            "know; use family cumulative or categorical, or a column of numbers"
        )
    if K not in (0, found):
        raise InputError(
            f"response '{name}' has {found} ordered categories, family {family} has {K}"
        )
    return found


def category_numbers(column: pd.Series) -> Array | None:
    """Return the positions, from 1, of values among ordered categories; None for other columns."""
    if not getattr(column.dtype, "ordered", False):
        return None
    return np.asarray(column.cat.codes, dtype=float) + 1


def _picked(y: Tensor, values: Mapping[int, Any]) -> Tensor:
    """Return for each row the value of its category, 0 for categories without one."""
    total = y.new_zeros(y.shape)
    for k, value in values.items():
        total = total + (y == k) * value
    return total


def _logistic_between(a: Tensor, b: Tensor, width: Tensor) -> Tensor:
    """Return log(F(b) F(-a) (1 - exp(a - b)))."""
    return functional.logsigmoid(b) + functional.logsigmoid(-a) + (-(-width).expm1()).log()


def _normal_between(a: Tensor, b: Tensor, _: Tensor) -> Tensor:
    """Take the interval in the lower tail, by log(F(b)) + log(1 - F(a) / F(b))."""
    flipped = a + b > 0
    high = torch.special.log_ndtr(torch.where(flipped, -a, b))
    low = torch.special.log_ndtr(torch.where(flipped, -b, a))
    inside: Tensor = high + (-(low - high).expm1()).log()
    return inside


def _log_expit(eta: Tensor) -> Tensor:
    return functional.logsigmoid(eta)


def _log_Phi(eta: Tensor) -> Tensor:
    log_p: Tensor = torch.special.log_ndtr(eta)
    return log_p


def _Phi(eta: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(eta))


NOISE: dict[str, Noise] = {
    "logit": Noise(
        lambda eta: np.exp(-np.logaddexp(0.0, -eta)),
        lambda generator, shape: generator.logistic(size=shape),
        _log_expit,
        _logistic_between,
    ),
    "probit": Noise(
        _Phi,
        lambda generator, shape: generator.standard_normal(shape),
        _log_Phi,
        _normal_between,
    ),
}


CUMULATIVE = "cumulative"
DIGITS = 20  # of a number of categories, that are read: Python refuses to read thousands
MOST_CATEGORIES = 1000  # each has a threshold that is sampled, and text in the program
CUMULATIVE_PROBIT = ("log_Phi.stanfunctions", "cumulative_probit.stanfunctions")
GAP_PRIOR = "lognormal(0, 1)"  # 95% from 0.14 to 7.1; normal on the scale on which NUTS works


def read(options: list[str]) -> Family:
    """Read a link, a number of categories, or both."""
    numbers = [option for option in options if option.isdecimal()]
    links = [option for option in options if option not in numbers]
    if len(numbers) > 1 or len(links) > 1:
        raise InputError(
            f"family {CUMULATIVE} takes a link and a number of categories, as "
            f"'{CUMULATIVE}(logit, 5)', got '{', '.join(options)}'"
        )
    link, K = (links or ["logit"])[0], int((numbers or ["0"])[0][:DIGITS])
    if link not in NOISE:
        refuse_link(CUMULATIVE, link, tuple(NOISE))
    if numbers and K < 2:
        raise InputError(f"family {CUMULATIVE} needs two categories or more, got {K}")
    return of_categories(link, K)


def of_categories(link: str, K: int) -> Family:
    """Return the record of K ordered categories, or of a number that is not known yet."""
    _check_number(K)
    noise, gaps = NOISE[link], gap_names(K)
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
        mean=partial(mean, noise, K),
        log_lik=partial(log_lik, noise, K),
        rng=partial(rng, noise, K),
        density=density + "({y} | {eta}, tau)",
        stan_rng=f"ordered_{'probit' if probit else 'logistic'}_rng({{eta}}, tau)",
        density_functions=CUMULATIVE_PROBIT if probit else (),
        by_row=probit,
        stan_local=(f"vector[{K - 1}] tau = {tau};",),
        probabilities=partial(probabilities, noise, K),
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
        return logit_of_mean(above, given)
    name = next(item for item in LINKS if (item.name, item.default) == (link, "logit"))
    rest = {key: values for key, values in given.items() if key != "offsets"}
    return name.units(*logit_of_mean(above, rest), given.get("offsets", np.zeros(1)))
