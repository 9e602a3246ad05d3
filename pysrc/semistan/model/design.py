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
from semistan.model.formula import Formula, check_term, factors, parse_formula, variables
from semistan.model.network import Array
from semistan.model.syntax import DAYS, MATH
from semistan.model.table import (
    check_columns,
    check_kinds,
    check_numeric,
    first_dates,
    in_days,
    is_factor,
    ordered_columns,
    truth_as_numbers,
    used_levels_only,
)

if TYPE_CHECKING:
    import pandas as pd

ALL_LEVELS = "spans_intercept=False"  # the network needs no reference level: it has biases
POLYNOMIALS = "contrasts=contr.poly"  # as R and brms code ordered factors
MANY_LEVELS, TOO_MANY_LEVELS = 50, 1000
CONTEXT = {**MATH, DAYS: lambda days: days}


@dataclass(frozen=True, slots=True)
class Terms:
    """The learnt state of one set of terms.

    Attributes
    ----------
    terms : tuple of str
        The terms, in the formula's order.
    columns : tuple of str
        Names of the resulting columns; the intercept is not among them.
    levels : dict
        Levels of each factor as formulaic names it, the first being the reference.
    transforms : dict
        State of stateful transformations (knots, means, norms), as plain data.
    loc, scale : tuple of float
        Mean and standard deviation of each column over the training rows.
    ordered : tuple of str
        Columns whose levels are ordered; their contrasts are polynomials.
    """

    terms: tuple[str, ...]
    columns: tuple[str, ...]
    levels: dict[str, list[Any]]
    transforms: dict[str, Any]
    loc: tuple[float, ...]
    scale: tuple[float, ...]
    ordered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Design:
    """The learnt design: ``x`` for the structured terms, ``u`` for the network.

    Attributes
    ----------
    formula : str
        The formula as written.
    x, u : Terms
        The learnt states.
    origins : dict
        First training date, in ISO 8601, of each column that ``days()`` counts from there.
    """

    formula: str
    x: Terms
    u: Terms
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the structured coefficients, valid in Stan: ``b_age``, ``b_gb``."""
        return tuple(f"b_{stan_name(column)}" for column in self.x.columns)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in the user's units.

    Attributes
    ----------
    y : array, shape (N,), or None
        Response.
    X, U : arrays, shapes (N, P) and (N, Q)
        Structured design and network inputs.
    index : tuple
        Label of each row.
    frame : pandas.DataFrame, optional
        The columns of the user's table from which these were made.
    """

    y: Array | None
    X: Array
    U: Array
    index: tuple[Any, ...]
    frame: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.U)

    def first(self, n: int) -> Rows:
        """Return the first n rows."""
        return self.take(np.arange(min(n, len(self))))

    def evenly(self, most: int) -> Rows:
        """Return at most so many rows, evenly spaced."""
        return self if len(self) <= most else self.take(evenly_spaced(len(self), most))

    def take(self, positions: np.ndarray) -> Rows:
        """Return the rows at some positions, counted from 0."""
        return Rows(
            None if self.y is None else self.y[positions],
            self.X[positions],
            self.U[positions],
            tuple(self.index[i] for i in positions),
            None if self.frame is None else self.frame.iloc[positions],
        )


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """Return at most so many positions among ``size``, evenly spaced."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(int)


def learn_design(formula: Formula, frame: pd.DataFrame) -> tuple[Design, Rows]:
    """Learn the design from the training rows.

    Parameters
    ----------
    formula : Formula
        The parsed formula.
    frame : pandas.DataFrame
        The training rows, without missing values in the columns that the formula uses.

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
    used = tuple(dict.fromkeys((*variables(formula.response), *formula.predictors)))
    check_columns(frame, used, formula.text)
    y = _response(formula, frame)
    table = used_levels_only(frame[list(used)], formula.predictors)
    origins = first_dates(table, formula.dated)
    numbers = in_days(table, origins)
    check_kinds(numbers, formula.predictors)
    x, X = _learn_structured(formula, numbers)
    u, U = _learn_network(formula, numbers)
    design = Design(formula.text, x, u, origins)
    _check_varies(x)
    _check_varies(u)
    _check_collinear(x, X)
    _check_names(design)
    return design, Rows(y, X, U, tuple(frame.index), table)


