"""From a table to numbers: what is learnt from the training rows, and its use on new rows.

The learnt state (factor levels, transformation states, locations and scales) is plain data;
``learn_design`` makes it, ``apply_design`` uses it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.categorical import category_codes, predictor_name
from semistan.model.families.ordinal import category_numbers
from semistan.model.formula.expression import factors, variables
from semistan.model.formula.formula import Formula, parse_formula
from semistan.model.names import MU, tells
from semistan.model.predictor import (
    INTERCEPT,
    NetworkSlope,
    Predictor,
    learn_predictor,
    predictor_from_plain,
    predictor_to_plain,
)
from semistan.model.spelling import in_formula
from semistan.model.table.canonical import KINDS, LEVEL, canonical, canonical_names, kinds_of
from semistan.model.table.columns import (
    Terms,
    check_finite,
    check_varies,
    evaluate,
    factor_columns,
    may_be_factor,
    side_by_side,
)
from semistan.model.table.disguised import check_disguised
from semistan.model.table.given import given_values
from semistan.model.table.imputed import numbers_in, with_numbers
from semistan.model.table.input_kinds import inputs_from_plain, learn_inputs
from semistan.model.table.inputs import Inputs
from semistan.model.table.kinds import (
    check_columns,
    check_kinds,
    first_dates,
    in_days,
    used_levels_only,
)
from semistan.model.table.multiplied import check_multiplied, multiplied_by
from semistan.model.table.rows import Columns, Rows
from semistan.model.table.trunk_file import TrunkFile
from semistan.model.terms.group import Group
from semistan.model.terms.group_across import across

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.terms.term import Term

_NO_TEXT = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|True|False")  # a level that was no text in a file
MANY_LEVELS, TOO_MANY_LEVELS = 50, 1000
MOST_NAMED = 10  # new levels


@dataclass(frozen=True, slots=True)
class Design:
    """The learnt design: the predictors with their terms, and the networks' inputs.

    Attributes
    ----------
    formula : str
        The formula as written.
    predictors : tuple of Predictor
        The learnt predictors, that of the mean first.
    networks : tuple of Inputs
        The learnt states of each network's inputs, predictor by predictor.
    origins : dict
        First training date, in ISO 8601, of each column that ``days()`` counts from there.
    categories : tuple of str
        The response's unordered categories, the reference first; empty for other responses.
    kinds : dict
        Whether each column that predictions need holds numbers, truth values or levels; those of
        dates are not among them.
    """

    formula: str
    predictors: tuple[Predictor, ...]
    networks: tuple[Inputs, ...]
    origins: dict[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)

    @property
    def mean(self) -> Predictor:
        """The predictor of the mean, or of the second category."""
        return self.predictors[0]

    @property
    def others(self) -> tuple[Predictor, ...]:
        """The predictors behind commas."""
        return self.predictors[1:]

    def predictor(self, name: str) -> Predictor:
        """Return a predictor by its name."""
        return next(item for item in self.predictors if item.name == name)

    @property
    def mean_name(self) -> str:
        """Name of the linear predictor, if it is called after a category: ``muversicolor``."""
        return predictor_name(self.categories[1]) if self.categories else ""

    @property
    def of_categories(self) -> tuple[Predictor, ...]:
        """The predictors of unordered categories after the second."""
        names = set(map(predictor_name, self.categories))
        return tuple(item for item in self.others if item.name in names)

    @property
    def of_dispersion(self) -> tuple[Predictor, ...]:
        """The predictors of dispersion parameters that are no categories'."""
        names = {item.name for item in self.of_categories}
        return tuple(item for item in self.others if item.name not in names)

    @property
    def varying(self) -> tuple[str, ...]:
        """The dispersion parameters that have a predictor."""
        return tuple(predictor.name for predictor in self.others)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all predictors that have parameters of their own."""
        return tuple(term for predictor in self.predictors for term in predictor.terms)

    @property
    def network_predictors(self) -> tuple[str, ...]:
        """The predictor that each output of the networks is of; empty if all are the mean's."""
        return self.outputs if {*self.outputs} != {MU} else ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The predictor that each output of the networks is of."""
        networks = parse_formula(self.formula).networks
        return tuple(name for network in networks for name in network.of)

    @property
    def slopes(self) -> tuple[NetworkSlope, ...]:
        """The coefficients that are networks, of all predictors."""
        return tuple(slope for predictor in self.predictors for slope in predictor.slopes)

    @property
    def u(self) -> Terms:
        """The inputs of all networks side by side, the columns of U."""
        return side_by_side(self.networks)

    @property
    def of_images(self) -> bool:
        """Whether some networks take pixels."""
        return any(inputs.pixels_of for inputs in self.networks)

    @property
    def trunks(self) -> dict[str, TrunkFile]:
        """The file that made the embeddings of each column that has some."""
        return {name: file for item in self.networks for name, file in item.trunks.items()}

    @property
    def text_columns(self) -> frozenset[str]:
        """The columns that were text in training, as which new rows in text files are read."""
        formula, kinds = parse_formula(self.formula), self.kinds
        levels = formula.levels or self.categories
        words = any(not _NO_TEXT.fullmatch(level) for level in levels)
        response = {formula.response.strip("`")} if words else set()
        return frozenset({name for name, kind in kinds.items() if kind == LEVEL} | response)

    @property
    def given(self) -> tuple[str, ...]:
        """What is known of each training row: ``weights``, ``trials``, ``cens``, ``lb``, ..."""
        formula = parse_formula(self.formula)
        present = {
            "weights": formula.weights, "trials": formula.trials, "se": formula.se,
            "cens": formula.cens[:1], "y2": formula.cens[1:], "lb": formula.lb, "ub": formula.ub,
        }  # fmt: skip
        return tuple(name for name, text in present.items() if text)

    @property
    def x(self) -> Terms:
        """The learnt state of the mean's structured terms."""
        return self.mean.x

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the mean's structured coefficients, valid in Stan: ``b_age``, ``b_gb``."""
        return self.mean.coefficients

    @property
    def intercept(self) -> str:
        """Name of the mean's intercept."""
        return self.mean.intercept

    @property
    def respelled(self) -> dict[str, str]:
        """The columns that the names of their coefficients do not tell, by these names."""
        return {
            name: column
            for predictor in self.predictors
            for name, column in zip(predictor.names[1:], predictor.columns_named[1:], strict=True)
            if not tells(name, column)
        }


