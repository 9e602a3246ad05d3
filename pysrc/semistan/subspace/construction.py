"""A construction of a subspace: one record, which its file calls CONSTRUCTION.

Every construction turns a training problem into a ``Trained``: the subspace, and all that was
trained with it. One line of ``CONSTRUCTIONS`` in ``model/construction.py`` makes it known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semistan.density.problem import Problem
from semistan.model.config import ModelConfig, SubspaceConfig, TrainConfig
from semistan.model.construction import NARROW, ConstructionFacts, construction_facts
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.shorthand import without_table
from semistan.model.model import frozen_layers
from semistan.model.networks.networks import Networks
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.axes import with_axes
from semistan.subspace.descent import Progress
from semistan.subspace.dimensions import as_trained, check_dimensions
from semistan.subspace.weight_prior import in_units_of_the_prior

if TYPE_CHECKING:
    from torch import Generator


class Build(Protocol):
    """What a construction does."""

    def __call__(
        self,
        problem: Problem,
        units: Units,
        subspace: SubspaceConfig,
        train: TrainConfig,
        generator: Generator,
        progress: Progress | None = None,
    ) -> Trained:
        """Train what spans the subspace, and span it.

        Parameters
        ----------
        problem : Problem
            The training rows, standardised.
        units : Units
            The user's units, in which theta and dispersion are returned.
        subspace : SubspaceConfig
            Its ``k`` and the options of the construction, which ``check`` has accepted.
        train : TrainConfig
            Epochs of each stage, learning rate, batch size, validation share.
        generator : torch.Generator
            On the CPU; the source of all randomness.
        progress : callable, optional
            Called with the epoch, the training loss and the validation loss.

        Raises
        ------
        InputError
            If the rows do not allow this subspace.
        SemistanError
            If training diverges, or what was trained spans fewer than k dimensions.
        """


Check = Callable[[SubspaceConfig, Networks], None]
Epochs = Callable[[SubspaceConfig, TrainConfig], int]


def one_training(_: SubspaceConfig, train: TrainConfig) -> int:
    """Return the epochs of a construction of one stage."""
    return train.epochs


def any_network(_: SubspaceConfig, __: Networks) -> None:
    """Refuse nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Construction(ConstructionFacts):
    """A construction.

    Attributes
    ----------
    build : Build
        Trains and spans.
    check : callable
        Raises ``InputError`` for a subspace that the construction cannot have in these networks.
    epochs : callable
        The epochs of all stages of its training.
    """

    build: Build
    check: Check = any_network
    epochs: Epochs = one_training

    def __call__(
        self,
        problem: Problem,
        units: Units,
        subspace: SubspaceConfig,
        train: TrainConfig,
        generator: Generator,
        progress: Progress | None = None,
    ) -> Trained:
        """Check and build, and give phi what moves by itself and its prior; as ``Build``."""
        subspace = as_trained(subspace, problem.network)
        self.check(subspace, problem.network)
        trained = self.build(problem, units, subspace, train, generator, progress)
        trained = with_axes(trained, problem.network, subspace.free)
        if problem.prior_scale is None:
            return trained
        return in_units_of_the_prior(trained, problem.prior_scale.cpu().numpy())


def construction(name: str) -> Construction:
    """Look up a construction.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    record = construction_facts(name)
    assert isinstance(record, Construction)
    return record


def check_construction(config: SubspaceConfig, network: Networks) -> None:
    """Refuse, before anything is trained, a subspace that the networks cannot have.

    Raises
    ------
    InputError
        Saying what the construction can have.
    """
    if config.k == "auto" and not config.widens:
        config = config.model_copy(update={"k": NARROW})
    check_dimensions(config, network)
    construction(config.construction).check(as_trained(config, network), network)


def training_epochs(config: ModelConfig) -> int:
    """Return the epochs of all stages: of constant layers, if there are some, and of the rest."""
    subspace, train = config.subspace, config.train
    networks = parse_formula(without_table(config.formula)).networks
    constant = train.epochs if any(frozen_layers(config.network, networks)) else 0
    return constant + construction(subspace.construction).epochs(subspace, train)
