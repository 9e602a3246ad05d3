"""The linear predictor for draws of (phi, theta), in the user's units.

eta = eta_loc + eta_scale * f(u; p_bar + Pi phi) + (x - x_loc)' theta
"""

from __future__ import annotations

import numpy as np

from semistan.model.network import Array, NetworkSpec, forward, frozen_features
from semistan.subspace.problem import Units
from semistan.subspace.trained import Trained


def network_output(spec: NetworkSpec, units: Units, w_frozen: Array, w: Array, U: Array) -> Array:
    """Evaluate ``f(u; w)`` without gradients.

    Parameters
    ----------
    spec : NetworkSpec
        The architecture.
    units : Units
        Locations and scales that standardise the inputs.
    w_frozen : array, shape (d_frozen,)
        Weights of the frozen layers.
    w : array, shape (..., d)
        Bayesian weights.
    U : array, shape (N, Q)
        Network inputs in the user's units.

    Returns
    -------
    array, shape (..., N)
        The network's output, in units of ``eta_scale``.
    """
    import torch

    with torch.no_grad():
        inputs = torch.tensor((U - units.u_loc) / units.u_scale)
        h = frozen_features(spec, torch.tensor(w_frozen), inputs)
        return np.asarray(forward(spec, torch.tensor(w), h).numpy())


def linear_predictor(
    spec: NetworkSpec, units: Units, trained: Trained, X: Array, U: Array, phi: Array, theta: Array
) -> Array:
    """Evaluate eta, shape (S, N), for phi (S, k), theta (S, P), X (N, P) and U (N, Q)."""
    w = trained.subspace.lift(phi)
    f = network_output(spec, units, trained.w_frozen, w, U)
    return units.eta_loc + units.eta_scale * f + theta @ (X - units.x_loc).T
