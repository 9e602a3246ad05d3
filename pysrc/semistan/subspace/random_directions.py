"""Random directions around the average of the path of stochastic gradient descent.

w = w_SWA + Q phi,    Q R = G,    G (d, k) standard normal

The k directions are drawn uniformly and made orthonormal; they know nothing of the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.subspace import along
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_smaller
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress
from semistan.subspace.result import trained_result
from semistan.subspace.trajectory import path_epochs, train_and_average

if TYPE_CHECKING:
    from torch import Generator


def random(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Draw directions, then train one network and average its path.

    Notes
    -----
    Izmailov, Maddox, Kirichenko, Garipov, Vetrov and Wilson (2019), Subspace Inference for
    Bayesian Deep Learning, UAI, section 4.1. Theirs have length 1 and are nearly orthogonal.
    """
    Pi = random_directions(problem.network.d, subspace.dimension, generator)
    path = train_and_average(problem, subspace.snapshots, train, generator, progress)
    spanned = along(path.w, Pi, "random")
    return trained_result(
        problem, units, path.parameters, path.history, spanned, np.ones(subspace.dimension)
    )


def random_directions(d: int, k: int, generator: Generator) -> Array:
    """Draw k orthonormal directions in d dimensions, uniformly, as columns (d, k)."""
    normal = torch.randn((d, k), generator=generator, dtype=torch.float64).numpy()
    Q, R = np.linalg.qr(normal)
    return np.asarray(Q * np.sign(np.diag(R)))


CONSTRUCTION = Construction(
    name="random",
    text="random directions around the average of the path of stochastic gradient descent",
    build=random,
    check=check_smaller,
    epochs=path_epochs,
)
