"""Penalised splines ``s(x, k)``: what is learnt from the training rows, and its use on new ones.

A natural cubic spline with k knots is a straight line and k - 2 directions that bend. The line
is a structured coefficient. With g the values at the knots, the bending of

    f(x) = sum_j a_j(x) g_j,    integral of f''(x)^2 dx = g' S g,

has the prior exp(-g' S g / (2 sds^2)), so that g = T s with S = (T T')^-1 where it bends and
s ~ normal(0, sds) one by one. The columns of the basis a(x)' T are orthogonal to 1 and x over the
training rows, which leaves the penalty as it is, and are scaled so that sds is the prior standard
deviation of f at an average row. The knots are quantiles of the distinct values; beyond them f
goes on as a straight line.

Wood (2017), Generalized Additive Models, 2nd edition, sections 5.3.1 and 5.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.config import PriorConfig
from semistan.model.formula.calls import TermCall
from semistan.model.parameter import STANDARD_NORMAL, Parameter, Shape
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.kinds import TermKind
from semistan.model.terms.penalised import Penalised
from semistan.model.terms.term import Hyperparameter, Lines

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

STORED = "smooths"
DEFAULT_BASIS = 10  # dimension of a smooth's basis, as in mgcv
LARGEST_BASIS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Smooth(Penalised):
    """The learnt state of one ``s()`` term.

    Attributes
    ----------
    expression : str
        What it is a function of.
    name : str
        The term's part in Stan names: ``sx`` of ``s(x)``, ``sigma_sx`` in another predictor.
    loc, scale : float
        Mean and standard deviation of the expression over the training rows.
    knots : array, shape (k,)
        In standardised units, increasing.
    T : array, shape (k, m)
        From the m = k - 2 penalised coefficients to the values at the knots.
    line : array, shape (2, m)
        The part along 1 and x of each column of a(x)' T, which is taken out.
    key : str
        What its other names in the program end in.
    """

    expression: str
    name: str
    loc: float
    scale: float
    knots: Array
    T: Array
    line: Array
    key: str = "1"

    @property
    def stored(self) -> str:
        """The key under which a bundle has smooths."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return f"s({self.expression})"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Smooth", f"{self.text}, a spline with {len(self.knots)} knots"

    @property
    def size(self) -> int:
        """Number of penalised coefficients m."""
        return int(self.T.shape[1])

    @property
    def units(self) -> Array:
        """Standard deviation of what the coefficients multiply, which is 1."""
        return np.ones(1)

    @property
    def n_levels(self) -> int:
        """A smooth is the same for all rows: 1."""
        return 1

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of zs and s; there are no correlations."""
        return f"zs_{self.key}", "", f"s_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        return smooth_to_plain(self)

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis (N, m) for each row."""
        return self.basis(evaluate(self.expression, table))

    def basis(self, x: Array) -> Block:
        """Return the basis (N, m) at values of the expression."""
        z = (x - self.loc) / self.scale
        columns = _basis(self.knots, z) @ self.T - _line(z) @ self.line
        return Block(columns, np.zeros(len(x), dtype=int))

    def parameters(self, priors: PriorConfig) -> tuple[Parameter, ...]:  # noqa: ARG002
        """Return the standardised coefficients."""
        z, _, _ = self.names
        size = (self.size,), (f"m_{self.key}",)
        return (Parameter(z, f"{self.text}, standardised", *size, prior=STANDARD_NORMAL),)

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviation."""
        return (Hyperparameter(f"sds_{self.name}_1", f"standard deviation of {self.text}", "sds"),)

    def data_lines(self) -> Lines:
        """Declare the basis."""
        m = f"m_{self.key}"
        return [
            (f"int<lower=1> {m};", f"penalised coefficients of {self.text}"),
            (f"matrix[N, {m}] Zs_{self.key};", f"basis of {self.text}"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return the basis of some rows."""
        return {f"m_{self.key}": block.Z.shape[1], f"Zs_{self.key}": block.Z}

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        return [f"data matrix Zs_{self.key}"], [f"vector s_{self.key}"]

    def made_lines(self) -> Lines:
        """Declare the coefficients."""
        z, _, s = self.names
        made = f"vector[m_{self.key}] {s} = {self.spread[0]} * {z};"
        return [(made, f"penalised coefficients of {self.text}")]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        return f"Zs_{self.key}{rows} * s_{self.key}"

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shape of the coefficients."""
        return {self.names[2]: (self.size,)}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the coefficients s (m,)."""
        return {self.names[2]: self.coefficients(values)[0]}

    def predicted(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return what is added to the predictor of rows, (S, N)."""
        return np.asarray(draws[self.names[2]] @ block.Z.T)

    @property
    def reported(self) -> tuple[str, ...]:
        """The standard deviation."""
        return self.spread

    def labels(self) -> dict[str, str]:
        """Say what the standard deviation is."""
        return {item.name: item.text for item in self.hyperparameters()}

    def element_labels(self) -> dict[str, str]:
        """Name nothing: a spline's coefficients have no names of their own."""
        return {}

    def _as_declared(self, z: Array) -> Array:
        return z[:, 0]


def learn_smooth(call: TermCall, x: Array, name: str, key: str = "1") -> Smooth:
    """Choose the knots and the penalised directions.

    Parameters
    ----------
    call : TermCall
        The expression and the dimension k of its basis.
    x : array, shape (N,)
        Its values in the training rows.
    name, key : str
        The term's names in Stan.

    Raises
    ------
    InputError
        If there are fewer distinct values than knots.
    """
    distinct, k = np.unique(x), call.option("k", DEFAULT_BASIS)
    if len(distinct) < k:
        enough = f"; use s({call.expression}, k={len(distinct)})" if len(distinct) > 2 else ""
        raise InputError(
            f"{call.text} has k = {k} knots, but '{call.expression}' has only "
            f"{len(distinct)} distinct values{enough}"
        )
    loc, scale = float(x.mean()), float(x.std(ddof=1))
    z = (x - loc) / scale
    knots = np.quantile((distinct - loc) / scale, np.linspace(0, 1, k))
    values, vectors = np.linalg.eigh(_penalty(knots))
    T = vectors[:, 2:] / np.sqrt(values[2:])
    line = np.linalg.lstsq(_line(z), _basis(knots, z) @ T, rcond=None)[0]
    columns = _basis(knots, z) @ T - _line(z) @ line
    size = np.sqrt((columns**2).sum(axis=1).mean())
    return Smooth(call.expression, name, loc, scale, knots, T / size, line / size, key)


def smooth_from_plain(content: Mapping[str, Any], key: str = "1") -> Smooth:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    knots, T, line = (np.array(content[name], dtype=float) for name in ("knots", "T", "line"))
    k = len(knots)
    if k < 3 or T.shape != (k, k - 2) or line.shape != (2, k - 2) or not (np.diff(knots) > 0).all():
        raise ValueError("a smooth's knots and directions do not fit")
    loc, scale = float(content["loc"]), float(content["scale"])
    names = str(content["expression"]), str(content["name"])
    return Smooth(*names, loc, scale, knots, T, line, key)


def smooth_to_plain(smooth: Smooth) -> dict[str, Any]:
    """Return the state as JSON-ready data."""
    arrays = {name: getattr(smooth, name).tolist() for name in ("knots", "T", "line")}
    numbers = {name: getattr(smooth, name) for name in ("expression", "name", "loc", "scale")}
    return numbers | arrays


def _line(z: Array) -> Array:
    return np.column_stack([np.ones(len(z)), z])


def _basis(knots: Array, z: Array) -> Array:
    """Return a(z) (N, k): each natural cubic spline that is 1 at one knot and 0 at the others."""
    from scipy.interpolate import CubicSpline

    spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    inside = np.clip(z, knots[0], knots[-1])
    return np.asarray(spline(inside) + spline(inside, 1) * (z - inside)[:, None])


def _penalty(knots: Array) -> Array:
    """Return S (k, k): second derivatives are linear between the knots, so that it is exact."""
    from scipy.interpolate import CubicSpline

    bends = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(knots, 2)
    h = np.diff(knots)
    mass = np.zeros((len(knots), len(knots)))
    for j, width in enumerate(h):
        mass[j : j + 2, j : j + 2] += width / 6 * np.array([[2, 1], [1, 2]])
    return np.asarray(bends.T @ mass @ bends)


def _learn(call: TermCall, table: pd.DataFrame, name: str, key: str) -> Smooth:
    return learn_smooth(call, evaluate(call.expression, table), name, key)


def _is_dimension(value: object) -> bool:
    return type(value) is int and 3 <= value <= LARGEST_BASIS


KIND = TermKind(
    takes="one expression and k, as s(x) or s(x, k=10)",
    options={"k": _is_dimension},
    straight=True,
    stored=STORED,
    learn=_learn,
    from_plain=smooth_from_plain,
)