def apply_design(design: Design, frame: pd.DataFrame, *, response: bool) -> Rows:
    """Apply a learnt design to rows, for example new ones.

    Parameters
    ----------
    design : Design
        The learnt state.
    frame : pandas.DataFrame
        The rows, without missing values in the columns that the formula uses.
    response : bool
        Whether the response is needed too.

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
    needed = (*(variables(formula.response) if response else ()), *formula.predictors)
    check_columns(frame, needed, formula.text)
    table = in_days(frame[list(dict.fromkeys(needed))], design.origins)
    X, U = (_apply_terms(terms, table, coded) for terms, coded in _coded_terms(design))
    _check_finite(X, design.x.columns, frame)
    _check_finite(U, design.u.columns, frame)
    y = _response(formula, frame) if response else None
    return Rows(y, X, U, tuple(frame.index), table)


def stan_name(column: str) -> str:
    """Turn a design column into a part of a Stan name: ``C(g)[T.b]`` becomes ``gb``."""
    name = re.sub(r"\bC\(([^(),]*)(?:[^()]|\([^()]*\))*\)", r"\1", column)
    name = re.sub(r"\bI\(((?:[^()]|\([^()]*\))*)\)", r"\1", name)
    name = re.sub(r"\[(?:T\.|S\.|H\.|D\.)?([^\]]*)\]", r"\1", name)
    name = re.sub(r"[^A-Za-z0-9]+", "_", name.replace("(", "").replace(")", ""))
    return name.strip("_")


def design_to_plain(design: Design) -> dict[str, Any]:
    """Return the design as JSON-ready data."""
    plain: dict[str, Any] = _plain(asdict(design))
    return plain


def design_from_plain(plain: Mapping[str, Any]) -> Design:
    """Rebuild a design from ``design_to_plain``'s data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not, or the data are no design.
    """
    formula = parse_formula(str(plain["formula"]))
    try:
        x, u = (_terms_from_plain(plain[name], formula) for name in ("x", "u"))
        dates = plain.get("origins", {})
        origins = {name: datetime.fromisoformat(dates[name]).isoformat() for name in formula.dated}
        return Design(formula.text, x, u, origins)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the design is damaged: {error!r}") from None


def _terms_from_plain(content: Mapping[str, Any], formula: Formula) -> Terms:
    terms = Terms(
        terms=tuple(content["terms"]),
        columns=tuple(str(column) for column in content["columns"]),
        levels={str(name): list(levels) for name, levels in content["levels"].items()},
        transforms={key: _from_plain(value) for key, value in content["transforms"].items()},
        loc=tuple(float(value) for value in content["loc"]),
        scale=tuple(float(value) for value in content["scale"]),
        ordered=tuple(str(name) for name in content.get("ordered", ())),
    )
    for term in terms.terms:
        check_term(term, formula.text)
    sizes = {len(terms.columns), len(terms.loc), len(terms.scale)}
    if len(sizes) > 1 or not np.isfinite([*terms.loc, *terms.scale]).all():
        raise ValueError("columns, locations and scales do not fit")
    used = {name for term in terms.terms for name in variables(term)} | factor_columns(terms).keys()
    if unknown := used - set(formula.predictors):
        raise ValueError(f"{sorted(unknown)} are not in the formula")
    return terms


def _learn_structured(formula: Formula, frame: pd.DataFrame) -> tuple[Terms, Array]:
    if "Intercept" in formula.structured:
        raise InputError(
            "column 'Intercept' would be called 'b_Intercept', as the intercept is; rename it"
        )
    ordered = ordered_columns(frame, formula.structured_variables)
    coded = _polynomials(formula.structured, ordered)
    return _learn_terms(formula.structured, coded, frame, ordered)


def _learn_network(formula: Formula, frame: pd.DataFrame) -> tuple[Terms, Array]:
    coded = {
        term: _with_option(term, ALL_LEVELS)
        for term in formula.network
        if term.startswith("C(") or (_may_be_factor(term) and is_factor(frame[variables(term)[0]]))
    }
    return _learn_terms(formula.network, coded, frame)


def _coded_terms(design: Design) -> tuple[tuple[Terms, dict[str, str]], ...]:
    """Return each part's terms with how its factors are coded for formulaic."""
    all_levels = {
        term: coded
        for term in design.u.terms
        if (coded := _with_option(term, ALL_LEVELS)) in design.u.levels
    }
    polynomials = _polynomials(design.x.terms, design.x.ordered)
    return (design.x, polynomials), (design.u, all_levels)


