"""From a table to numbers: what is learnt from the training rows, and its use on new rows.

The learnt state (factor levels, transformation states, locations and scales) is plain data;
``learn_design`` makes it, ``apply_design`` uses it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.formula import MATH, Formula, parse_formula, variables
from semistan.model.network import Array

if TYPE_CHECKING:
    import pandas as pd


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
        Levels of each factor, the first being the reference.
    transforms : dict
        State of stateful transformations (knots, means, norms), as plain data.
    loc, scale : tuple of float
        Mean and standard deviation of each column over the training rows.
    """

    terms: tuple[str, ...]
    columns: tuple[str, ...]
    levels: dict[str, list[Any]]
    transforms: dict[str, Any]
    loc: tuple[float, ...]
    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """The learnt design: ``x`` for the structured terms, ``u`` for the network."""

    formula: str
    x: Terms
    u: Terms

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

    def take(self, positions: np.ndarray) -> Rows:
        """Return the rows at some positions, counted from 0."""
        return Rows(
            None if self.y is None else self.y[positions],
            self.X[positions],
            self.U[positions],
            tuple(self.index[i] for i in positions),
            None if self.frame is None else self.frame.iloc[positions],
        )


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
    _check_columns(frame, (*variables(formula.response), *formula.predictors), formula.text)
    _check_numeric(frame, formula.network_variables)
    _check_kinds(frame, formula.structured_variables)
    y = _response(formula, frame)
    x, X = _learn_terms(formula.structured, frame)
    u, U = _learn_terms(formula.network, frame)
    design = Design(formula.text, x, u)
    _check_varies(x)
    _check_varies(u)
    _check_collinear(x, X)
    _check_names(design)
    used = [*variables(formula.response), *formula.predictors]
    return design, Rows(y, X, U, tuple(frame.index), frame[list(dict.fromkeys(used))])


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
        For missing columns, unseen factor levels, or values that are not finite.
    """
    formula = parse_formula(design.formula)
    if len(frame) == 0:
        raise InputError("the data have no rows")
    needed = (*(variables(formula.response) if response else ()), *formula.predictors)
    _check_columns(frame, needed, formula.text)
    _check_numeric(frame, formula.network_variables)
    _check_levels(design, frame)
    X, U = (_apply_terms(terms, frame) for terms in (design.x, design.u))
    _check_finite(X, design.x.columns, frame)
    _check_finite(U, design.u.columns, frame)
    y = _response(formula, frame) if response else None
    return Rows(y, X, U, tuple(frame.index), frame[list(dict.fromkeys(needed))])


def complete_rows(
    formula: Formula, frame: pd.DataFrame, *, response: bool, drop_missing: bool
) -> tuple[pd.DataFrame, int]:
    """Return the rows without missing or infinite values, and how many were dropped.

    Raises
    ------
    InputError
        If there are such values and ``drop_missing`` is false, naming columns and counts;
        or if no row is left.
    """
    used = (*(variables(formula.response) if response else ()), *formula.predictors)
    _check_columns(frame, used, formula.text)
    missing = frame[list(dict.fromkeys(used))].apply(_missing)
    bad = missing.any(axis=1)
    if not bad.any():
        return frame, 0
    counts = ", ".join(f"{name} ({n})" for name, n in missing.sum().items() if n)
    if not drop_missing:
        raise InputError(
            f"{int(bad.sum())} of {len(frame)} rows have missing or infinite values: {counts}. "
            "Mend them, or drop these rows with --drop-missing."
        )
    if bad.all():
        raise InputError(f"no row is left after dropping those with missing values: {counts}")
    return frame[~bad], int(bad.sum())


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
    """Rebuild a design from ``design_to_plain``'s data."""

    def terms(content: Mapping[str, Any]) -> Terms:
        return Terms(
            terms=tuple(content["terms"]),
            columns=tuple(content["columns"]),
            levels=dict(content["levels"]),
            transforms={key: _from_plain(value) for key, value in content["transforms"].items()},
            loc=tuple(content["loc"]),
            scale=tuple(content["scale"]),
        )

    return Design(plain["formula"], terms(plain["x"]), terms(plain["u"]))


