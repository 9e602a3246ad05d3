"""Draws written as CmdStan writes those of NUTS, whatever drew them.

Everything that reads Stan's CSV files then reads them: ``semistan.read_draws``, CmdStanPy, rstan,
and CmdStan's ``generate_quantities``, which expects seven columns before the first parameter and
the parameters in the program's order. A method in PyTorch works in the program's unconstrained
coordinates q (``target.py``); what the program would write for them is computed here,

    lprior       log p(phi) + log p(theta) + log p(dispersion),
    b_Intercept  eta_loc + eta_scale mean_i f(u_i; w) - x_loc' theta, or thresholds less it,

and lp__, the log density that the program adds up in q, all constants included.

Of NUTS's own columns, accept_stat__ and stepsize__ are 1, treedepth__ and divergent__ are 0,
energy__ is -lp__, and n_leapfrog__ counts evaluations of the likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.noncentred import coordinates_of, log_slope
from semistan.density.parameter_columns import parameter_columns
from semistan.density.parameter_coordinates import coordinates_at, parameters_log_slope
from semistan.density.penalised_columns import penalised_columns
from semistan.density.predictor import network_sums
from semistan.density.target import Target, log_prior
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.ordinal import thresholds
from semistan.model.networks.networks import MU
from semistan.model.orthogonal import further_names
from semistan.model.priors.prior import prior_data, prior_groups

if TYPE_CHECKING:
    from torch import Tensor


def program_columns(target: Target, q: Array) -> dict[str, Array]:
    """Compute what the program writes for draws of q, column by column in its order.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.

    Returns
    -------
    dict of arrays, shape (S,)
        By their names in the file.
    """
    phi, theta, positive = _parameters(target, q)
    vectors = {"phi": phi, "theta": theta}
    if target.bundle.subspace.holds_theta:
        del vectors["theta"]
    names = target.bundle.design.coefficients
    derived = {} if "theta" in vectors else _numbered("theta", theta)
    raw = _theta_raw(target, phi, theta)
    derived |= _numbered("theta_raw", raw) if target.shear else {}
    fixed = {name: np.full(len(q), value) for name, value in target.constants.items()}
    columns: dict[str, Array] = {}
    for name, values in vectors.items():
        columns |= _numbered(name, values)
    penalised = penalised_columns(target, q, positive | fixed)
    further = parameter_columns(target, q, lambda name: _mean_output(target, phi, name))
    columns |= {
        **penalised.parameters,
        **further.parameters,
        **positive,
        **derived,
        **fixed,
        **penalised.coefficients,
    }
    columns["lprior"] = _lprior(target, q)
    columns |= _intercepts(target, _intercept(target, phi, theta), positive | fixed)
    columns |= {name: theta[:, j] for j, name in enumerate(names)}
    if target.shear:
        of_raw = further_names(target.bundle.config, target.bundle.design)
        columns |= {name: raw[:, j] for name, j in of_raw.items()}
    columns |= penalised.correlations | further.quantities
    return columns


def unconstrained(target: Target, values: Mapping[str, float | Array]) -> Array:
    """Return q (n,) at the parameters' values in the user's units, as in ``inits-<c>.json``."""
    bundle = target.bundle
    parts = [np.asarray(values["phi"]) / bundle.subspace.phi_scale]
    if not bundle.subspace.holds_theta:
        parts.append(np.asarray(values["theta"]) / bundle.units.theta_scale)
    parts += [coordinates_of(bundle.design, values), coordinates_at(bundle, values)]
    return np.concatenate([*parts, np.log([float(values[name]) for name in target.sampled])])


def _parameters(target: Target, q: Array) -> tuple[Array, Array, dict[str, Array]]:
    """Return phi (S, k), theta (S, P), sampled dispersion and spread, in the user's units."""
    bundle = target.bundle
    split = [target.split(row) for row in torch.tensor(q)]
    phi, theta, log_values = (torch.stack([draw[i] for draw in split]).numpy() for i in range(3))
    positive = dict(zip(target.sampled, np.exp(log_values).T, strict=True))
    return phi, theta * bundle.units.theta_scale, positive


def _numbered(name: str, values: Array) -> dict[str, Array]:
    return {f"{name}.{i + 1}": column for i, column in enumerate(values.T)}


def _lprior(target: Target, q: Array) -> Array:
    """Return the program's lprior: without the Jacobians of its transformations, truncated."""
    where = target.penalised

    def of_one(row: Tensor) -> float:
        jacobian = target.split(row)[2].sum() + log_slope(target.bundle.design, row[where])
        return float(log_prior(target, row) - jacobian)

    return np.array([of_one(row) for row in torch.tensor(q)]) - _log_mass_above_zero(target)


def lp_constant(target: Target) -> float:
    """Return what lp__ has besides the log density: multipliers and truncation."""
    bundle = target.bundle
    scales = [bundle.subspace.phi_scale]
    if not bundle.subspace.holds_theta:
        scales.append(bundle.units.theta_scale)
    multipliers = float(np.log(np.concatenate(scales)).sum()) + parameters_log_slope(bundle)
    return multipliers - _log_mass_above_zero(target)


def _log_mass_above_zero(target: Target) -> float:
    """Return the log probability of positive values under the dispersion's priors, summed."""
    data = prior_data(target.bundle)
    return sum(
        float(group.density.in_scipy(*(data[name] for name in group.data_names)).logsf(0))
        for group in prior_groups(target.bundle.config, target.bundle.design)
        if group.is_truncated
    )


def _intercepts(
    target: Target, intercept: Array, dispersion: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the intercept (S,), or the thresholds of ordered categories less it."""
    name, family = target.bundle.design.intercept, target.bundle.family
    if not family.categories:
        return {name: intercept}
    tau = thresholds([dispersion[gap] for gap in family.dispersion])
    return _numbered(name, np.stack([each - intercept for each in tau], axis=1))


def _intercept(target: Target, phi: Array, theta: Array) -> Array:
    """Return the mean of eta over the rows, moved to X = 0, for each draw."""
    units = target.bundle.units
    mean = _mean_output(target, phi)
    return np.asarray(units.eta_loc + units.eta_scale * mean - theta @ units.x_loc)


def _mean_output(target: Target, phi: Array, predictor: str = MU) -> Array:
    """Return the mean (S,) over the rows of the output of a predictor's networks."""
    N = sum(len(chunk) for chunk in target.chunks)
    return _network_sums(target, phi, np.ones((1, N)), predictor)[:, 0] / N


def _theta_raw(target: Target, phi: Array, theta: Array) -> Array:
    """Return theta (S, P) beside the network as it is."""
    if target.shear is None:
        return theta
    raw, columns = theta.copy(), target.shear.columns.numpy()
    gamma = _network_sums(target, phi, target.shear.along.numpy())
    raw[:, columns] -= gamma * target.bundle.units.theta_scale[columns]
    return raw


def _network_sums(target: Target, phi: Array, by_rows: Array, predictor: str = MU) -> Array:
    """Return sums (S, m) of the networks' output over the rows, weighted by (m, N)."""
    bundle, sizes = target.bundle, [len(chunk) for chunk in target.chunks]
    weights = np.split(by_rows, np.cumsum(sizes)[:-1], axis=1)
    inputs = (chunk.U for chunk in target.chunks)
    parts = zip(inputs, weights, strict=True)
    return network_sums(bundle.network, bundle.subspace, phi, parts, predictor)