def _polynomials(terms: tuple[str, ...], ordered: tuple[str, ...]) -> dict[str, str]:
    """Return how factors of ordered columns are coded, unless the formula names contrasts."""
    found = (factor for term in terms for factor in factors(term))
    return {
        factor: _with_option(factor, POLYNOMIALS)
        for factor in found
        if _may_be_factor(factor) and "contr" not in factor and variables(factor)[0] in ordered
    }


def _may_be_factor(factor: str) -> bool:
    """Say whether a factor of a term is a column alone or ``C()`` of one."""
    return factor.startswith("C(") or variables(factor) == (factor.strip("`"),)


def _with_option(factor: str, option: str) -> str:
    """Write a factor as ``C()`` with an option: ``g`` and ``C(g)`` as ``C(g, option)``."""
    inside = factor[2:-1] if factor.startswith("C(") else factor
    return f"C({inside}, {option})"


def _learn_terms(
    terms: tuple[str, ...],
    coded: Mapping[str, str],
    frame: pd.DataFrame,
    ordered: tuple[str, ...] = (),
) -> tuple[Terms, Array]:
    every = [factor for term in terms for factor in factors(term)]
    functions = (factor for factor in every if not _may_be_factor(factor))
    check_numeric(frame, dict.fromkeys(name for f in functions for name in variables(f)))
    plain = {name for f in every if not f.startswith("C(") for name in variables(f)}
    table = _materialise(_formulaic(terms, coded), truth_as_numbers(frame, plain))
    spec = table.model_spec
    levels = {
        name: [_scalar(level) for level in state["categories"]]
        for name, (_, state) in spec.encoder_state.items()
        if "categories" in state
    }
    matrix, columns = _without_intercept(table, coded)
    _check_finite(matrix, columns, frame)
    loc = tuple(float(value) for value in matrix.mean(axis=0))
    scale = tuple(float(value) for value in matrix.std(axis=0, ddof=1))
    state = _plain(spec.transform_state)
    return Terms(terms, columns, levels, state, loc, scale, ordered), matrix


def _apply_terms(terms: Terms, table: pd.DataFrame, coded: Mapping[str, str]) -> Array:
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    frame = _as_numbers(terms, coded, table)
    _check_levels(terms, frame)
    spec = ModelSpec(
        formula=_formulaic(terms.terms, coded),
        transform_state={key: _from_plain(value) for key, value in terms.transforms.items()},
        encoder_state={
            name: (Factor.Kind.CATEGORICAL, {"categories": levels})
            for name, levels in terms.levels.items()
        },
    )
    matrix, columns = _without_intercept(_materialise(spec, frame), coded)
    if columns != terms.columns:
        raise InputError(
            f"the design makes columns {', '.join(columns)} of these data, and it was trained with "
            f"{', '.join(terms.columns)}"
        )
    return matrix


def _as_numbers(terms: Terms, coded: Mapping[str, str], table: pd.DataFrame) -> pd.DataFrame:
    """Refuse text where the design has numbers; return the table with truth values as such."""
    names = {
        name
        for term in terms.terms
        for factor in factors(term)
        if not {coded.get(factor, factor), factor.strip("`")} & terms.levels.keys()
        for name in variables(factor)
    }
    check_numeric(table, sorted(names))
    return truth_as_numbers(table, names)


def _without_intercept(
    table: pd.DataFrame, coded: Mapping[str, str]
) -> tuple[Array, tuple[str, ...]]:
    """Split off formulaic's intercept, which is the first column whatever others are called.

    A column is named by its factors as the formula has them.
    """
    columns = [str(column) for column in table.columns[1:]]
    for factor, code in coded.items():
        columns = [column.replace(code, factor.strip("`")) for column in columns]
    return np.asarray(table.iloc[:, 1:], dtype=float), tuple(columns)


def _formulaic(terms: tuple[str, ...], coded: Mapping[str, str]) -> Any:
    from formulaic import Formula as Formulaic

    written = (":".join(coded.get(factor, factor) for factor in factors(term)) for term in terms)
    return Formulaic(" + ".join(("1", *written)))


