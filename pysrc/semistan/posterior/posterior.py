"""What was learnt: the posterior of one subspace, or a mixture of those of several.

Everything that answers questions takes a ``Posterior``, and asks it for draws of predictors and
parameters. A mixture pools the draws of its members, which all count alike (Yao, Vehtari and
Gelman, 2022, JMLR 23(79)). What belongs to a chain, as Rhat, is found within each member: the
posteriors of different subspaces differ, so that their chains need not agree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from semistan.errors import InputError
from semistan.infer.method import Method
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.families.family import Family
from semistan.model.table.rows import Rows
from semistan.model.units import Units
from semistan.posterior.draws import Draws, by_network, read_draws
from semistan.posterior.engine import GRAPH, Engine, engine_named
from semistan.posterior.options import check_groups
from semistan.posterior.predictors import (
    Known,
    group_roots,
    network_draws,
    network_outputs_at,
    network_tangents_at,
    parameter_draws,
    predictor_draws,
)
from semistan.posterior.run import Run, read_run

MEAN = "mu"  # the predictor of the mean, or of an unordered response's second category
MOST_INPUTS = 200  # with respect to which outputs are differentiated


class Posterior(Protocol):
    """Draws from a posterior, S in all: those of its members, one after the other.

    The members share formula, family, design and units; each has a subspace of its own. Where all
    have as many draws that count, the pooled draws have the chains of all, C in number; else they
    are in one sequence, C = 1.
    """

    @property
    @abstractmethod
    def members(self) -> tuple[SubspacePosterior, ...]:
        """The posteriors of single subspaces that it is made of, with their whole chains."""

    @property
    @abstractmethod
    def counted(self) -> tuple[SubspacePosterior, ...]:
        """Those of them that have a weight, with the draws that count."""

    @property
    @abstractmethod
    def shares(self) -> tuple[float, ...]:
        """Which share of each member's draws counts, from 0 to 1."""

    @abstractmethod
    def predictor(self, rows: Rows, name: str = MEAN, part: str = "all") -> Array:
        """Return draws (S, N) of a predictor.

        Parameters
        ----------
        rows : Rows
            The N rows.
        name : str
            ``mu``: eta, the linear predictor; or a parameter, as ``sigma``, whose predictor is its
            logarithm also where the formula has none for it.
        part : str
            Of eta: ``all``, ``structured`` (x' theta alone, orthogonalised where it is), ``nn``
            (the network, centred) or ``penalised`` (smooths without their straight parts, and
            group-level effects).
        """

    @abstractmethod
    def network(self, rows: Rows, name: str = MEAN) -> Array:
        """Return draws (S, N) of what networks add to a predictor, as they are, in its units."""

    @abstractmethod
    def parameters(self, rows: Rows) -> dict[str, Array]:
        """Return draws of the dispersion parameters: (S, 1), or (S, N) with a predictor."""

    @abstractmethod
    def knowing(self, rows: Rows, names: Collection[str]) -> Posterior:
        """Compute the networks of some predictors at these rows, once.

        The posterior that is returned answers as this one does, without computing them again where
        rows have inputs of these networks that are among these. An engine other than the default
        one computes eta each time.

        Parameters
        ----------
        rows : Rows
            The N rows.
        names : collection of str
            Predictors with networks, as ``mu`` and ``sigma``.
        """

    @abstractmethod
    def near(self, rows: Rows, names: Collection[str]) -> Posterior:
        """Compute the networks of some predictors and their derivatives at these rows, once.

        The posterior that is returned answers for as many rows near these, to first order in the
        networks' inputs. Where derivatives are not to be had so, it is this one: of constant
        layers, of what is linearised, of an engine other than the default one, and of very many
        inputs.

        Parameters
        ----------
        rows : Rows
            The N rows.
        names : collection of str
            Predictors with networks, as ``mu`` and ``sigma``.
        """

    @abstractmethod
    def thin(self, size: int) -> Posterior:
        """Keep about ``size`` draws in all, at even distances in every chain."""

    @abstractmethod
    def seeded(self, *seed: int) -> Posterior:
        """Draw what is new in rows, as the effects of new levels, by another seed."""

    @abstractmethod
    def with_groups(self, groups: str) -> Posterior:
        """Take the effects of groups as ``known``, ``new``, ``none`` or ``marginal``.

        ``PredictOptions`` says what these are. Predictors are without what is integrated out, whose
        standard deviation ``deviation`` has.
        """

    @abstractmethod
    def group_roots(self, rows: Rows, names: Sequence[str]) -> dict[tuple[str, str], Array]:
        """Return a root of the covariance of what all levels of groups may add to predictors.

        Parameters
        ----------
        rows : Rows
            N rows.
        names : sequence of str
            Predictors that have groups.

        Returns
        -------
        dict of arrays, shape (S, N)
            What is to be multiplied with independent standard normal numbers of the second
            predictor and added to the first, by their names. Without ``(1 | ID | g)``, each has the
            standard deviation of its own alone.
        """

    @property
    def groups(self) -> str:
        """What the effects of groups are in predictions."""
        return self.members[0].draws.groups

    @property
    def config(self) -> ModelConfig:
        """The configuration, up to the seeds of the members."""
        return self.members[0].bundle.config

    @property
    def design(self) -> Design:
        """How rows become numbers."""
        return self.members[0].bundle.design

    @property
    def family(self) -> Family:
        """The response's distribution."""
        return self.members[0].bundle.family

    @property
    def units(self) -> Units:
        """Locations and scales of the columns."""
        return self.members[0].bundle.units

    @property
    def method(self) -> Method:
        """How the draws were made."""
        return self.members[0].draws.method

    @property
    def max_treedepth(self) -> int:
        """The limit on NUTS's tree depth."""
        return self.members[0].draws.max_treedepth

    @property
    def reservations(self) -> tuple[str, ...]:
        """What keeps the draws from being those of the posterior."""
        return tuple(
            dict.fromkeys(text for member in self.members for text in member.draws.reservations)
        )

    @property
    def chains(self) -> int:
        """Number of chains C of the pooled draws."""
        return len(self.lprior)

    @property
    def size(self) -> int:
        """Number of pooled draws S over all chains."""
        return sum(member.draws.size for member in self.counted)

    @property
    def interpreted(self) -> dict[str, Array]:
        """Coefficients, dispersion parameters and the like by name, each (C, S / C)."""
        return self.pooled_by_name(lambda draws: draws.interpreted)

    @property
    def identified(self) -> dict[str, Array]:
        """Those of them that are identified, on which convergence is judged."""
        return self.pooled_by_name(lambda draws: draws.identified)

    @property
    def coefficients(self) -> dict[str, Array]:
        """Intercepts and structured coefficients by name, each (C, S / C)."""
        return self.pooled_by_name(lambda draws: draws.coefficients)

    @property
    def sampler(self) -> dict[str, Array]:
        """What the method reports, under ArviZ's names, of each whole chain of the members."""
        shares = zip(self.members, self.shares, strict=True)
        several = [member.draws.sampler for member, share in shares if share > 0]
        return {name: _joined([each[name] for each in several]) for name in several[0]}

    @property
    def lprior(self) -> Array:
        """Log prior density (C, S / C)."""
        return self.pooled(lambda draws: draws.lprior)

    def pooled(self, of: Callable[[Draws], Array]) -> Array:
        """Return an array (C, S / C, ...) of each member's draws, one member after the other."""
        return _joined([of(member.draws) for member in self.counted])

    def pooled_by_name(self, of: Callable[[Draws], dict[str, Array]]) -> dict[str, Array]:
        """Return arrays by name, each pooled over the members."""
        return _joined_by_name([of(member.draws) for member in self.counted])


