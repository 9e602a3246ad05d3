"""The columns of the user's table that a formula uses: their kinds, grids and typical values.

Effects belong to columns, whatever the formula makes of them: ``log(x)``, ``poly(x, 2)``,
``C(g)``, an interaction, ``nn(log(x), v)``, or several of these at once. A column is changed in
a copy of the table, and the learnt design is applied again.

A column is a factor if the design has learnt levels for it, if it is boolean, or if it has a
monotonic effect; any other column is numeric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.design import Design, apply_design
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.syntax import INPUT_CALLS
from semistan.model.names import MU
from semistan.model.table.columns import factor_columns
from semistan.model.table.imputed import number_column
from semistan.model.table.rows import Rows
from semistan.model.terms.missing_values import MissingValues
from semistan.model.terms.monotonic import Monotonic
from semistan.posterior.draws import Draws
from semistan.posterior.options import KNOWN
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd

FEW_VALUES = 20  # whole numbers with at most this many distinct values are their own grid


@dataclass(frozen=True, slots=True, eq=False)
class Predictors:
    """The columns from which a model predicts.

    Attributes
    ----------
    frame : pandas.DataFrame
        The rows, with these columns only.
    levels : dict of tuples
        Levels of each factor, the reference first; numeric columns are not in it.
    typical : dict
        Columns with a typical value of their own: a grouping column has None, so that the effects
        of its levels are left out, a single number of trials is 1, as in brms, whole numbers
        that are bounds of the response have the whole number next to their mean, and images
        have the one that is nearest to the mean of all, which is no picture of anything itself.
    own : mapping
        The call that reads each column of images and the like.
    """

    frame: pd.DataFrame
    levels: dict[str, tuple[Any, ...]]
    typical: dict[str, Any]
    own: Mapping[str, str] = field(default_factory=dict)


def rows_of(posterior: Posterior, frame: pd.DataFrame) -> Rows:
    """Apply the design to rows, whose levels may be new where groups are not those of the table."""
    unknown = posterior.groups != KNOWN
    return apply_design(posterior.design, frame, response=False, allow_new_levels=unknown)


def filled(posterior: Posterior, table: pd.DataFrame) -> pd.DataFrame:
    """Return what the formula's right-hand side uses, missing values at their posterior means."""
    rows = rows_of(posterior, table)
    frame = rows.frame
    assert frame is not None
    for term, block in zip(posterior.design.mean.terms, rows.predictors[MU].blocks, strict=True):
        if isinstance(term, MissingValues):
            made = (posterior.pooled(partial(_made, name)) for name in term.made_names[:2])
            means = term.expected(block, *(draws.mean(axis=(0, 1)) for draws in made))
            numbers = frame[term.column].astype(float)
            frame = frame.assign(**{term.column: numbers.where(numbers.notna(), means)})
            frame = frame.drop(columns=number_column(term.column), errors="ignore")
    return frame


def _made(name: str, draws: Draws) -> Array:
    return draws.terms[name]


def predictors_of(posterior: Posterior, table: pd.DataFrame) -> Predictors:
    """Select the columns of a table that the formula's right-hand side uses.

    Raises
    ------
    InputError
        If the model cannot predict these rows: columns are missing, levels are unknown, or
        values are not finite.
    """
    design, frame = posterior.design, filled(posterior, table)
    boolean = {name: (False, True) for name in frame.columns if frame[name].dtype.kind == "b"}
    imputed = (term.known for term in design.terms if isinstance(term, MissingValues))
    sets = (*imputed, *(item.x for item in design.others), design.x, design.u)
    learnt = {name: levels for terms in sets for name, levels in factor_columns(terms).items()}
    formula = parse_formula(design.formula)
    groups = (group for part in formula.predictors for group in part.groups)
    grouping = {name for group in groups for name in group.levels_of}
    of_groups = {name: tuple(sorted(frame[name].unique(), key=str)) for name in grouping}
    typical: dict[str, Any] = dict.fromkeys(formula.grouping)
    own = {name: frame[name] for name in formula.own_columns}
    typical |= {name: _typical_of_own(column) for name, column in own.items()}
    typical |= {name: 1 for name in frame.columns if name == formula.trials}
    whole = (name for name in formula.bounding if (frame[name] % 1 == 0).all())
    typical |= {name: float(frame[name].mean().round()) for name in whole}
    levels = of_groups | boolean | {name: tuple(levels) for name, levels in learnt.items()}
    for term in design.terms:
        if isinstance(term, Monotonic) and term.expression in frame.columns:
            levels[term.expression] = term.categories
    return Predictors(frame, levels, typical, formula.own_columns)


def check_variables(design: Design, names: Iterable[str]) -> tuple[str, ...]:
    """Return names of predictors as a tuple without repetitions.

    Raises
    ------
    InputError
        For the response, and for names that the formula does not use, with the nearest one.
    """
    formula = parse_formula(design.formula)
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name in formula.columns:
            continue
        known = ", ".join(formula.columns)
        if name in variables(formula.response):
            raise InputError(
                f"'{name}' is the response of formula '{formula.text}'; choose among the columns "
                f"that explain it: {known}"
            )
        raise InputError(
            f"formula '{formula.text}' does not use a column '{name}'."
            f"{did_you_mean(name, formula.columns)}"
        )
    return chosen


