"""The full space: every Bayesian weight moves by itself.

    w = phi,    phi in R^d

One network is trained, and chains start at it. ``k`` of the configuration is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.subspace import along_axes
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress, descend, initial_parameters
from semistan.subspace.result import trained_result

if TYPE_CHECKING:
    from torch import Generator


def full(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,  # noqa: ARG001 - k = d, whatever it says
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a network and let all its weights move, around 0.

    The prior of phi is then that of the weights themselves.

    Notes
    -----
    Chains start at the one control point, the trained network, which is phi itself. No
    direction is preferred, so that all singular values are 1.
    """
    d = problem.network.d
    parameters = initial_parameters(problem, 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best = settle(problem, best)
    whole = along_axes(np.zeros(d), np.arange(d), "full")
    return trained_result(problem, units, best, history, whole, np.ones(d))


CONSTRUCTION = Construction(name="full", text="all weights", build=full, moves="all")
