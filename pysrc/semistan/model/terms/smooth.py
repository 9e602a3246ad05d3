"""Penalised splines ``s(x, k, bs, by)``: what is learnt from the training rows, and its use.

A natural cubic spline with k knots is a straight line and k - 2 directions that bend. The line
is a structured coefficient. With g the values at the knots, the bending of

    f(x) = sum_j a_j(x) g_j,    integral of f''(x)^2 dx = g' S g,

has the prior exp(-g' S g / (2 sds^2)), so that g = T s with S = (T T')^-1 where it bends and
s ~ normal(0, sds) one by one. The columns of the basis a(x)' T are orthogonal to 1 and x over the
training rows, which leaves the penalty as it is, and are scaled so that sds is the prior standard
deviation of f at an average row. The knots are quantiles of the distinct values; beyond them f
goes on as a straight line. With ``bs="cc"`` it is periodic (``splines.py``) and has no line. With
a numeric ``by=z`` it is z f(x), the effect of z that varies with x; z and the product x z have
coefficients of their own. ``smooth_by.py`` has one smooth for each level of a factor, and
``smooth_re.py`` effects of levels, ``bs="re"``.

Wood (2017), Generalized Additive Models, 2nd edition, sections 5.3.1 and 5.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.penalised import Common
from semistan.model.terms.splines import SPLINES, Spline
from semistan.model.terms.term import Hyperparameter, Lines, View

if TYPE_CHECKING:
    import pandas as pd

STORED = "smooths"
DEFAULT_BASIS = 10  # dimension of a smooth's basis, as in mgcv


@dataclass(frozen=True, slots=True, eq=False)
class Smooth(Common):
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
        From the m = k - 2 penalised coefficients to the values at the knots; of a periodic spline
        k - 1 of these.
    line : array, shape (2, m)
        The part along 1 and x of each column of a(x)' T, which is taken out; of a periodic spline
        that along 1.
    key : str
        What its other names in the program end in.
    bs : str
        Which spline it is, a key of ``SPLINES``.
    by : str
        The column that it is multiplied by, empty without.
    by_scale : float
        The root mean square of that column over the training rows.
    """

    expression: str
    name: str
    loc: float
    scale: float
    knots: Array
    T: Array
    line: Array
    key: str = "1"
    bs: str = "cr"
    by: str = ""
    by_scale: float = 1.0

    @property
    def spline(self) -> Spline:
        """Which spline it is."""
        return SPLINES[self.bs]

    @property
    def stored(self) -> str:
        """The key under which a bundle has smooths."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return TermCall("s", self.expression, by=self.by).text

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Smooth", f"{self.text}, {self.spline.text} with {len(self.knots)} knots"

    @property
    def size(self) -> int:
        """Number of penalised coefficients m."""
        return int(self.T.shape[1])

    @property
    def units(self) -> Array:
        """Size of what the coefficients multiply, which is 1 but for the column ``by``."""
        return np.array([self.by_scale])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of zs and s; there are no correlations."""
        return f"zs_{self.key}", "", f"s_{self.key}"

    @property
    def basis_names(self) -> tuple[str, str]:
        """The names of m and Z in the program."""
        return f"m_{self.key}", f"Zs_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        return smooth_to_plain(self)

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis (N, m) for each row."""
        block = self.basis(evaluate(self.expression, table))
        if not self.by:
            return block
        return Block(block.Z * evaluate(self.by, table)[:, None], block.level)

    def basis(self, x: Array) -> Block:
        """Return the basis (N, m) at values of the expression."""
        z = (x - self.loc) / self.scale
        columns = self.spline.basis(self.knots, z) @ self.T
        columns -= self.spline.left_free(z) @ self.line
        return Block(columns, np.zeros(len(x), dtype=int))

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviation."""
        text, unit = f"standard deviation of {self.text}", 1 / self.by_scale
        return (Hyperparameter(f"sds_{self.name}_1", text, "sds", unit),)

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

    def made_lines(self) -> Lines:
        """Declare the coefficients."""
        z, _, s = self.names
        made = f"vector[m_{self.key}] {s} = {self.spread[0]} * {z};"
        return [(made, f"penalised coefficients of {self.text}")]

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:  # noqa: ARG002
        """Return its curve; of one that a number multiplies, the change for one unit of it."""
        at, less = ({self.by: 1.0}, {self.by: 0.0}) if self.by else ({}, {})
        elements = np.arange(self.size)
        return (View(self.text, "", self.expression, self.spread, elements, at, less),)


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
    spline, k = SPLINES[call.option("bs", "cr")], call.option("k", DEFAULT_BASIS)
    distinct = _distinct(call, x)
    if len(distinct) < k:
        enough = f"; use s({call.expression}, k={len(distinct)})" if len(distinct) > 2 else ""
        raise InputError(
            f"{call.text} has k = {k} knots, but '{call.expression}' has only "
            f"{len(distinct)} distinct values{enough}"
        )
    loc, scale = float(x.mean()), float(x.std(ddof=1))
    z = (x - loc) / scale
    knots = np.quantile((distinct - loc) / scale, np.linspace(0, 1, k))
    T = spline.directions(knots)
    columns = spline.basis(knots, z) @ T
    line = np.linalg.lstsq(spline.left_free(z), columns, rcond=None)[0]
    columns -= spline.left_free(z) @ line
    size = np.sqrt((columns**2).sum(axis=1).mean())
    bs = call.option("bs", "cr")
    return Smooth(call.expression, name, loc, scale, knots, T / size, line / size, key, bs)


def _distinct(call: TermCall, x: Array) -> Array:
    """Return the distinct values, with the ends of a period that the user gives."""
    ends = call.option("knots", None)
    if ends is None:
        return np.unique(x)
    if call.option("bs", "cr") != "cc":
        raise InputError(
            f"{call.text}: knots=[from, to] are the ends of a period, of bs='cc' alone"
        )
    if x.min() < ends[0] or x.max() > ends[1]:
        raise InputError(
            f"{call.text} has the period {ends[0]:g} to {ends[1]:g}, but '{call.expression}' goes "
            f"from {x.min():g} to {x.max():g}"
        )
    return np.unique([*x, *ends])


def smooth_from_plain(content: Mapping[str, Any], key: str = "1") -> Smooth:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    knots, T, line = (np.array(content[name], dtype=float) for name in ("knots", "T", "line"))
    k, bs, by = len(knots), str(content.get("bs", "cr")), str(content.get("by", ""))
    spline = SPLINES[bs]
    fit = T.shape == (spline.values(k), k - 2) and line.shape == (spline.free, k - 2)
    if k < 3 or not fit or not (np.diff(knots) > 0).all():
        raise ValueError("a smooth's knots and directions do not fit")
    loc, scale = float(content["loc"]), float(content["scale"])
    names = str(content["expression"]), str(content["name"])
    by_scale = float(content.get("by_scale", 1))
    return Smooth(*names, loc, scale, knots, T, line, key, bs, by, by_scale)


def smooth_to_plain(smooth: Smooth) -> dict[str, Any]:
    """Return the state as JSON-ready data."""
    arrays = {name: getattr(smooth, name).tolist() for name in ("knots", "T", "line")}
    numbers = {name: getattr(smooth, name) for name in ("expression", "name", "loc", "scale")}
    bs = {} if smooth.bs == "cr" else {"bs": smooth.bs}
    by = {"by": smooth.by, "by_scale": smooth.by_scale} if smooth.by else {}
    return numbers | arrays | bs | by
