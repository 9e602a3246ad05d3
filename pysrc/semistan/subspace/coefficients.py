"""The structured coefficients, solved for once the network is trained.

Steps at the network's learning rate take theta as far from 0 as they take the weights, and what
they leave to do depends on the rate and the seed (Supplement D.5 of the paper). So theta is not
left where gradient descent ends. At a point b(t) of the trained curve, let h be the inputs of
the output layer and a 1 for its bias, of each network if there are several, and w_out their
trained weights. The model

    eta = eta_loc + eta_scale * (Z theta_t + h(u; b(t))' v_t)

is a generalised linear one. By Newton's method over up to 100,000 rows, (theta_t, v_t) maximise

    log p(y | eta) - |theta_t|^2 / (2 * 2.5^2) - |v_t - w_out|^2 / 2

and theta is the mean of theta_t over t ~ U(0, 1). The output layer may move, since theta given
f alone would stand in for all that f has not learnt yet; v_t is not kept, so that the weights
are those that gradient descent found. The penalties are the coefficients' default prior and the one
that ``ggn.py`` assumes: they decide where columns are collinear or separate the responses.

Reference: Dold, Rügamer, Sick and Dürr (2024), Bayesian Semi-structured Subspace Inference,
AISTATS, Supplement D.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semistan.density.features import in_pieces
from semistan.density.ggn import CHUNK, PRIOR_PRECISION, curvature
from semistan.density.problem import Problem, Weights
from semistan.lazy import torch
from semistan.model.names import MU
from semistan.model.networks.networks import output_inputs, output_layers
from semistan.model.table.rows import evenly_spaced
from semistan.subspace.curve import bernstein
from semistan.subspace.descent import Parameters, loss_nodes

if TYPE_CHECKING:
    from torch import Tensor

PRIOR_SCALE = 2.5  # of theta / theta_scale
MOST_COEFFICIENTS = 3000
MOST_ROWS = 100_000  # more, evenly spaced, would say where chains start no better
STEPS = 100  # of Newton's method, at the most
TOLERANCE = 1e-14  # nats that a step may still gain
SLACK = 1e-10  # relative rounding error of the penalised log-likelihood
LEAST_STEP = 2.0**-30


def settle(problem: Problem, trained: Parameters) -> Parameters:
    """Replace theta by its solution given the trained network.

    Parameters
    ----------
    problem : Problem
        All rows, those held out during training too; of very many, a part is used.
    trained : Parameters
        One network or a curve. Where each control point has a theta of its own, which is then
        part of the weights, nothing changes; nor where groups have too many levels.
    """
    if trained.theta.ndim > 1 or not 0 < problem.coefficients <= MOST_COEFFICIENTS:
        return trained
    some = torch.from_numpy(evenly_spaced(len(problem), MOST_ROWS)).to(problem.y.device)
    given = problem if len(some) == len(problem) else problem.rows(some)
    return replace(trained, theta=mean_theta(given, trained))


def mean_theta(problem: Problem, trained: Parameters) -> Tensor:
    """Return the mean over the curve of theta_t / theta_scale, shape (P,).

    The coefficients of dispersion parameters, which may follow, are left where they are.
    """
    points, device = len(trained.control_points), problem.y.device
    t, shares = loss_nodes(points)
    weights = torch.as_tensor(bernstein(t, points - 1)).to(device)
    state = trained.copy()
    solved = torch.stack([theta_at(problem, state.at(row)) for row in weights])
    mean = torch.as_tensor(shares).to(device) @ solved
    return torch.cat([mean, state.theta[problem.coefficients :]]) if problem.others else mean


def theta_at(problem: Problem, state: Weights) -> Tensor:
    """Return theta_t / theta_scale, shape (P,), at weights ``state.w`` (d,)."""
    P, layers = problem.coefficients, output_layers(problem.network, MU)
    theta = state.theta[:P]
    output = torch.cat([state.w[layer] for layer in layers])
    of_theta = torch.ones_like(theta)  # of the penalised coefficients, as in training
    of_theta[: problem.Z.shape[1]] = PRIOR_SCALE**-2
    penalty = torch.cat([of_theta, torch.full_like(output, PRIOR_PRECISION)])
    centre = torch.cat([torch.zeros_like(theta), output])
    model = LinearModel(problem, state, _output_inputs(problem, state), centre, penalty)
    return minimiser(model, torch.cat([theta, output]))[:P]


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """The penalised negative log-likelihood of beta = (theta, v), shape (P + n,).

    ``inputs`` (N, n) are what v multiplies, ``centre`` and ``penalty`` the mean and precision of
    beta's normal penalty.
    """

    problem: Problem
    state: Weights
    inputs: Tensor
    centre: Tensor
    penalty: Tensor

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """The bounds of beta; v has none."""
        far = torch.full_like(self.centre, torch.inf)
        lower, upper = -far, far.clone()
        if given := self.problem.bounds:
            P = self.problem.coefficients
            lower[:P], upper[:P] = (each[:P] for each in given)
        return lower, upper

    def value(self, beta: Tensor) -> float:
        """Return the penalised negative log-likelihood, without its constant."""
        total = 0.5 * (self.penalty @ (beta - self.centre).square())
        for part, A in self._parts():
            total = total - self._log_lik(part, _eta(part, A, beta))
        return float(total)

    def derivatives(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient, and the Hessian with no row's curvature below 0."""
        gradient, H = self.penalty * (beta - self.centre), torch.diag(self.penalty)
        for part, A in self._parts():

            def minus_log_lik(eta: Tensor, part: Problem = part) -> Tensor:
                return -self._log_lik(part, eta)

            first, second = curvature(minus_log_lik, _eta(part, A, beta))
            gradient = gradient + A.T @ (part.eta_scale * first)
            H = H + A.T @ ((part.eta_scale**2 * second.clamp(min=0))[:, None] * A)
        return gradient, H

    def _log_lik(self, part: Problem, eta: Tensor) -> Tensor:
        return part.log_lik(eta, part.dispersion_at(self.state)).sum()

    def _parts(self) -> Iterator[tuple[Problem, Tensor]]:
        """Yield a few rows at a time, and the columns Z, h and 1 of the linear model."""
        rows, size = torch.arange(len(self.problem)), max(1, CHUNK // len(self.centre))
        for start in range(0, len(rows), size):
            part = self.problem.rows(rows[start : start + size].to(self.problem.y.device))
            inputs = self.inputs[start : start + size]
            yield part, torch.cat([part.mean_columns(), inputs], dim=1)


def minimiser(model: LinearModel, beta: Tensor) -> Tensor:
    """Return where the penalised negative log-likelihood is least, by Newton's method.

    A step is halved until it does not climb, as where a log link overshoots. Where no step can be
    computed, it stops there. What would step over a bound stays at it (Bertsekas, 1982, Projected
    Newton methods, SIAM Journal on Control and Optimization 20).
    """
    lower, upper = model.bounds
    value = model.value(beta)
    for _ in range(STEPS):
        gradient, H = model.derivatives(beta)
        held = (beta <= lower) & (gradient > 0) | (beta >= upper) & (gradient < 0)
        if held.any():
            gradient[held], H[held], H[:, held] = 0.0, 0.0, 0.0
            H.diagonal()[held] = 1.0
        # Collinear columns under a sharp likelihood would be singular to working precision.
        H.diagonal().add_(1e-12 * H.diagonal().max())
        factor, failed = torch.linalg.cholesky_ex(H)
        if failed:  # where training has run away, rows may overflow
            break
        step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        size, ahead = 1.0, (beta - step).clamp(lower, upper)
        new = model.value(ahead)
        while not new <= value + SLACK * abs(value) and size > LEAST_STEP:
            size /= 2
            ahead = (beta - size * step).clamp(lower, upper)
            new = model.value(ahead)
        if size <= LEAST_STEP:
            break
        beta, value = ahead, new
        if float(gradient @ step) < TOLERANCE:
            break
    return beta


def _eta(part: Problem, A: Tensor, beta: Tensor) -> Tensor:
    P = part.coefficients
    return part.eta(beta[:P], A[:, P:] @ beta[P:])


def _output_inputs(problem: Problem, state: Weights) -> Tensor:
    """Return each output layer's inputs and a column of ones, shape (N, n)."""
    network, inputs = problem.network, problem.single().inputs

    def of_rows(piece: slice) -> Tensor:
        # A slice would keep stored columns apart, and products of it round otherwise.
        U = inputs.rows(torch.arange(piece.start, piece.stop)).values
        return output_inputs(network, state.w, U)

    return in_pieces(len(problem), network.widest, of_rows)