def _joined(arrays: list[Array]) -> Array:
    """Put chains one after the other, in one sequence if they differ in length.

    A single array is not copied.
    """
    if len(arrays) == 1:
        return arrays[0]
    if len({array.shape[1] for array in arrays}) == 1:
        return np.concatenate(arrays)
    flat = [array.reshape(1, -1, *array.shape[2:]) for array in arrays]
    return np.concatenate(flat, axis=1)


def _joined_by_name(several: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: _joined([each[name] for each in several]) for name in several[0]}


@dataclass(frozen=True, slots=True, eq=False)
class SubspacePosterior(Posterior):
    """The posterior of one subspace.

    Attributes
    ----------
    bundle : Bundle
        The trained model.
    draws : Draws
        Draws of it.
    engine : callable, optional
        What computes eta; PyTorch by default.
    known : tuple of NetworkOutputs or NetworkTangents
        Outputs of networks at or near some rows; of each chain's own where draws are linearised.

    Raises
    ------
    InputError
        If there is an engine, and the draws are of a linearised network, which it does not have, or
        are not completed as it is.
    """

    bundle: Bundle
    draws: Draws
    engine: Engine | None = None
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        if self.engine is not None and self.draws.around is not None:
            raise InputError(
                f"draws of {self.draws.method.text} belong to the network linearised at its mode, "
                "which predictor.onnx does not have; use --engine torch"
            )
        if self.engine and self.draws.psi is None and self.bundle.trained.completion:
            raise InputError(
                "predictor.onnx is that of the completed subspace, and these draws are not "
                "completed; use --engine torch"
            )

    @property
    def members(self) -> tuple[SubspacePosterior, ...]:
        """Itself."""
        return (self,)

    @property
    def counted(self) -> tuple[SubspacePosterior, ...]:
        """Itself."""
        return (self,)

    @property
    def shares(self) -> tuple[float, ...]:
        """All draws count."""
        return (1.0,)

    def predictor(self, rows: Rows, name: str = MEAN, part: str = "all") -> Array:
        """Return draws (S, N) of a predictor."""
        of = None if name in (MEAN, self.design.mean_name) else name
        return _joined(
            [
                predictor_draws(bundle, draws, rows, of, part, self.engine, known)
                for bundle, draws, known in self._by_network
            ]
        )

    def network(self, rows: Rows, name: str = MEAN) -> Array:
        """Return draws (S, N) of what networks add to a predictor."""
        return _joined([network_draws(*own, rows, name) for own in self._by_network])

    def parameters(self, rows: Rows) -> dict[str, Array]:
        """Return draws of the dispersion parameters."""
        return _joined_by_name(
            [
                parameter_draws(bundle, draws, rows, known)
                for bundle, draws, known in self._by_network
            ]
        )

    @property
    def _by_network(self) -> list[tuple[Bundle, Draws, Known | None]]:
        """The draws with their network, and what of it is known."""
        networks = by_network(self.bundle, self.draws)
        known = self.known or [None] * len(networks)
        return [(*own, each) for own, each in zip(networks, known, strict=True)]

    def knowing(self, rows: Rows, names: Collection[str]) -> SubspacePosterior:
        """Compute the networks of some predictors at these rows, once."""
        used = [name for name in names if self.engine is None or name != MEAN]
        if not used:
            return self
        known = tuple(network_outputs_at(*own, rows, used) for own in self._by_network)
        return replace(self, known=known)

    def near(self, rows: Rows, names: Collection[str]) -> SubspacePosterior:
        """Compute the networks of some predictors and their derivatives at these rows, once."""
        model, many = self.bundle.model, rows.U.shape[1] > MOST_INPUTS
        linearised = self.draws.around is not None
        if model.leading.any or not model.network.batches or many or self.engine or linearised:
            return self
        return replace(self, known=(network_tangents_at(self.bundle, self.draws, rows, names),))

    def thin(self, size: int) -> SubspacePosterior:
        """Keep about ``size`` draws."""
        return replace(self, draws=self.draws.thin(size), known=())

    def seeded(self, *seed: int) -> SubspacePosterior:
        """Draw what is new in rows by another seed."""
        return replace(self, draws=replace(self.draws, seed=seed))

    def with_groups(self, groups: str) -> SubspacePosterior:
        """Take the effects of groups so."""
        check_groups(groups)
        return replace(self, draws=replace(self.draws, groups=groups))

    def group_roots(self, rows: Rows, names: Sequence[str]) -> dict[tuple[str, str], Array]:
        """Return a root of the covariance of what all levels of groups may add to predictors."""
        return group_roots(self.bundle, self.draws, rows, names)

    def __repr__(self) -> str:
        return f"Posterior of one subspace. {self.draws!r}"