def _materialise(spec: Any, frame: pd.DataFrame) -> Any:
    from formulaic.errors import FormulaicError

    try:
        with np.errstate(all="ignore"):
            return spec.get_model_matrix(frame, context=CONTEXT, na_action="ignore")
    except (FormulaicError, TypeError, ValueError, ArithmeticError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot evaluate the formula on these data: {reason}") from None


def _response(formula: Formula, frame: pd.DataFrame) -> Array:
    names = variables(formula.response)
    check_numeric(frame, names)
    numbers = truth_as_numbers(frame[list(names)], names)
    y, columns = _without_intercept(_materialise(_formulaic((formula.response,), {}), numbers), {})
    if len(columns) != 1:
        raise InputError(f"response '{formula.response}' must be one column, got {len(columns)}")
    _check_finite(y, (formula.response,), frame)
    return np.ascontiguousarray(y[:, 0])


def _check_finite(matrix: Array, columns: tuple[str, ...], frame: pd.DataFrame) -> None:
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"'{columns[column]}' is {matrix[row, column]} in row {row + 1} "
            f"(index {frame.index[row]}); it must be finite after transformation"
        )


def _check_varies(terms: Terms) -> None:
    for column, scale, loc in zip(terms.columns, terms.scale, terms.loc, strict=True):
        if not scale > 1e-12 * abs(loc):
            raise InputError(
                f"column '{column}' is constant in these data ({loc:g}); "
                "leave it out of the formula"
            )


def _check_collinear(terms: Terms, X: Array) -> None:
    Z = (X - np.array(terms.loc)) / np.array(terms.scale)
    basis = np.zeros((len(Z), 0))
    for j, column in enumerate(terms.columns):
        z = Z[:, j] / np.linalg.norm(Z[:, j])
        residual = z - basis @ (basis.T @ z)
        residual -= basis @ (basis.T @ residual)
        norm = np.linalg.norm(residual)
        if norm < 1e-7:
            weights = np.abs(np.linalg.lstsq(Z[:, :j], Z[:, j], rcond=None)[0])
            others = [terms.columns[i] for i in np.flatnonzero(weights > 1e-6)]
            raise InputError(
                f"structured column '{column}' is collinear with {', '.join(others)}: its "
                "coefficient is not identified. Leave one of them out (splines by cr(), cs() or "
                "cc() need constraints='center')."
            )
        basis = np.column_stack([basis, residual / norm])


def _check_names(design: Design) -> None:
    seen: dict[str, str] = {"b_Intercept": "the intercept", "b_": "an empty name"}
    for name, column in zip(design.coefficients, design.x.columns, strict=True):
        if name in seen:
            raise InputError(
                f"column '{column}' and {seen[name]} would both be called '{name}' in Stan; "
                "rename a column in the data, or make the term a column of its own"
            )
        seen[name] = f"column '{column}'"


def factor_columns(terms: Terms) -> dict[str, list[Any]]:
    """Return the levels by column; a factor that is no Python expression is a bare name."""
    found: dict[str, list[Any]] = {}
    for factor, levels in terms.levels.items():
        bare = "(" not in factor and not factor.isidentifier()
        (name, *_) = variables(f"`{factor}`" if bare else factor)
        found.setdefault(name, levels)
    return found


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


def _check_levels(terms: Terms, frame: pd.DataFrame) -> None:
    for name, levels in factor_columns(terms).items():
        unseen = set(frame[name].dropna().unique()) - set(levels)
        if unseen:
            shown = ", ".join(repr(_scalar(level)) for level in sorted(unseen, key=str))
            known = ", ".join(repr(level) for level in levels)
            raise InputError(
                f"column '{name}' has levels that the model was not trained on: {shown}. "
                f"Known levels: {known}."
            )


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """Turn formulaic's nested state into JSON data; integer keys and arrays are marked."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(item) for key, item in value.items()}
        return {"__pairs__": [[_scalar(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray):
        return {"__array__": value.tolist()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _scalar(value)


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "__pairs__" in value:
            return {key: _from_plain(item) for key, item in value["__pairs__"]}
        if "__array__" in value:
            return np.array(value["__array__"])
        return {key: _from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    return value
