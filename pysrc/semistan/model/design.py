"""From a table to numbers: what is learnt from the training rows, and its use on new rows.

The learnt state (factor levels, transformation states, locations and scales) is plain data;
``learn_design`` makes it, ``apply_design`` uses it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.families.categorical import category_codes, predictor_name
from semistan.model.families.ordinal import category_numbers
from semistan.model.formula.formula import Formula, SmoothTerm, parse_formula, variables
from semistan.model.names import tells, unique_names
from semistan.model.networks.mlp import MU, Array
from semistan.model.predictor import (
    ParameterDesign,
    learn_parameter,
    parameter_to_plain,
    parameters_from_plain,
)
from semistan.model.spelling import spelled
from semistan.model.table.columns import (
    Terms,
    apply_structured,
    apply_terms,
    check_collinear,
    check_finite,
    check_varies,
    evaluate,
    factor_columns,
    learn_structured,
    learn_terms,
    may_be_factor,
    side_by_side,
    terms_from_plain,
    to_plain,
    with_option,
)
from semistan.model.table.given import given_values
from semistan.model.table.kinds import (
    check_columns,
    check_kinds,
    first_dates,
    in_days,
    is_factor,
    used_levels_only,
)
from semistan.model.table.rows import Block, Rows
from semistan.model.terms.group import Group, group_from_plain, group_to_plain, learn_group
from semistan.model.terms.smooth import Smooth, learn_smooth, smooth_from_plain, smooth_to_plain

if TYPE_CHECKING:
    import pandas as pd

ALL_LEVELS = "spans_intercept=False"  # the network needs no reference level: it has biases
INTERCEPT = "Intercept"
MANY_LEVELS, TOO_MANY_LEVELS = 50, 1000


@dataclass(frozen=True, slots=True)
class Design:
    """The learnt design: ``x`` for the structured terms, ``u`` for the networks.

    Attributes
    ----------
    formula : str
        The formula as written.
    x : Terms
        The learnt state of the structured terms.
    networks : tuple of Terms
        The learnt states of each network's inputs, the mean's networks first.
    origins : dict
        First training date, in ISO 8601, of each column that ``days()`` counts from there.
    smooths : tuple of Smooth
        The learnt bases of ``s()`` terms.
    groups : tuple of Group
        The learnt group-level terms.
    parameters : tuple of ParameterDesign
        The learnt predictors of dispersion parameters.
    categories : tuple of str
        The response's unordered categories, the reference first; empty for other responses.
    """

    formula: str
    x: Terms
    networks: tuple[Terms, ...]
    origins: dict[str, str] = field(default_factory=dict)
    smooths: tuple[Smooth, ...] = ()
    groups: tuple[Group, ...] = ()
    parameters: tuple[ParameterDesign, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def mean_name(self) -> str:
        """Name of the linear predictor, if it is called after a category: ``muversicolor``."""
        return predictor_name(self.categories[1]) if self.categories else ""

    @property
    def of_categories(self) -> tuple[ParameterDesign, ...]:
        """The predictors of unordered categories besides eta."""
        return self.parameters if self.categories else ()

    @property
    def of_dispersion(self) -> tuple[ParameterDesign, ...]:
        """The predictors of dispersion parameters that are no categories'."""
        return () if self.categories else self.parameters

    @property
    def varying(self) -> tuple[str, ...]:
        """The dispersion parameters that have a predictor."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def network_predictors(self) -> tuple[str, ...]:
        """The predictor that each network is of; empty if all are the mean's."""
        further = tuple(p.name for p in self.parameters for _ in range(p.networks))
        return (*(MU,) * (len(self.networks) - len(further)), *further) if further else ()

    @property
    def u(self) -> Terms:
        """The inputs of all networks side by side, the columns of U."""
        return side_by_side(self.networks)

    @property
    def given(self) -> tuple[str, ...]:
        """What is known of each training row: ``offsets``, ``weights``, ``trials``."""
        formula = parse_formula(self.formula)
        present = (formula.offsets, formula.weights, formula.trials)
        names = ("offsets", "weights", "trials")
        return tuple(name for name, text in zip(names, present, strict=True) if text)

    @property
    def penalised(self) -> tuple[Smooth | Group, ...]:
        """The terms whose coefficients have sampled standard deviations."""
        return (*self.smooths, *self.groups)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the structured coefficients, valid in Stan: ``b_age``, ``b_gb``."""
        names = unique_names(self.x.columns, (INTERCEPT,))
        return tuple(f"{self._prefix}{name}" for name in names)

    @property
    def respelled(self) -> dict[str, str]:
        """The columns that the names of their coefficients do not tell, by these names."""
        mean = zip(self.coefficients, self.x.columns, strict=True)
        others = (zip(p.coefficients, p.x.columns, strict=True) for p in self.parameters)
        return {
            name: column
            for pairs in (mean, *others)
            for name, column in pairs
            if not tells(name, column)
        }

    @property
    def intercept(self) -> str:
        """Name of the intercept."""
        return f"{self._prefix}{INTERCEPT}"

    @property
    def _prefix(self) -> str:
        return f"b_{self.mean_name}_" if self.mean_name else "b_"


def learn_design(
    formula: Formula, frame: pd.DataFrame, categories: tuple[str, ...] = ()
) -> tuple[Design, Rows]:
    """Learn the design from the training rows.

    Parameters
    ----------
    formula : Formula
        The parsed formula.
    frame : pandas.DataFrame
        The training rows, without missing values in the columns that the formula uses.
    categories : tuple of str
        The response's unordered categories, the reference first, if it has some.

    Returns
    -------
    Design
        The learnt state.
    Rows
        Response, X (N, P) and U (N, Q) in the user's units.

    Raises
    ------
    InputError
        For missing columns, unusable values, constant or collinear columns, or names that
        clash.
    """
    if len(frame) < 2:
        raise InputError(f"a fit needs at least two rows of data, got {len(frame)}")
    used = tuple(dict.fromkeys((*formula.outcome, *formula.predictors)))
    check_columns(frame, used, formula.text)
    y = response_values(formula, frame, categories)
    table = used_levels_only(frame[list(used)], formula.predictors)
    origins = first_dates(table, formula.dated)
    numbers = in_days(table, origins)
    check_kinds(numbers, formula.predictors)
    x, X = _learn_structured(formula, numbers)
    inputs = [_learn_network(network, numbers) for network in formula.networks]
    U = np.hstack([matrix for _, matrix in inputs])
    smooths = _learn_smooths(formula.smooths, numbers)
    groups = tuple(learn_group(term, numbers)[0] for term in formula.groups)
    networks = tuple(terms for terms, _ in inputs)
    link = "identity" if categories else "log"
    learnt = [learn_parameter(parameter, numbers, link) for parameter in formula.parameters]
    parameters = tuple(parameter for parameter, _ in learnt)
    design = Design(formula.text, x, networks, origins, smooths, groups, parameters, categories)
    check_varies(x)
    check_varies(design.u)
    check_collinear(x, X)
    _check_names(design)
    given = given_values(formula, numbers, response=True)
    blocks, further = _blocks(design, numbers), {p.name: columns for p, columns in learnt}
    return design, Rows(y, X, U, tuple(frame.index), table, given, blocks, further)


def apply_design(
    design: Design, frame: pd.DataFrame, *, response: bool, allow_new_levels: bool = False
) -> Rows:
    """Apply a learnt design to rows, for example new ones.

    Parameters
    ----------
    design : Design
        The learnt state.
    frame : pandas.DataFrame
        The rows, without missing values in the columns that the formula uses.
    response : bool
        Whether the response is needed too.
    allow_new_levels : bool
        Whether group-level terms may have levels that the model was not trained on.

    Raises
    ------
    InputError
        For missing columns, unseen factor levels, text in place of numbers, or values that are
        not finite.

    Notes
    -----
    The rows' ``frame`` has dates in days.
    """
    formula = parse_formula(design.formula)
    if len(frame) == 0:
        raise InputError("the data have no rows")
    needed = (*(formula.outcome if response else ()), *formula.predictors)
    check_columns(frame, needed, formula.text)
    table = in_days(frame[list(dict.fromkeys(needed))], design.origins)
    X = apply_structured(design.x, table)
    U = np.hstack([apply_terms(terms, table, _all_levels(terms)) for terms in design.networks])
    check_finite(U, design.u.columns, frame)
    y = response_values(formula, frame, design.categories) if response else None
    given = given_values(formula, table, response=response)
    blocks = _blocks(design, table, allow_new_levels=allow_new_levels)
    further = {item.name: apply_structured(item.x, table) for item in design.parameters}
    return Rows(y, X, U, tuple(frame.index), table, given, blocks, further)


def response_values(
    formula: Formula, frame: pd.DataFrame, categories: tuple[str, ...] = ()
) -> Array:
    """Evaluate the response; categories are numbered from 1."""
    name = formula.response.strip("`")
    column = frame.get(name)
    if categories and column is not None:
        return category_codes(column, categories, name)
    numbers = None if column is None else category_numbers(column)
    return evaluate(formula.response, frame) if numbers is None else numbers


def _learn_smooths(terms: tuple[SmoothTerm, ...], table: pd.DataFrame) -> tuple[Smooth, ...]:
    expressions = tuple(dict.fromkeys(term.expression for term in terms))
    calls = unique_names(f"s({expression})" for expression in expressions)
    names = dict(zip(expressions, calls, strict=True))
    return tuple(
        learn_smooth(term, evaluate(term.expression, table), names[term.expression])
        for term in terms
    )


def _blocks(
    design: Design, table: pd.DataFrame, *, allow_new_levels: bool = False
) -> tuple[Block, ...]:
    """Return the columns of the smooths and of the group-level terms."""
    smooth = (s.block(evaluate(s.expression, table)) for s in design.smooths)
    group = (g.block(table, allow_new_levels=allow_new_levels) for g in design.groups)
    return (*smooth, *group)


def design_to_plain(design: Design) -> dict[str, Any]:
    """Return the design as JSON-ready data."""
    return {
        "formula": design.formula,
        "x": to_plain(asdict(design.x)),
        "networks": [to_plain(asdict(terms)) for terms in design.networks],
        "origins": design.origins,
        "smooths": [smooth_to_plain(smooth) for smooth in design.smooths],
        "groups": [group_to_plain(group) for group in design.groups],
        **(
            {"parameters": [parameter_to_plain(item) for item in design.parameters]}
            if design.parameters
            else {}
        ),
        **({"categories": list(design.categories)} if design.categories else {}),
    }


def design_from_plain(plain: Mapping[str, Any]) -> Design:
    """Rebuild a design from ``design_to_plain``'s data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not, or the data are no design.
    KeyError
        If they lack a part, as the data of other versions.
    """
    formula, structured = parse_formula(str(plain["formula"])), plain["x"]
    of_networks = plain["networks"]
    try:
        x = terms_from_plain(structured, formula)
        networks = tuple(terms_from_plain(item, formula) for item in of_networks)
        dates = plain.get("origins", {})
        origins = {name: datetime.fromisoformat(dates[name]).isoformat() for name in formula.dated}
        smooths = tuple(smooth_from_plain(item) for item in plain.get("smooths", ()))
        groups = tuple(group_from_plain(item, formula) for item in plain.get("groups", ()))
        categories = tuple(str(level) for level in plain.get("categories", ()))
        link = "identity" if categories else "log"
        parameters = parameters_from_plain(plain.get("parameters", []), formula, link)
        if [smooth.expression for smooth in smooths] != [s.expression for s in formula.smooths]:
            raise ValueError("the smooths are not the formula's")
        if len(networks) != len(formula.networks):
            raise ValueError("the networks are not the formula's")
        return Design(formula.text, x, networks, origins, smooths, groups, parameters, categories)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the design is damaged: {error!r}") from None


def _learn_structured(formula: Formula, frame: pd.DataFrame) -> tuple[Terms, Array]:
    if INTERCEPT in formula.structured:
        raise InputError(
            "column 'Intercept' would be called 'b_Intercept', as the intercept is; rename it"
        )
    return learn_structured(formula.structured, frame)


def _learn_network(arguments: tuple[str, ...], frame: pd.DataFrame) -> tuple[Terms, Array]:
    coded = {
        term: with_option(term, ALL_LEVELS)
        for term in arguments
        if term.startswith("C(") or (may_be_factor(term) and is_factor(frame[variables(term)[0]]))
    }
    return learn_terms(arguments, coded, frame)


def _all_levels(terms: Terms) -> dict[str, str]:
    """Return how formulaic is to read the factors among a network's inputs."""
    coded = {term: with_option(term, ALL_LEVELS) for term in terms.terms}
    return {term: code for term, code in coded.items() if spelled(code) in terms.levels}


