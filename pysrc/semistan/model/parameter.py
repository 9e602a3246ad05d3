"""What is sampled: named parameters, each with a shape, a constraint and a unit.

NUTS moves in unconstrained coordinates. A parameter's kind says how its coordinates x become its
value, in Stan's way, so that a program's coordinates are those of PyTorch:

    real            value = unit * x
    positive        value = exp(x)
    unit interval   value = 1 / (1 + exp(-x))
    bounded         value = lb + exp(x), ub - exp(x), lb + (ub - lb) / (1 + exp(-x)), or x where an
                    element has no bound (``bounded.py``)
    correlation     the Cholesky factor whose canonical partial correlations are tanh(x)
                    (Lewandowski, Kurowicka and Joe, 2009), row by row

A matrix has its coordinates column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import functional, torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]

NEAREST = 0.01  # of a unit, that a chain starts from a bound


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
    limits : pair of float or array
        Between which a value is, or each element of it.
    """

    name: str
    bounds: str
    size: Callable[[Shape], int]
    value: Callable[[Tensor, Shape], Tensor]
    coordinates: Callable[[Array], Array]
    log_jacobian: Callable[[Tensor, Shape], Tensor]
    limits: tuple[Array | float, Array | float] = (-inf, inf)

    def inside(self, value: Array, unit: Array | float) -> Array:
        """Return a value that is not at a limit, nor beyond it, in the unit of the parameter."""
        lower, upper = self.limits
        margin = NEAREST * np.minimum(unit, np.subtract(upper, lower))
        return np.clip(value, lower + margin, upper - margin)


def _count(shape: Shape) -> int:
    return int(np.prod(shape, dtype=int))


def _shaped(x: Tensor, shape: Shape) -> Tensor:
    """Lay coordinates out, a matrix column by column."""
    return x.reshape(shape[::-1]).T if len(shape) == 2 else x.reshape(shape)


