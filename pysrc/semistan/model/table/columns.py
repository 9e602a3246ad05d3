"""Terms and their columns: what formulaic learns from the training rows, as plain data.

``learn_terms`` makes the state of a set of terms, ``apply_terms`` uses it again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.expression import (
    check_term,
    factors,
    first_argument,
    is_call_of,
    listed_levels,
    variables,
)
from semistan.model.formula.formula import Formula
from semistan.model.formula.syntax import DAYS, MATH
from semistan.model.spelling import marked, spelled, unmarked
from semistan.model.table.canonical import as_numbers, label
from semistan.model.table.kinds import check_numeric, ordered_columns
from semistan.model.table.scale import check_size, check_spread

if TYPE_CHECKING:
    import pandas as pd

POLYNOMIALS = "contrasts=contr.poly"  # as R and brms code ordered factors
LEVEL = (str, int, float)
MOST_SHOWN = 5  # levels that a list lacks
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
    intercept : bool
        Whether an intercept stands beside them; without one, a factor has a column for each level.
    """

    terms: tuple[str, ...]
    columns: tuple[str, ...]
    levels: dict[str, list[Any]]
    transforms: dict[str, Any]
    loc: tuple[float, ...]
    scale: tuple[float, ...]
    ordered: tuple[str, ...] = ()
    intercept: bool = True


