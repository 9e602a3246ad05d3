"""Monotonic effects ``mo(x)`` of ordered categories 0 ... D.

    f(x) = bsp D (simo_1 + ... + simo_x)

goes up, or down, by ``bsp`` for each category on average; the simplex ``simo`` (D) says how the way
is shared between them. Its prior is a Dirichlet distribution with concentrations a, all 1 by
default, and it is sampled as what each step takes of the way that is left,

    simo_i = stick_i (1 - stick_1) ... (1 - stick_(i-1)),
    stick_i ~ beta(a_i, a_(i+1) + ... + a_D),

which is the same distribution.

Bürkner and Charpentier (2020), Modelling monotonic effects of ordinal predictors in Bayesian
regression models. British Journal of Mathematical and Statistical Psychology 73, 420-451.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.parameter import REAL, UNIT_INTERVAL, Choice, OwnPrior, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.priors.densities import parse_prior
from semistan.model.streams import Streams
from semistan.model.table.columns import evaluate
from semistan.model.table.kinds import ordered_columns
from semistan.model.table.rows import Block
from semistan.model.terms.kinds import TermKind
from semistan.model.terms.term import (
    Elements,
    Hyperparameter,
    Lines,
    TensorBlock,
    View,
    element_labels,
)

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

STORED = "monotonic"
MOST_CATEGORIES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Monotonic:
    """The learnt state of one ``mo()`` term.

    Attributes
    ----------
    expression : str
        The categories: whole numbers, or a column of ordered categories.
    name : str
        The term's part in Stan names: ``mox`` of ``mo(x)``.
    first, steps : int
        The first category's number, and the number D of steps from there.
    levels : tuple of str
        The ordered categories, empty of whole numbers.
    scale : float
        Standard deviation of the category's number over the training rows.
    key : str
        What its other names in the program end in.
    """

    expression: str
    name: str
    first: int
    steps: int
    levels: tuple[str, ...]
    scale: float
    key: str = "1"

    @property
    def stored(self) -> str:
        """The key under which a bundle has monotonic effects."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return f"mo({self.expression})"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Monotonic effect", f"{self.text}, {self.steps + 1} categories"

    @property
    def categories(self) -> tuple[str, ...] | tuple[int, ...]:
        """The categories in their order, as the column has them."""
        return self.levels or tuple(range(self.first, self.first + self.steps + 1))

    @property
    def slope(self) -> str:
        """The name of the average step."""
        return f"bsp_{self.name}"

    @property
    def simplex(self) -> str:
        """The name of the simplex."""
        return f"simo_{self.name}1"

    @property
    def stick(self) -> str:
        """The name of what each step takes of the rest."""
        return f"stick_mo{self.key}"

    @property
    def made_name(self) -> str:
        """The name of the effects of the categories."""
        return f"mo_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        fields = ("expression", "name", "first", "steps", "scale")
        return {name: getattr(self, name) for name in fields} | {"levels": list(self.levels)}

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the category of each row as its level.

        Raises
        ------
        InputError
            For categories beyond those of the training rows.
        """
        level = _numbers(self.expression, table, self.levels) - self.first
        outside = (level < 0) | (level > self.steps)
        if outside.any():
            raise self._unknown(table, level, int(np.flatnonzero(outside)[0]), int(outside.sum()))
        return Block(np.zeros((len(level), 0)), level)

    def _unknown(self, table: pd.DataFrame, level: Index, row: int, rows: int) -> InputError:
        """Return the error that a row has a category which the training rows had not."""
        known = f"{self.first} to {self.first + self.steps}"
        value = str(level[row] + self.first)
        if self.levels:
            known = ", ".join(map(repr, self.levels))
            value = repr(str(table[variables(self.expression)[0]].iloc[row]))
        return InputError(
            f"{self.text} has the categories of the training rows, {known}, got {value} in row "
            f"{row + 1} ({rows} of {len(level)} rows): there is no step to another category; leave "
            "such rows out, or put them into a category that is there"
        )

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:
        """Return what each step takes of the way that is left."""
        text = f"what each step of {self.text} takes of the rest"
        sizes = (self.steps - 1,), (f"D_mo{self.key} - 1",)
        prior = broken_stick(*self._concentrations(priors), sizes[1][0])
        return (Parameter(self.stick, text, *sizes, UNIT_INTERVAL, prior=prior),)

    def _concentrations(self, priors: ChosenPriors) -> tuple[Array, Choice]:
        text, source = priors.chosen(self.simplex, "simo")
        values = parse_prior(text, self.simplex).values
        if len(values) not in (1, self.steps):
            raise InputError(
                f"prior '{self.simplex}': dirichlet takes 1 number, or {self.steps}, one for each "
                f"step of {self.text}, got '{text}'"
            )
        a, name = np.resize(values, self.steps), f"prior_{self.simplex}_concentration"
        line = (
            f"vector<lower=0>[D_mo{self.key}] {name};",
            f"dirichlet prior on {self.simplex}: concentration",
        )
        return a, Choice("simo", *(self.simplex,) * 2, text, source, {name: a}, (line,))

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the average step ``bsp_mox``."""
        text = f"average step of {self.text}"
        return (Hyperparameter(self.slope, text, "b", 1 / self.scale, kind=REAL),)

    def data_lines(self) -> Lines:
        """Declare the categories."""
        D = f"D_mo{self.key}"
        return [
            (f"int<lower=2> {D};", f"steps of {self.text}"),
            (f"array[N] int<lower=1, upper={D} + 1> J_mo{self.key};", "category of each row"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return the categories of some rows."""
        return {f"D_mo{self.key}": self.steps, f"J_mo{self.key}": block.level + 1}

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        return [f"data array[] int J_mo{self.key}"], [f"vector {self.made_name}"]

    def made_lines(self) -> Lines:
        """Declare the simplex, and the effects of the categories."""
        D, stick, simplex = f"D_mo{self.key}", self.stick, self.simplex
        return [
            (f"vector[{D}] {simplex}", f"shares of the steps of {self.text}"),
            (f"  = append_row({stick}, 1)", ""),
            (f"    .* append_row(1, exp(cumulative_sum(log1m({stick}))));", ""),
            (
                f"vector[{D} + 1] {self.made_name}",
                f"effects of {self.expression}'s categories",
            ),
            (f"  = {self.slope} * {D} * append_row(0, cumulative_sum({simplex}));", ""),
        ]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        return f"{self.made_name}[J_mo{self.key}{rows}]"

    def quantity_lines(self) -> Lines:
        """Declare nothing."""
        return []

    def quantities(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        """Return nothing."""
        return {}

    def value(self, values: Mapping[str, Tensor], block: TensorBlock) -> Tensor:
        """Return what is added to the predictor of each row."""
        return self.made(values)[self.made_name][block.level]

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shapes of the simplex and of the effects."""
        return {self.simplex: (self.steps,), self.made_name: (self.steps + 1,)}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the simplex (D,) and the effects (D + 1,) of the categories."""
        slope, shares = values[self.slope], _shares(values[self.stick])
        way = torch.cat([shares.new_zeros(1), shares.cumsum(0)])
        return {self.simplex: shares, self.made_name: slope * self.steps * way}

    def predicted(self, draws: Mapping[str, Array], block: Block, _: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N)."""
        return np.asarray(draws[self.made_name][:, block.level])

    @property
    def reported(self) -> tuple[str, ...]:
        """The average step, and the shares of the steps."""
        return (self.slope, *element_labels(self).values())

    def labels(self) -> dict[str, str]:
        """Say what they are."""
        shares = {
            shown: f"share of step {i} of {self.text}"
            for i, shown in enumerate(element_labels(self).values(), start=1)
        }
        return {item.name: item.text for item in self.hyperparameters()} | shares

    @property
    def elements(self) -> dict[str, Elements]:
        """The shares, as brms has them: ``simo_mox1[2]``."""
        return {self.simplex: Elements(self.simplex, (tuple(map(str, range(1, self.steps + 1))),))}

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return the effects of the categories that the training rows have."""
        column = variables(self.expression)[0]
        of = dict(zip(self.block(table).level.tolist(), table[column], strict=True))
        places = tuple(of[level] for level in sorted(of))
        return (View(self.text, "", self.expression, (), np.zeros(0, dtype=int), places=places),)

    @property
    def training_size(self) -> int:
        """The average step, and the log odds of the sticks less those of equal steps."""
        return self.steps

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what x adds to the predictor, in its unit."""
        shares = _shares((x[1:] + torch.as_tensor(self._equal).to(x)).sigmoid())
        way = torch.cat([x.new_zeros(1), shares.cumsum(0)])
        return (x[0] * self.steps / self.scale * way)[block.level]

    def training_columns(self, block: TensorBlock) -> Tensor | None:  # noqa: ARG002
        """Return None: it is not linear."""
        return None

    def training_units(self, scale: float) -> Array:
        """Return the units: that of the step, and 1."""
        return np.array([scale / self.scale, *np.ones(self.steps - 1)])

    def start(self, x: Array, scale: float) -> dict[str, Any]:  # noqa: ARG002
        """Return step and sticks at the trained x."""
        return {self.slope: float(x[0]), self.stick: 1 / (1 + np.exp(-x[1:] - self._equal))}

    @property
    def _equal(self) -> Array:
        """The log odds (D - 1,) of the sticks of equal steps."""
        return -np.log(np.arange(self.steps - 1, 0, -1))


def _shares(stick: Tensor) -> Tensor:
    """Return the simplex (D,) whose steps take these shares (D - 1,) of what is left."""
    one = stick.new_ones(1)
    return torch.cat([stick, one]) * torch.cat([one, (-stick).log1p().cumsum(0).exp()])


def broken_stick(a: Array, choice: Choice, size: str) -> OwnPrior:
    """Return the prior of sticks (D - 1,) of which a Dirichlet simplex (D,) is made.

    Parameters
    ----------
    a : array, shape (D,)
        Its concentrations.
    choice : Choice
        What they are in the program's data.
    size : str
        D - 1 as the program has it.
    """
    (name,), first, rest = choice.data, a[:-1], a.sum() - a.cumsum()[:-1]

    def log_density(value: Tensor) -> Tensor:
        beta: Any = torch.distributions.Beta(
            torch.as_tensor(first).to(value), torch.as_tensor(rest).to(value), validate_args=False
        )
        total: Tensor = beta.log_prob(value).sum()
        return total

    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        return generator.beta(first, rest, size=(size, *shape))

    def stan(parameter: str) -> str:
        rests = f"sum({name}) - head(cumulative_sum({name}), {size})"
        return f"beta_lpdf({parameter} | head({name}, {size}), {rests})"

    return OwnPrior(stan, log_density, draw, choice)


def _numbers(expression: str, table: pd.DataFrame, levels: tuple[str, ...]) -> Index:
    """Return the category of each row as a whole number; ordered categories count from 0."""
    column = variables(expression)[0]
    if levels:
        known = {level: i for i, level in enumerate(levels)}
        found = [known.get(str(value), len(levels)) for value in table[column]]
        return np.array(found, dtype=int)
    x = evaluate(expression, table)
    if (x != np.round(x)).any():
        raise InputError(
            f"mo({expression}) takes whole numbers or a column of ordered categories, got "
            f"{x[x != np.round(x)][0]:g}"
        )
    return x.astype(int)


def _learn(call: TermCall, table: pd.DataFrame, name: str, key: str) -> Monotonic:
    """Learn the categories.

    Raises
    ------
    InputError
        If they are neither whole numbers nor ordered, or fewer than three.
    """
    column = variables(call.expression)[0]
    plain = call.expression.strip("`") == column
    levels: tuple[str, ...] = ()
    if plain and ordered_columns(table, [column]):
        levels = tuple(str(level) for level in table[column].cat.categories)
    x = _numbers(call.expression, table, levels)
    first, steps = int(x.min()), int(np.ptp(x))
    if levels:
        first, steps = 0, len(levels) - 1
    if not 2 <= steps < MOST_CATEGORIES:
        raise InputError(
            f"{call.text} needs 3 to {MOST_CATEGORIES} ordered categories, got {steps + 1}"
        )
    scale = float(x.std(ddof=1))
    return Monotonic(call.expression, name, first, steps, levels, scale, key)


def _from_plain(content: Mapping[str, Any], key: str) -> Monotonic:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its figures do not fit.
    """
    levels = tuple(str(level) for level in content["levels"])
    first, steps, scale = int(content["first"]), int(content["steps"]), float(content["scale"])
    if steps < 2 or not scale > 0 or (levels and len(levels) != steps + 1):
        raise ValueError("the categories of a monotonic effect do not fit")
    names = str(content["expression"]), str(content["name"])
    return Monotonic(*names, first, steps, levels, scale, key)


KIND = TermKind(
    varies="slopes of whole numbers that vary are x:g or (0 + x | g), and effects of categories "
    "C(x):g",
    takes="one column of whole numbers or ordered categories, as mo(income)",
    stored=STORED,
    learn=_learn,
    from_plain=_from_plain,
)
