"""Draws of all parameters from their priors, made without Stan.

The parameters are independent; a density that is cut off at zero is drawn by inversion,

    sigma = S^-1(u S(0)),    u ~ U(0, 1),    S(x) = P(sigma > x).

What the program derives from the parameters, such as b_Intercept, is derived here as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from semistan.density.noncentred import parts_of_design
from semistan.density.parameter_coordinates import coordinates_at
from semistan.density.target import make_target
from semistan.infer.stan_csv import sampled_columns
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.orthogonal import orthogonal_columns
from semistan.model.priors.density import parse_prior
from semistan.model.priors.prior import (
    PriorGroup,
    has_horseshoe,
    prior_data,
    prior_groups,
)
from semistan.model.table.rows import Rows
from semistan.model.varying import sampled_shapes
from semistan.posterior.draws import Draws, draws_of_columns, orthogonalised
from semistan.posterior.orthogonal import network_along


def prior_draws(
    bundle: Bundle, rows: Rows, shape: tuple[int, int], generator: np.random.Generator
) -> Draws:
    """Draw every parameter from its prior.

    Parameters
    ----------
    bundle : Bundle
        The trained model; its subspace is given, as in a run with ``--prior-only``.
    rows : Rows
        The training rows, over which b_Intercept is a mean.
    shape : tuple of int
        Chains and draws of each; all draws are independent.
    generator : numpy.random.Generator
        The source of all randomness.

    Returns
    -------
    Draws
        As if read from a run.
    """
    size = shape[0] * shape[1]
    target = make_target(bundle, rows, prior_only=True)
    zeros = np.zeros(size)
    states, log_density = _states(bundle, size, generator)
    columns = sampled_columns(target, states, zeros, zeros)
    columns["lprior"] = columns["lprior"] + log_density
    chains = [
        {name: values.reshape(shape)[chain] for name, values in columns.items()}
        for chain in range(shape[0])
    ]
    draws = draws_of_columns(bundle, chains, SampleConfig())
    orthogonal = orthogonal_columns(bundle.config, bundle.design)
    if not orthogonal or draws.orthogonal:
        return draws
    return orthogonalised(bundle, draws, network_along(bundle, rows, draws.phi, orthogonal))


def _states(bundle: Bundle, size: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Return draws (size, n) in the coordinates of ``Target``.

    Besides, the log density (size,) of what makes theta but is not among them.
    """
    phi, dispersion, log_density = np.zeros((size, bundle.subspace.k)), [], np.zeros(size)
    theta = np.zeros((size, len(bundle.units.theta_scale)))
    of_predictors = {
        name: np.zeros((size, *shape)) for name, shape in sampled_shapes(bundle.design).items()
    }
    if has_horseshoe(bundle.config):
        theta, log_density = _horseshoe(prior_data(bundle), theta.shape, generator)
    for group, prior in _priors(bundle):
        if group.label == "phi":
            phi[:] = _drawn(group, prior, phi.shape, generator)
        elif group.label == "b":
            members = slice(None) if group.members is None else list(group.members)
            theta[:, members] = _drawn(group, prior, theta[:, members].shape, generator)
        elif group.parameter in of_predictors:
            part = of_predictors[group.parameter]
            chosen = slice(None) if group.members is None else list(group.members)
            part[..., chosen] = _drawn(group, prior, part[..., chosen].shape, generator)
        else:
            dispersion.append(_drawn(group, prior, (size, 1), generator))
    free = [] if bundle.subspace.holds_theta else [theta / bundle.units.theta_scale]
    penalised = _penalised(bundle, size, generator)
    further = [coordinates_at(bundle, of_predictors)] if of_predictors else []
    logs = (np.log(values) for values in dispersion)
    q = [phi / bundle.subspace.phi_scale, *free, penalised, *further, *logs]
    return np.hstack(q), log_density


def _penalised(bundle: Bundle, size: int, generator: np.random.Generator) -> Array:
    """Return coordinates (size, n) of smooths and groups.

    The canonical partial correlations of LKJ's distribution are beta distributed on (-1, 1), and
    independent (Lewandowski, Kurowicka and Joe, 2009).
    """
    shape = parse_prior(bundle.config.priors.cor, "cor").argument("shape")
    found = [np.zeros((size, 0))]
    for part in parts_of_design(bundle.design):
        found.append(generator.normal(size=(size, part.z)))
        if part.L:
            _, column = np.tril_indices(part.effects, -1)
            a = shape + (part.effects - 2 - column) / 2
            found.append(np.arctanh(2 * generator.beta(a, a, size=(size, part.L)) - 1))
    return np.hstack(found)


def _horseshoe(
    data: Mapping[str, Any], shape: tuple[int, ...], generator: np.random.Generator
) -> tuple[Array, Array]:
    """Return theta (S, P) and the log density (S,) of the parameters that make it."""
    from scipy import stats

    normal = stats.norm()
    local, all_of_them = (stats.t(data[f"prior_b_{df}"]) for df in ("df", "df_global"))
    slab = stats.invgamma(data["prior_b_df_slab"] / 2, scale=data["prior_b_df_slab"] / 2)
    one = (shape[0], 1)
    z, hs_local, hs_global, hs_slab = (
        np.asarray(prior.rvs(size=size, random_state=generator))
        for prior, size in ((normal, shape), (local, shape), (all_of_them, one), (slab, one))
    )
    hs_local, hs_global = np.abs(hs_local), np.abs(hs_global)
    tau, c2 = hs_global * data["prior_b_scale_global"], hs_slab * data["prior_b_scale_slab"] ** 2
    halves = local.logpdf(hs_local).sum(axis=1) + all_of_them.logpdf(hs_global)[:, 0]
    whole = normal.logpdf(z).sum(axis=1) + slab.logpdf(hs_slab)[:, 0]
    log_density = halves + (shape[1] + 1) * np.log(2) + whole
    return z / np.sqrt(1 / (tau * hs_local) ** 2 + 1 / c2), log_density


def _priors(bundle: Bundle) -> Iterator[tuple[PriorGroup, Any]]:
    """Yield the priors of what is sampled as distributions of ``scipy.stats``."""
    data = prior_data(bundle)
    for group in prior_groups(bundle.config, bundle.design):
        if not (group.density.is_constant or group.density.is_horseshoe):
            yield group, group.density.in_scipy(*(data[name] for name in group.data_names))


def _drawn(
    group: PriorGroup, distribution: Any, shape: tuple[int, ...], generator: np.random.Generator
) -> Array:
    if group.is_truncated:
        return np.asarray(distribution.isf(generator.random(shape) * distribution.sf(0)))
    return np.asarray(distribution.rvs(size=shape, random_state=generator))
