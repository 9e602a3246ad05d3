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
from semistan.errors import SemistanError
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.mlp import Array
from semistan.model.subspace import along
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.descent import Progress
from semistan.subspace.hand_over import hand_over
from semistan.subspace.span import check_dimension, pointing_up
from semistan.subspace.trajectory import train_and_average

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

    Parameters
    ----------
    problem : Problem
        The training rows, standardised.
    units : Units
        The user's units, in which theta and dispersion are returned.
    subspace : SubspaceConfig
        Its ``k``, smaller than d and than the number of ``snapshots``.
    train : TrainConfig
        Epochs, learning rate, batch size, validation share.
    generator : torch.Generator
        On the CPU; the source of all randomness.
    progress : callable, optional
        Called with the epoch, the training loss and the validation loss.

    Raises
    ------
    InputError
        If k >= d or k >= snapshots.
    SemistanError
        If training diverges, or the snapshots span fewer than k dimensions.

    Notes
    -----
    Izmailov, Maddox, Kirichenko, Garipov, Vetrov and Wilson (2019), Subspace Inference for
    Bayesian Deep Learning, UAI, section 4.2. They put the scale into the directions, which here
    are orthonormal, and phi carries it.
    """
    check_dimension(subspace, *problem.network.sizes)
    path = train_and_average(problem, subspace.snapshots, train, generator, progress)
    Pi, values = principal_directions(path.deviations, subspace.k)
    scale = values / np.sqrt(len(path.deviations) - 1)
    spanned = along(path.w, Pi, "pca", scale)
    return hand_over(problem, units, path.parameters, path.history, spanned, values)


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
