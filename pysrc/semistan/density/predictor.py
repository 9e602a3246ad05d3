"""The linear predictor for draws of (phi, theta), in the user's units.

eta = eta_loc + eta_scale * f(u; p_bar + Pi phi) + (x - x_loc)' theta
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.pieces import pieces_of
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.completion import Completion, changed
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, derivatives_along, forward
from semistan.model.subspace import Subspace
from semistan.model.trained import Trained
from semistan.model.units import Units

if TYPE_CHECKING:
    from torch import Tensor

MOST_ACTIVATIONS = 1_000_000  # of the widest layer held at a time; more leave the cache


def network_output(
    spec: Networks,
    units: Units,
    w: Array,
    U: Array,
    predictor: str = MU,
    *,
    single: bool = False,
) -> Array:
    """Evaluate ``f(u; w)`` without gradients, some rows at a time.

    Parameters
    ----------
    spec : Networks
        The architecture.
    units : Units
        Locations and scales that standardise the inputs.
    w : array, shape (..., d)
        Weights.
    U : array, shape (N, Q)
        Network inputs in the units; the features of ``at_features`` behind constant layers.
    predictor : str
        Whose networks are added.
    single : bool
        Whether convolutions are computed in single precision.

    Returns
    -------
    array, shape (..., N)
        The network's output, in units of ``eta_scale``.
    """
    at, dtype = torch.tensor(w), torch.float32 if single and spec.convolves else torch.float64
    with torch.no_grad():
        found = [
            forward(spec, at, network_inputs(units, U[piece]).to(dtype), predictor).numpy()
            for piece in pieces_of(len(U), spec.widest, MOST_ACTIVATIONS)
        ]
    return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)


def output_and_slopes(
    spec: Networks, units: Units, w: Array, U: Array, predictor: str = MU
) -> tuple[Array, Array]:
    """Evaluate ``f(u; w)`` and its derivatives with respect to u, in the units of the data.

    Parameters
    ----------
    spec, units, predictor
        As of ``network_output``; networks that PyTorch's ``vmap`` can compute.
    w : array, shape (S, d)
        Weights.
    U : array, shape (N, Q)
        Network inputs.

    Returns
    -------
    arrays, shapes (S, N) and (S, N, Q)
    """

    def summed(u: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        f = forward(spec, at, u, predictor)
        return f.sum(), f

    both = torch.func.vmap(torch.func.grad(summed, has_aux=True), in_dims=(None, 0))
    slopes, f = both(network_inputs(units, U), torch.tensor(w))
    return f.numpy(), slopes.numpy() / units.u_scale


def network_inputs(units: Units, U: Array) -> Tensor:
    """Standardise inputs U (N, Q)."""
    return torch.tensor((U - units.u_loc) / units.u_scale)


def network_sums(
    spec: Networks,
    subspace: Subspace,
    phi: Array,
    parts: Iterable[tuple[Tensor, Array]],
    predictor: str = MU,
) -> Array:
    """Return weighted sums (S, m) of the network's output over rows, for phi (S, k).

    Parameters
    ----------
    spec : Networks
        The architecture.
    subspace : Subspace
        Where the Bayesian weights are.
    phi : array, shape (S, k)
        Subspace coordinates.
    parts : iterable
        Some rows at a time: the standardised inputs (n, Q), and the weights (m, n).
    predictor : str
        Whose networks are added.
    """
    total = np.zeros((len(phi), 1))
    with torch.no_grad():
        for H, by_row in parts:
            size = max(1, MOST_ACTIVATIONS // (spec.widest * len(H)))
            pieces = [phi[start : start + size] for start in range(0, len(phi), size)]
            w = (torch.from_numpy(subspace.lift(piece)) for piece in pieces)
            f = (forward(spec, each, H, predictor).numpy() for each in w)
            total = total + np.concatenate([piece @ by_row.T for piece in f])
    return total


def completion_output(
    spec: Networks, units: Units, completion: Completion, U: Array, psi: Array, predictor: str = MU
) -> Array:
    """Return what the weights outside the subspace add to the output, (S, N), for psi (S, K).

    Parameters
    ----------
    spec, units, U, predictor
        As of ``network_output``.
    completion : Completion
        How the weights change.
    psi : array, shape (S, K)
        Standard normal coordinates.
    """
    return changed(_along(spec, units, completion, U, predictor), psi)


def completion_sums(
    spec: Networks, units: Units, completion: Completion, U: Array, psi: Array, by_row: Array
) -> Array:
    """Return sums (S, m) of ``completion_output`` of the mean over rows, weighted by (m, N)."""
    return changed(by_row @ _along(spec, units, completion, U, MU), psi)


def _along(spec: Networks, units: Units, completion: Completion, U: Array, predictor: str) -> Array:
    """Return how the output of each row changes, (N, 1 + K)."""
    at, by = torch.tensor(completion.at), torch.tensor(completion.weights)
    found = [
        derivatives_along(spec, at, network_inputs(units, U[piece]), by, predictor).numpy()
        for piece in pieces_of(len(U), spec.d, MOST_ACTIVATIONS)
    ]
    return np.concatenate(found)


def linear_predictor(
    spec: Networks,
    units: Units,
    trained: Trained,
    X: Array,
    U: Array,
    phi: Array,
    theta: Array,
    psi: Array | None = None,
) -> Array:
    """Evaluate eta, shape (S, N), for phi (S, k), theta (S, P), X (N, P) and U (N, Q).

    psi (S, K) are the coordinates outside the subspace, if it is completed.
    """
    w = trained.subspace.lift(phi)
    f = network_output(spec, units, w, U)
    if psi is not None and trained.completion:
        f = f + completion_output(spec, units, trained.completion, U, psi)
    return units.eta_loc + units.eta_scale * f + theta @ (X - units.x_loc).T
