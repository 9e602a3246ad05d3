"""Group-level terms ``(1 | ID | g)``: effects that are correlated across predictors.

Terms of one ID in several predictors, as of the mean and of log sigma, have all of their effects of
a level from one normal distribution. L is the Cholesky factor of the correlations of all effects,
in the order of the predictors; with z those of each term, standard normal, the effects of the
second are

    r_2 = (z_1, z_2) L_2' diag(sd_2),

L_2 being the rows of L that belong to it. The first term has L, and reports all correlations. Names
are brms's: ``cor_g__Intercept__sigma_Intercept``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.parameter import Parameter
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.stan_text import WIDTH, call
from semistan.model.table.rows import Block
from semistan.model.terms.group import Group, correlation_root, shared_state
from semistan.model.terms.penalised import Penalised

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class GroupAcross(Group):
    """One of several group-level terms with correlated effects.

    Attributes
    ----------
    every : tuple of Group
        All of them, predictor by predictor, as each would be by itself.
    place : int
        Which of them this one is.
    """

    every: tuple[Group, ...] = ()
    place: int = 0

    @property
    def own(self) -> slice:
        """Its effects among all."""
        before = sum(term.size for term in self.every[: self.place])
        return slice(before, before + self.size)

    @property
    def total(self) -> int:
        """Effects of all terms."""
        return sum(term.size for term in self.every)

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of z, of the L of all terms, and of r."""
        return f"z_{self.key}", f"L_{self.every[0].key}", f"r_{self.key}"

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of all correlations, of the first term alone."""
        size = 0 if self.place else self.total
        return tuple((i, j) for i in range(size) for j in range(i))

    @property
    def correlated_names(self) -> tuple[str, ...]:
        """The parts of names that the effects of all terms have."""
        return tuple(name for term in self.every for name in term.correlated_names)

    @property
    def correlated_labels(self) -> tuple[str, ...]:
        """What they are, in words."""
        return tuple(
            f"{effect} of {term.of}" if term.of else effect
            for term in self.every
            for effect in term.effect_labels
        )

    @property
    def depends_on(self) -> tuple[str, ...]:
        """L, and z and standard deviations of the terms before it."""
        before = self.every[: self.place]
        sds = (name for term in before for name in term.spread)
        return (self.names[1], *(f"z_{term.key}" for term in before), *sds)

    @property
    def columns_text(self) -> str:
        """Nothing: its coefficients are not those of its own z alone."""
        return ""

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:
        """Return the standardised effects; of the first term also the Cholesky factor of all."""
        *_, made = Group.parameters(self, priors)
        if self.place:
            return (made,)
        sizes = [term.effects_text for term in self.every]
        M = str(self.total) if {*sizes} == {"1"} else " + ".join(sizes)
        return (self.correlation_factor(priors, self.total, M), made)

    @property
    def factor_text(self) -> str:
        """The rows and columns of L that belong to this term."""
        span = self._span(self.own)
        return f"{self.names[1]}[{span}, {span}]"

    def factor_of(self, values: Mapping[str, Any]) -> Tensor:
        """Return them."""
        return torch.as_tensor(values[self.names[1]])[self.own, self.own]

    def _made_text(self) -> str:
        """Multiply the z of this term and of those before it by its rows of L."""
        z, *others = [f"z_{term.key}" for term in self.every[: self.place + 1]]
        if not others and self.size == 1:
            return f"= {self.spread[0]} * {z};"
        for other in others:
            z = f"append_col({z}, {other})"
        before = self._span(slice(0, self.own.stop))
        factor = f"{self.names[1]}[{self._span(self.own)}, {before}]"
        return f"= {z}\n" + call("  * diag_pre_multiply", [*self._sd, factor], "';", WIDTH - 4)

    @staticmethod
    def _span(of: slice) -> str:
        return f"{of.start + 1} : {of.stop}"

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return r (levels, effects) in the user's units."""
        z = torch.cat([values[f"z_{term.key}"] for term in self.every[: self.place + 1]], dim=1)
        factor = values[self.names[1]][self.own, : self.own.stop]
        return self.sd(values) * (z @ factor.T)

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return z at the trained coefficients x, with their own spread and uncorrelated."""
        return Group.start(self, x, scale) | {self.names[1]: np.eye(self.total)}

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return new standard deviations, and correlations within this term.

        Those with other terms are 0 where chains start, and stay so while a mode is climbed to.
        """
        L, own = self.names[1], self.own
        whole = np.array(values[L])
        alone = {**values, L: whole[own, own]}
        found = Penalised.reestimated(self, alone, covariance, fixed, scale)
        whole[own, own] = found[L]
        return found | {L: whole}

    @property
    def drawn_by(self) -> tuple[str, ...]:
        """What names the random numbers of new levels, which all terms share."""
        return tuple(name for term in self.every for name in term.spread)

    def root(self, draws: Mapping[str, Array]) -> Array:
        """Return the rows (S, size, total) of a root of the covariance of all effects."""
        sd = np.stack([draws[name] for name in self.spread], axis=-1)
        factor = correlation_root(replace(self, place=0), draws, self.total)
        return np.asarray(sd[:, :, None] * factor[:, self.own])

    def directions(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return what each of the standard normals that all terms share adds, (S, N, total)."""
        return np.asarray(np.einsum("nj,sjt->snt", block.Z, self.root(draws)))


def across(groups: Iterable[tuple[str, Group]]) -> dict[Group, GroupAcross]:
    """Return what takes the place of terms whose effects are correlated with those of others.

    Parameters
    ----------
    groups : iterable of (str, Group)
        The group-level terms of all predictors, and of which predictor each is.

    Raises
    ------
    InputError
        If an ID is of several grouping columns, or stands twice in a predictor.
    """
    by_id: dict[str, list[tuple[str, Group]]] = {}
    for predictor, group in groups:
        if group.id:
            by_id.setdefault(group.id, []).append((predictor, group))
    found: dict[Group, GroupAcross] = {}
    for identity, members in by_id.items():
        predictors, every = zip(*members, strict=True)
        if len({*predictors}) < len(predictors):
            raise InputError(
                f"ID '{identity}' stands twice in one predictor; write its terms as one, as "
                f"(1 + x | {identity} | {every[0].label})"
            )
        if len({(group.by, group.levels) for group in every}) > 1:
            labels = " and ".join(dict.fromkeys(f"'{group.label}'" for group in every))
            raise InputError(
                f"ID '{identity}' stands before {labels}; effects are correlated across "
                "predictors for the levels of one group: give each group an ID of its own"
            )
        for place, group in enumerate(every if len(every) > 1 else ()):
            shared = shared_state(group) | {"correlated": True}
            found[group] = GroupAcross(**shared, every=every, place=place)
    return found