def spared(design: Design, names: Iterable[str]) -> tuple[str, ...]:
    """Return the predictors with networks, whose networks take none of these columns."""
    taken: dict[str, set[str]] = {}
    for network in parse_formula(design.formula).networks:
        terms = (*network.arguments, *([network.times] if network.times else []))
        columns = {column for term in terms for column in variables(term)}
        for predictor in network.of:
            taken[predictor] = taken.get(predictor, set()) | columns
    return tuple(name for name, columns in taken.items() if columns.isdisjoint(names))


def check_no_images(predictors: Predictors, names: Iterable[str]) -> None:
    """Refuse columns of images, which have no values to go through.

    Raises
    ------
    InputError
        Naming the first.
    """
    for name in names:
        if name in predictors.own:
            noun = INPUT_CALLS[predictors.own[name]].noun
            raise InputError(
                f"'{name}' is a column of {noun}, which has no effect to be drawn or averaged; "
                "semistan importance says how much the predictions owe to it"
            )


def held_at(values: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return columns that hold these values in all rows."""
    return {
        name: [value] * rows if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def check_at_least(name: str, value: int, least: int) -> None:
    """Refuse a number below its least sensible value.

    Raises
    ------
    InputError
        With the name and the value.
    """
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")


def sample_positions(
    size: int, rows: int | None, generator: np.random.Generator | None
) -> npt.NDArray[np.intp]:
    """Draw this many of ``size`` positions, in increasing order; all if None or too many.

    Raises
    ------
    InputError
        If the number is below 1, or a generator is needed and missing.
    """
    if rows is None:
        return np.arange(size)
    check_at_least("rows", rows, 1)
    if rows >= size:
        return np.arange(size)
    if generator is None:
        raise InputError("a sample of rows needs a generator, as numpy.random.default_rng(1)")
    return np.sort(generator.choice(size, rows, replace=False))


def grid_of(predictors: Predictors, names: Sequence[str], resolution: int) -> pd.DataFrame:
    """Cross the values at which some columns are shown; the last one varies fastest.

    A factor has its levels, whole numbers with few distinct values have these, and any other
    numeric column has ``resolution`` points from its smallest to its largest value.

    Raises
    ------
    InputError
        If the resolution is below 2.
    """
    check_at_least("resolution", resolution, 2)
    check_no_images(predictors, names)
    first, *others = (_values(predictors, name, resolution) for name in names)
    for other in others:
        first = first.merge(other, how="cross")
    return first


def typical_values(predictors: Predictors, at: Mapping[str, Any]) -> dict[str, Any]:
    """Return one value of every column, as brms does: the mean, or a factor's first level.

    Parameters
    ----------
    predictors : Predictors
        The columns.
    at : mapping
        Values that replace these. A level or a number may be given as text.

    Raises
    ------
    InputError
        For unknown names and levels, and values of numeric columns that are no finite number.
    """
    names = [str(name) for name in predictors.frame.columns]
    for name in at:
        if name not in names:
            raise InputError(f"at= names '{name}'.{did_you_mean(str(name), names)}")
    return {
        name: _held(predictors, name, at[name]) if name in at else _typical(predictors, name)
        for name in names
    }


def _values(predictors: Predictors, name: str, resolution: int) -> pd.DataFrame:
    import pandas as pd

    if name in predictors.levels:
        return pd.DataFrame({name: list(predictors.levels[name])})
    distinct = np.unique(predictors.frame[name].to_numpy())
    if distinct.size <= FEW_VALUES and np.array_equal(distinct, np.round(distinct)):
        return pd.DataFrame({name: distinct})
    return pd.DataFrame({name: np.linspace(distinct[0], distinct[-1], resolution)})


def _typical(predictors: Predictors, name: str) -> Any:
    if name in predictors.typical:
        return predictors.typical[name]
    if name in predictors.levels:
        return predictors.levels[name][0]
    return float(predictors.frame[name].mean())


def _typical_of_own(images: pd.Series) -> Any:
    """Return the image, or any array, nearest to the mean of all; of others the most frequent."""
    if np.ndim(images.iloc[0]) == 0:
        return images.mode().iloc[0]
    stacked = np.stack(list(images)).astype(float)
    return images.iloc[int(np.square(stacked - stacked.mean(axis=0)).sum(axis=1).argmin())]


def _held(predictors: Predictors, name: str, value: Any) -> Any:
    if name not in predictors.levels:
        return _number(name, value)
    levels = predictors.levels[name]
    for level in levels:
        if level == value or str(level) == str(value):
            return level
    raise InputError(f"column '{name}' has no level '{value}'.{did_you_mean(str(value), levels)}")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(f"column '{name}' is numeric; at= needs a finite number, got {value!r}")
    return number
