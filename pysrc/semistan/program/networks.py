"""One network or several in the program: data, inputs, and their sum.

One network is ``network(H, w, ...)``; several are ``networks(H, w, ...)``, in which H and w
hold what is theirs side by side. Where some are of a dispersion parameter,
``networks_of(H, w, ..., first, last)`` adds those of one predictor. What stands for the dots, and
the files of these functions, is the architecture's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
        """Whether there is more than one network."""
        return len(self.design.networks) > 1

    @property
    def by_predictor(self) -> bool:
        """Whether some networks are of other predictors than the mean."""
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
        """Name of the function that adds the outputs of a predictor's networks."""
        if self.by_predictor:
            return "networks_of"
        return "networks" if self.several else "network"

    @property
    def sizes(self) -> list[str]:
        """The likelihood's arguments that say how large the networks are."""
        return [f"data {kind} {name}" for kind, name in self.architecture.passed]

    @property
    def weights_lines(self) -> Lines:
        """Declaration of the weights at phi where the networks of several predictors share them."""
        if not self.by_predictor:
            return []
        return [(f"vector[num_elements(p_bar)] w = {self.subspace.weights};", "weights")]

    @property
    def shared_weights(self) -> str:
        """Expression for the weights at phi behind ``weights_lines``."""
        return "w" if self.by_predictor else self.subspace.weights

    def arguments(self, rows: str = "", predictor: str = MU, weights: str = "") -> list[str]:
        """Return the function's arguments at phi, for all rows or some, as ``[start : end]``."""
        passed = [name for _, name in self.architecture.passed]
        arguments = [f"H{rows}", weights or self.subspace.weights, *passed]
        of = self.design.network_predictors
        if not of:
            return arguments
        first = of.index(predictor) + 1
        return [*arguments, str(first), str(first + of.count(predictor) - 1)]

    def call(
        self, column: int = 0, *, rows: str = "", predictor: str = MU, weights: str = ""
    ) -> str:
        """Return the expression that is the sum of a predictor's networks at phi.

        It starts at a column of the text, under which further lines of it are indented.
        """
        arguments = self.arguments(rows, predictor, weights)
        lines = call(self.name, arguments, "", width=WIDTH - 4 - column).splitlines()
        return f"\n{' ' * column}".join(lines)