def _learn_terms(terms: tuple[str, ...], frame: pd.DataFrame) -> tuple[Terms, Array]:
    if "Intercept" in terms:
        raise InputError(
            "column 'Intercept' would be called 'b_Intercept', as the intercept is; rename it"
        )
    table = _materialise(_formulaic(terms), frame)
    spec = table.model_spec
    levels = {
        name: [_scalar(level) for level in state["categories"]]
        for name, (_, state) in spec.encoder_state.items()
        if "categories" in state
    }
    matrix, columns = _without_intercept(table)
    _check_finite(matrix, columns, frame)
    loc = tuple(float(value) for value in matrix.mean(axis=0))
    scale = tuple(float(value) for value in matrix.std(axis=0, ddof=1))
    return Terms(terms, columns, levels, _plain(spec.transform_state), loc, scale), matrix


def _apply_terms(terms: Terms, frame: pd.DataFrame) -> Array:
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    spec = ModelSpec(
        formula=_formulaic(terms.terms),
        transform_state={key: _from_plain(value) for key, value in terms.transforms.items()},
        encoder_state={
            name: (Factor.Kind.CATEGORICAL, {"categories": levels})
            for name, levels in terms.levels.items()
        },
    )
    table = _materialise(spec, frame)
    matrix, columns = _without_intercept(table)
    assert columns == terms.columns
    return matrix


def _without_intercept(table: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
    """Split off formulaic's intercept, which is the first column whatever others are called."""
    columns = tuple(str(column) for column in table.columns[1:])
    return np.asarray(table.iloc[:, 1:], dtype=float), columns


def _formulaic(terms: tuple[str, ...]) -> Any:
    from formulaic import Formula as Formulaic

    return Formulaic(" + ".join(("1", *terms)))


def _materialise(spec: Any, frame: pd.DataFrame) -> Any:
    from formulaic.errors import FormulaicError

    try:
        with np.errstate(all="ignore"):
            return spec.get_model_matrix(frame, context=MATH, na_action="ignore")
    except (FormulaicError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"cannot evaluate the formula on these data: {reason}") from None


def _response(formula: Formula, frame: pd.DataFrame) -> Array:
    _check_numeric(frame, variables(formula.response))
    y, columns = _without_intercept(_materialise(_formulaic((formula.response,)), frame))
    if len(columns) != 1:
        raise InputError(f"response '{formula.response}' must be one column, got {len(columns)}")
    _check_finite(y, (formula.response,), frame)
    return np.ascontiguousarray(y[:, 0])


def _missing(column: pd.Series) -> Any:
    values = column.isna()
    return values | np.isinf(column) if column.dtype.kind == "f" else values


def _check_columns(frame: pd.DataFrame, names: tuple[str, ...], formula: str) -> None:
    known = [str(column) for column in frame.columns]
    for name in names:
        if name not in known:
            raise InputError(
                f"formula '{formula}' names column '{name}', which the data do not have."
                f"{did_you_mean(name, known)}"
            )
        if known.count(name) > 1:
            raise InputError(f"the data have {known.count(name)} columns named '{name}'")


def _check_numeric(frame: pd.DataFrame, names: tuple[str, ...]) -> None:
    for name in names:
        if frame[name].dtype.kind not in "biuf":
            example = frame[name].iloc[0]
            raise InputError(
                f"column '{name}' must be numeric, got {example!r} ({frame[name].dtype}); "
                "the response and the inputs of nn() are numbers: recode it as 0/1 or use "
                "it as a structured term"
            )


def _check_kinds(frame: pd.DataFrame, names: tuple[str, ...]) -> None:
    from pandas.api.types import infer_dtype

    for name in names:
        if frame[name].dtype.kind in "mMc":
            raise InputError(
                f"column '{name}' is of type {frame[name].dtype}, which a structured term "
                "cannot use; turn it into a number or a factor"
            )
        if infer_dtype(frame[name], skipna=True).startswith("mixed"):
            raise InputError(
                f"column '{name}' mixes types ({infer_dtype(frame[name])}); make all its values "
                "numbers or all of them strings"
            )


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


def _check_levels(design: Design, frame: pd.DataFrame) -> None:
    for factor, levels in design.x.levels.items():
        (name, *_) = variables(factor if "(" in factor or factor.isidentifier() else f"`{factor}`")
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
