"""The prior of the weights, carried into the subspace.

A normal prior w ~ normal(0, s) with standard deviations s (d,), restricted to the points
w = p_bar + Pi phi, is normal in phi. In the units v = w / s it has the same spread in all
directions, so that with the QR decomposition Pi / s = Q R and the coordinates R phi -> phi

    Pi <- s Q,    phi ~ normal(-Q' (p_bar / s), 1)

and the elements of phi are independent. The span is the same, and so is that of the first j
directions. A weight that moves by itself has phi ~ normal(-p_bar, s). As the subspace grows this
tends to the prior of all weights. A prior of phi around 0 has its centre at the trained weights
instead, and uses the data twice if it is narrow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from semistan.model.arrays import Array
from semistan.model.trained import Trained


def in_units_of_the_prior(trained: Trained, scale: Array) -> Trained:
    """Take the directions in units of the weights' prior, and find where its centre lies.

    Parameters
    ----------
    trained : Trained
        As a construction hands it over.
    scale : array, shape (d,)
        Standard deviations of the weights under their prior.

    Notes
    -----
    Expects that the rows of Pi at the axes are 0, as ``with_axes`` leaves them.
    """
    subspace = trained.subspace
    a, axes = len(subspace.axes), subspace.axes
    Q, R = np.linalg.qr(subspace.Pi / scale[:, None])
    Q, R = Q * np.sign(np.diag(R)), R * np.sign(np.diag(R))[:, None]
    theta_Pi = subspace.theta_Pi
    if subspace.holds_theta:
        theta_Pi = np.hstack([theta_Pi[:, :a], theta_Pi[:, a:] @ np.linalg.inv(R)])
    centre = np.concatenate([-subspace.p_bar[axes], -Q.T @ (subspace.p_bar / scale)])
    moved = replace(
        subspace,
        Pi=np.ascontiguousarray(scale[:, None] * Q),
        phi_scale=np.concatenate([scale[axes], np.ones(Q.shape[1])]),
        phi_location=centre,
        theta_Pi=theta_Pi,
    )
    return replace(trained, subspace=moved)
