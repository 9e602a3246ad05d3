"""One network or several in the program: data, inputs, and their sum.

One network is ``network(H, w, ...)``; several are ``networks(H, w, ...)``, in which H and w
hold what is theirs side by side. Where several predictors have networks, or share one,
``outputs(H, w, ...)`` is the matrix of all outputs. What stands for the dots, and the files of
these functions, is the architecture's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from textwrap import indent
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.formula.formula import parse_formula
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.networks.architecture import StanText
from semistan.model.predictor import NetworkSlope
from semistan.model.stan_text import WIDTH, call
from semistan.program.subspace import TEXTS, SubspaceText

Lines = list[tuple[str, str]]
TIMES = "times"  # what multiplies each output, 1 of networks that stand by themselves


@dataclass(frozen=True)
class NetworkText:
    """The networks of a model in its program, at weights that follow from phi.

    Attributes
    ----------
    model : Model
        The model.
    kernel : str
        Whether the network is computed in Stan (``stan``) or by the C++ kernel (``cpp``).
    """

    model: Model
    kernel: str = "stan"

    @property
    def design(self) -> Design:
        """The predictors with their networks."""
        return self.model.design

    @property
    def several(self) -> bool:
        """Whether the program is that of several networks, which one of several outputs is too."""
        return len(self.design.networks) > 1 or self.by_predictor

    @property
    def by_predictor(self) -> bool:
        """Whether the outputs are apart, as those of several predictors, or times a column, are."""
        return bool(self.design.network_predictors) or self.multiplies

    @property
    def multiplies(self) -> bool:
        """Whether some networks multiply a column."""
        return bool(self.design.slopes)

    @cached_property
    def architecture(self) -> StanText:
        """What the networks' architecture brings to the program."""
        return self.model.network.kind.stan_text(
            several=self.several,
            predictors=self.by_predictor,
            kernel=self.kernel == "cpp",
        )

    @property
    def subspace(self) -> SubspaceText:
        """How the weights follow from phi."""
        return TEXTS[self.model.moves]

    @property
    def files(self) -> tuple[str, ...]:
        """Functions in ``stan/``."""
        return (*self.architecture.files, *self.subspace.files)

    @property
    def name(self) -> str:
        """Name of the function that computes the networks."""
        if self.by_predictor:
            return "outputs"
        return "networks" if self.several else "network"

    @property
    def sizes(self) -> list[str]:
        """The likelihood's arguments that say how large networks are, and what they multiply."""
        sizes = [f"data {kind} {name}" for kind, name in self.architecture.passed]
        return [*sizes, f"data matrix {TIMES}"] if self.multiplies else sizes

    def arguments(self, rows: str = "", weights: str = "") -> list[str]:
        """Return the function's arguments, for all rows or some, as ``[start : end]``.

        The weights are those at phi, or an expression for others.
        """
        passed = [name for _, name in self.architecture.passed]
        return [f"H{rows}", weights or self.subspace.weights, *passed]

    def call(self, column: int = 0, predictor: str = MU) -> str:
        """Return the expression that is the sum of a predictor's networks at phi, for all rows.

        It starts at a column of the text, under which further lines of it are indented.
        """
        text = self._called(column)
        if not self.by_predictor:
            return text
        if self.multiplies:
            text = f"({text}\n{' ' * column} .* {TIMES})"
        return self._summed(text, self._columns(predictor), column)

    def mean_call(self, column: int, predictor: str = MU) -> str:
        """Return the mean over the rows of a predictor's networks that multiply nothing."""
        if not self.by_predictor:
            return f"mean({self.call(column, predictor)})"
        held = {slope.network for slope in self.design.predictor(predictor).slopes}
        columns = [i for i in self._columns(predictor) if self._networks[i - 1] not in held]
        return f"mean({self._summed(self._called(column), columns, column)})"

    def slope(self, slope: NetworkSlope, column: int) -> str:
        """Return the mean over the rows of a network that multiplies a column."""
        return f"mean({self._called(column)}[ : , {self._networks.index(slope.network) + 1}])"

    def _called(self, column: int) -> str:
        lines = call(self.name, self.arguments(), "", width=WIDTH - 4 - column).splitlines()
        return f"\n{' ' * column}".join(lines)

    @staticmethod
    def _summed(text: str, columns: list[int], column: int) -> str:
        first, *others = columns
        if not others:
            return f"{text}[ : , {first}]"
        listed = ", ".join(map(str, (first, *others)))
        return f"{text}[ : , {{{listed}}}]\n{' ' * column}* rep_vector(1, {len(others) + 1})"

    def outputs(self, rows: str, size: str) -> str:
        """Declare the outputs of several predictors' networks for some rows; nothing of one's."""
        if not self.by_predictor:
            return ""
        tail = f"\n  .* {TIMES}{rows};" if self.multiplies else ";"
        times = ", times what they multiply" if self.multiplies else ""
        return f"matrix[{size}, {self.number}] F  // outputs of the networks{times}\n" + indent(
            call(f"= {self.name}", self.arguments(rows), tail, width=WIDTH - 6), "  "
        )

    def output(self, predictor: str = MU, of: str = "F") -> str:
        """Return the sum of a predictor's networks for the rows of ``outputs``."""
        return " + ".join(f"{of}[ : , {column}]" for column in self._columns(predictor))

    @property
    def number(self) -> int:
        """Number of outputs of all networks."""
        return len(self.design.outputs)

    @cached_property
    def _networks(self) -> list[int]:
        """Which network each output is of, from 0."""
        every = enumerate(parse_formula(self.design.formula).networks)
        return [number for number, network in every for _ in network.of]

    @property
    def multiplier_data(self) -> Lines:
        """Declare what networks multiply."""
        if not self.multiplies:
            return []
        return [
            ("int<lower=1> n_by;", "columns that networks multiply"),
            ("matrix[N, n_by] by;", "these columns"),
            ("vector<lower=0>[n_by] by_scale;", "standard deviation of each"),
            (f"array[n_by] int<lower=1, upper={self.number}> of_by;", "the output that each is of"),
        ]

    @property
    def multiplier_matrix(self) -> tuple[Lines, str]:
        """Declare and fill, in the transformed data, what multiplies each output."""
        if not self.multiplies:
            return [], ""
        line = (f"matrix[N, {self.number}] {TIMES} = rep_matrix(1, N, {self.number});",
                "what each output is multiplied by")  # fmt: skip
        return [line], f"for (j in 1 : n_by) {TIMES}[ : , of_by[j]] = by[ : , j] / by_scale[j];\n"

    def multiplier_values(self, U: Array, scale: Array) -> dict[str, Any]:
        """Return the values of ``multiplier_data``, given inputs (N, Q) and their scales (Q,)."""
        if not self.multiplies:
            return {}
        slopes, columns = self.design.slopes, self.model.network.multipliers
        by = np.array([columns[slope.network] for slope in slopes])
        sd = np.array([slope.scale for slope in slopes])
        return {
            "n_by": len(slopes),
            "by": U[:, by] * (sd / scale[by]),  # behind constant layers they are over their scales
            "by_scale": sd,
            "of_by": [self._networks.index(slope.network) + 1 for slope in slopes],
        }

    def _columns(self, predictor: str) -> list[int]:
        """Return the columns of the outputs that are of a predictor."""
        of = enumerate(self.design.outputs, start=1)
        return [column for column, name in of if name == predictor]
