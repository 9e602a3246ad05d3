"""The inputs of a network that multiplies a term, as ``z:nn(u)``: its own, and behind them z.

The term has one column, with a scale but no location: 0 stays 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula
from semistan.model.networks.architecture import Architecture
from semistan.model.networks.multiplied import Multiplied
from semistan.model.table.columns import (
    Terms,
    apply_structured,
    check_collinear,
    check_varies,
    learn_structured,
    side_by_side,
    terms_from_plain,
    to_plain,
)
from semistan.model.table.inputs import Inputs

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.config import NetworkConfig
    from semistan.model.formula.images import Image
    from semistan.model.table.trunk_file import TrunkFile

TIMES = "times"  # in a bundle, beside what is learnt of the network's own inputs


@dataclass(frozen=True, slots=True)
class MultipliedInputs:
    """What is learnt of a network's inputs and of the term that it multiplies, as ``Inputs`` says.

    Attributes
    ----------
    inputs : Inputs
        The network's own.
    by : Terms
        The term, of one column.
    """

    inputs: Inputs
    by: Terms

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms, that which is multiplied last."""
        return (*self.inputs.terms, *self.by.terms)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.inputs.columns, *self.by.columns)

    @property
    def levels(self) -> dict[str, list[Any]]:
        """Levels of each factor."""
        return {**self.inputs.levels, **self.by.levels}

    @property
    def transforms(self) -> dict[str, Any]:
        """State of transformations."""
        return {**self.inputs.transforms, **self.by.transforms}

    @property
    def loc(self) -> tuple[float, ...]:
        """Mean of each column, and 0 of the one that is multiplied."""
        return (*self.inputs.loc, 0.0)

    @property
    def scale(self) -> tuple[float, ...]:
        """Standard deviation of each column."""
        return (*self.inputs.scale, *self.by.scale)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the network's own inputs."""
        return self.inputs.shape

    @property
    def pixels_of(self) -> Image | None:
        """Images among its own inputs."""
        return self.inputs.pixels_of

    @property
    def trunks(self) -> dict[str, TrunkFile]:
        """Trunks of its own inputs."""
        return self.inputs.trunks

    @property
    def made_by(self) -> str:
        """What made its own inputs."""
        return self.inputs.made_by

    def numbers(self, table: pd.DataFrame) -> Array:
        """Evaluate the inputs, and the column."""
        return np.hstack([self.inputs.numbers(table), apply_structured(self.by, table)])

    def architecture(self, options: NetworkConfig, outputs: int) -> Architecture:
        """Return the network of its own inputs, times the column."""
        return Multiplied(self.inputs.architecture(options, outputs))

    def to_plain(self) -> dict[str, Any]:
        """Return what is learnt as JSON-ready data."""
        return self.inputs.to_plain() | {TIMES: to_plain(asdict(self.by))}


@dataclass(frozen=True, slots=True)
class Multiplier:
    """The column that a network multiplies: its name, its scale, and the network's number."""

    column: str
    scale: float
    network: int


def multiplied_by(networks: Sequence[Inputs]) -> list[Multiplier | None]:
    """Return what each network multiplies; None of one that stands by itself."""
    return [
        Multiplier(item.by.columns[0], item.by.scale[0], number)
        if isinstance(item, MultipliedInputs)
        else None
        for number, item in enumerate(networks)
    ]


def inputs_of_layers(inputs: Inputs) -> tuple[str, ...]:
    """Return the names of what a network's first layer takes."""
    own = inputs.inputs if isinstance(inputs, MultipliedInputs) else inputs
    return own.columns


def learn_multiplied(
    inputs: Inputs, numbers: Array, times: str, table: pd.DataFrame
) -> tuple[MultipliedInputs, Array]:
    """Learn the term that a network multiplies; return both, and their numbers (N, Q + 1).

    Raises
    ------
    InputError
        If the term has more than one column, or one that is constant.
    """
    by, column = learn_structured((times,), table)
    if len(by.columns) != 1:
        raise InputError(
            f"a network multiplies one column, and '{times}' has {len(by.columns)} "
            f"({', '.join(by.columns)}); take a number or a factor of two levels, or write a 0/1 "
            "column for each level, as a:nn(u) + b:nn(u)"
        )
    check_varies(by)
    return MultipliedInputs(inputs, by), np.hstack([numbers, column])


def check_multiplied(x: Terms, X: Array, networks: Sequence[tuple[Inputs, Array]]) -> None:
    """Refuse columns of which one is a combination of others, those that networks multiply too.

    Parameters
    ----------
    x : Terms
        The structured columns of a predictor.
    X : array, shape (N, P)
        Their values.
    networks : sequence of pairs
        Its networks' inputs, and their numbers (N, Q).

    Raises
    ------
    InputError
        As ``check_collinear``.
    """
    held = [(item.by, u[:, -1:]) for item, u in networks if isinstance(item, MultipliedInputs)]
    columns = np.hstack([X, *(column for _, column in held)])
    check_collinear(side_by_side([x, *(by for by, _ in held)]), columns)


def multiplied_from_plain(
    inputs: Inputs, content: Mapping[str, Any], formula: Formula, times: str
) -> MultipliedInputs:
    """Rebuild both from JSON data, as ``inputs_from_plain``.

    Raises
    ------
    ValueError
        If the data are of another term, or of several columns.
    """
    by = terms_from_plain(content[TIMES], formula)
    if by.terms != (times,) or len(by.columns) != 1:
        raise ValueError(f"the network multiplies '{times}', and the data have {by.columns}")
    return MultipliedInputs(inputs, by)