def _check_names(design: Design) -> None:
    names = zip(design.coefficients, design.x.columns, strict=True)
    seen = {name: f"column '{column}'" for name, column in names}
    for parameter in design.parameters:
        columns = ("Intercept", *parameter.x.columns)
        for name, column in zip(parameter.names, columns, strict=True):
            own = f"'{column}' of {parameter.name}"
            if name in seen:
                raise InputError(
                    f"{own} and {seen[name]} would both be called '{name}' in Stan; rename a "
                    "column in the data"
                )
            seen[name] = own
    for item in design.penalised:
        for name in item.spread:
            if name in seen:
                raise InputError(
                    f"two terms would both have a standard deviation '{name}'; write them as one"
                )
            seen[name] = "a term"


def factor_notes(design: Design) -> tuple[str, ...]:
    """Return warnings of factors with very many levels, and of dates that are read as text."""
    notes = []
    for name, levels in factor_columns(design.u).items():
        if len(levels) >= MANY_LEVELS:
            strong = " That is far too many: group them first." * (len(levels) >= TOO_MANY_LEVELS)
            notes.append(
                f"warning: '{name}' in nn() has {len(levels)} levels, each an input of its own "
                f"with few rows to learn from.{strong}"
            )
    for name, levels in (factor_columns(design.x) | factor_columns(design.u)).items():
        if all(isinstance(level, str) and re.match(r"\d{4}-\d\d-\d\d", level) for level in levels):
            notes.append(
                f"warning: '{name}' holds dates as text, each a level of its own; days({name}) is "
                "the number of days since the first"
            )
    return tuple(notes)
