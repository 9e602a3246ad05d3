"""What terms with penalised coefficients share: ``Z[n] . r[level[n]]`` with r of a sampled sd.

The coefficients are r = z diag(sd) L' (levels, m), with z standard normal and L the Cholesky factor
of a correlation matrix, or 1. The sampler moves between z and r (``Centring``), as far as the rows
inform of each coefficient alone. A smooth is of one level and has one sd for
all of its coefficients, so that the roles of levels and coefficients change: one effect, m times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.parameter import STANDARD_NORMAL, Centring, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.streams import Streams
from semistan.model.table.rows import Block
from semistan.model.terms.term import Elements, Hyperparameter, Lines, TensorBlock, View

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

LEAST_SPREAD = 0.01  # of a standard deviation, in units of the predictor over those of the column
MOST_CORRELATED = 0.95


class Penalised(ABC):
    """A term whose contribution is linear in coefficients r (levels, m)."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Coefficients m of each level."""

    @property
    @abstractmethod
    def n_levels(self) -> int:
        """How many levels have coefficients of their own; 1 if all rows share them."""

    @property
    @abstractmethod
    def units(self) -> Array:
        """Standard deviation of what the coefficients of each sd multiply."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, str, str]:
        """The names in the program of z, of L (empty without), and of the coefficients."""

    @property
    @abstractmethod
    def z_shape(self) -> Shape:
        """The shape of z in the program."""

    @property
    @abstractmethod
    def z_sizes(self) -> tuple[str, ...]:
        """The same as the program has it."""

    @property
    @abstractmethod
    def spread_text(self) -> str:
        """The standard deviation of each coefficient in the program, in z's shape."""

    @property
    def takes_level(self) -> bool:
        """Whether a constant is among what it can add, so that the rows know only the sum of both.

        The level of the network is then as uncertain as the mean of the coefficients.
        """
        return False

    @property
    def root_name(self) -> str:
        """What the program calls the root of the covariance of correlated effects; else empty."""
        return ""

    def root_lines(self) -> Lines:
        """Declare it."""
        return []

    @property
    @abstractmethod
    def columns_text(self) -> str:
        """What each coefficient multiplies in each row, in the program: a matrix (N, size of z).

        It is in the order of z's elements, column by column. Empty where z is something else than
        the coefficients over the standard deviations ``spread_text``.
        """

    @abstractmethod
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations."""

    @property
    def spread(self) -> tuple[str, ...]:
        """Names of the standard deviations."""
        return tuple(item.name for item in self.hyperparameters())

    @property
    def effects(self) -> int:
        """Effects with a standard deviation of their own: one of a smooth."""
        return len(self.hyperparameters())

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:  # noqa: ARG002
        """Return the curves that it shows of the training rows; none, if it is no smooth."""
        return ()

    def variances(self, values: Mapping[str, float]) -> Array:
        """Return the prior variances of the coefficients, level by level, without correlations."""
        sd = np.array([values[name] for name in self.spread])
        return np.resize(sd**2, self.training_size)

    def sd(self, values: Mapping[str, Any]) -> Tensor:
        """Return the standard deviations (effects,)."""
        found = [torch.as_tensor(values[name], dtype=torch.float64) for name in self.spread]
        return torch.stack(found)

    def sd_of_each(self, values: Mapping[str, Any]) -> Tensor:
        """Return the standard deviation of each coefficient, in z's shape."""
        return self.sd(values).expand(self.z_shape)

    def centring(self) -> Centring:
        """Say between which coordinates of the coefficients the sampler moves."""
        rows, sizes = len(self.z_shape) - 1, ", ".join(self.z_sizes)
        return Centring(
            by=self.spread,
            function="partly_centred" + "_rows" * rows,
            spread=self.spread_text,
            data=f"I{self.names[0].removeprefix('z')}",
            declared=f"{'matrix' if rows else 'vector'}<lower=0>[{sizes}]",
            text=f"information of the rows on {self.names[2]}",
            shape=self.z_shape,
            gain=lambda values, information: self.sd_of_each(values) ** 2 * information,
        )

    def information(self, bend: Tensor, block: TensorBlock) -> Tensor:
        """Return what rows say of each coefficient.

        Parameters
        ----------
        bend : tensor, shape (n,)
            Minus the second derivative of each row's log-likelihood by the predictor.
        block : TensorBlock
            What the term has of these rows.
        """
        found = bend.new_zeros(self.n_levels, self.size)
        return found.index_add(0, block.level, bend[:, None] * block.Z**2).reshape(self.z_shape)

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return r (levels, m) in the user's units."""
        z, L, _ = self.names
        made = values[z].reshape(-1, self.effects)
        made = made @ values[L].T if L else made
        return (self.sd(values) * made).reshape(self.n_levels, self.size)

    def value(self, values: Mapping[str, Tensor], block: TensorBlock) -> Tensor:
        """Return what is added to the predictor of each row."""
        return block.product(self.coefficients(values))

    @property
    def reported(self) -> tuple[str, ...]:
        """The hyperparameters."""
        return self.spread

    def labels(self) -> dict[str, str]:
        """Say what they are."""
        return {item.name: item.text for item in self.hyperparameters()}

    @property
    def elements(self) -> dict[str, Elements]:
        """None: the coefficients of a basis have no names of their own."""
        return {}

    def quantity_lines(self) -> Lines:
        """Declare nothing."""
        return []

    def quantities(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        """Return nothing."""
        return {}

    @property
    def training_size(self) -> int:
        """Number of coefficients."""
        return self.n_levels * self.size

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised coefficients add, in the predictor's unit."""
        return block.product(x.reshape(self.n_levels, -1) / torch.as_tensor(self._each).to(x))

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised coefficient multiplies, (n, size)."""
        units = torch.as_tensor(np.tile(self._each, self.n_levels))
        return block.columns(self.n_levels) / units

    def training_units(self, scale: float) -> Array:
        """Return the units of the coefficients, level by level."""
        return np.tile(scale / self._each, self.n_levels)

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return z at the trained coefficients x, with their own spread and uncorrelated."""
        z, L, _ = self.names
        trained = x.reshape(-1, self.effects)
        least = LEAST_SPREAD * scale / self.units
        sd = np.maximum(np.sqrt((trained**2).mean(axis=0)), least)
        found: dict[str, Any] = {z: self._as_declared(trained / sd)}
        found |= {L: np.eye(self.effects)} if L else {}
        return found | dict(zip(self.spread, sd.tolist(), strict=True))

    @property
    def standardised(self) -> str:
        """The name of z."""
        return self.names[0]

    @property
    def held(self) -> tuple[str, ...]:
        """The names of standard deviations and correlations."""
        return (self.names[1], *self.spread)

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return new standard deviations and correlations, and z with the same coefficients.

        They are the average over levels of E[r r'], r being normal around a mode, as in the EM
        algorithm (Laird and Ware, 1982, Biometrics 38).

        Parameters
        ----------
        values : mapping
            The parameters at the mode.
        covariance : array, shape (n, n)
            Of z's coordinates, which are those of one effect after the other.
        fixed : set of str
            Standard deviations that are constants.
        scale : float
            The unit of the predictor.
        """
        z, L, _ = self.names
        sd = np.array([float(values[name]) for name in self.spread])
        root = sd[:, None] * (np.asarray(values[L]) if L else np.eye(self.effects))
        matrix = np.asarray(values[z], dtype=float).reshape(-1, self.effects).T
        rows = matrix.shape[1]
        blocks = covariance.reshape(self.effects, rows, self.effects, rows)
        second = matrix @ matrix.T / rows + np.einsum("aibi->ab", blocks) / rows
        estimate = root @ second @ root.T
        new = np.maximum(np.sqrt(np.diag(estimate)), LEAST_SPREAD * scale / self.units)
        free = [name not in fixed for name in self.spread]
        sd[free] = new[free]
        factor = np.linalg.cholesky(_correlation(estimate)) if L else np.eye(self.effects)
        found: dict[str, Any] = {L: factor} if L else {}
        moved = np.linalg.solve(sd[:, None] * factor, root @ matrix)
        found[z] = self._as_declared(moved.T)
        return found | dict(zip(self.spread, sd.tolist(), strict=True))

    @property
    def _each(self) -> Array:
        """The units of the coefficients of one level, shape (m,)."""
        return np.broadcast_to(self.units, self.size).astype(float)

    def _as_declared(self, z: Array) -> Array:
        """Lay z (rows, effects) out as the program declares it."""
        return z


class Common(Penalised):
    """A term whose coefficients (m,) all rows have in common: a matrix times a vector."""

    __slots__ = ()

    @property
    @abstractmethod
    def text(self) -> str:
        """The term as users write it."""

    @property
    @abstractmethod
    def basis_names(self) -> tuple[str, str]:
        """The names in the program of m and of the basis (N, m)."""

    @property
    def n_levels(self) -> int:
        """All rows are of one level."""
        return 1

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:  # noqa: ARG002
        """Return the standardised coefficients."""
        z, text, prior = self.names[0], f"{self.text}, standardised", STANDARD_NORMAL
        centring = self.centring()
        return (Parameter(z, text, self.z_shape, self.z_sizes, prior=prior, centring=centring),)

    @property
    def z_sizes(self) -> tuple[str, ...]:
        """The number of coefficients."""
        return self.basis_names[:1]

    @property
    def z_shape(self) -> Shape:
        """All coefficients."""
        return (self.size,)

    @property
    def spread_text(self) -> str:
        """The one standard deviation, m times."""
        return f"rep_vector({self.spread[0]}, {self.basis_names[0]})"

    @property
    def columns_text(self) -> str:
        """The basis."""
        return self.basis_names[1]

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        return [f"data matrix {self.basis_names[1]}"], [f"vector {self.names[2]}"]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        return f"{self.basis_names[1]}{rows} * {self.names[2]}"

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shape of the coefficients."""
        return {self.names[2]: (self.size,)}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the coefficients (m,)."""
        return {self.names[2]: self.coefficients(values)[0]}

    def predicted(self, draws: Mapping[str, Array], block: Block, _: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N)."""
        return np.asarray(draws[self.names[2]] @ block.Z.T)

    def _as_declared(self, z: Array) -> Array:
        return z[:, 0]


class Several(Penalised):
    """Uncorrelated coefficients of which some share one standard deviation, others another.

    The program has them as a vector, or as a matrix (levels, m) like r.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def which(self) -> Index:
        """The standard deviation of each coefficient, counted from 0, level by level."""

    def variances(self, values: Mapping[str, float]) -> Array:
        """Return the prior variances of the coefficients, level by level."""
        sd = np.array([values[name] for name in self.spread])
        return np.asarray(sd[self.which] ** 2)

    @property
    def each_unit(self) -> Array:
        """The units of the coefficients, level by level."""
        return np.asarray(self.units[self.which])

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return r (levels, m) in the user's units."""
        r = self.sd_of_each(values) * values[self.names[0]]
        return r.reshape(self.n_levels, self.size)

    def sd_of_each(self, values: Mapping[str, Any]) -> Tensor:
        """Return the standard deviation of each coefficient, in z's shape."""
        return self.sd(values)[torch.as_tensor(self.which)].reshape(self.z_shape)

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised coefficients add, in the predictor's unit."""
        r = x / torch.as_tensor(self.each_unit).to(x)
        return block.product(r.reshape(self.n_levels, -1))

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised coefficient multiplies, (n, size)."""
        return block.columns(self.n_levels) / torch.as_tensor(self.each_unit)

    def training_units(self, scale: float) -> Array:
        """Return the units of the coefficients, level by level."""
        return scale / self.each_unit

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return z at the trained coefficients x, with the spread of those that share one."""
        return self._with_sd(x, self._spread(x**2, scale))

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return new standard deviations, and z with the same coefficients, as ``Penalised``."""
        old = np.array([float(values[name]) for name in self.spread])
        z = np.asarray(values[self.names[0]], dtype=float).ravel()
        variance = np.diag(covariance).reshape(self.z_shape[::-1]).T.ravel()
        new = self._spread((z**2 + variance) * old[self.which] ** 2, scale)
        held = np.array([name in fixed for name in self.spread])
        return self._with_sd(z * old[self.which], np.where(held, old, new))

    def _spread(self, squares: Array, scale: float) -> Array:
        """Return the root mean square of the coefficients that share a standard deviation."""
        effects = len(self.spread)
        sums = np.bincount(self.which, squares, minlength=effects)
        mean = sums / np.bincount(self.which, minlength=effects)
        return np.maximum(np.sqrt(mean), LEAST_SPREAD * scale / self.units)

    def _with_sd(self, r: Array, sd: Array) -> dict[str, Any]:
        z = (r / sd[self.which]).reshape(self.z_shape)
        return {self.names[0]: z, **dict(zip(self.spread, sd.tolist(), strict=True))}


def _correlation(covariance: Array) -> Array:
    """Return the correlation matrix, with the correlations kept away from 1."""
    sd = np.sqrt(np.diag(covariance))
    correlation = np.clip(covariance / np.outer(sd, sd), -MOST_CORRELATED, MOST_CORRELATED)
    shrunk = correlation * min(1.0, MOST_CORRELATED / np.abs(correlation - np.eye(len(sd))).max())
    np.fill_diagonal(shrunk, 1.0)
    return np.asarray(shrunk)
