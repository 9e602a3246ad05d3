"""Group-level terms ``(1 + x || gr(g, by=h))``: standard deviations for each level of h.

Each level of g is of one level of h, as patients are of one treatment. The effects of the levels of
g are normal with mean 0 and the standard deviation of their h, ``sd_g__Intercept_ha`` (brms writes
``sd_g__Intercept:ha``). Several effects are uncorrelated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array, Index
from semistan.model.formula.formula import Formula
from semistan.model.formula.group_terms import GroupTerm, gr_text
from semistan.model.names import unique_names
from semistan.model.streams import Streams
from semistan.model.table.rows import Block
from semistan.model.terms.group import (
    Group,
    group_from_plain,
    learn_group,
    level_labels,
    shared_state,
)
from semistan.model.terms.penalised import Several
from semistan.model.terms.term import Hyperparameter, Lines

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class GroupBy(Several, Group):
    """The learnt state of one group-level term with ``gr(g, by=h)``.

    Attributes
    ----------
    per : str
        The column h.
    per_levels : tuple of str
        Its levels.
    per_of : tuple of int
        The level of h that each level of g is of, counted from 0.
    """

    per: str = ""
    per_levels: tuple[str, ...] = ()
    per_of: tuple[int, ...] = ()

    @property
    def behind_bar(self) -> str:
        """What users write behind the bar."""
        return gr_text(self.by, self.per)

    @property
    def units(self) -> Array:
        """Size of what the effects of each standard deviation multiply, level of h by level."""
        return np.tile(
            [*([1.0] if self.intercept else []), *self.terms.scale], len(self.per_levels)
        )

    @property
    def which(self) -> Index:
        """The standard deviation of each effect, level of g by level."""
        rows = np.array(self.per_of)[:, None] * self.size + np.arange(self.size)
        return np.asarray(rows.ravel())

    @property
    def spread_text(self) -> str:
        """The standard deviations of the effects by the level of h, level of g by level."""
        return f"[{', '.join(self._spread_rows)}][of_{self.key}]"

    @property
    def _spread_rows(self) -> list[str]:
        starts = range(0, len(self.spread), self.size)
        return [f"[{', '.join(self.spread[i : i + self.size])}]" for i in starts]

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        own = {"per": self.per, "per_levels": list(self.per_levels), "per_of": list(self.per_of)}
        return Group.to_plain(self) | own

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations: ``sd_g__Intercept_ha``."""
        pairs = list(product(self.per_levels, range(self.size)))
        names = unique_names(f"{self.named(j)}_{self.per}{level}" for level, j in pairs)
        of = f"by {self.label}, {self.per}"
        return tuple(
            Hyperparameter(
                f"sd_{self.name}__{name}",
                f"standard deviation of {self.effect_labels[j]} {of} = {level}",
                "sd",
                1 / float(unit),
                within=f"sd_{self.name}",
            )
            for name, (level, j), unit in zip(names, pairs, self.units, strict=True)
        )

    def data_lines(self) -> Lines:
        """Declare levels and columns, and the level of h of each level of g."""
        own = f"array[N_{self.key}] int<lower=1, upper={len(self.per_levels)}> of_{self.key};"
        return [*Group.data_lines(self), (own, f"level of {self.per} of each")]

    def data(self, block: Block) -> dict[str, Any]:
        """Return them for some rows."""
        return Group.data(self, block) | {f"of_{self.key}": np.array(self.per_of) + 1}

    def made_lines(self) -> Lines:
        """Declare the effects of the levels."""
        M, key = self.effects_text, self.key
        return [
            (f"matrix[N_{key}, {M}] r_{key}", f"effects of the levels of {self.name}"),
            ("  = [" + ",\n     ".join(self._spread_rows) + f"][of_{key}]", ""),
            (f"    .* {self.names[0]};", ""),
        ]

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:
        """Return columns and levels of some rows; a new level of g has the h of its rows.

        The others keep their own, whatever the column h says of a row: a level's effects are one.

        Raises
        ------
        InputError
            For levels that the model was not trained on, unless those of g are allowed; and where
            a new level of g is of several levels of h.
        """
        block = Group.block(self, table, allow_new_levels=allow_new_levels)
        of = _codes(self.per_levels, level_labels(table, (self.per,)), self.per)
        known = [*self.per_of, *(-1 for _ in block.new)]
        for level, h in zip(block.level, of, strict=True):
            if level < self.n_levels:
                continue
            if known[level] not in (-1, h):
                raise InputError(_several(block.new[level - self.n_levels], self.per, self.by))
            known[level] = h
        return Block(block.Z, block.level, block.new, tuple(known[self.n_levels :]))

    def renewed(self, block: Block) -> Block:
        """Return the rows with a new level, of the same level of h, in place of each of theirs."""
        of = self._per_of(block)
        new = Group.renewed(self, block)
        firsts = np.unique(new.level, return_index=True)[1]
        return replace(new, of_new=tuple(int(h) for h in of[firsts]))

    def deviation(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return the standard deviation (S, N) over all levels of what is added to a predictor."""
        sd = np.stack([draws[name] for name in self.spread], axis=-1)
        sd = sd.reshape(len(sd), len(self.per_levels), self.size)
        each = sd[:, self._per_of(block)] * block.Z
        return np.asarray(np.sqrt(np.square(each).sum(axis=-1)))

    def _per_of(self, block: Block) -> Index:
        """Return the level of h of each row."""
        if (block.level < 0).any():
            raise InputError(
                f"{self.text}: a row without a level of '{self.label}' has no level of "
                f"'{self.per}' either, on which the standard deviation depends; give both"
            )
        return np.array([*self.per_of, *block.of_new])[block.level]

    def _new_levels(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        sd = np.stack([draws[name] for name in self.spread], axis=-1)
        new = []
        for label, h in zip(block.new, block.of_new, strict=True):
            z = streams.normal(*self.spread, label, size=self.size)
            new.append(sd[:, h * self.size : (h + 1) * self.size] * z)
        return np.stack(new, axis=1)


def learn_group_by(term: GroupTerm, table: pd.DataFrame, key: str = "1", of: str = "") -> GroupBy:
    """Learn levels and columns, and the level of h of each level of g.

    Raises
    ------
    InputError
        If a level of g is of several levels of h, if h has one, or if the bar of several effects is
        single.
    """
    group = learn_group(term, table, key, of)
    if group.correlated:
        raise InputError(
            f"{term.text}: effects with gr(g, by=h) are uncorrelated; write two bars, "
            f"'{term.text.replace('|', '||', 1)}'"
        )
    labels = level_labels(table, (term.per,))
    per_levels = tuple(sorted({label for label in labels if label is not None}))
    if len(per_levels) < 2:
        raise InputError(f"{term.text}: '{term.per}' has one level; by needs several")
    per_of = [-1] * len(group.levels)
    codes = _codes(per_levels, labels, term.per)
    for level, h in zip(group.block(table).level, codes, strict=True):
        if per_of[level] not in (-1, h):
            raise InputError(_several(group.levels[level], term.per, term.by))
        per_of[level] = h
    return _with(group, term.per, per_levels, tuple(per_of))


def group_by_from_plain(
    content: Mapping[str, Any], formula: Formula, key: str = "1", of: str = ""
) -> GroupBy:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    group = group_from_plain(content, formula, key, of)
    levels = tuple(str(level) for level in content["per_levels"])
    per_of = tuple(int(h) for h in content["per_of"])
    if len(per_of) != len(group.levels) or not all(0 <= h < len(levels) for h in per_of):
        raise ValueError("the levels of a group-level term do not fit")
    return _with(group, str(content["per"]), levels, per_of)


def _with(group: Group, per: str, levels: tuple[str, ...], per_of: tuple[int, ...]) -> GroupBy:
    return GroupBy(**shared_state(group), per=per, per_levels=levels, per_of=per_of)


def _codes(levels: tuple[str, ...], labels: list[str | None], name: str) -> list[int]:
    known = {level: i for i, level in enumerate(levels)}
    if unknown := sorted({str(label) for label in labels} - known.keys()):
        raise InputError(
            f"'{name}' has levels that the model was not trained on: "
            f"{', '.join(map(repr, unknown[:5]))}"
        )
    return [known[str(label)] for label in labels]


def _several(level: str, per: str, by: tuple[str, ...]) -> str:
    return (
        f"level '{level}' of '{':'.join(by)}' is of several levels of '{per}', but gr(g, by=h) "
        "needs each level of g in one level of h"
    )
