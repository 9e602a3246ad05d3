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

from collections.abc import Callable
from typing import TYPE_CHECKING

from semistan.density.ggn import Precision, diagonal_ggn, kronecker_ggn, linearise
from semistan.density.problem import Problem, Weights
from semistan.errors import InputError, SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_one_predictor, check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress, descend, initial_parameters
from semistan.subspace.hand_over import hand_over
from semistan.subspace.span import pointing_up

if TYPE_CHECKING:
    from torch import Generator, Tensor

Curvature = Callable[[Problem, Weights], Precision]
CURVATURES: dict[str, Curvature] = {"diagonal": diagonal_ggn, "kronecker": kronecker_ggn}
ROWS = 2000  # rows whose predictions are looked at, or 2k of them


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
    The curvature is summed over all rows. The Jacobian (n, d), whose thin singular value
    decomposition is taken, is that of 2000 random rows, or 2k where that is more, of tables
    that are longer. The singular values handed over are s: the posterior standard deviations of
    the predictions' principal components over these rows, in units of eta.

    The prior of the weights is the one ``ggn.py`` assumes.

    Faller and Martin (2025), Low Rank Based Subspace Inference for the Laplace Approximation of
    Bayesian Neural Networks, arXiv:2502.02345, theorem 1 and section 4.2.
    """
    k = subspace.k
    if k > len(problem):
        raise InputError(
            f"low_rank_laplace takes k directions from the predictions of {len(problem)} rows, "
            f"got k = {k}; choose k <= {len(problem)}"
        )
    parameters = initial_parameters(problem, 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best = settle(problem, best)
    state = best.at(best.control_points.new_ones(1))
    precision = CURVATURES[subspace.curvature](problem, state)
    J = linearise(_some_rows(problem, max(ROWS, 2 * k), generator), state).J
    Pi, values = leading_directions(J, precision, k)
    spanned = along(state.w.cpu().numpy(), Pi, "low_rank_laplace")
    return hand_over(problem, units, best, history, spanned, values)


def leading_directions(J: Tensor, precision: Precision, k: int) -> tuple[Array, Array]:
    """Span the k directions in which the predictions vary most.

    Parameters
    ----------
    J : torch.Tensor, shape (n, d)
        Derivatives of the predictions with respect to the weights.
    precision : Precision
        The inverse of the weights' posterior covariance.
    k : int
        Number of directions.

    Returns
    -------
    Pi : array, shape (d, k)
        Orthonormal; the entry of largest magnitude in each column is positive.
    values : array, shape (k,)
        Square roots of the leading eigenvalues of the epistemic predictive covariance.

    Raises
    ------
    SemistanError
        If the predictions vary in fewer than k dimensions.
    """
    _, s, rows = torch.linalg.svd(precision.root(J), full_matrices=False)
    if len(s) < k or not s[k - 1] > 1e-10 * s[0]:
        rank = int((s > 1e-10 * s[0]).sum())
        raise SemistanError(
            f"the network's predictions vary in {rank} dimensions of weight space, fewer than "
            f"k = {k}; choose k <= {rank}, or a larger network"
        )
    directions = torch.linalg.qr(precision.root(rows[:k]).T)[0].cpu().numpy()
    return pointing_up(directions), s[:k].cpu().numpy()


def _some_rows(problem: Problem, count: int, generator: Generator) -> Problem:
    """Return so many random rows, or all if there are no more."""
    if count >= len(problem):
        return problem
    order = torch.randperm(len(problem), generator=generator).to(problem.y.device)
    return problem.rows(order[:count])


def _check(config: SubspaceConfig, network: Networks) -> None:
    check_smaller(config, network)
    check_one_predictor(config, network)


CONSTRUCTION = Construction(
    name="low_rank_laplace",
    text="the directions in which the linearised predictions vary most",
    build=low_rank_laplace,
    check=_check,
)
