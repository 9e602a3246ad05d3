"""The subnetwork construction: k single weights move, the others stay as trained.

    w_j = w*_j + phi_i for the i-th selected weight j,    w_j = w*_j for all others

Under a diagonal posterior covariance the subnetwork nearest to the whole network's posterior,
in Wasserstein distance, has the k weights of largest posterior variance (corollary 1.1). Other
rules are there to compare:

    variance     largest 1 / H_jj, the diagonal Laplace approximation (``ggn.py``)
    magnitude    largest |w*_j|
    swag         largest variance along the path of stochastic gradient descent; w* is its average
    last_layer   largest 1 / H_jj among the output layer's weights, of all networks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.ggn import diagonal_ggn
from semistan.density.problem import Problem
from semistan.errors import InputError
from semistan.model.arrays import Array, Index
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks, output_layers
from semistan.model.subspace import along_axes
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_one_predictor
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Parameters, Progress, descend, initial_parameters
from semistan.subspace.result import trained_result
from semistan.subspace.trajectory import path_epochs, train_and_average

if TYPE_CHECKING:
    from torch import Generator


def subnetwork(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a network and select the weights that move.

    Notes
    -----
    phi follows the selection's order, the largest first, and equal weights that of w. The
    singular values handed over are what was compared, as standard deviations or magnitudes.
    The curvature is summed over all rows, and the prior is the one ``ggn.py`` assumes. A weight
    of which the data say nothing, as of a unit that is never active, has the prior's variance,
    which is the largest there is.

    Daxberger et al. (2021), Bayesian Deep Learning via Subnetwork Inference, ICML, sections 3
    and 4; Faller and Martin (2025), arXiv:2502.02345, section 5, for the other rules.
    """
    candidates = _candidates(problem.network, subspace)
    if subspace.select == "swag":
        path = train_and_average(problem, subspace.snapshots, train, generator, progress)
        best, history, scores = path.parameters, path.history, np.sqrt(path.variance)
    else:
        parameters = initial_parameters(problem, 1, generator)
        best, history = descend(problem, parameters, train, generator, progress)
        best = settle(problem, best)
        scores = _scores(problem, best, subspace.select)
    axes = largest(scores, candidates, subspace.dimension)
    moving = along_axes(best.control_points[0].cpu().numpy(), axes, "subnetwork")
    return trained_result(problem, units, best, history, moving, scores[axes])


def largest(scores: Array, candidates: Index, k: int) -> Index:
    """Return the positions of the k largest scores (d,) among the candidates, largest first."""
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def _candidates(network: Networks, subspace: SubspaceConfig) -> Index:
    """Return the positions of the weights that may be selected."""
    if subspace.select != "last_layer":
        return np.arange(network.d)
    layers = output_layers(network)
    weights = np.concatenate(layers)
    if subspace.dimension > len(weights):
        raise InputError(
            f"select = last_layer chooses among the output layer's {len(weights)} weights, "
            f"got k = {subspace.dimension}; choose k <= {len(weights)} or another select"
        )
    return weights


def _scores(problem: Problem, best: Parameters, select: str) -> Array:
    """Return each weight's posterior standard deviation, or its magnitude, shape (d,)."""
    state = best.at(best.control_points.new_ones(1))
    if select == "magnitude":
        return np.asarray(state.w.abs().cpu().numpy())
    return np.asarray(diagonal_ggn(problem, state).values.rsqrt().cpu().numpy())


def _check(config: SubspaceConfig, network: Networks) -> None:
    if config.dimension > network.d:
        raise InputError(
            f"k must not be larger than the number of Bayesian weights d = {network.d}, got "
            f"k = {config.dimension}; choose a smaller k or a larger network"
        )
    if config.select == "variance":
        check_one_predictor(config, network)


def _epochs(subspace: SubspaceConfig, train: TrainConfig) -> int:
    return path_epochs(subspace, train) if subspace.select == "swag" else train.epochs


CONSTRUCTION = Construction(
    name="subnetwork",
    text="single weights",
    moves="axes",
    build=subnetwork,
    check=_check,
    epochs=_epochs,
)
