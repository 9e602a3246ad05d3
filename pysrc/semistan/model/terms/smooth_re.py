"""Effects of levels as a smooth, ``s(g, bs="re")``: what ``(1 | g)`` is, under mgcv's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.formula.group_terms import GroupTerm
from semistan.model.table.columns import Terms
from semistan.model.table.kinds import is_factor
from semistan.model.terms.group import Group, learn_group, level_labels
from semistan.model.terms.smooth import STORED
from semistan.model.terms.term import Elements, Hyperparameter, View

if TYPE_CHECKING:
    import pandas as pd

LEVELS = "re"  # the bs of effects of levels
INTERCEPT = ("Intercept",)
EMPTY = Terms((), (), {}, {}, (), ())


@dataclass(frozen=True, slots=True, eq=False)
class SmoothOfLevels(Group):
    """The learnt state of ``s(g, bs="re")``.

    Attributes
    ----------
    column : str
        The factor as written.
    smooth_name : str
        The term's part in Stan names: ``sg`` of ``s(g, bs="re")``.
    """

    column: str = ""
    smooth_name: str = ""

    @property
    def stored(self) -> str:
        """The key under which a bundle has smooths."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return TermCall("s", self.column).text

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Smooth", f"{self.text}, effects of {len(self.levels):,} levels"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        names = {"expression": self.column, "name": self.smooth_name}
        return {"bs": LEVELS, "levels": list(self.levels), **names}

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviation: ``sds_sg_1``."""
        text = f"standard deviation of {self.text}"
        return (Hyperparameter(f"sds_{self.smooth_name}_1", text, "sds"),)

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return the effects of the levels."""
        (column,) = self.by
        found = dict(zip(map(str, level_labels(table, self.by)), table[column], strict=True))
        places = tuple(found[level] for level in self.levels)
        elements = np.arange(len(places))
        return (View(self.text, "", self.column, self.spread, elements, places=places),)

    @property
    def elements(self) -> dict[str, Elements]:
        """The effects: ``s_sg[a]``."""
        return {self.names[2]: Elements(f"s_{self.smooth_name}", (self.levels, ("",)))}


def learn_levels(call: TermCall, table: pd.DataFrame, name: str, key: str) -> SmoothOfLevels:
    """Learn the levels.

    Raises
    ------
    InputError
        If the argument is no factor, or has one level.
    """
    by = variables(call.expression)
    if call.by or call.expression.strip("`") != by[0] or not is_factor(table[by[0]]):
        raise InputError(
            f"s({call.expression}, bs='re') takes a column of text or categories; effects of the "
            f"levels of other columns are (1 | {by[0]}), and slopes that vary (0 + x | g)"
        )
    found = learn_group(GroupTerm(call.text, True, (), by, False), table)
    return _of_levels(by, found.levels, call.expression, name, key)


def levels_from_plain(content: Mapping[str, Any], key: str) -> SmoothOfLevels:
    """Rebuild a state that went through JSON."""
    expression, name = str(content["expression"]), str(content["name"])
    levels = tuple(str(level) for level in content["levels"])
    if len(levels) < 2:
        raise ValueError("a smooth's levels do not fit")
    return _of_levels(variables(expression), levels, expression, name, key)


def _of_levels(
    by: tuple[str, ...], levels: tuple[str, ...], column: str, name: str, key: str
) -> SmoothOfLevels:
    return SmoothOfLevels(
        by, levels, INTERCEPT, True, EMPTY, False, f"s{key}", column=column, smooth_name=name
    )
