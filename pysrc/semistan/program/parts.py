"""What varies between programs: what their text depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.integral import Integral
from semistan.model.model import Model
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.parameter import Parameter
from semistan.model.priors.groups import PriorGroup
from semistan.model.sampled import parameters_of
from semistan.model.temper import Temper
from semistan.program.networks import NetworkText

Kernel = Literal["stan", "cpp"]


@dataclass(frozen=True, eq=False)
class Parts:
    """What varies between programs: the model, and how the network is computed.

    Attributes
    ----------
    model : Model
        Family, predictors with their terms, priors, temperature.
    kernel : str
        ``stan``, or ``cpp`` if the C++ kernel is declared.
    """

    model: Model
    kernel: Kernel

    @property
    def family(self) -> Family:
        """The response family."""
        return self.model.family

    @property
    def design(self) -> Design:
        """The predictors with their terms."""
        return self.model.design

    @property
    def priors(self) -> tuple[PriorGroup, ...]:
        """The priors that the user can choose."""
        return self.model.priors

    @property
    def holds_theta(self) -> bool:
        """Whether theta moves with phi instead of being a parameter."""
        return self.model.config.subspace.holds_theta

    @property
    def temper(self) -> Temper | None:
        """How the posterior is tempered, if it is."""
        return self.model.temper

    @property
    def orthogonal(self) -> tuple[int, ...]:
        """Positions of the coefficients that are sampled orthogonalised to the network."""
        return self.model.orthogonal if self.model.samples_orthogonal else ()

    @cached_property
    def network(self) -> NetworkText:
        """The networks, at weights that follow from phi."""
        return NetworkText(self.model, self.kernel)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What is sampled or integrated out, in order; the latter has no coordinates of its own."""
        return tuple(
            replace(item, centring=None) if item.name in self.model.drawn else item
            for item in parameters_of(self.model)
        )

    @property
    def beside_network(self) -> str:
        """Name of the coefficients that multiply X beside the network as it is."""
        return "theta_raw" if self.orthogonal else "theta"

    @property
    def integral(self) -> Integral | None:
        """What is integrated out and drawn afterwards, if anything is."""
        return self.model.integral

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out, to temper phi alone."""
        return self.model.integrates_theta

    @property
    def sampled(self) -> tuple[PriorGroup, ...]:
        """The priors of what is sampled."""
        return tuple(item for item in self.priors if not item.density.is_constant)

    @property
    def constant(self) -> tuple[PriorGroup, ...]:
        """The priors that fix a dispersion parameter."""
        return tuple(item for item in self.priors if item.density.is_constant)

    @property
    def joint(self) -> tuple[PriorGroup, ...]:
        """The prior of all coefficients together, if theta is made with its arguments."""
        return tuple(
            item for item in self.priors if item.density.joint and not item.density.explains
        )

    @property
    def y_type(self) -> str:
        """Type of the response as an argument."""
        if self.family.composed:
            return "array[] vector"
        if self.family.counted:
            return "array[,] int"
        return "array[] int" if self.family.integer else "vector"

    @property
    def y_declaration(self) -> str:
        """Declaration of the response."""
        K = self.family.counted
        if self.family.composed:
            return f"array[N] vector<lower=0, upper=1>[{K}] y;"
        if K:
            return f"array[N, {K}] int<lower=0> y;"
        return "array[N] int y;" if self.family.integer else "vector[N] y;"

    @property
    def y_rep_declaration(self) -> str:
        """Declaration of the replicated response, which is real where it is not counted."""
        K = self.family.counted
        if self.family.composed:
            return f"array[N] vector[{K}] y_rep;"
        return f"array[N, {K}] int y_rep;" if K else "vector[N] y_rep;"


def parts_of(model: Model, kernel: Kernel = "stan") -> Parts:
    """Collect what the text of a model's programs depends on."""
    in_cpp = kernel == "cpp" and has_kernel(model)
    return Parts(model, "cpp" if in_cpp else "stan")


def has_kernel(model: Model) -> bool:
    """Say whether the C++ kernel can compute a model's networks."""
    if model.integrates_theta or not model.network.in_stan:
        return False
    known = (ACTIVATIONS[part.activation].kernel for part in model.network.own)
    return NetworkText(model).architecture.has_kernel and all(known)


def has_log_lik(record: Family, design: Design) -> bool:
    """Say whether the C++ kernel has the likelihood too, in one pass with the networks."""
    return record.has_log_lik and not design.others


def known_of_rows(design: Design) -> tuple[str, ...]:
    """Return what is known of each row: ``offsets``, ``weights``, ``trials`` and the like."""
    return (*(("offsets",) if design.mean.offsets else ()), *design.given)
