"""Group-level terms ``(1 | mm(g1, g2))``: rows that are of several levels at once.

A row's effect is the weighted sum of those of its levels, as of a pupil who went to two schools:
the columns g1 and g2 name levels of one group. Without weights each counts alike, and by default
the weights of a row are divided by their sum (brms's ``mm``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula
from semistan.model.formula.group_terms import GroupTerm, Members
from semistan.model.streams import Streams
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.group import (
    NO_LEVEL,
    Group,
    group_from_plain,
    group_name,
    group_of_levels,
    labels_in,
    level_labels,
    shared_state,
)
from semistan.model.terms.term import Lines, TensorBlock

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


ALIKE = Members()  # of weights that are all alike


@dataclass(frozen=True, slots=True, eq=False)
class GroupOfMembers(Group):
    """The learnt state of one group-level term with ``mm(g1, g2)``.

    A block's ``level`` is of shape (N, columns), and ``Z`` (N, columns * size) has what the effects
    of each column's level are multiplied with: the weight times what varies.

    Attributes
    ----------
    members : Members
        The weights.
    """

    members: Members = ALIKE

    @property
    def name(self) -> str:
        """The group's part in Stan names: ``mmg1g2``."""
        return "mm" + "".join(group_name((column,)) for column in self.by)

    @property
    def label(self) -> str:
        """The grouping columns as users write them, for tables and messages."""
        return ALIKE.text(self.by)

    @property
    def behind_bar(self) -> str:
        """What users write behind the bar."""
        return self.members.text(self.by)

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        return Group.to_plain(self) | {"members": asdict(self.members)}

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:
        """Return what the effects of each column's level are multiplied with, and the levels.

        Raises
        ------
        InputError
            For levels that the model was not trained on, unless they are allowed, and for weights
            that are negative, or sum to 0 where they are divided by their sum.
        """
        labels = [label for column in self.by for label in level_labels(table, (column,))]
        places, new = self.places(labels, allow_new_levels=allow_new_levels)
        weights = self._weights(table)
        columns = self._columns(table)
        Z = (weights[:, :, None] * columns[:, None, :]).reshape(len(table), -1)
        return Block(Z, places.reshape(len(self.by), len(table)).T.copy(), new)

    def _weights(self, table: pd.DataFrame) -> Array:
        """Return the weight of each column's level in each row, (N, columns)."""
        if not self.members.weights:
            each = 1 / len(self.by) if self.members.scaled else 1.0
            return np.full((len(table), len(self.by)), each)
        weights = np.stack([evaluate(text, table) for text in self.members.weights], axis=1)
        total = weights.sum(axis=1, keepdims=True)
        wrong = (weights < 0).any(axis=1) | (self.members.scaled & (total[:, 0] == 0))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"{self.text}: weights must not be negative"
                f"{', nor all 0 in a row' if self.members.scaled else ''}; got "
                f"{', '.join(f'{x:g}' for x in weights[at])} in row {table.index[at]}"
            )
        return np.asarray(weights / total if self.members.scaled else weights)

    def data_lines(self) -> Lines:
        """Declare the levels of each row, and what their effects are multiplied with."""
        N, columns = f"N_{self.key}", len(self.by)
        lines = [
            (f"int<lower=1> {N};", f"levels of {self.label}"),
            (f"array[N, {columns}] int<lower=1, upper={N}> J_{self.key};", "levels of each row"),
        ]
        if self.only_intercept:
            return [*lines, (f"matrix[N, {columns}] Z_{self.key};", "their weights")]
        M, text = self.effects_text, "columns times the weight of each level"
        return [
            *lines,
            (f"int<lower=1> {M};", "effects that vary by level"),
            (f"matrix[N, {columns} * {M}] Z_{self.key};", text),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return them for some rows."""
        data = {f"N_{self.key}": len(self.levels), f"J_{self.key}": block.level + 1}
        size = {} if self.only_intercept else {self.effects_text: self.size}
        return data | size | {f"Z_{self.key}": block.Z}

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        data = [f"data array[,] int J_{self.key}", f"data matrix Z_{self.key}"]
        return data, [f"matrix r_{self.key}"]

    @property
    def columns_text(self) -> str:
        """What varies times the weights, at the places of each row's levels."""
        key, found = self.key, []
        for j, place in enumerate(self._places(), start=1):
            Z = f"Z_{key}[ : , {place.start + 1} : {place.stop}]"
            found.append(f"columns_by_level({Z}, J_{key}[ : , {j}], N_{key})")
        return " + ".join(found)

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        key, some = self.key, rows.strip("[]")
        each = []
        for j in range(len(self.by)):
            level = f"J_{key}[{some}, {j + 1}]"
            if self.only_intercept:
                each.append(f"Z_{key}[{some}, {j + 1}] .* r_{key}[{level}, 1]")
            else:
                columns = f"{j * self.size + 1} : {(j + 1) * self.size}"
                each.append(f"rows_dot_product(Z_{key}[{some}, {columns}], r_{key}[{level}])")
        return " + ".join(each)

    def value(self, values: Mapping[str, Tensor], block: TensorBlock) -> Tensor:
        """Return what is added to the predictor of each row."""
        r = self.coefficients(values)
        return torch.stack([item.product(r) for item in self._members_of(block)]).sum(dim=0)

    def information(self, bend: Tensor, block: TensorBlock) -> Tensor:
        """Return what rows say of the effects of each level, as if a row were one of each level."""
        each = [Group.information(self, bend, item) for item in self._members_of(block)]
        return torch.stack(each).sum(dim=0)

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised effects add, in the predictor's unit."""
        each = [Group.training_value(self, x, item) for item in self._members_of(block)]
        return torch.stack(each).sum(dim=0)

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised effect multiplies, (n, size)."""
        each = [Group.training_columns(self, item) for item in self._members_of(block)]
        return torch.stack([item for item in each if item is not None]).sum(dim=0)

    def predicted(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N); nothing of level -1."""
        total: Array = np.zeros((len(draws[self.names[2]]), len(block.Z)))
        for item in self._blocks(block):
            total += Group.predicted(self, draws, item, streams)
        return total

    def renewed(self, block: Block) -> Block:
        """Return the rows with new levels in place of each of theirs, and of those of none."""
        columns = len(self.by)
        labels = (*self.levels, *block.new, *(f"{NO_LEVEL} {j}" for j in range(columns)))
        known = len(labels) - columns
        codes = np.where(block.level < 0, known + np.arange(columns), block.level)
        found, level = np.unique(codes, return_inverse=True)
        new = tuple(labels[i] for i in found)
        return Block(block.Z, self.n_levels + level.reshape(codes.shape), new)

    def deviation(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return the standard deviation (S, N) over all levels of what is added to a predictor."""
        pieces, levels = list(self._blocks(block)), block.level.T
        total: Array = np.zeros((len(draws[self.spread[0]]), len(block.Z)))
        for column in np.moveaxis(self.root(draws), -1, 0):
            parts = [column @ item.Z.T for item in pieces]
            for i, one in enumerate(parts):
                for j, other in enumerate(parts):
                    same = np.full(len(block.Z), i == j) | (
                        (levels[i] == levels[j]) & (levels[i] >= 0)
                    )
                    total += one * other * same
        return np.asarray(np.sqrt(total))

    def _blocks(self, block: Block) -> Iterator[Block]:
        """Yield the rows with the level of one column after the other."""
        for j, place in enumerate(self._places()):
            yield Block(block.Z[:, place], block.level[:, j], block.new)

    def _members_of(self, block: TensorBlock) -> Iterator[TensorBlock]:
        for j, place in enumerate(self._places()):
            yield TensorBlock(block.Z[:, place], block.level[:, j])

    def _places(self) -> list[slice]:
        return [slice(j * self.size, (j + 1) * self.size) for j in range(len(self.by))]


def learn_group_members(
    term: GroupTerm, table: pd.DataFrame, key: str = "1", of: str = ""
) -> GroupOfMembers:
    """Learn the levels of all columns together, and what varies.

    Raises
    ------
    InputError
        As ``learn_group``, and for weights that cannot be used.
    """
    assert term.members
    labels = set[str]().union(*(labels_in(table, (one,), term.text) for one in term.by))
    group = _with(group_of_levels(term, table, labels, key, of), term.members)
    group.block(table)  # whose weights must be allowed
    return group


def group_members_from_plain(
    content: Mapping[str, Any], formula: Formula, key: str = "1", of: str = ""
) -> GroupOfMembers:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    plain = content["members"]
    members = Members(tuple(str(text) for text in plain["weights"]), bool(plain["scaled"]))
    return _with(group_from_plain(content, formula, key, of), members)


def _with(group: Group, members: Members) -> GroupOfMembers:
    return GroupOfMembers(**shared_state(group), members=members)
