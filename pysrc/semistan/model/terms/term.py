"""A term: one summand of a predictor, from the table to the program and to PyTorch.

What a kind of term says of itself stands in one file: what it learns from the training rows, which
parameters it brings, its lines of the program and, beside each of them, the same in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from semistan.model.arrays import Array, Index
from semistan.model.parameter import POSITIVE, Kind, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.streams import Streams
from semistan.model.table.rows import Block

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

Lines = list[tuple[str, str]]  # declarations or statements of a program with their comments


@dataclass(frozen=True, slots=True, eq=False)
class Hyperparameter:
    """A scalar parameter of a term whose prior the user can choose, as a standard deviation.

    Attributes
    ----------
    name, text : str
        Its name in program and table, and what it is.
    prior_class : str
        The key of its prior in ``[priors]`` that it shares with its like: ``sd``. Of ``b``, it is
        that of the coefficients in its predictor.
    unit : float
        Its unit, over that of the predictor.
    default : str
        Its prior where ``[priors]`` has no such key, if it is not that of its class.
    kind : Kind
        Its constraint.
    has_units : bool
        Whether its prior follows the units; not that of a share.
    within : str
        The key of a prior of some of its like: ``sd_g``, of one group.
    """

    name: str
    text: str
    prior_class: str
    unit: float = 1.0
    default: str = ""
    kind: Kind = POSITIVE
    has_units: bool = True
    within: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A curve that a term shows: over one column, at values of others.

    Attributes
    ----------
    text, level : str
        The smooth as users write it, and which of its curves this is; empty of a single one.
    expression : str
        What it is a function of.
    at : dict
        The values of other columns.
    less : dict
        The same of what is taken off: of a smooth by a number, whose curve is the change for one
        unit. Empty without.
    where : dict
        The values of columns that rows have over which the curve is 0 on average.
    spread : tuple of str
        Names of its standard deviations.
    elements : array of int
        Its coefficients, level by level.
    places : tuple
        The levels or categories that it is shown at, if it has no values between them.
    """

    text: str
    level: str
    expression: str
    spread: tuple[str, ...]
    elements: Index
    at: Mapping[str, Any] = field(default_factory=dict)
    less: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[Any, ...] = ()


@runtime_checkable
class Shown(Protocol):
    """A term that can be drawn."""

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return the curves that it shows of the training rows; none of a group-level term."""


@runtime_checkable
class Cautious(Protocol):
    """A term that looks at its posterior before it is believed."""

    def warning(self, draws: Mapping[str, Array]) -> str | None:
        """Return a sentence with advice if draws of the reported parameters ask for one."""


@runtime_checkable
class Modelled(Protocol):
    """A term whose model the comment at the top of the program has."""

    @property
    def model_lines(self) -> tuple[str, ...]:
        """The model in the program's names."""

    @property
    def own_units(self) -> Mapping[str, str]:
        """What is reported in the units of a column in place of the predictor's, and which."""


@runtime_checkable
class Reestimated(Protocol):
    """A term with standard normal coefficients and standard deviations by which these are scaled.

    Their joint density has its mode far from its mass, so that the standard deviations are held at
    estimates while a mode is climbed to.
    """

    @property
    def standardised(self) -> str:
        """The name in the program of the standard normal coefficients."""

    @property
    def held(self) -> tuple[str, ...]:
        """The names of standard deviations and correlations."""

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return new ones by the EM algorithm, and standardised coefficients that go with them."""


@runtime_checkable
class Linked(Protocol):
    """A term whose value depends on parameters of other terms too."""

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The names of all parameters that its value depends on, but for its own."""