class Learnt(Protocol):
    """What a set of columns has learnt from the training rows, as ``Terms`` says."""

    @property
    def terms(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def levels(self) -> dict[str, list[Any]]: ...  # noqa: D102
    @property
    def transforms(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def loc(self) -> tuple[float, ...]: ...  # noqa: D102
    @property
    def scale(self) -> tuple[float, ...]: ...  # noqa: D102


def learn_terms(
    terms: tuple[str, ...],
    coded: Mapping[str, str],
    frame: pd.DataFrame,
    ordered: tuple[str, ...] = (),
    *,
    intercept: bool = True,
) -> tuple[Terms, Array]:
    """Learn terms from the training rows; return their state and columns (N, m).

    Parameters
    ----------
    terms : tuple of str
        The terms.
    coded : mapping
        How formulaic is to read some of their factors.
    frame : pandas.DataFrame
        The training rows, dates in days.
    ordered : tuple of str
        Columns whose levels are ordered.
    intercept : bool
        Whether an intercept stands beside them.

    Raises
    ------
    InputError
        If the terms cannot be evaluated or are not finite, or if the levels that ``C()`` lists
        are not all that the rows have.
    """
    every = [factor for term in terms for factor in factors(term)]
    for factor in dict.fromkeys(every):
        _check_listed(factor, frame)
    functions = (factor for factor in every if not may_be_factor(factor))
    check_numeric(frame, dict.fromkeys(name for f in functions for name in variables(f)))
    plain = {name for f in every if not f.startswith("C(") for name in variables(f)}
    numbers = as_numbers(frame, plain)
    table = _materialise(_formulaic(terms, coded, intercept), numbers)
    levels, state = _levels(table.model_spec), to_plain(table.model_spec.transform_state)
    if any(isinstance(level, float) for found in levels.values() for level in found):
        levels = {name: [_whole(level) for level in found] for name, found in levels.items()}
        table = _materialise(_specification(terms, coded, intercept, state, levels), numbers)
    _check_several(levels)
    matrix, columns = _without_intercept(table, coded, intercept)
    check_finite(matrix, columns, frame)
    for column, spread in zip(columns, np.ptp(matrix, axis=0), strict=True):
        check_spread(column, float(spread))
    loc = tuple(float(value) for value in matrix.mean(axis=0))
    scale = tuple(float(value) for value in matrix.std(axis=0, ddof=1))
    return Terms(terms, columns, levels, state, loc, scale, ordered, intercept), matrix


def learn_structured(terms: tuple[str, ...], frame: pd.DataFrame) -> tuple[Terms, Array]:
    """Learn terms whose coefficients are interpreted: ordered factors by polynomial contrasts."""
    names = dict.fromkeys(name for term in terms for name in variables(term))
    ordered = ordered_columns(frame, names)
    return learn_terms(terms, polynomials(terms, ordered), frame, ordered)


def apply_structured(terms: Terms, table: pd.DataFrame) -> Array:
    """Return the columns (N, m) of what ``learn_structured`` has learnt, all finite."""
    columns = apply_terms(terms, table, polynomials(terms.terms, terms.ordered))
    check_finite(columns, terms.columns, table)
    return columns


def apply_terms(terms: Terms, table: pd.DataFrame, coded: Mapping[str, str]) -> Array:
    """Return the columns (N, m) of learnt terms; parameters and errors as ``learn_terms``."""
    frame = _in_levels(terms, _as_numbers(terms, coded, table))
    _check_levels(terms, frame)
    _check_bounds(terms, frame)
    spec = _specification(terms.terms, coded, terms.intercept, terms.transforms, terms.levels)
    matrix, columns = _without_intercept(_materialise(spec, frame), coded, terms.intercept)
    if columns != terms.columns:
        raise InputError(
            f"the design makes columns {', '.join(columns)} of these data, and it was trained with "
            f"{', '.join(terms.columns)}"
        )
    return matrix


def side_by_side(sets: Sequence[Learnt]) -> Terms:
    """Return several sets of terms as one; what two of them have stands twice."""
    return Terms(
        tuple(term for item in sets for term in item.terms),
        tuple(column for item in sets for column in item.columns),
        {name: levels for item in sets for name, levels in item.levels.items()},
        {name: state for item in sets for name, state in item.transforms.items()},
        tuple(value for item in sets for value in item.loc),
        tuple(value for item in sets for value in item.scale),
    )


def polynomials(terms: tuple[str, ...], ordered: tuple[str, ...]) -> dict[str, str]:
    """Return how factors of ordered columns are coded, unless the formula names contrasts."""
    found = (factor for term in terms for factor in factors(term))
    return {
        factor: with_option(factor, POLYNOMIALS)
        for factor in found
        if may_be_factor(factor) and "contr" not in factor and variables(factor)[0] in ordered
    }


def may_be_factor(factor: str) -> bool:
    """Say whether a factor of a term is a column alone or ``C()`` of one."""
    return factor.startswith("C(") or variables(factor) == (factor.strip("`"),)


def with_option(factor: str, option: str) -> str:
    """Write a factor as ``C()`` with an option: ``g`` and ``C(g)`` as ``C(g, option)``."""
    inside = factor[2:-1] if factor.startswith("C(") else factor
    return f"C({inside}, {option})"


def factor_columns(terms: Terms) -> dict[str, list[Any]]:
    """Return the levels by column; a factor that is no Python expression is a bare name."""
    found: dict[str, list[Any]] = {}
    quoted = {factor for term in terms.terms for factor in factors(term)}
    for factor, levels in terms.levels.items():
        bare = f"`{factor}`" in quoted or ("(" not in factor and not factor.isidentifier())
        (name, *_) = variables(f"`{factor}`" if bare else factor)
        found.setdefault(name, levels)
    return found


def evaluate(expression: str, frame: pd.DataFrame, *, finite: bool = True) -> Array:
    """Return the values (N,) of an expression, or of a number, for each row.

    Raises
    ------
    InputError
        If it is not numeric, not one column, or not finite where it must be.
    """
    names = variables(expression)
    if not names:
        number = re.fullmatch(r"I\((.*)\)|(.*)", expression)
        assert number
        return np.full(len(frame), float(ast.literal_eval(number[1] or number[2])))
    check_numeric(frame, names)
    numbers = as_numbers(frame[list(names)], names)
    values, columns = _without_intercept(_materialise(_formulaic((expression,), {}), numbers), {})
    if len(columns) != 1:
        raise InputError(f"'{expression}' must be one column, got {len(columns)}")
    if finite:
        check_finite(values, (expression,), frame)
    return np.ascontiguousarray(values[:, 0])


def check_finite(matrix: Array, columns: tuple[str, ...], frame: pd.DataFrame) -> None:
    """Refuse values that are not finite, or too large to compute with.

    Raises
    ------
    InputError
        With the first one's column and row.
    """
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"'{columns[column]}' is {matrix[row, column]} in row {row + 1} "
            f"(index {frame.index[row]}); it must be finite after transformation"
        )
    check_size(matrix, columns)


def check_varies(terms: Learnt) -> None:
    """Refuse constant columns.

    Raises
    ------
    InputError
        Naming the first.
    """
    for column, scale, loc in zip(terms.columns, terms.scale, terms.loc, strict=True):
        if not scale > 1e-12 * abs(loc):
            raise InputError(
                f"column '{column}' is constant in these data ({loc:g}); "
                "leave it out of the formula"
            )


def check_collinear(terms: Terms, X: Array) -> None:
    """Refuse columns X (N, P) of which one is a linear combination of the others.

    Raises
    ------
    InputError
        Naming it and these.
    """
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


def terms_from_plain(content: Mapping[str, Any], formula: Formula) -> Terms:
    """Rebuild the state of a formula's terms from JSON data, as ``terms_of_plain`` does.

    Raises
    ------
    ValueError
        If they use columns that the formula does not.
    """
    terms = terms_of_plain(content, formula.text)
    used = {name for term in terms.terms for name in variables(term)} | factor_columns(terms).keys()
    if unknown := used - set(formula.columns):
        raise ValueError(f"{sorted(unknown)} are not in the formula")
    return terms


def terms_of_plain(content: Mapping[str, Any], text: str) -> Terms:
    """Rebuild the state of terms from JSON data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not; ``text`` is shown then.
    KeyError, TypeError, AttributeError, ValueError
        If the data are no terms.
    """
    terms = Terms(
        terms=tuple(content["terms"]),
        columns=tuple(str(column) for column in content["columns"]),
        levels={str(name): list(levels) for name, levels in content["levels"].items()},
        transforms={key: from_plain(value) for key, value in content["transforms"].items()},
        loc=tuple(float(value) for value in content["loc"]),
        scale=tuple(float(value) for value in content["scale"]),
        ordered=tuple(str(name) for name in content.get("ordered", ())),
        intercept=bool(content.get("intercept", True)),
    )
    for term in terms.terms:
        check_term(term, text)
    if not all(isinstance(level, LEVEL) for levels in terms.levels.values() for level in levels):
        raise ValueError("a level is no text and no number")
    sizes = {len(terms.columns), len(terms.loc), len(terms.scale)}
    if len(sizes) > 1 or not np.isfinite([*terms.loc, *terms.scale]).all():
        raise ValueError("columns, locations and scales do not fit")
    return terms


def to_plain(value: Any) -> Any:
    """Turn formulaic's nested state into JSON data; integer keys and arrays are marked."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: to_plain(item) for key, item in value.items()}
        return {"__pairs__": [[_scalar(key), to_plain(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray):
        return {"__array__": value.tolist()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return _scalar(value)


def from_plain(value: Any) -> Any:
    """Undo ``to_plain``."""
    if isinstance(value, Mapping):
        if "__pairs__" in value:
            return {key: from_plain(item) for key, item in value["__pairs__"]}
        if "__array__" in value:
            return np.array(value["__array__"])
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


def _as_numbers(terms: Terms, coded: Mapping[str, str], table: pd.DataFrame) -> pd.DataFrame:
    """Refuse text where the design has numbers; return the table with these in float64."""
    names = {
        name
        for term in terms.terms
        for factor in factors(term)
        if not {spelled(coded.get(factor, factor)), spelled(factor).strip("`")}
        & terms.levels.keys()
        for name in variables(factor)
    }
    check_numeric(table, sorted(names))
    return as_numbers(table, names)


def _in_levels(terms: Terms, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the levels of factors as they were learnt, numbers or text."""
    found = {}
    for name, levels in factor_columns(terms).items():
        of_text = table[name].dtype.kind not in "biuf"
        if of_text and not all(isinstance(level, str) for level in levels):
            known = {label(level): level for level in levels}
            found[name] = [known.get(str(value), value) for value in table[name]]
    return table.assign(**found)


def _without_intercept(
    table: pd.DataFrame, coded: Mapping[str, str], intercept: bool = True
) -> tuple[Array, tuple[str, ...]]:
    """Split off formulaic's intercept, if there is one: the first column, whatever others are.

    A column is named by its factors as the formula has them.
    """
    first = int(intercept)
    columns = [str(column) for column in table.columns[first:]]
    for factor, code in coded.items():
        columns = [column.replace(spelled(code), spelled(factor).strip("`")) for column in columns]
    return np.asarray(table.iloc[:, first:], dtype=float), tuple(map(unmarked, columns))


def _formulaic(terms: tuple[str, ...], coded: Mapping[str, str], intercept: bool = True) -> Any:
    from formulaic import Formula as Formulaic

    written = (":".join(coded.get(factor, factor) for factor in factors(term)) for term in terms)
    return Formulaic(" + ".join((str(int(intercept)), *map(spelled, written))))


def _specification(
    terms: tuple[str, ...],
    coded: Mapping[str, str],
    intercept: bool,
    transforms: Mapping[str, Any],
    levels: Mapping[str, list[Any]],
) -> Any:
    """Return formulaic's specification of terms whose transformations and levels are known."""
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    return ModelSpec(
        formula=_formulaic(terms, coded, intercept),
        transform_state={key: from_plain(value) for key, value in transforms.items()},
        encoder_state={
            name: (Factor.Kind.CATEGORICAL, {"categories": found}) for name, found in levels.items()
        },
    )


def _levels(spec: Any) -> dict[str, list[Any]]:
    """Return the levels of each factor that formulaic found, the first being the reference."""
    return {
        name: [_scalar(level) for level in state["categories"]]
        for name, (_, state) in spec.encoder_state.items()
        if "categories" in state
    }


def _whole(level: Any) -> Any:
    """Return a level that is a whole number as such, which names it without a point."""
    return int(level) if isinstance(level, float) and level.is_integer() else level


def _check_several(levels: Mapping[str, list[Any]]) -> None:
    """Refuse factors of one level, which have no coefficient, as constant numbers are refused."""
    for name, found in levels.items():
        if len(found) < 2:
            raise InputError(
                f"factor '{unmarked(name)}' has one level in these data, {found[0]!r}; leave it "
                "out of the formula"
            )


def _materialise(spec: Any, frame: pd.DataFrame) -> Any:
    from formulaic.errors import FormulaicError

    try:
        with np.errstate(all="ignore"):
            table = frame.rename(columns=marked)
            return spec.get_model_matrix(table, context=CONTEXT, na_action="ignore")
    except (FormulaicError, TypeError, ValueError, ArithmeticError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot evaluate the formula on these data: {reason}") from None


def _check_listed(factor: str, frame: pd.DataFrame) -> None:
    """Refuse a list of levels that is none or lacks some: rows of these would be the reference."""
    levels = listed_levels(factor) if factor.startswith("C(") else None
    if levels is None:
        return
    (name,) = variables(factor)
    listed = isinstance(levels, list | tuple) and all(isinstance(x, LEVEL) for x in levels)
    if not listed or not levels:
        raise InputError(
            f"'{factor}' needs a list of all levels of column '{name}', the reference first, as "
            f"levels=['a', 'b'], got levels={levels!r}"
        )
    rows = frame[name].value_counts(sort=False)
    found = ((_whole(_scalar(level)), n) for level, n in rows.items())
    lacking = {level: n for level, n in found if n and level not in levels}
    if lacking:
        shown = ", ".join(f"{level!r} ({n})" for level, n in [*lacking.items()][:MOST_SHOWN])
        more = ", ..." if len(lacking) > MOST_SHOWN else ""
        raise InputError(
            f"'{factor}' leaves out levels that {sum(lacking.values())} of {len(frame)} rows have: "
            f"{shown}{more}. List these levels, too, or leave their rows out of the data."
        )


def _check_levels(terms: Terms, frame: pd.DataFrame) -> None:
    for name, levels in factor_columns(terms).items():
        unseen = set(frame[name].dropna().unique()) - set(levels)
        if unseen:
            shown = ", ".join(repr(_whole(_scalar(x))) for x in sorted(unseen, key=str))
            known = ", ".join(repr(level) for level in levels)
            raise InputError(
                f"column '{name}' has levels that the model was not trained on: {shown}. "
                f"Known levels: {known}."
            )


def _check_bounds(terms: Terms, frame: pd.DataFrame) -> None:
    """Refuse values outside the range of a spline by ``bs()``, unless it says how to go on."""
    every = (factor for term in terms.terms for factor in factors(term))
    for factor in dict.fromkeys(factor for factor in every if is_call_of((factor,), "bs")):
        state, argument = terms.transforms.get(spelled(factor)), first_argument(factor)
        if not isinstance(state, Mapping) or not argument or "extrapolation" in factor:
            continue
        low, high = (float(state[name]) for name in ("lower_bound", "upper_bound"))
        x = evaluate(argument, frame)
        if (outside := np.flatnonzero((x < low) | (x > high))).size:
            raise InputError(
                f"'{factor}' is a spline from {low:g} to {high:g}, by default the range of the "
                f"training rows, and '{argument}' is {x[outside[0]]:g} in row {outside[0] + 1} "
                f"({outside.size} of {len(x)} rows). Leave such rows out, or fit with bounds that "
                "hold them, as lower_bound= and upper_bound= of bs(), or with s(), which goes on "
                "in a line."
            )


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
