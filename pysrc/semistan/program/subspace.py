"""The subspace in the program: how the weights follow from phi, and the data which that takes.

directions    w = p_bar + Pi phi
axes          w = p_bar, and phi moves the weights at `axes`
both          the first elements of phi move the weights at `axes`, the others along Pi
all           w = p_bar + phi
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from semistan.model.construction import Moves
from semistan.model.stan_text import heading
from semistan.model.subspace import Subspace

Lines = tuple[tuple[str, str], ...]

P_BAR = "data vector p_bar"
NO_AXES = "zeros_int_array(0)"
NO_PI = "rep_matrix(0, 0, 0)"
AXES = ("data array[] int", "axes")
PI = ("data matrix", "Pi")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspaceText:
    """How a subspace stands in a program.

    Attributes
    ----------
    model : str
        The weights, in the comments at the top.
    weights : str
        Expression for the weights at phi.
    passed : pairs
        Type and name of the data which that expression takes behind p_bar.
    to_kernel : tuple of str
        What the C++ kernel gets for ``axes`` and ``Pi``: neither if all weights move.
    dimension : str
        Declaration of k.
    data : pairs
        Declarations of that data.
    files : tuple of str
        Functions in ``stan/``.
    """

    model: str
    weights: str
    passed: Lines
    to_kernel: tuple[str, str]
    dimension: str = "int<lower=1> k;"
    data: Lines
    files: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The likelihood's arguments."""
        return [P_BAR, *(f"{kind} {name}" for kind, name in self.passed)]

    @property
    def kernel_arguments(self) -> list[tuple[str, str]]:
        """The arguments of the C++ kernel, and what is passed."""
        declared = (P_BAR, *(" ".join(argument) for argument in (AXES, PI)))
        return list(zip(declared, ("p_bar", *self.to_kernel), strict=True))

    @property
    def declarations(self) -> list[tuple[str, str]]:
        """The section of the data block."""
        return [
            heading(f"Subspace: {self.model}"),
            ("int<lower=1> d;", "Bayesian weights"),
            (self.dimension, "dimension of the subspace"),
            ("vector[d] p_bar;", "weights at phi = 0"),
            *self.data,
            ("vector<lower=0>[k] phi_scale;", "unit of each coordinate"),
        ]


TEXTS: dict[Moves, SubspaceText] = {
    "directions": SubspaceText(
        model="w = p_bar + Pi phi",
        weights="p_bar + Pi * phi",
        passed=(PI,),
        to_kernel=(NO_AXES, "Pi"),
        data=(("matrix[d, k] Pi;", "directions of the subspace"),),
    ),
    "axes": SubspaceText(
        model="w = p_bar, plus phi at the weights that move",
        weights="move(phi, p_bar, axes)",
        passed=(AXES,),
        to_kernel=("axes", NO_PI),
        data=(("array[k] int<lower=1, upper=d> axes;", "weights that move"),),
        files=("move.stanfunctions",),
    ),
    "both": SubspaceText(
        model="w = p_bar + Pi phi, and single weights that move by themselves",
        weights="move_along(phi, p_bar, axes, Pi)",
        passed=(AXES, PI),
        to_kernel=("axes", "Pi"),
        data=(
            ("int<lower=1, upper=k> n_axes;", "weights that move by themselves"),
            ("array[n_axes] int<lower=1, upper=d> axes;", "which"),
            ("matrix[d, k - n_axes] Pi;", "directions of the subspace"),
        ),
        files=("move.stanfunctions", "move_along.stanfunctions"),
    ),
    "all": SubspaceText(
        model="w = p_bar + phi, all weights",
        weights="p_bar + phi",
        passed=(),
        to_kernel=(NO_AXES, NO_PI),
        dimension="int<lower=d, upper=d> k;",
        data=(),
    ),
}


def subspace_data(subspace: Subspace, moves: Moves) -> dict[str, Any]:
    """Return the values of what the text declares as data."""
    axes, text = subspace.axes, TEXTS[moves]
    known = {"axes": axes + 1, "Pi": subspace.Pi}
    return {
        "d": subspace.d,
        "k": subspace.k,
        "p_bar": subspace.p_bar,
        **({"n_axes": len(axes)} if moves == "both" else {}),
        **{name: known[name] for _, name in text.passed},
        "phi_scale": subspace.phi_scale,
    }