def learn_design(
    formula: Formula,
    frame: pd.DataFrame,
    categories: tuple[str, ...] = (),
    links: Mapping[str, str] | None = None,
    related: Mapping[str, pd.DataFrame] | None = None,
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
    links : mapping, optional
        What the predictors behind commas are of, if not the logarithm, or categories' log odds.
    related : mapping of DataFrames, optional
        The covariances of levels, by the names of their files.

    Returns
    -------
    Design
        The learnt state.
    Rows
        Response, X (N, P) and U (N, Q) in the user's units.

    Raises
    ------
    InputError
        For missing columns, unusable values, constant or collinear columns, or names that clash.
    """
    if len(frame) < 2:
        raise InputError(f"a fit needs at least two rows of data, got {len(frame)}")
    used = tuple(dict.fromkeys((*formula.outcome, *formula.columns)))
    check_columns(frame, used, formula.text)
    table = canonical(with_numbers(formula, frame[list(used)]), canonical_names(formula))
    y = response_values(formula, table, categories)
    table = used_levels_only(table, formula.columns)
    origins = first_dates(table, formula.dated)
    numbers = in_days(table, origins)
    needed = canonical_names(formula, response=False)
    check_kinds(numbers, needed)
    check_disguised(numbers, _bare(formula))
    _check_intercept_column(formula)
    inputs = [learn_inputs(network, numbers) for network in formula.networks]
    predictors, columns = _learn_predictors(formula, numbers, inputs, categories, links, related)
    design = Design(
        formula.text, predictors, tuple(terms for terms, _ in inputs), origins, categories,
        kinds_of(table, [name for name in needed if name not in origins]),
    )  # fmt: skip
    for terms in design.networks:
        check_varies(terms)
    _check_names(design)
    given = given_values(formula, numbers, response=True)
    U = np.hstack([matrix for _, matrix in inputs])
    return design, Rows(y, columns, U, tuple(frame.index), table, given)


def _learn_predictors(
    formula: Formula,
    numbers: pd.DataFrame,
    inputs: Sequence[tuple[Inputs, Array]],
    categories: tuple[str, ...],
    links: Mapping[str, str] | None,
    related: Mapping[str, pd.DataFrame] | None,
) -> tuple[tuple[Predictor, ...], dict[str, Columns]]:
    """Learn all predictors and their columns, and check these against what networks multiply."""
    multiplied = multiplied_by([item for item, _ in inputs])
    prefixes, default = _prefixes(formula, categories), _default_link(categories)
    learnt = [
        learn_predictor(
            part,
            numbers,
            prefix,
            (links or {}).get(part.name, default),
            [multiplied[place] for place in formula.places(part)],
            related,
        )
        for part, prefix in zip(formula.predictors, prefixes, strict=True)
    ]
    for part, (predictor, found) in zip(formula.predictors, learnt, strict=True):
        own = [inputs[place] for place in formula.places(part)]
        check_multiplied(predictor.x, found.X, own)
    predictors = tuple(predictor for predictor, _ in learnt)
    return _linked(predictors), {predictor.name: found for predictor, found in learnt}


def _linked(predictors: tuple[Predictor, ...]) -> tuple[Predictor, ...]:
    """Let the group-level terms of one ID have correlated effects."""
    groups = [(p.name, term) for p in predictors for term in p.terms if isinstance(term, Group)]
    found: Mapping[Any, Term] = across(groups)
    return tuple(
        replace(each, terms=tuple(found.get(term, term) for term in each.terms))
        for each in predictors
    )


def _bare(formula: Formula) -> tuple[str, ...]:
    """Return the columns that are terms as they are, numbers or factors by their values."""
    terms = (term for part in formula.predictors for term in part.expressions)
    bare = (f for term in terms for f in factors(term) if may_be_factor(f) and f[:2] != "C(")
    own = formula.own_columns
    return tuple(dict.fromkeys(v for f in bare for v in variables(f) if v not in own))


def _prefixes(formula: Formula, categories: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the names of each predictor's coefficients start with."""
    mean = f"b_{predictor_name(categories[1])}_" if categories else "b_"
    return (mean, *(f"b_{part.name}_" for part in formula.others))


def _default_link(categories: tuple[str, ...]) -> str:
    return "identity" if categories else "log"


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
        raise InputError("the table has a header but no rows")
    needed = (*(formula.outcome if response else ()), *formula.columns)
    check_columns(frame, needed, formula.text)
    needed = (*needed, *numbers_in(formula, frame))
    counted = in_days(frame[list(dict.fromkeys(needed))], design.origins)
    table = canonical(counted, canonical_names(formula), design.kinds)
    U = np.hstack([inputs.numbers(table) for inputs in design.networks])
    check_finite(U, design.u.columns, frame)
    y = response_values(formula, table, design.categories) if response else None
    columns = {
        predictor.name: predictor.columns(table, allow_new_levels=allow_new_levels)
        for predictor in design.predictors
    }
    given = given_values(formula, table, response=response)
    return Rows(y, columns, U, tuple(frame.index), table, given)


def response_values(
    formula: Formula, frame: pd.DataFrame, categories: tuple[str, ...] = ()
) -> Array:
    """Evaluate the response (N,), or counts or shares (N, K); categories are numbered from 1."""
    if formula.counted:
        return np.column_stack([evaluate(in_formula(name), frame) for name in formula.counted])
    name = formula.response.strip("`")
    column = frame.get(name)
    if categories and column is not None:
        return category_codes(column, categories, name)
    numbers = None if column is None else category_numbers(column)
    return evaluate(formula.response, frame) if numbers is None else numbers


def design_to_plain(design: Design) -> dict[str, Any]:
    """Return the design as JSON-ready data."""
    mean = predictor_to_plain(design.mean)
    terms = {key: value for key, value in mean.items() if key not in ("name", "link", "x")}
    others = [predictor_to_plain(predictor) for predictor in design.others]
    return {
        "formula": design.formula,
        "x": mean["x"],
        "networks": [inputs.to_plain() for inputs in design.networks],
        "origins": design.origins,
        **terms,
        **({"parameters": others} if others else {}),
        **({"categories": list(design.categories)} if design.categories else {}),
        "kinds": design.kinds,
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
    formula, of_networks = parse_formula(str(plain["formula"])), plain["networks"]
    parts = [{**plain, "name": MU}]  # what the mean has stands beside the design's own
    try:
        parts += plain.get("parameters", [])
        if [part["name"] for part in parts] != [part.name for part in formula.predictors]:
            raise ValueError("the predictors are not the formula's")
        networks = tuple(
            inputs_from_plain(item, formula, network)
            for item, network in zip(of_networks, formula.networks, strict=True)
        )
        dates = plain.get("origins", {})
        origins = {name: datetime.fromisoformat(dates[name]).isoformat() for name in formula.dated}
        categories = tuple(str(level) for level in plain.get("categories", ()))
        kinds = {str(name): KINDS[KINDS.index(k)] for name, k in plain.get("kinds", {}).items()}
        multiplied = multiplied_by(networks)
        predictors = tuple(
            predictor_from_plain(
                part,
                own,
                formula,
                prefix,
                _default_link(categories),
                [multiplied[place] for place in formula.places(own)],
            )
            for part, own, prefix in zip(
                parts, formula.predictors, _prefixes(formula, categories), strict=True
            )
        )
        return Design(formula.text, _linked(predictors), networks, origins, categories, kinds)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the design is damaged: {error!r}") from None


def _check_intercept_column(formula: Formula) -> None:
    if INTERCEPT in formula.mean.structured:
        raise InputError(
            "column 'Intercept' would be called 'b_Intercept', as the intercept is; rename it"
        )


def _check_names(design: Design) -> None:
    mean = zip(design.mean.names[1:], design.mean.columns_named[1:], strict=True)
    seen = {name: f"column '{column}'" for name, column in mean}
    for predictor in design.others:
        for name, column in zip(predictor.names, predictor.columns_named, strict=True):
            own = f"'{column}' of {predictor.name}"
            if name in seen:
                raise InputError(
                    f"{own} and {seen[name]} would both be called '{name}' in Stan; rename a "
                    "column in the data"
                )
            seen[name] = own
    for term in design.terms:
        for item in term.hyperparameters():
            if item.name in seen:
                raise InputError(
                    f"two terms would both have a standard deviation '{item.name}'; write them as "
                    "one"
                )
            seen[item.name] = "a term"


def new_levels(design: Design, rows: Rows) -> dict[str, tuple[str, ...]]:
    """Return the levels that the model was not trained on, by their grouping columns."""
    return {
        term.label: block.new
        for predictor in design.predictors
        for term, block in zip(predictor.terms, rows.predictors[predictor.name].blocks, strict=True)
        if isinstance(term, Group) and block.new
    }


def new_levels_text(found: Mapping[str, Sequence[str]]) -> str:
    """Name new levels, and say where their effects come from."""
    each = []
    for name, levels in found.items():
        more = f", ... ({len(levels)} in all)" if len(levels) > MOST_NAMED else ""
        each.append(f"{', '.join(map(repr, levels[:MOST_NAMED]))}{more} of '{name}'")
    return f"new levels, drawn from the distribution of all levels: {'; '.join(each)}"


def factor_notes(design: Design) -> tuple[str, ...]:
    """Return warnings of factors with very many levels, and of dates that are read as text."""
    notes = []
    for name, levels in factor_columns(design.u).items():
        if len(levels) >= MANY_LEVELS:
            too_many = len(levels) >= TOO_MANY_LEVELS
            strong = " That is far too many: group them first." if too_many else ""
            notes.append(
                f"warning: '{name}' in nn() has {len(levels)} levels, each an input of its own "
                f"with few rows to learn from.{strong}"
            )
    structured = {
        name: levels
        for predictor in design.predictors
        for name, levels in factor_columns(predictor.x).items()
    }
    for name, levels in structured.items():
        if len(levels) >= MANY_LEVELS:
            notes.append(
                f"warning: '{name}' has {len(levels)} levels, each a coefficient of its own with "
                f"few rows to learn from; (1 | {in_formula(name)}) makes them effects of a group"
            )
    for name, levels in (structured | factor_columns(design.u)).items():
        if all(isinstance(level, str) and re.match(r"\d{4}-\d\d-\d\d", level) for level in levels):
            notes.append(
                f"warning: '{name}' holds dates as text, each a level of its own; days({name}) is "
                "the number of days since the first"
            )
    return tuple(notes)
