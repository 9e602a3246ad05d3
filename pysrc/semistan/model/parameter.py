"""What is sampled: named parameters, each with a shape, a constraint and a unit.

NUTS moves in unconstrained coordinates. A parameter's kind says how its coordinates x become its
value, in Stan's way, so that a program's coordinates are those of PyTorch:

    real            value = unit * x
    positive        value = exp(x)
    unit interval   value = 1 / (1 + exp(-x))
    correlation     the Cholesky factor whose canonical partial correlations are tanh(x)
                    (Lewandowski, Kurowicka and Joe, 2009), row by row

A matrix has its coordinates column by column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A constraint on a parameter, and the way from unconstrained coordinates to its value.

    Attributes
    ----------
    name : str
        In words.
    bounds : str
        Stan's constraint of a scalar, a vector or a matrix.
    size : callable
        Maps the value's shape to the number of coordinates.
    value : callable
        Maps coordinates (n,) and the shape to the value, in PyTorch.
    coordinates : callable
        Its inverse, in NumPy.
    log_jacobian : callable
        Maps coordinates (n,) and the shape to log |d value / d x|, in PyTorch.
    """

    name: str
    bounds: str
    size: Callable[[Shape], int]
    value: Callable[[Tensor, Shape], Tensor]
    coordinates: Callable[[Array], Array]
    log_jacobian: Callable[[Tensor, Shape], Tensor]


def _count(shape: Shape) -> int:
    return int(np.prod(shape, dtype=int))


def _shaped(x: Tensor, shape: Shape) -> Tensor:
    """Lay coordinates out, a matrix column by column."""
    return x.reshape(shape[::-1]).T if len(shape) == 2 else x.reshape(shape)


def _flat(value: Array) -> Array:
    return np.asarray(value, dtype=float).T.ravel()


def _expit(x: Tensor, shape: Shape) -> Tensor:
    return _shaped(x.sigmoid(), shape)


def _log_slope_of_expit(x: Tensor, _: Shape) -> Tensor:
    return (functional.logsigmoid(x) + functional.logsigmoid(-x)).sum()


def correlation_factor(x: Tensor, shape: Shape) -> Tensor:
    """Return the Cholesky factor (m, m) at its coordinates; vmap refuses PyTorch's own."""
    size = shape[0]
    rows = [torch.cat([x.new_ones(1), x.new_zeros(size - 1)])]
    partial, start = x.tanh(), 0
    for i in range(1, size):
        z = partial[start : start + i]
        left = torch.cat([x.new_ones(1), (1 - z.square()).cumprod(dim=0)]).sqrt()
        rows.append(torch.cat([z * left[:-1], left[-1:], x.new_zeros(size - 1 - i)]))
        start += i
    return torch.stack(rows)


def partial_correlations(correlation: Array) -> Array:
    """Return the coordinates of a correlation matrix (m, m), row by row of the lower triangle."""
    transform: Any = torch.distributions.transforms.CorrCholeskyTransform()
    return np.asarray(transform.inv(torch.linalg.cholesky(torch.tensor(correlation))).numpy())


def _log_slope_of_factor(x: Tensor, shape: Shape) -> Tensor:
    transform: Any = torch.distributions.transforms.CorrCholeskyTransform()
    slope: Tensor = transform.log_abs_det_jacobian(x, correlation_factor(x, shape))
    return slope


REAL = Kind("real", "", _count, _shaped, _flat, lambda x, _: x.new_zeros(()))
POSITIVE = Kind(
    "positive",
    "<lower=0>",
    _count,
    lambda x, shape: _shaped(x.exp(), shape),
    lambda value: np.log(_flat(value)),
    lambda x, _: x.sum(),
)
UNIT_INTERVAL = Kind(
    "unit interval",
    "<lower=0, upper=1>",
    _count,
    _expit,
    lambda value: np.log(_flat(value)) - np.log1p(-_flat(value)),
    _log_slope_of_expit,
)
CORRELATION = Kind(
    "correlation",
    "",
    lambda shape: shape[0] * (shape[0] - 1) // 2,
    correlation_factor,
    lambda value: partial_correlations(value @ value.T),
    _log_slope_of_factor,
)


