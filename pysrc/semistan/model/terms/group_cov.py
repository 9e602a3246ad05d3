"""Group-level terms ``(1 + x | gr(g, cov='A.csv'))``: levels that are related to one another.

The effects of the levels are normal with mean 0; between levels i and j, their covariances are
those of one level times A[i, j]: A has kinships of animals or a phylogeny of species. With C the
Cholesky factor of A, effects are C z diag(sd) L'. Every level of A has an effect, so that those
which have no rows are predicted from their relatives. Names are brms's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula
from semistan.model.formula.group_terms import GroupTerm, gr_text
from semistan.model.parameter import Parameter
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.table.canonical import as_text
from semistan.model.table.rows import Block
from semistan.model.terms.group import (
    Group,
    group_from_plain,
    group_of_levels,
    labels_in,
    shared_state,
)
from semistan.model.terms.term import Lines, TensorBlock

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

MOST_LEVELS = 2000  # whose covariances a bundle keeps
SAME = 1e-8  # relative difference of numbers that are equal but for rounding


@dataclass(frozen=True, slots=True, eq=False)
class GroupCov(Group):
    """The learnt state of one group-level term with ``gr(g, cov='A.csv')``.

    Attributes
    ----------
    cov : str
        The file.
    factor : array, shape (levels, levels)
        The Cholesky factor of the levels' covariances.
    """

    cov: str = ""
    factor: Array = None  # type: ignore[assignment]  # which every instance is given

    @property
    def behind_bar(self) -> str:
        """What users write behind the bar."""
        return gr_text(self.by, cov=self.cov)

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        rows = [row[: i + 1].tolist() for i, row in enumerate(self.factor)]
        return Group.to_plain(self) | {"cov": self.cov, "factor": rows}

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:
        """Return the standardised effects, and the Cholesky factor of their correlations."""
        *others, z = Group.parameters(self, priors)
        shape, sizes = self.z_shape, self.z_sizes
        return (*others, Parameter(z.name, z.text, shape, sizes, prior=z.prior))

    def data_lines(self) -> Lines:
        """Declare levels, columns and covariances."""
        N = f"N_{self.key}"
        own = f"matrix[{N}, {N}] Lcov_{self.key};"
        return [*Group.data_lines(self), (own, "Cholesky factor of the levels' covariances")]

    def data(self, block: Block) -> dict[str, Any]:
        """Return them for some rows."""
        return Group.data(self, block) | {f"Lcov_{self.key}": self.factor}

    def made_lines(self) -> Lines:
        """Declare the effects of the levels."""
        (declared, text), (made, _) = Group.made_lines(self)
        own = made.lstrip().removeprefix("= ").removesuffix(";")
        return [(declared, text), (f"  = Lcov_{self.key} * ({own});", "")]

    @property
    def columns_text(self) -> str:
        """The levels of each row times their covariances' factor, where one effect varies."""
        return f"{super(GroupCov, self).columns_text} * Lcov_{self.key}" if self.size == 1 else ""

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return r (levels, m) in the user's units."""
        unrelated = Group.coefficients(self, values)
        return self._factor_as(unrelated) @ unrelated

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised effects add, in the predictor's unit."""
        related = self._factor_as(x) @ x.reshape(self.n_levels, -1)
        return Group.training_value(self, related.flatten(), block)

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised effect multiplies, (n, size)."""
        columns = Group.training_columns(self, block)
        assert columns is not None
        each = columns.reshape(len(columns), self.n_levels, -1)
        return torch.einsum("nls,lm->nms", each, self._factor_as(columns)).flatten(1)

    def variances(self, values: Mapping[str, float]) -> Array:
        """Return the prior variances of the coefficients, level by level, without correlations."""
        own = Group.variances(self, values).reshape(self.n_levels, -1)
        return np.asarray((own * self._own[:, None]).ravel())

    def deviation(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return the standard deviation (S, N) of what is added to a predictor, by row's level."""
        known = (block.level >= 0) & (block.level < self.n_levels)
        own: Array = np.ones(len(block.level))
        own[known] = np.sqrt(self._own)[block.level[known]]
        return np.asarray(Group.deviation(self, draws, block) * own)

    @property
    def _own(self) -> Array:
        """The variance of each level, over that of one whose covariance with itself is 1."""
        return np.asarray(np.square(self.factor).sum(axis=1))

    def _factor_as(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.factor).to(x)