def _flat(value: Array) -> Array:
    return np.asarray(value, dtype=float).T.ravel()


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
    (0.0, inf),
)
UNIT_INTERVAL = Kind(
    "unit interval",
    "<lower=0, upper=1>",
    _count,
    lambda x, shape: _shaped(x.sigmoid(), shape),
    lambda value: np.log(_flat(value)) - np.log1p(-_flat(value)),
    lambda x, _: (functional.logsigmoid(x) + functional.logsigmoid(-x)).sum(),
    (0.0, 1.0),
)
CORRELATION = Kind(
    "correlation",
    "",
    lambda shape: shape[0] * (shape[0] - 1) // 2,
    correlation_factor,
    lambda value: partial_correlations(value @ value.T),
    _log_slope_of_factor,
    (-1.0, 1.0),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chooses of a prior whose density belongs to its parameter.

    Attributes
    ----------
    key : str
        The class in ``[priors]``.
    own : str
        The key of one that this parameter alone has.
    parameter : str
        What tables call it: the key that it has its prior by, or its name.
    written : str
        The prior.
    source : str
        ``default``, ``class`` or ``coefficient``.
    data : mapping
        Its arguments, by their names in the program's data.
    lines : tuple
        Their declarations with comments.
    """

    key: str
    own: str
    parameter: str
    written: str
    source: str
    data: Mapping[str, Any]
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class OwnPrior:
    """A prior whose density belongs to its parameter.

    Attributes
    ----------
    stan : callable
        Maps the parameter's name to the expression of its log density in the program.
    log_density : callable
        Maps the parameter's value to it, in PyTorch.
    draw : callable
        Maps a NumPy generator, the number of draws S and the shape to values (S, *shape).
    choice : Choice, optional
        Its arguments, if the user chooses them.
    in_lprior : bool
        Whether it is part of the program's ``lprior``, which power-scaling scales. The distribution
        of a group's effects is not, as in brms: their standard deviation has the prior.
    """

    stan: Callable[[str], str]
    log_density: Callable[[Tensor], Tensor]
    draw: Callable[[np.random.Generator, int, Shape], Array]
    choice: Choice | None = None
    in_lprior: bool = True


def _log_normal_density(value: Tensor) -> Tensor:
    normal: Any = torch.distributions.Normal(0.0, 1.0)
    total: Tensor = normal.log_prob(value).sum()
    return total


def _normal_draws(generator: np.random.Generator, size: int, shape: Shape) -> Array:
    # A matrix is drawn column by column, in the order of its coordinates.
    flat = generator.normal(size=(size, _count(shape)))
    return np.swapaxes(flat.reshape(size, *shape[::-1]), 1, 2) if len(shape) == 2 else flat


STANDARD_NORMAL = OwnPrior(
    lambda name: f"std_normal_lpdf({name})", _log_normal_density, _normal_draws, in_lprior=False
)
STANDARD_NORMAL_MATRIX = OwnPrior(
    lambda name: f"std_normal_lpdf(to_vector({name}))",
    _log_normal_density,
    _normal_draws,
    in_lprior=False,
)


def lkj(shape: float, choice: Choice) -> OwnPrior:
    """Return the LKJ prior of a Cholesky factor, its shape being data of the program."""
    (argument,) = choice.data

    def log_density(factor: Tensor) -> Tensor:
        concentration = torch.tensor(shape, dtype=torch.float64)
        prior: Any = torch.distributions.LKJCholesky(
            factor.shape[-1], concentration, validate_args=False
        )
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

    def stan(name: str) -> str:
        return f"lkj_corr_cholesky_lpdf({name} | {argument})"

    return OwnPrior(stan, log_density, draw, choice)


@dataclass(frozen=True, slots=True, eq=False)
class Centring:
    """Between which coordinates of coefficients r = sd z, z standard normal, the sampler moves.

    Where the rows say little of r, z moves best (non-centred); where they say much, r itself
    (centred), because z has no room there when sd is large. With the rows' information I on each
    coefficient, the coordinate

        x = z sqrt(1 + sd^2 I)

    is z where sd^2 I is small and r sqrt(I) where it is large. Of coefficients that are correlated,
    r = R z, sd^2 I is the diagonal of R' I R. The posterior is the same.

    Attributes
    ----------
    by : tuple of str
        The standard deviations, which are declared before z.
    function, spread : str
        In the program, what computes the unit of z, 1 / sqrt(1 + sd^2 I), and its arguments
        beside I: the standard deviation of each coefficient, or what R is made of.
    data, declared, text : str
        The name of I there, its type, and what it is.
    shape : tuple of int
        Its shape: that of z, or a matrix for each level.
    gain : callable
        Maps the parameters by name, and I, to sd^2 I, in PyTorch.
    information : array or float
        I; 0, which leaves z as it is, where it is not known.

    Notes
    -----
    Parameterisations between centred and non-centred: Papaspiliopoulos, Roberts and Sköld (2007),
    Statistical Science 22(1).
    """

    by: tuple[str, ...]
    function: str
    spread: str
    data: str
    declared: str
    text: str
    shape: Shape
    gain: Callable[[Mapping[str, Any], Tensor], Tensor]
    information: Array | float = 0.0

    @property
    def stan(self) -> str:
        """The unit of z in the program."""
        return f"{self.function}({self.spread}, {self.data})"

    def unit(self, values: Mapping[str, Any]) -> Tensor:
        """Return the unit of z at values of the standard deviations."""
        known = torch.as_tensor(self.information, dtype=torch.float64).expand(self.shape)
        return (1 + self.gain(values, known)).rsqrt()


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
        A prior whose density the user does not choose.
    centring : Centring, optional
        A unit that depends on standard deviations, in place of a constant one.
    """

    name: str
    text: str
    shape: Shape = ()
    sizes: tuple[str, ...] = ()
    kind: Kind = REAL
    unit: Array | float = 1.0
    multiplier: str = ""
    prior: OwnPrior | None = None
    centring: Centring | None = None

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.kind.size(self.shape)

    @property
    def constrained(self) -> Array:
        """Which coordinates (size,) are not the values themselves, but for a unit."""
        lower, upper = self.kind.limits
        return np.broadcast_to(np.isfinite(lower) | np.isfinite(upper), (self.size,))

    def unit_at(self, values: Mapping[str, Any]) -> Tensor | float:
        """Return what coordinates are multiplied by, given the parameters declared before."""
        if self.centring:
            return self.centring.unit(values)
        return self.unit if isinstance(self.unit, float) else torch.as_tensor(self.unit)

    def informed(self, information: Array | float) -> Parameter:
        """Return the parameter with the rows' information on each of its elements."""
        if not self.centring:
            return self
        return replace(self, centring=replace(self.centring, information=information))

    @property
    def declaration(self) -> str:
        """The parameter's declaration in Stan."""
        if self.kind is CORRELATION:
            return f"cholesky_factor_corr[{self.sizes[0]}] {self.name};"
        unit = self.centring.stan if self.centring else self.multiplier
        bounds = f"<multiplier={unit}>" if unit else self.kind.bounds
        of = ("real", "vector", "matrix")[len(self.sizes)]
        sizes = f"[{', '.join(self.sizes)}]" if self.sizes else ""
        return f"{of}{bounds}{sizes} {self.name};"
