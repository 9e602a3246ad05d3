"""Every construction of a subspace, by its name: ``[subspace] construction = ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from semistan.density.problem import Problem
from semistan.errors import InputError, did_you_mean
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.bezier import bezier
from semistan.subspace.connecting_curve import curve
from semistan.subspace.descent import Progress
from semistan.subspace.full import full
from semistan.subspace.low_rank_laplace import low_rank_laplace
from semistan.subspace.naive import naive
from semistan.subspace.pca import pca
from semistan.subspace.random_directions import random
from semistan.subspace.subnetwork import subnetwork
from semistan.subspace.trajectory import path_spacing

if TYPE_CHECKING:
    from torch import Generator

    Construction = Callable[
        [Problem, Units, SubspaceConfig, TrainConfig, Generator, Progress | None], Trained
    ]

CONSTRUCTIONS: dict[str, Construction] = {
    "bezier": bezier,
    "curve": curve,
    "pca": pca,
    "random": random,
    "subnetwork": subnetwork,
    "low_rank_laplace": low_rank_laplace,
    "full": full,
    "naive": naive,
}


def training_epochs(subspace: SubspaceConfig, train: TrainConfig) -> int:
    """Return the epochs of all stages of a construction."""
    if subspace.construction == "curve":
        return 3 * train.epochs
    swag = subspace.construction == "subnetwork" and subspace.select == "swag"
    if swag or subspace.construction in ("pca", "random"):
        return train.epochs + subspace.snapshots * path_spacing(subspace.snapshots, train.epochs)
    return train.epochs


def construction(name: str) -> Construction:
    """Look up a construction.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    if name not in CONSTRUCTIONS:
        raise InputError(f"unknown construction '{name}'.{did_you_mean(name, CONSTRUCTIONS)}")
    return CONSTRUCTIONS[name]
