"""Columns of what is integrated out that are data: those of theta and of the other terms.

They stand side by side in ``XZ``, which is made once with the products of each two of them; given
the rest, each is multiplied by a normal coefficient whose prior standard deviation is in ``sd_XZ``.
Of effects that are correlated at each level, the root of their covariance has further elements
below its diagonal: ``off_XZ``, at places ``below_XZ``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semistan.model.integral import Integral
from semistan.model.stan_text import WIDTH, declarations
from semistan.model.terms.term import Integrable
from semistan.program.likelihood import NOTHING
from semistan.words import listed

THETA_SD = "prior_b_scale"


@dataclass(frozen=True, slots=True)
class Columns:
    """They in the program; empty where nothing of the kind is integrated out.

    Attributes
    ----------
    integral : Integral
        What is integrated out.
    weighted : bool
        Whether rows have weights.
    """

    integral: Integral
    weighted: bool

    @property
    def name(self) -> str:
        """What the matrix is called; a single term's is its own."""
        if not self._each:
            return "rep_matrix(0, N, 0)"
        first, *others = self._each
        return "XZ" if others or "(" in first else first

    @property
    def gram(self) -> str:
        """The name of their products."""
        return "gram" if self._each else "rep_matrix(0, 0, 0)"

    @property
    def sd(self) -> str:
        """The name of the prior standard deviations."""
        if self.sampled_sd:
            return "sd_XZ"
        return THETA_SD if self.integral.theta else NOTHING

    @property
    def sampled_sd(self) -> bool:
        """Whether some of these are sampled."""
        return bool(self.integral.terms or self.integral.joint)

    @property
    def correlated(self) -> tuple[Integrable, ...]:
        """The terms whose effects are."""
        return tuple(term for term in self.integral.terms if term.root_name)

    @property
    def root(self) -> tuple[str, ...]:
        """The names of what the root of their prior covariance is made of."""
        return (self.sd, "below_XZ", "off_XZ") if self.correlated else (self.sd,)

    @property
    def prepared(self) -> str:
        """The declarations in the transformed data."""
        if not self._each:
            return ""
        text, name = "// Columns that what is integrated out multiplies\n", self.name
        if name == "XZ":
            text += declarations([(f"matrix[N, {self._number}] XZ", "of theta, and of terms")])
            text += f"  = {_appended('append_col', self._each)};\n"
        rows = f"diag_pre_multiply(sqrt(weights), {name})" if self.weighted else name
        gram = (f"matrix[cols({name}), cols({name})] gram = crossprod({rows});", "")
        return text + declarations([gram]) + self._places

    @property
    def _places(self) -> str:
        """The declaration of where the root has elements below its diagonal."""
        if not self.correlated:
            return ""
        each = []
        for term in self.correlated:
            behind = self._sizes[: self._sizes.index(number(term.z_sizes))]
            column = " + ".join([*behind, "1"])
            each.append(f"places_below({', '.join([column, *term.z_sizes])})")
        size = " + ".join(f"choose({term.z_sizes[1]}, 2)" for term in self.correlated)
        declared = f"array[{size}, 3] int below_XZ  // of their root, below its diagonal\n"
        return f"{declared}  = {_appended('append_array', each)};\n"

    @property
    def declared_sd(self) -> str:
        """The declaration of the prior standard deviations, where they are sampled."""
        if not self.sampled_sd:
            return ""
        of_theta = self.integral.joint.spread if self.integral.joint else THETA_SD
        found = [of_theta] if self.integral.theta else []
        for term in self.integral.terms:
            vector = len(term.z_sizes) == 1
            found.append(term.spread_text if vector else f"to_vector({term.spread_text})")
        declared = f"vector[{self._number}] sd_XZ  // prior sd of what they multiply\n"
        text = f"{declared}  = {_appended('append_row', found)};\n"
        if not self.correlated:
            return text
        roots = declarations([line for term in self.correlated for line in term.root_lines()])
        names = [term.root_name for term in self.correlated]
        below = [f"elements_below({name})" for name in names]
        off = f"vector[size(below_XZ)] off_XZ  // below the diagonal of {listed(names)}\n"
        return f"{roots}{text}{off}  = {_appended('append_row', below)};\n"

    @property
    def _each(self) -> list[str]:
        of_theta = ["Xc"] if self.integral.theta else []
        return [*of_theta, *(term.columns_text for term in self.integral.terms)]

    @property
    def _sizes(self) -> list[str]:
        of_theta = ["P"] if self.integral.theta else []
        return [*of_theta, *(number(term.z_sizes) for term in self.integral.terms)]

    @property
    def _number(self) -> str:
        """How many they are: ``P + m_1``."""
        return " + ".join(self._sizes)


def number(sizes: Sequence[str]) -> str:
    """Return the number of elements of a vector or matrix: ``N_1 * M_1``."""
    return " * ".join(size for size in sizes if size != "1")


def _appended(function: str, items: Sequence[str]) -> str:
    """Append several vectors or matrices, in one line or each in one of its own."""
    *first, last = items
    lines = [*(f"{function}({item}" for item in first), last + ")" * len(first)]
    single = ", ".join(lines)
    return single if len(single) < WIDTH - 12 else ",\n    ".join(lines)
