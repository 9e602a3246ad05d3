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

from semistan.model.design import Design
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.networks.architecture import StanText
from semistan.model.stan_text import WIDTH, call
from semistan.program.subspace import TEXTS, SubspaceText

Lines = list[tuple[str, str]]


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
        """Whether some outputs are of other predictors than the mean."""
        return bool(self.design.network_predictors)

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
        """The likelihood's arguments that say how large the networks are."""
        return [f"data {kind} {name}" for kind, name in self.architecture.passed]

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
        lines = call(self.name, self.arguments(), "", width=WIDTH - 4 - column).splitlines()
        text = f"\n{' ' * column}".join(lines)
        if not self.by_predictor:
            return text
        first, *others = self._columns(predictor)
        if not others:
            return f"{text}[ : , {first}]"
        listed = ", ".join(map(str, (first, *others)))
        return f"{text}[ : , {{{listed}}}]\n{' ' * column}* rep_vector(1, {len(others) + 1})"

    def outputs(self, rows: str, size: str) -> str:
        """Declare the outputs of several predictors' networks for some rows; nothing of one's."""
        if not self.by_predictor:
            return ""
        n = len(self.design.network_predictors)
        return f"matrix[{size}, {n}] F  // outputs of the networks\n" + indent(
            call(f"= {self.name}", self.arguments(rows), ";", width=WIDTH - 6), "  "
        )

    def output(self, predictor: str = MU, of: str = "F") -> str:
        """Return the sum of a predictor's networks for the rows of ``outputs``."""
        return " + ".join(f"{of}[ : , {column}]" for column in self._columns(predictor))

    @property
    def number(self) -> int:
        """Number of outputs of all networks."""
        return len(self.design.network_predictors) or len(self.design.networks)

    def _columns(self, predictor: str) -> list[int]:
        """Return the columns of the outputs that are of a predictor."""
        of = enumerate(self.design.network_predictors, start=1)
        every = list(range(1, len(self.design.networks) + 1))
        return [column for column, name in of if name == predictor] if self.by_predictor else every
