"""Tensor product smooths ``t2(x, z)``: surfaces of two columns, each in its own units.

A natural cubic spline of each column is a part that its penalty leaves free, 1 and the column, and
directions that bend. The products are of four kinds,

    free x free        1, x, z, x z: the intercept and structured coefficients,
    bends x bends      (k - 2)^2 coefficients with the standard deviation sds_t2xz_1,
    free x bends       2 (k - 2), with sds_t2xz_2: how z bends, and how that varies with x,
    bends x free       2 (k - 2), with sds_t2xz_3,

as in mgcv's and brms's ``t2``, in their order. How 1 and a column are weighed against each other in
the last two is a choice: here equally at the knots. The penalised columns are orthogonal to 1, x, z
and x z over the training rows, which leaves the penalty as it is, and those of each kind are scaled
so that its sds is its prior standard deviation at an average row.

Wood, Scheipl and Faraway (2013), Straightforward intermediate rank tensor product smoothing in
mixed models. Statistics and Computing 23, 341-360.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array, Index
from semistan.model.formula.calls import TermCall
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.kinds import TermKind
from semistan.model.terms.penalised import Common, Several
from semistan.model.terms.slices import slices
from semistan.model.terms.splines import SPLINES
from semistan.model.terms.term import Hyperparameter, Lines, View

if TYPE_CHECKING:
    import pandas as pd

STORED = "tensors"
DEFAULT_BASIS, LARGEST_BASIS = 5, 20  # knots of each column, the first as in mgcv
SPLINE = SPLINES["cr"]


@dataclass(frozen=True, slots=True, eq=False)
class Margin:
    """One of the columns.

    Attributes
    ----------
    expression : str
        The column or its transformation.
    loc, scale : float
        Its mean and standard deviation over the training rows.
    knots : array, shape (k,)
        In standardised units, increasing.
    T : array, shape (k, k - 2)
        From coefficients of the directions that bend to the values at the knots.
    """

    expression: str
    loc: float
    scale: float
    knots: Array
    T: Array

    def columns(self, x: Array) -> tuple[Array, Array]:
        """Return what bends (N, k - 2) and what is free (N, 2) at values of the expression."""
        z = (x - self.loc) / self.scale
        at_knots = (z - self.knots.mean()) / self.knots.std()
        return SPLINE.basis(self.knots, z) @ self.T, np.column_stack([np.ones(len(z)), at_knots])


@dataclass(frozen=True, slots=True, eq=False)
class Surface(Several, Common):
    """The learnt state of one ``t2()`` term.

    Attributes
    ----------
    margins : pair of Margin
        The columns.
    name : str
        The term's part in Stan names: ``t2xz`` of ``t2(x, z)``.
    sizes : array, shape (3,)
        What the products of each kind are divided by.
    plane : array, shape (4, m)
        The part along 1, x, z and x z of each column, which is taken out.
    key : str
        What its other names in the program end in.
    """

    margins: tuple[Margin, Margin]
    name: str
    sizes: Array
    plane: Array
    key: str = "1"

    @property
    def stored(self) -> str:
        """The key under which a bundle has surfaces."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        first, second = self.margins
        return f"t2({first.expression}, {second.expression})"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        numbers = " x ".join(str(len(margin.knots)) for margin in self.margins)
        return "Smooth", f"{self.text}, a tensor product of splines with {numbers} knots"

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of coefficients of each kind of product."""
        a, b = (margin.T.shape[1] for margin in self.margins)
        return a * b, 2 * b, 2 * a

    @property
    def size(self) -> int:
        """Number of penalised coefficients m."""
        return sum(self.counts)

    @property
    def units(self) -> Array:
        """Standard deviation of what the coefficients multiply, which is 1."""
        return np.ones(3)

    @property
    def which(self) -> Index:
        """The kind of product of each coefficient."""
        return np.repeat(np.arange(3), self.counts)

    @property
    def spread_text(self) -> str:
        """The standard deviation of each coefficient, by its kind of product."""
        return f"([{', '.join(self.spread)}]')[of_t2{self.key}]"  # newer stancs need the brackets

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of zt2 and t2; there are no correlations."""
        return f"zt2_{self.key}", "", f"t2_{self.key}"

    @property
    def basis_names(self) -> tuple[str, str]:
        """The names of m and Z in the program."""
        return f"m_t2{self.key}", f"Zt2_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        margins = [
            {"expression": margin.expression, "loc": margin.loc, "scale": margin.scale,
             "knots": margin.knots.tolist(), "T": margin.T.tolist()}
            for margin in self.margins
        ]  # fmt: skip
        own = {"sizes": self.sizes.tolist(), "plane": self.plane.tolist()}
        return {"margins": margins, "name": self.name, **own}

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the products (N, m) for each row."""
        bends, free = _products(self.margins, table)
        divided = [kind / size for kind, size in zip(bends, self.sizes, strict=True)]
        Z = np.hstack(divided) - free @ self.plane
        return Block(Z, np.zeros(len(Z), dtype=int))

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations ``sds_t2xz_1`` to ``_3``."""
        first, second = (margin.expression for margin in self.margins)
        along = ("both", second, first)
        text = f"standard deviation of {self.text}"
        return tuple(
            Hyperparameter(f"sds_{self.name}_{i}", f"{text}, bends of {which}", "sds")
            for i, which in enumerate(along, start=1)
        )

    def data_lines(self) -> Lines:
        """Declare the products and their kinds."""
        m = f"m_t2{self.key}"
        return [
            (f"int<lower=1> {m};", f"penalised coefficients of {self.text}"),
            (f"matrix[N, {m}] Zt2_{self.key};", f"basis of {self.text}"),
            (f"array[{m}] int<lower=1, upper=3> of_t2{self.key};", "kind of each column"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return them for some rows."""
        key = self.key
        return {f"m_t2{key}": self.size, f"Zt2_{key}": block.Z, f"of_t2{key}": self.which + 1}

    def made_lines(self) -> Lines:
        """Declare the coefficients."""
        (z, _, t2), key = self.names, self.key
        return [
            (f"vector[m_t2{key}] {t2}", f"penalised coefficients of {self.text}"),
            (f"  = {self.spread_text} .* {z};", ""),
        ]

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return curves over the first column at low, middle and high values of the second."""
        first, second = (margin.expression for margin in self.margins)
        of = View(self.text, "", first, self.spread, np.arange(self.size))
        return slices(of, second, table)


def _products(margins: tuple[Margin, Margin], table: pd.DataFrame) -> tuple[list[Array], Array]:
    """Return the products of each kind (N, ...) and those that are free (N, 4)."""
    (a, a_free), (b, b_free) = (
        margin.columns(evaluate(margin.expression, table)) for margin in margins
    )
    pairs = ((a, b), (a_free, b), (a, b_free))
    kinds = [_each(*pair) for pair in pairs]
    return kinds, _each(a_free, b_free)


def _each(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("ni,nj->nij", a, b).reshape(len(a), -1))


def _learn(term: TermCall, table: pd.DataFrame, name: str, key: str) -> Surface:
    """Choose the knots and the penalised directions.

    Raises
    ------
    InputError
        If there are fewer distinct values than knots.
    """
    k = term.option("k", DEFAULT_BASIS)
    first, second = (
        _learn_margin(term, expression, number, table)
        for expression, number in zip(
            term.arguments, k if isinstance(k, list) else [k, k], strict=True
        )
    )
    bends, free = _products((first, second), table)
    plane = np.linalg.lstsq(free, np.hstack(bends), rcond=None)[0]
    ends = np.cumsum([kind.shape[1] for kind in bends])[:-1]
    left = np.split(np.hstack(bends) - free @ plane, ends, axis=1)
    sizes = np.array([np.sqrt((kind**2).sum(axis=1).mean()) for kind in left])
    each = np.repeat(sizes, [kind.shape[1] for kind in bends])
    return Surface((first, second), name, sizes, plane / each, key)


def _learn_margin(term: TermCall, expression: str, k: int, table: pd.DataFrame) -> Margin:
    x = evaluate(expression, table)
    distinct = np.unique(x)
    if len(distinct) < k:
        raise InputError(
            f"{term.text} has k = {k} knots, but '{expression}' has only {len(distinct)} distinct "
            "values; a smaller k goes along with fewer"
        )
    loc, scale = float(x.mean()), float(x.std(ddof=1))
    knots = np.quantile((distinct - loc) / scale, np.linspace(0, 1, k))
    return Margin(expression, loc, scale, knots, SPLINE.directions(knots))


def _from_plain(content: Mapping[str, Any], key: str) -> Surface:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    first, second = (_margin_from_plain(item) for item in content["margins"])
    sizes, plane = (np.array(content[name], dtype=float) for name in ("sizes", "plane"))
    found = Surface((first, second), str(content["name"]), sizes, plane, key)
    if sizes.shape != (3,) or not (sizes > 0).all() or plane.shape != (4, found.size):
        raise ValueError("the directions of a tensor product smooth do not fit")
    return found


def _margin_from_plain(content: Mapping[str, Any]) -> Margin:
    knots, T = (np.array(content[name], dtype=float) for name in ("knots", "T"))
    if len(knots) < 3 or T.shape != (len(knots), len(knots) - 2) or not (np.diff(knots) > 0).all():
        raise ValueError("the knots of a tensor product smooth do not fit")
    loc, scale = float(content["loc"]), float(content["scale"])
    return Margin(str(content["expression"]), loc, scale, knots, T)


def _straight(term: TermCall) -> tuple[str, ...]:
    first, second = term.arguments
    return first, second, f"{first}:{second}"


def _are_dimensions(value: Any) -> bool:
    each = value if isinstance(value, list) and len(value) == 2 else [value]
    return all(type(k) is int and 3 <= k <= LARGEST_BASIS for k in each)


KIND = TermKind(
    varies="curves of each level of g are s(x, by=g) + s(z, by=g)",
    takes="two expressions and k of each, as t2(x, z) or t2(x, z, k=[5, 8])",
    options={"k": _are_dimensions},
    straight=_straight,
    arguments=(2, 2),
    stored=STORED,
    learn=_learn,
    from_plain=_from_plain,
)