@dataclass(frozen=True, slots=True)
class OwnPrior:
    """A prior that belongs to a parameter and is not the user's to choose.

    Attributes
    ----------
    stan : callable
        Maps the parameter's name to the expression of its log density in the program.
    log_density : callable
        Maps the parameter's value to it, in PyTorch.
    draw : callable
        Maps a NumPy generator, the number of draws S and the shape to values (S, *shape).
    """

    stan: Callable[[str], str]
    log_density: Callable[[Tensor], Tensor]
    draw: Callable[[np.random.Generator, int, Shape], Array]


def _log_normal_density(value: Tensor) -> Tensor:
    normal: Any = torch.distributions.Normal(0.0, 1.0)
    total: Tensor = normal.log_prob(value).sum()
    return total


def _normal_draws(generator: np.random.Generator, size: int, shape: Shape) -> Array:
    # A matrix is drawn column by column, in the order of its coordinates.
    flat = generator.normal(size=(size, _count(shape)))
    return np.swapaxes(flat.reshape(size, *shape[::-1]), 1, 2) if len(shape) == 2 else flat


STANDARD_NORMAL = OwnPrior(
    lambda name: f"std_normal_lpdf({name})", _log_normal_density, _normal_draws
)
STANDARD_NORMAL_MATRIX = OwnPrior(
    lambda name: f"std_normal_lpdf(to_vector({name}))", _log_normal_density, _normal_draws
)


def lkj(shape: float) -> OwnPrior:
    """Return the LKJ prior of a Cholesky factor, its shape being data of the program."""

    def log_density(factor: Tensor) -> Tensor:
        prior: Any = torch.distributions.LKJCholesky(factor.shape[-1], shape, validate_args=False)
        total: Tensor = prior.log_prob(factor).sum()
        return total

    def draw(generator: np.random.Generator, size: int, of: Shape) -> Array:
        """Draw canonical partial correlations, which are beta distributed and independent."""
        m = of[0]
        _, column = np.tril_indices(m, -1)
        a = shape + (m - 2 - column) / 2
        x = np.arctanh(2 * generator.beta(a, a, size=(size, len(a))) - 1)
        factors = [correlation_factor(row, of) for row in torch.tensor(x)]
        return torch.stack(factors).numpy()

    return OwnPrior(
        lambda name: f"lkj_corr_cholesky_lpdf({name} | prior_cor_shape)", log_density, draw
    )


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A named quantity that is sampled.

    Attributes
    ----------
    name : str
        In the program.
    text : str
        What it is, in a few words.
    shape : tuple of int
        Of its value.
    sizes : tuple of str
        The same as the program has it: ``("k",)``, ``("N_1", "M_1")``.
    kind : Kind
        Its constraint.
    unit : array or float
        What a real parameter's coordinates are multiplied by.
    multiplier : str
        Name of the units in the program's data, if there are some.
    prior : OwnPrior, optional
        A prior that the user does not choose.
    """

    name: str
    text: str
    shape: Shape = ()
    sizes: tuple[str, ...] = ()
    kind: Kind = REAL
    unit: Array | float = 1.0
    multiplier: str = ""
    prior: OwnPrior | None = None

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.kind.size(self.shape)

    @property
    def declaration(self) -> str:
        """The parameter's declaration in Stan."""
        if self.kind is CORRELATION:
            return f"cholesky_factor_corr[{self.sizes[0]}] {self.name};"
        bounds = f"<multiplier={self.multiplier}>" if self.multiplier else self.kind.bounds
        of = ("real", "vector", "matrix")[len(self.sizes)]
        sizes = f"[{', '.join(self.sizes)}]" if self.sizes else ""
        return f"{of}{bounds}{sizes} {self.name};"
