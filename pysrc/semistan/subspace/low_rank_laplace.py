"""The low-rank Laplace construction: directions that matter most for the predictions.

Around one trained network the posterior covariance of the weights is approximated by an
inverse curvature Psi = H^-1 (``ggn.py``, diagonal or Kronecker-factored), and the network is
linearised, J = d eta / d w. The epistemic predictive covariance of n training rows is then

    J Psi J' = V diag(s^2) V',

and the k directions

    P = Psi J' V_k

give the subspace whose predictive covariance is nearest to it (theorem 1). They are handed
over orthonormalised, in the order of s: the first j of them are the best j dimensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.problem import Problem
from semistan.errors import InputError
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_one_predictor, check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress, descend, initial_parameters
from semistan.subspace.leading import leading_directions
from semistan.subspace.result import trained_result

if TYPE_CHECKING:
    from torch import Generator


def low_rank_laplace(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a network and span the leading directions of its predictive covariance.

    Notes
    -----
    The singular values handed over are s: the posterior standard deviations of the predictions'
    principal components over the rows that were looked at, in units of eta.

    The prior of the weights is the one ``ggn.py`` assumes.

    Faller and Martin (2025), Low Rank Based Subspace Inference for the Laplace Approximation of
    Bayesian Neural Networks, arXiv:2502.02345, theorem 1 and section 4.2.
    """
    k = subspace.dimension
    if k > len(problem):
        raise InputError(
            f"low_rank_laplace takes k directions from the predictions of {len(problem)} rows, "
            f"got k = {k}; choose k <= {len(problem)}"
        )
    parameters = initial_parameters(problem, 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best = settle(problem, best)
    state = best.at(best.control_points.new_ones(1))
    Pi, values = leading_directions(problem, state, k, subspace.curvature, generator)
    spanned = along(state.w.cpu().numpy(), Pi, "low_rank_laplace")
    return trained_result(problem, units, best, history, spanned, values)


def _check(config: SubspaceConfig, network: Networks) -> None:
    check_smaller(config, network)
    check_one_predictor(config, network)


CONSTRUCTION = Construction(
    name="low_rank_laplace",
    text="the directions in which the linearised predictions vary most",
    build=low_rank_laplace,
    check=_check,
)
