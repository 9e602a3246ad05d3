"""The table of families; a new one is a file with its record, and a line here.

Under another link than its default one, and for the response's categories, a record is made of it:
``bernoulli(probit)``, ``cumulative(logit, 5)``, ``categorical(setosa, versicolor, virginica)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.families import (
    adjacent,
    asym_laplace,
    categorical,
    cox,
    cumulative,
    dirichlet,
    multinomial,
    sequential,
)
from semistan.model.families.bernoulli import BERNOULLI
from semistan.model.families.beta import BETA
from semistan.model.families.beta_binomial import BETA_BINOMIAL
from semistan.model.families.binomial import BINOMIAL
from semistan.model.families.exponential import EXPONENTIAL
from semistan.model.families.family import Dispersion, Family
from semistan.model.families.gamma import GAMMA
from semistan.model.families.gaussian import GAUSSIAN
from semistan.model.families.hurdle import HURDLE_NEGBINOMIAL, HURDLE_POISSON
from semistan.model.families.hurdle_amounts import HURDLE_GAMMA, HURDLE_LOGNORMAL
from semistan.model.families.links import LINKS, linked_units, refuse_link
from semistan.model.families.lognormal import LOGNORMAL
from semistan.model.families.negbinomial import NEGBINOMIAL
from semistan.model.families.ordinal import Ordinal, check_categories
from semistan.model.families.poisson import POISSON
from semistan.model.families.skew_normal import SKEW_NORMAL
from semistan.model.families.student import STUDENT
from semistan.model.families.von_mises import VON_MISES
from semistan.model.families.weibull import WEIBULL
from semistan.model.families.zero_inflated import (
    ZERO_INFLATED_NEGBINOMIAL,
    ZERO_INFLATED_POISSON,
)
from semistan.model.families.zero_one_inflated_beta import ZERO_ONE_INFLATED_BETA

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.formula.formula import Formula

FAMILIES: tuple[Family, ...] = (
    GAUSSIAN,
    POISSON,
    BERNOULLI,
    BINOMIAL,
    NEGBINOMIAL,
    STUDENT,
    LOGNORMAL,
    GAMMA,
    BETA,
    WEIBULL,
    EXPONENTIAL,
    SKEW_NORMAL,
    asym_laplace.ASYM_LAPLACE,
    VON_MISES,
    BETA_BINOMIAL,
    ZERO_INFLATED_POISSON,
    ZERO_INFLATED_NEGBINOMIAL,
    HURDLE_POISSON,
    HURDLE_NEGBINOMIAL,
    HURDLE_GAMMA,
    HURDLE_LOGNORMAL,
    ZERO_ONE_INFLATED_BETA,
)
ORDERED: Mapping[str, Ordinal] = {
    each.NAME: Ordinal(each.NAME, each.LINKS, each.GAP, each.of_categories)
    for each in (cumulative, sequential, adjacent)
}  # of ordered categories
WITH_OPTIONS: Mapping[str, Callable[[list[str]], Family]] = {
    **{name: each.read for name, each in ORDERED.items()},
    sequential.ALIAS: ORDERED[sequential.NAME].read,
    categorical.CATEGORICAL: categorical.read,
    multinomial.MULTINOMIAL: multinomial.read,
    dirichlet.DIRICHLET: dirichlet.read,
    asym_laplace.NAME: asym_laplace.read,
    cox.NAME: cox.read,
}  # whose records depend on the training rows
UNORDERED: Mapping[str, Callable[[Formula, pd.DataFrame, Sequence[str]], tuple[str, ...]]] = {
    categorical.CATEGORICAL: categorical.response_levels,
    multinomial.MULTINOMIAL: multinomial.counted_categories,
    dirichlet.DIRICHLET: dirichlet.composed_categories,
}  # how the table tells what they are
SEVERAL: Mapping[str, Dispersion] = {
    item.name: item for item in (cox.RATIO, *(each.gap for each in ORDERED.values()))
}  # of which training rows say how many there are


def dispersion_keys() -> set[str]:
    """Return the keys in ``[priors]`` of all families' dispersion parameters."""
    parameters = (*(item for record in FAMILIES for item in record.parameters), *SEVERAL.values())
    return {item.key for item in parameters}


def parameter_links(record: Family, names: Iterable[str]) -> dict[str, str]:
    """Return the links of the parameters beside eta, also of named ones of an open number."""
    links = {item.name: item.link for item in record.parameters}
    if record.is_open and record.several:
        links |= dict.fromkeys(names, record.several.link)
    return links


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
    if match[1] in WITH_OPTIONS:
        return WITH_OPTIONS[match[1]](options)
    record = _named(match[1])
    if len(options) > 1:
        raise InputError(f"family {record.name} takes a link alone, got '{text}'")
    return _linked(record, *options) if options else record


def _named(name: str) -> Family:
    for record in FAMILIES:
        if name == record.name or name in record.aliases:
            return record
    known = [alias for record in FAMILIES for alias in (record.name, *record.aliases)]
    raise InputError(f"unknown family '{name}'.{did_you_mean(name, [*known, *WITH_OPTIONS])}")


def _linked(record: Family, name: str) -> Family:
    """Return the record under one of its links."""
    if name == record.link:
        return record
    if name not in record.links:
        refuse_link(record.name, name, (record.link, *record.links))
    link = next(link for link in LINKS if link.name == name and link.default == record.link)
    mean, variance, tails = record.mean, record.variance, record.tails
    assert mean is not None
    return replace(
        record,
        link=name,
        text=f"{record.name}({name})",
        eta_units=partial(linked_units, link, record.eta_units),
        mean=lambda eta, disp: mean(link.to_default(eta), disp),
        log_lik=lambda y, eta, disp: record.log_lik(y, link.tensor(eta), disp),
        rng=lambda eta, disp, generator: record.rng(link.to_default(eta), disp, generator),
        tails=tails
        and replace(
            tails,
            log_below=lambda y, eta, disp: tails.log_below(y, link.tensor(eta), disp),
            log_above=lambda y, eta, disp: tails.log_above(y, link.tensor(eta), disp),
            rng=lambda eta, *rest: tails.rng(link.to_default(eta), *rest),
            mean=lambda eta, *rest: tails.mean(link.to_default(eta), *rest),
        ),
        variance=variance and (lambda eta, disp: variance(link.to_default(eta), disp)),
        glm="",
        is_normal=False,
        cumulant="",
        has_log_lik=False,
        on_default=link.stan,
        in_units_of_y=link.in_units_of_y,
        density_functions=(*link.stan_functions, *record.density_functions),
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
    if not record.ordered:
        return record
    K = record.categories or known or int(y.max())
    check_categories(record.name, y, K, name)
    return ORDERED[record.name].of_categories(record.link, K)
