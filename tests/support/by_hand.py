"""The linear predictor written out in NumPy, for the tests of effects; tanh or linear networks."""

import numpy as np


def weights(bundle, draws):
    """Bayesian weights w = p_bar + Pi phi, shape (S, d)."""
    return bundle.subspace.p_bar + draws.flat(draws.phi) @ bundle.subspace.Pi.T


def eta_by_hand(bundle, draws, X, U):
    """Draws of eta, shape (S, N), for X (N, P) and U (N, Q), one draw at a time."""
    units, Q = bundle.units, U.shape[1]
    Z = (U - units.u_loc) / units.u_scale
    lines = []
    for w, theta in zip(weights(bundle, draws), draws.flat(draws.theta), strict=True):
        h, start, m = Z, 0, Q
        for n in bundle.network.hidden:
            matrix, bias = w[start : start + m * n].reshape(n, m), w[start + m * n :][:n]
            h, start, m = np.tanh(h @ matrix.T + bias), start + (m + 1) * n, n
        f = h @ w[start : start + m] + w[start + m]
        lines.append(units.eta_loc + units.eta_scale * f + (X - units.x_loc) @ theta)
    return np.array(lines)


def slopes_by_hand(bundle, draws):
    """Derivatives of eta by each input of a linear network, in the user's units, (S, Q)."""
    units = bundle.units
    return units.eta_scale * weights(bundle, draws)[:, :-1] / units.u_scale
