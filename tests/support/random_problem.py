"""Standardised training problems with random rows and a random state, and naive derivatives."""

from dataclasses import replace

import numpy as np
import torch

from semistan.density.inputs import Inputs
from semistan.density.problem import Problem, TensorColumns, Weights
from semistan.model.families.families import family
from semistan.model.names import MU
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, forward
from semistan.model.units import Units

ETA_LOC, ETA_SCALE, X_SCALE = 0.4, 0.7, 2.0


def random_problem(
    name="gaussian", *, hidden=(4,), activation="tanh", n=30, Q=3, seed=0, rank=None
):
    """Return a problem and a state; the response is drawn from the model at that state.

    With ``rank``, so many of the Q inputs are independent, and the others are mixtures of them.
    """
    generator = np.random.default_rng(seed)
    spec = Networks((FullyConnected(Q, hidden, activation),))
    record = family(name)
    U = generator.normal(size=(n, Q))
    if rank is not None:
        U[:, rank:] = U[:, :rank] @ generator.normal(size=(rank, Q - rank))
    arrays = (
        generator.normal(scale=0.6, size=spec.d),
        generator.normal(scale=0.3, size=2),
        np.full(len(record.dispersion), -0.3),
    )
    state, Z = Weights(*map(torch.tensor, arrays)), generator.normal(size=(n, 2))
    given = {key: torch.arange(n, dtype=torch.float64) % 7 + 1 for key in record.given}
    y, Z, U = map(torch.tensor, (np.zeros(n), Z, U))
    starts = {p.name: p.start * (ETA_SCALE if p.has_units else 1)
              for p in record.parameters}  # fmt: skip
    blank = Problem(
        record, spec, ETA_LOC, ETA_SCALE, y, {MU: TensorColumns(Z)}, Inputs(U), given, starts=starts
    )
    eta = blank.eta(state.theta, network_output(blank, state)).numpy()
    dispersion = {
        key: float(value) for key, value in blank.dispersion(state.log_dispersion).items()
    }
    known = {key: values.numpy() for key, values in given.items()}
    y = np.asarray(record.rng(eta, dispersion | known, generator), dtype=float)
    return replace(blank, y=torch.tensor(y)), state


def with_precision(problem, precision):
    """Return the problem with a normal prior of the weights."""
    scale = torch.full((problem.network.d,), precision**-0.5, dtype=torch.float64)
    return replace(problem, prior_scale=scale)


def units_for(problem):
    P, Q = problem.Z.shape[1], problem.U.shape[1]
    return Units(
        {MU: (np.zeros(P), np.full(P, X_SCALE))}, np.zeros(Q), np.ones(Q), ETA_LOC, ETA_SCALE
    )


def network_output(problem, state):
    return forward(problem.network, state.w, problem.U)


def naive_jacobian(problem, state):
    """Derivatives of eta with respect to w (n, d), one row and one backward pass at a time."""
    rows = []
    for i in range(len(problem)):
        w = state.w.clone().requires_grad_()
        row = problem.rows(torch.tensor([i]))
        at = Weights(w, state.theta, state.log_dispersion)
        eta = row.eta(state.theta, network_output(row, at))
        rows.append(torch.autograd.grad(eta.sum(), w)[0].numpy())
    return np.array(rows)


def naive_curvature(problem, state):
    """Second derivatives of minus the log-likelihood in eta (n,), in closed form."""
    eta = problem.eta(state.theta, network_output(problem, state)).numpy()
    mean = problem.family.mean(eta, {})
    closed = {
        "gaussian": lambda: np.full(len(eta), float(ETA_SCALE * state.log_dispersion.exp()) ** -2),
        "poisson": lambda: mean,
        "bernoulli": lambda: mean * (1 - mean),
    }
    return closed[problem.family.name]()


def naive_ggn(problem, state, prior_precision=1.0):
    """H (d, d) as a sum of outer products."""
    H = prior_precision * np.eye(len(state.w))
    J, h = naive_jacobian(problem, state), naive_curvature(problem, state)
    for row, bend in zip(J, h, strict=True):
        H += bend * np.outer(row, row)
    return H
