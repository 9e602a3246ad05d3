"""Group-level terms ``(1 + x | g)``: the levels of g, and the columns whose effects vary.

The effects of a level are normal with mean 0; their standard deviations, and their correlations
unless the bar is double, are sampled. Unlike a factor's levels, new ones can be predicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.formula.formula import Formula, GroupTerm
from semistan.model.names import latin, unique_names
from semistan.model.networks.mlp import Array
from semistan.model.table.columns import Terms, apply_terms, learn_terms, terms_from_plain, to_plain
from semistan.model.table.rows import Block

if TYPE_CHECKING:
    import pandas as pd

    Labels = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The learnt state of one group-level term.

    Attributes
    ----------
    by : tuple of str
        The columns whose combinations are the levels.
    levels : tuple of str
        The levels of the training rows.
    effects : tuple of str
        Names in Stan of what varies: ``Intercept``, then the columns.
    intercept : bool
        Whether the intercept is among them.
    terms : Terms
        The learnt state of the columns.
    correlated : bool
        Whether the correlations of several effects are sampled.
    """

    by: tuple[str, ...]
    levels: tuple[str, ...]
    effects: tuple[str, ...]
    intercept: bool
    terms: Terms
    correlated: bool

    @property
    def size(self) -> int:
        """Number of effects of each level."""
        return len(self.effects)

    @property
    def name(self) -> str:
        """The group's part in Stan names: ``g``, ``g_h`` of ``g:h``."""
        return group_name(self.by)

    @property
    def labels(self) -> tuple[str, ...]:
        """What varies, by its name in the table: ``Intercept``, then the columns."""
        return (*("Intercept",) * self.intercept, *self.terms.columns)

    @property
    def spread(self) -> tuple[str, ...]:
        """Names of the standard deviations: ``sd_g__Intercept``."""
        return tuple(f"sd_{self.name}__{effect}" for effect in self.effects)

    @property
    def correlations(self) -> tuple[str, ...]:
        """Names of the correlations, of ``pairs`` of effects."""
        return tuple(
            f"cor_{self.name}__{self.effects[j]}__{self.effects[i]}" for i, j in self.pairs
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the correlations, row by row of the lower triangle."""
        if not self.correlated:
            return ()
        return tuple((i, j) for i in range(self.size) for j in range(i))

    @property
    def units(self) -> Array:
        """Standard deviation of what each effect multiplies, 1 for the intercept."""
        return np.array([1.0] * self.intercept + list(self.terms.scale))

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:
        """Return the columns (N, size) and the level of each row.

        A row whose grouping column is None is of no level: it has none of the effects.

        Raises
        ------
        InputError
            For levels that the model was not trained on, unless they are allowed.
        """
        labels = level_labels(table, self.by)
        known = {label: i for i, label in enumerate(self.levels)}
        new = tuple(sorted({label for label in labels if label is not None} - known.keys()))
        if new and not allow_new_levels:
            shown = ", ".join(repr(label) for label in new[:5]) + ", ..." * (len(new) > 5)
            raise InputError(
                f"'{':'.join(self.by)}' has levels that the model was not trained on: {shown}. "
                "Predict them as drawn from their distribution with --allow-new-levels."
            )
        codes = known | {label: len(known) + i for i, label in enumerate(new)}
        level = np.array([-1 if x is None else codes[x] for x in labels], dtype=int)
        return Block(self._columns(table), level, new)

    def _columns(self, table: pd.DataFrame) -> Array:
        columns = np.ones((len(table), int(self.intercept)))
        if not self.terms.terms:
            return columns
        return np.hstack([columns, apply_terms(self.terms, table, {})])


def learn_group(term: GroupTerm, table: pd.DataFrame) -> tuple[Group, Block]:
    """Learn the levels and the columns from the training rows.

    Parameters
    ----------
    term : GroupTerm
        The parsed term.
    table : pandas.DataFrame
        The training rows.

    Raises
    ------
    InputError
        If there is only one level, or two have one label; or the columns cannot be used.
    """
    empty = Terms((), (), {}, {}, (), ())
    terms = learn_terms(term.terms, {}, table)[0] if term.terms else empty
    labels = level_labels(table, term.by)
    levels = tuple(sorted({label for label in labels if label is not None}))
    if len(levels) < len(table[list(term.by)].dropna().drop_duplicates()):
        raise InputError(f"{term.text}: two levels of '{':'.join(term.by)}' look alike; rename one")
    if len(levels) < 2:
        raise InputError(
            f"{term.text}: '{':'.join(term.by)}' has one level; a group-level term needs several"
        )
    intercept = ("Intercept",)
    effects = (*intercept * term.intercept, *unique_names(terms.columns, intercept))
    group = Group(term.by, levels, effects, term.intercept, terms,
                  term.correlated and len(effects) > 1)  # fmt: skip
    return group, group.block(table)


def group_name(by: tuple[str, ...]) -> str:
    """Return the name in Stan of grouping columns."""
    return "_".join(re.sub("[^A-Za-z0-9]", "_", latin(column)) for column in by)


def level_labels(table: pd.DataFrame, by: tuple[str, ...]) -> list[str | None]:
    """Return the level of each row as text, ``a_1`` for two columns; None where one is missing."""
    missing = table[list(by)].isna().any(axis=1)
    rows = zip(*(table[column] for column in by), strict=True)
    return [
        None if gone else "_".join(_label(value) for value in row)
        for row, gone in zip(rows, missing, strict=True)
    ]


def group_to_plain(group: Group) -> dict[str, Any]:
    """Return the state as JSON-ready data."""
    from dataclasses import asdict

    plain: dict[str, Any] = to_plain(asdict(group))
    return plain


def group_from_plain(content: Mapping[str, Any], formula: Formula) -> Group:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    terms = terms_from_plain(content["terms"], formula)
    by, levels, effects = (
        tuple(str(item) for item in content[name]) for name in ("by", "levels", "effects")
    )
    intercept = bool(content["intercept"])
    if len(effects) != intercept + len(terms.columns) or not set(by) <= set(formula.predictors):
        raise ValueError("a group-level term's columns do not fit")
    return Group(by, levels, effects, intercept, terms, bool(content["correlated"]))


def _label(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