class Term(Protocol):
    """A term that is more than a linear combination of columns with coefficients of their own.

    ``key`` tells it from others of the program: ``1``, or ``sigma_1`` in the predictor of sigma.
    ``values`` are parameters by their names in the program.
    """

    @property
    def key(self) -> str:
        """What its names in the program end in."""

    @property
    def stored(self) -> str:
        """The key under which a bundle has the terms of this kind."""

    @property
    def text(self) -> str:
        """The term as users write it."""

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""

    def to_plain(self) -> dict[str, Any]:
        """Return what was learnt as JSON-ready data."""

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:
        """Return what the term needs of each row of a table, dates in days."""

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:
        """Return what is sampled, but for the hyperparameters."""

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the scalars whose priors the user can choose."""

    def data_lines(self) -> Lines:
        """Declare the term's data."""

    def data(self, block: Block) -> dict[str, Any]:
        """Return them for some rows."""

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments with their types: data, and what is sampled."""

    def made_lines(self) -> Lines:
        """Declare, in the transformed parameters, what the parameters make."""

    def summand(self, rows: str) -> str:
        """Return the expression that is added to the predictor of some rows, ``[start : end]``."""

    def quantity_lines(self) -> Lines:
        """Declare what is reported besides, in the generated quantities."""

    def value(self, values: Mapping[str, Tensor], block: TensorBlock) -> Tensor:
        """Return what is added to the predictor of each row, (n,): the twin of ``summand``."""

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shapes of what ``made_lines`` declares, by name."""

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what ``made_lines`` declares, by name."""

    def quantities(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what ``quantity_lines`` declares, by name."""

    def predicted(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        """Return what is added to the predictor of rows in draws of ``made``, (S, N).

        What is new in these rows, as levels that have no effects yet, is drawn from ``streams``.
        """

    @property
    def reported(self) -> tuple[str, ...]:
        """The names of hyperparameters, quantities and elements in the coefficient table."""

    def labels(self) -> dict[str, str]:
        """Say what the reported ones are."""

    @property
    def elements(self) -> Mapping[str, Elements]:
        """The names as in brms of what is in arrays of ``made``, if it has some, by array."""

    @property
    def training_size(self) -> int:
        """Number of elements x that training moves, its real hyperparameters first.

        Each is held by a normal(0, 1) penalty.
        """

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what x (size,) adds to the predictor of each row, in the predictor's unit."""

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return the derivatives (n, size) of a linear ``training_value``; None of another."""

    def training_units(self, scale: float) -> Array:
        """Return the units (size,) of x, given that of the predictor."""

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return the parameters at which a chain starts, given the trained x in its units."""


class Integrable(Term, Protocol):
    """A term that is linear in standard normal coefficients z, given their covariance.

    ``Penalised`` says what each of these is.
    """

    @property
    def names(self) -> tuple[str, str, str]:
        """The names in the program of z, of L (empty without), and of the coefficients."""

    @property
    def z_sizes(self) -> tuple[str, ...]:
        """The shape of z as the program has it."""

    @property
    def spread_text(self) -> str:
        """The standard deviation of each coefficient in the program, in z's shape."""

    @property
    def root_name(self) -> str:
        """What the program calls the root of the covariance of correlated effects; else empty."""

    def root_lines(self) -> Lines:
        """Declare it."""

    @property
    def columns_text(self) -> str:
        """What each coefficient multiplies in each row, in the program."""


@dataclass(frozen=True, slots=True)
class Elements:
    """Names as in brms of the elements of an array: ``r_g[a,Intercept]``.

    Attributes
    ----------
    name : str
        Of the array: ``r_g``.
    axes : tuple of tuple of str
        Along each axis, what each position is of. An axis of one may have no name.
    """

    name: str
    axes: tuple[tuple[str, ...], ...]


def element_labels(term: Term) -> dict[str, str]:
    """Map the program's columns of a term's named elements, as ``r_1.2.1``, to their names.

    Blanks in names are dots, as in brms: tidybayes splits at them.
    """
    found = {}
    for made, elements in term.elements.items():
        axes = [enumerate(map(_without_blanks, axis), start=1) for axis in elements.axes]
        for backwards in product(*reversed(axes)):  # in the order of Stan's columns
            place = backwards[::-1]
            column = ".".join([made, *(str(i) for i, _ in place)])
            found[column] = f"{elements.name}[{','.join(text for _, text in place if text)}]"
    return found


def _without_blanks(text: str) -> str:
    return "".join("." if character.isspace() else character for character in text)


@dataclass(frozen=True, slots=True, eq=False)
class TensorBlock:
    """A block of rows as tensors: columns Z (n, m), and the level of each row."""

    Z: Tensor
    level: Tensor

    def rows(self, index: Tensor) -> TensorBlock:
        """Return some rows."""
        return TensorBlock(self.Z[index], self.level[index])

    def product(self, r: Tensor) -> Tensor:
        """Return Z[n] . r[level[n]] of coefficients r (levels, m)."""
        if len(r) == 1:
            return self.Z @ r[0]
        return (self.Z * r[self.level]).sum(dim=1)

    def columns(self, levels: int) -> Tensor:
        """Return what each coefficient multiplies, (n, levels * m), level by level."""
        n, m = self.Z.shape
        spread = self.Z.new_zeros(n, levels, m)
        spread[range(n), self.level] = self.Z
        return spread.flatten(1)
