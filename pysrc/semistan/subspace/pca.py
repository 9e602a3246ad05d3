"""Principal components of the path that stochastic gradient descent takes around a solution.

With the deviations A (M, d) of M snapshots from the average of the path, A = U S V',

    w = w_SWA + V_k phi,    phi_j ~ prior * s_j / sqrt(M - 1)

so that standard normal phi reproduce the first k principal components of the covariance
A'A / (M - 1) of the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem
from semistan.errors import InputError, SemistanError
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_smaller
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress
from semistan.subspace.result import trained_result
from semistan.subspace.span import pointing_up
from semistan.subspace.trajectory import path_epochs, train_and_average

if TYPE_CHECKING:
    from torch import Generator


def pca(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train one network, follow its path and span the path's principal components.

    Notes
    -----
    Izmailov, Maddox, Kirichenko, Garipov, Vetrov and Wilson (2019), Subspace Inference for
    Bayesian Deep Learning, UAI, section 4.2. They put the scale into the directions, which here
    are orthonormal, and phi carries it.
    """
    path = train_and_average(problem, subspace.snapshots, train, generator, progress)
    Pi, values = principal_directions(path.deviations, subspace.dimension)
    scale = values / np.sqrt(len(path.deviations) - 1)
    spanned = along(path.w, Pi, "pca", scale)
    return trained_result(problem, units, path.parameters, path.history, spanned, values)


def principal_directions(deviations: Array, k: int) -> tuple[Array, Array]:
    """Return the first k right singular vectors (d, k) and singular values (k,).

    The entry of largest magnitude in each direction is positive.

    Raises
    ------
    SemistanError
        If the deviations (M, d) span fewer than k dimensions.
    """
    _, values, directions = np.linalg.svd(deviations, full_matrices=False)
    if not values[k - 1] > 1e-10 * values[0]:
        raise SemistanError(
            f"the snapshots of the path span fewer than k = {k} dimensions; choose a smaller k, "
            "more snapshots or a higher learning_rate"
        )
    return pointing_up(directions[:k].T), values[:k]


def _check(config: SubspaceConfig, network: Networks) -> None:
    if config.dimension >= config.snapshots:
        raise InputError(
            f"k must be smaller than the number of snapshots of the path, {config.snapshots}, "
            f"got k = {config.dimension}; choose a smaller k or more snapshots"
        )
    check_smaller(config, network)


CONSTRUCTION = Construction(
    name="pca",
    text="principal components of the path of stochastic gradient descent",
    build=pca,
    check=_check,
    epochs=path_epochs,
    scales_phi=True,
)