def learn_group_cov(
    term: GroupTerm, table: pd.DataFrame, key: str, of: str, related: pd.DataFrame
) -> GroupCov:
    """Learn the columns whose effects vary; the levels are those of the covariances.

    Parameters
    ----------
    term, table, key, of
        As of ``learn_group``.
    related : pandas.DataFrame
        The covariances, as ``covariances`` takes them.

    Raises
    ------
    InputError
        If the covariances cannot be used, or lack a level of the table.
    """
    if len(term.by) > 1:
        raise InputError(f"{term.text}: covariances are of the levels of one column")
    levels, factor = covariances(related, f"{term.text}: '{term.cov}'")
    labels = labels_in(table, term.by, term.text)
    if absent := sorted(labels - {*levels}):
        raise InputError(
            f"{term.text}: '{term.cov}' has no covariances of "
            f"{', '.join(map(repr, absent[:5]))}{', ...' if len(absent) > 5 else ''}, which "
            f"'{term.by[0]}' has; add them, or leave these rows out"
        )
    group = _with(group_of_levels(term, table, {*levels}, key, of), term.cov, factor)
    group.block(table)  # whose values must be finite
    return group


def covariances(related: pd.DataFrame, name: str) -> tuple[tuple[str, ...], Array]:
    """Return the levels, in order, and the Cholesky factor of their covariances.

    Parameters
    ----------
    related : pandas.DataFrame
        A column for each level, by its name, and a row for each: named by a first column, as R's
        ``write.csv`` writes it, or in the order of the columns.
    name : str
        What it is called in errors.

    Raises
    ------
    InputError
        If it is not square, symmetric and positive definite, has too many levels, or rows and
        columns are not of the same ones.
    """
    columns, rows = [str(column) for column in related.columns], None
    if len(columns) == len(related) + 1:
        rows = list(map(str, as_text(related.iloc[:, 0])))
        related, columns = related.iloc[:, 1:], columns[1:]
    if len(columns) != len(related) or len({*columns}) < len(columns):
        raise InputError(
            f"{name} must have one row and one column for each level, got {len(related)} rows and "
            f"{len(columns)} columns"
        )
    if len(columns) > MOST_LEVELS:
        raise InputError(f"{name} has {len(columns)} levels; at most {MOST_LEVELS} are possible")
    if rows is not None and sorted(rows) != sorted(columns):
        other = min({*rows} ^ {*columns}, default=columns[0])
        raise InputError(f"{name} must have the same levels in rows and columns; see '{other}'")
    try:
        matrix = related.to_numpy(dtype=float)
    except ValueError:
        raise InputError(f"{name} must have numbers alone behind the names of its rows") from None
    order = sorted(range(len(columns)), key=columns.__getitem__)
    places = order if rows is None else [rows.index(columns[i]) for i in order]
    matrix = matrix[np.ix_(places, order)]
    if not np.isfinite(matrix).all():
        raise InputError(f"{name} must have finite numbers; some are missing or infinite")
    if np.abs(matrix - matrix.T).max() > SAME * np.abs(matrix).max():
        i, j = np.unravel_index(np.abs(matrix - matrix.T).argmax(), matrix.shape)
        one, other = columns[order[i]], columns[order[j]]
        raise InputError(
            f"{name} must be symmetric, got {matrix[i, j]:g} of '{one}' and '{other}', and "
            f"{matrix[j, i]:g} of '{other}' and '{one}'"
        )
    try:
        factor = np.linalg.cholesky((matrix + matrix.T) / 2)
    except np.linalg.LinAlgError:
        raise InputError(
            f"{name} must be positive definite, its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(matrix)[0]:.3g}; levels that are the same, as clones, are one "
            "level"
        ) from None
    return tuple(columns[i] for i in order), factor


def group_cov_from_plain(
    content: Mapping[str, Any], formula: Formula, key: str = "1", of: str = ""
) -> GroupCov:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    group, rows = group_from_plain(content, formula, key, of), content["factor"]
    if [len(row) for row in rows] != list(range(1, len(group.levels) + 1)):
        raise ValueError("the covariances of a group-level term do not fit")
    factor = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        factor[i, : i + 1] = row
    if not np.isfinite(factor).all() or not (factor.diagonal() > 0).all():
        raise ValueError("the covariances of a group-level term are damaged")
    return _with(group, str(content["cov"]), factor)


def _with(group: Group, cov: str, factor: Array) -> GroupCov:
    return GroupCov(**shared_state(group), cov=cov, factor=factor)