@dataclass(frozen=True, slots=True)
class Mixture(Posterior):
    """A mixture of the posteriors of several subspaces.

    The draws that count all count alike: a member of smaller weight has fewer of them, at even
    distances in its chains, and the member of the largest weight has all.

    Attributes
    ----------
    members : tuple of SubspacePosterior
        Fits of the same model to the same rows, with equal numbers of chains and draws.
    weights : tuple of float
        Their weights, which need not sum to 1; equal if there are none.
    counted : tuple of SubspacePosterior
        The members with a weight, thinned in proportion to it.

    Raises
    ------
    InputError
        If there are none, or they are not of one model, or differ in their numbers of draws, or if
        the weights are not one for each or none is positive.
    """

    members: tuple[SubspacePosterior, ...]
    weights: tuple[float, ...] = ()
    counted: tuple[SubspacePosterior, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("a mixture needs at least one posterior, got none")
        first = self.members[0]
        for member in self.members[1:]:
            _check_same(first, member)
        _check_weights(self.weights, len(self.members))
        object.__setattr__(self, "counted", self._counted())

    def _counted(self) -> tuple[SubspacePosterior, ...]:
        """Thin the members, each of which draws what is new in rows by a seed of its own."""
        own = [member.seeded(*member.draws.seed, i) for i, member in enumerate(self.members)]
        if not self.weights:
            return tuple(own)
        with_shares = zip(self.members, self.shares, strict=True)
        sizes = [round(share * member.draws.size) for member, share in with_shares]
        return tuple(member.thin(size) for member, size in zip(own, sizes, strict=True) if size > 0)

    @property
    def shares(self) -> tuple[float, ...]:
        """Each member's share of draws that count; none where less than one in each chain does."""
        equal = (1.0,) * len(self.members)
        return shares_of(self.weights or equal, self.members[0].draws.lprior.shape[1])

    def predictor(self, rows: Rows, name: str = MEAN, part: str = "all") -> Array:
        """Return draws (S, N) of a predictor."""
        return np.concatenate([member.predictor(rows, name, part) for member in self.counted])

    def network(self, rows: Rows, name: str = MEAN) -> Array:
        """Return draws (S, N) of what networks add to a predictor."""
        return np.concatenate([member.network(rows, name) for member in self.counted])

    def parameters(self, rows: Rows) -> dict[str, Array]:
        """Return draws of the dispersion parameters."""
        return _joined_by_name([member.parameters(rows) for member in self.counted])

    def knowing(self, rows: Rows, names: Collection[str]) -> Mixture:
        """Compute the networks of some predictors at these rows, once."""
        return self._counting(tuple(member.knowing(rows, names) for member in self.counted))

    def near(self, rows: Rows, names: Collection[str]) -> Mixture:
        """Compute the networks of some predictors and their derivatives at these rows, once."""
        return self._counting(tuple(member.near(rows, names) for member in self.counted))

    def _counting(self, counted: tuple[SubspacePosterior, ...]) -> Mixture:
        """Return it with other members that count, or itself with the same."""
        if counted == self.counted:
            return self
        found = copy(self)
        object.__setattr__(found, "counted", counted)
        return found

    def thin(self, size: int) -> Mixture:
        """Keep about ``size`` draws in all, of each member in proportion to its weight."""
        each = max(1, int(size / sum(self.shares)))
        return Mixture(tuple(member.thin(each) for member in self.members), self.weights)

    def seeded(self, *seed: int) -> Mixture:
        """Draw what is new in rows by another seed."""
        return Mixture(tuple(member.seeded(*seed) for member in self.members), self.weights)

    def with_groups(self, groups: str) -> Mixture:
        """Take the effects of groups so."""
        return Mixture(tuple(each.with_groups(groups) for each in self.members), self.weights)

    def group_roots(self, rows: Rows, names: Sequence[str]) -> dict[tuple[str, str], Array]:
        """Return a root of the covariance of what all levels of groups may add to predictors."""
        of_each = [member.group_roots(rows, names) for member in self.counted]
        return {key: np.concatenate([roots[key] for roots in of_each]) for key in of_each[0]}

    def __repr__(self) -> str:
        return f"Mixture of {len(self.members)} posteriors. Each: {self.members[0].draws!r}"


def shares_of(weights: Sequence[float], draws: int) -> tuple[float, ...]:
    """Return which share of a member's draws counts: whole numbers of those of a chain."""
    most = max(weights)
    return tuple(round(draws * weight / most) / draws for weight in weights)


def _check_weights(weights: tuple[float, ...], members: int) -> None:
    if weights and not (len(weights) == members and min(weights) >= 0 and max(weights) > 0):
        raise InputError(
            f"a mixture of {members} posteriors has a weight for each, none of them negative and "
            f"one positive, got {weights}"
        )


def _check_same(first: SubspacePosterior, other: SubspacePosterior) -> None:
    for what, ours, theirs in (
        ("formula", first.config.formula, other.config.formula),
        ("family", str(first.family), str(other.family)),
        ("columns", first.design.mean.names, other.design.mean.names),
        ("rows", first.bundle.source.rows, other.bundle.source.rows),
        ("chains and draws", first.draws.lprior.shape, other.draws.lprior.shape),
    ):
        if ours != theirs:
            raise InputError(
                "the members of a mixture are fits of one model to the same rows, with equal "
                f"numbers of draws; their {what} differ: {ours} and {theirs}"
            )


def read_posterior(run: Run | str | Path, engine: str = "torch") -> Posterior:
    """Read a run's posterior: of several subspaces, the mixture.

    Parameters
    ----------
    run : Run or path
        A finished run, or its folder.
    engine : str
        What computes eta: ``torch``, or ``onnx`` (the graphs of the bundles).

    Raises
    ------
    InputError
        If a chain is missing.
    """
    run = run if isinstance(run, Run) else read_run(run)
    run.check_complete()  # a missing chain is told of the whole run
    members = tuple(
        SubspacePosterior(member.bundle, read_draws(member), member_engine(member, engine))
        for member in run.members
    )
    return Mixture(members, run.weights) if run.parts else members[0]


def member_engine(member: Run, name: str) -> Engine | None:
    """Return an engine for the run of one subspace by its name; see ``engine_named``.

    PyTorch is none, with which each chain has its own network where draws are linearised.
    """
    if name == "torch":
        return None
    folder = member.path / "bundle"
    if (folder / GRAPH).is_file():
        member.seal().verify(f"bundle/{GRAPH}")
    return engine_named(name, member.bundle, folder)
