"""What tests compare with, written out in NumPy: predictors, and a posterior that is normal."""

import math
import operator

import numpy as np

from semistan.program.data import stan_data


def weights(bundle, draws):
    """Bayesian weights w = p_bar + Pi phi, shape (S, d)."""
    return bundle.subspace.p_bar + draws.flat(draws.phi) @ bundle.subspace.Pi.T


def eta_by_hand(bundle, draws, X, U):
    """Draws of eta, shape (S, N), for X (N, P) and U (N, Q), one draw at a time."""
    units, Q = bundle.units, U.shape[1]
    Z = (U - units.u_loc) / units.u_scale
    (network,), lines = bundle.network.parts, []
    for w, theta in zip(weights(bundle, draws), draws.flat(draws.theta), strict=True):
        h, start, m = Z, 0, Q
        for n in network.hidden:
            matrix, bias = w[start : start + m * n].reshape(n, m), w[start + m * n :][:n]
            h, start, m = np.tanh(h @ matrix.T + bias), start + (m + 1) * n, n
        f = h @ w[start : start + m] + w[start + m]
        lines.append(units.eta_loc + units.eta_scale * f + (X - units.x_loc) @ theta)
    return np.array(lines)


def slopes_by_hand(bundle, draws):
    """Derivatives of eta by each input of a linear network, in the user's units, (S, Q)."""
    units = bundle.units
    return units.eta_scale * weights(bundle, draws)[:, :-1] / units.u_scale


FUNCTIONS = {
    "tanh": math.tanh,
    "relu": lambda z: max(z, 0.0),
    "softplus": lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "identity": lambda z: z,
}


def naive_network(widths, weights, u, activation):
    """The output of one row, as ``naive_layers``."""
    (output,) = naive_layers(widths, weights, u, activation)
    return output


def naive_layers(widths, weights, u, activation):
    """One row through all layers, in plain Python: unit by unit, weights then biases."""
    function, weights, h = FUNCTIONS[activation], list(weights), list(u)
    for layer in range(1, len(widths)):
        m, n = widths[layer - 1], widths[layer]
        matrix = [[weights.pop(0) for _ in range(m)] for _ in range(n)]
        bias = [weights.pop(0) for _ in range(n)]
        z = [sum(matrix[i][j] * h[j] for j in range(m)) + bias[i] for i in range(n)]
        h = z if layer == len(widths) - 1 else [function(value) for value in z]
    assert not weights
    return h


def naive_features(leading, w_frozen, u):
    """Features of one row, in plain Python: each network's constant layers, unit by unit."""
    w, u, found = list(w_frozen), list(u), []
    for part, frozen in zip(leading.whole.parts, leading.frozen, strict=True):
        h = [u.pop(0) for _ in range(part.n_inputs)]
        for n in part.hidden[:frozen]:
            matrix = [[w.pop(0) for _ in h] for _ in range(n)]
            bias = [w.pop(0) for _ in range(n)]
            sums = [sum(map(operator.mul, row, h)) for row in matrix]
            h = [FUNCTIONS[part.activation](z + b) for z, b in zip(sums, bias, strict=True)]
        found += h
    assert not (w or u)
    return np.array(found)


def naive_outputs(networks, w, u):
    """Each network's outputs for one row, taking its weights and inputs off the front of lists."""
    w, u, found = list(w), list(u), []
    for part in networks.parts:
        own, inputs = [w.pop(0) for _ in range(part.d)], [u.pop(0) for _ in range(part.n_inputs)]
        found += naive_layers(part.widths, own, inputs, part.activation)
    assert not (w or u)
    return found


def naive_networks(bundle, U, w):
    """Outputs of all networks (N, outputs) at weights (d,) behind constant layers, row by row."""
    units, trained, leading, lines = bundle.units, bundle.trained, bundle.model.leading, []
    for row in (U - units.u_loc) / units.u_scale:
        h = naive_features(leading, trained.w_frozen, row)
        if leading.any:
            h = (h - trained.h_loc) / trained.h_scale
        lines.append(naive_outputs(leading.heads, w, h))
    return np.array(lines)


def linear_posterior(bundle, rows, sigma):
    """Mean and covariance of (phi, theta) where the network is linear and sigma is known.

    The priors of both are normal around 0.
    """
    units, data = bundle.units, stan_data(bundle, rows)
    inputs = np.column_stack([(rows.U - units.u_loc) / units.u_scale, np.ones(len(rows))])
    G = np.column_stack([units.eta_scale * inputs @ bundle.subspace.Pi, rows.X - units.x_loc])
    scale = np.concatenate([data["prior_phi_scale"], data["prior_b_scale"]])
    covariance = np.linalg.inv(G.T @ G / sigma**2 + np.diag(scale**-2.0))
    residual = rows.y - units.eta_loc - units.eta_scale * inputs @ bundle.subspace.p_bar
    return covariance @ G.T @ residual / sigma**2, covariance
