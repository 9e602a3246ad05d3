"""Draws written as CmdStan writes those of NUTS, whatever drew them.

Everything that reads Stan's CSV files then reads them: ``posterior/posterior.py``, CmdStanPy,
rstan, and CmdStan's ``generate_quantities``, which expects seven columns before the first parameter
and the parameters in the program's order. A method in PyTorch works in the program's unconstrained
coordinates q (``target.py``); what the program would write for them is computed here,

    lprior       log p(phi) + log p(theta) + log p(dispersion),
    b_Intercept  eta_loc + eta_scale mean_i f(u_i; w) - x_loc' theta, or thresholds less it,

and lp__, the log density that the program adds up in q, all constants included.

Of NUTS's own columns, accept_stat__ and stepsize__ are 1, treedepth__ and divergent__ are 0,
energy__ is -lp__, and n_leapfrog__ counts evaluations of the likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.predictor import network_sums
from semistan.density.target import Target, log_lprior
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.completion import PSI, completed_name
from semistan.model.families.ordinal import thresholds
from semistan.model.layout import column_names, numbered
from semistan.model.names import MU
from semistan.model.networks.networks import with_multipliers
from semistan.model.orthogonal import further_names
from semistan.model.predictor import NetworkSlope, Predictor
from semistan.model.priors.distributions import log_mass_inside
from semistan.model.priors.groups import PHI
from semistan.model.priors.r2d2 import R2, SD
from semistan.model.terms.term import element_labels

if TYPE_CHECKING:
    from torch import Tensor

DRAWS_AT_A_TIME = 1000  # to bound memory


def program_columns(target: Target, q: Array, psi: Array | None = None) -> dict[str, Array]:
    """Compute what the program writes for draws of q, column by column in its order.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.
    psi : array, shape (S, K), optional
        Those outside the subspace, if it is completed.

    Returns
    -------
    dict of arrays, shape (S,)
        By their names in the file.
    """
    values, made = _by_draw(target, q)
    raw = _theta_raw(target, values)
    columns = target.layout.columns(values)
    for name in ("theta",) if "theta" not in target.layout else ():
        columns |= numbered(name, values[name])
    columns |= numbered("theta_raw", raw) if target.shear else {}
    for name in target.constants:
        columns |= numbered(name, values[name])
    for name, coefficients in made.items():
        columns |= numbered(name, coefficients)
    columns["lprior"] = values["lprior"]
    completion = target.completion
    if psi is None or completion is None:
        return columns | _quantities(target, values, raw)
    change = {name: completion.change(name, psi) for name in completion.others}
    columns |= numbered(PSI, psi)
    for predictor in target.bundle.design.predictors:
        if predictor.coefficients:
            theta = values[predictor.theta] + change[predictor.theta]
            columns |= numbered(completed_name(predictor.theta), theta)
    return columns | _completed(target, _quantities(target, values, raw), change)


def _completed(
    target: Target, columns: dict[str, Array], change: Mapping[str, Array]
) -> dict[str, Array]:
    """Complete intercepts, or thresholds, and coefficients by their names."""
    K = target.bundle.family.reported_categories
    for predictor in target.bundle.design.predictors:
        ordered = predictor.is_mean and K
        names = column_names(predictor.intercept, (K - 1,) if ordered else ())
        moved = change[predictor.intercept][:, 0]
        columns |= {name: columns[name] + (-moved if ordered else moved) for name in names}
        for j, name in enumerate(predictor.coefficients):
            columns[name] = columns[name] + change[predictor.theta][:, j]
        for slope in predictor.slopes:
            columns[slope.name] = columns[slope.name] + change[slope.name][:, 0]
    return columns


def unconstrained(target: Target, values: Mapping[str, Any]) -> Array:
    """Return q (n,) at the parameters' values in the user's units, as in ``inits-<c>.json``."""
    return target.layout.pack(values)


def lp_constant(target: Target) -> float:
    """Return what lp__ has besides the log density: the units, and what cuts densities off."""
    return target.layout.log_units - log_mass_inside(target.bundle)


def _by_draw(target: Target, q: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return parameters, constants, lprior and correlations, and what terms make, of draws."""
    terms, explained = target.bundle.design.terms, target.bundle.model.explained

    def of_one(x: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        sampled = target.layout.unpack(x)
        values = target.completed(sampled)
        made: dict[str, Tensor] = {}
        reported = {"lprior": log_lprior(target, sampled)}
        if explained:
            made[SD], reported[R2] = explained.sd(values), explained.share(values)
        for term in terms:
            made |= term.made(values)
            reported |= term.quantities(values)
        return values | reported, made

    with torch.no_grad():
        pieces = [
            torch.func.vmap(of_one)(torch.tensor(q[start : start + DRAWS_AT_A_TIME]))
            for start in range(0, len(q), DRAWS_AT_A_TIME)
        ]
    values: dict[str, Array]
    made: dict[str, Array]
    values, made = (
        {name: np.concatenate([piece[i][name].numpy() for piece in pieces]) for name in first}
        for i, first in enumerate(pieces[0])
    )
    values["lprior"] = values["lprior"] - log_mass_inside(target.bundle)
    return values, made


def _quantities(target: Target, values: Mapping[str, Array], raw: Array) -> dict[str, Array]:
    """Return intercepts, coefficients by their names, and correlations."""
    found: dict[str, Array] = {}
    for predictor in target.bundle.design.predictors:
        intercept = _intercept(target, predictor, values)
        if predictor.is_mean:
            found |= _thresholds(target, intercept, values)
        else:
            found[predictor.intercept] = intercept
        for j, name in enumerate(predictor.coefficients):
            found[name] = values[predictor.theta][:, j]
        for slope in predictor.slopes:
            found[slope.name] = _slope(target, predictor.name, slope, values)
        if predictor.is_mean and target.shear:
            of_raw = further_names(target.bundle.config, target.bundle.design)
            found |= {name: raw[:, j] for name, j in of_raw.items()}
        for term in predictor.terms:
            elements = element_labels(term).values()  # which stand among what the term makes
            found |= {name: values[name] for name in term.reported if name not in target.layout
                      and name not in target.constants and name not in elements}  # fmt: skip
    return found | ({R2: values[R2]} if R2 in values else {})


def _intercept(target: Target, predictor: Predictor, values: Mapping[str, Array]) -> Array:
    """Return the mean of a predictor over the rows, moved to X = 0, for each draw."""
    units, name = target.bundle.units, predictor.name
    level = values[predictor.tau] if predictor.has_tau else _mean_output(target, values[PHI], name)
    total = units.location(target.bundle.family, name) + units.scale(name) * level
    if not predictor.coefficients:
        return np.asarray(total)
    return np.asarray(total - values[predictor.theta] @ units.columns[name][0])


def _slope(
    target: Target, predictor: str, slope: NetworkSlope, values: Mapping[str, Array]
) -> Array:
    """Return the mean over the rows of a coefficient that is a network, for each draw."""
    unit, phi = target.bundle.units.scale(predictor) / slope.scale, values[PHI]
    one = _mean_output(target, phi, predictor, slope.network)
    return np.asarray(unit * (one - _mean_output(target, phi, predictor)))


def _thresholds(target: Target, intercept: Array, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the intercept (S,), or the thresholds of ordered categories less it."""
    name, family = target.bundle.design.intercept, target.bundle.family
    if not family.reported_categories:
        return {name: intercept}
    tau = thresholds(values, family.categories)
    return numbered(name, np.stack([each - intercept for each in tau], axis=1))


def _theta_raw(target: Target, values: Mapping[str, Array]) -> Array:
    """Return theta (S, P) beside the network as it is."""
    theta = values["theta"]
    if target.shear is None:
        return theta
    raw, columns = theta.copy(), target.shear.columns.numpy()
    inputs = [chunk.U for chunk in target.chunks]
    gamma = _network_sums(target, values[PHI], target.shear.along.numpy(), inputs)
    raw[:, columns] -= gamma * target.bundle.units.theta_scale[columns]
    return raw


def _mean_output(target: Target, phi: Array, predictor: str = MU, one: int | None = None) -> Array:
    """Return the mean (S,) over the rows of the output of a predictor's networks.

    What networks multiply is 0, or 1 of the network ``one``.
    """
    N, spec = sum(len(chunk) for chunk in target.chunks), target.bundle.network
    inputs = [with_multipliers(spec, chunk.U, one) for chunk in target.chunks]
    return _network_sums(target, phi, np.ones((1, N)), inputs, predictor)[:, 0] / N


def _network_sums(
    target: Target, phi: Array, by_rows: Array, inputs: list[Tensor], predictor: str = MU
) -> Array:
    """Return sums (S, m) of the networks' output over the rows, weighted by (m, N)."""
    bundle, sizes = target.bundle, [len(chunk) for chunk in target.chunks]
    weights = np.split(by_rows, np.cumsum(sizes)[:-1], axis=1)
    parts = zip(inputs, weights, strict=True)
    return network_sums(bundle.network, bundle.subspace, phi, parts, predictor)
