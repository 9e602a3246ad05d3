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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.model.network import MU, Array
from semistan.model.ordinal import thresholds
from semistan.model.orthogonal import further_names
from semistan.stan.distributional import coordinates_at, parameters_log_slope
from semistan.stan.methods import NUTS_COLUMNS
from semistan.stan.noncentred import coordinates_of, log_slope
from semistan.stan.parameter_columns import parameter_columns
from semistan.stan.penalised_columns import penalised_columns
from semistan.stan.priors import prior_data, prior_groups
from semistan.stan.sample import SIGNIFICANT_DIGITS
from semistan.stan.target import Target, log_prior
from semistan.subspace.predictor import network_sums
from semistan.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = (2, 27, 0)  # the version of CmdStan whose layout this is
MAX_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Origin:
    """How a chain was drawn: what its file says above the draws.

    Attributes
    ----------
    algorithm : str
        The method's name in one word.
    about : str
        What the draws are, in one sentence.
    chain, seed, warmup : int
        Number of the chain, seed of the run, draws that were discarded.
    """

    algorithm: str
    about: str
    chain: int
    seed: int
    warmup: int


def program_columns(
    target: Target, q: Array, log_density: Array, evaluations: Array
) -> dict[str, Array]:
    """Compute what the program writes for draws of q, column by column in its order.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.
    log_density : array, shape (S,)
        Minus ``negative_log_posterior`` of each draw.
    evaluations : array, shape (S,)
        Evaluations of the likelihood that each draw took.

    Returns
    -------
    dict of arrays, shape (S,)
        The seven columns of a sampler, then those of the program, by their names in the file.
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
    lp = log_density + _constant(target)
    return _sampler_columns(lp, evaluations) | columns


def write_stan_csv(path: Path, columns: Mapping[str, Array], origin: Origin) -> None:
    """Write one chain; the same draws give the same bytes, so that no time is in the file."""
    values = np.column_stack(list(columns.values()))
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in _configuration(len(values), origin))
        file.write(",".join(columns) + "\n")
        file.write(
            "# Adaptation terminated\n# Step size = 1\n# No free parameters for unit metric\n"
        )
        np.savetxt(file, values, fmt=f"%.{SIGNIFICANT_DIGITS}g", delimiter=",")
        file.write(
            "# \n#  Elapsed Time: 0 seconds (Warm-up)\n"
            "#                0 seconds (Sampling)\n"
            "#                0 seconds (Total)\n"
            "# These times are not measured: the run's manifest has the real ones.\n# \n"
        )


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
    import torch

    bundle = target.bundle
    split = [target.split(row) for row in torch.tensor(q)]
    phi, theta, log_values = (torch.stack([draw[i] for draw in split]).numpy() for i in range(3))
    positive = dict(zip(target.sampled, np.exp(log_values).T, strict=True))
    return phi, theta * bundle.units.theta_scale, positive


def _numbered(name: str, values: Array) -> dict[str, Array]:
    return {f"{name}.{i + 1}": column for i, column in enumerate(values.T)}


def _sampler_columns(lp: Array, evaluations: Array) -> dict[str, Array]:
    one, zero = np.ones_like(lp), np.zeros_like(lp)
    return dict(
        zip(NUTS_COLUMNS.values(), (lp, one, one, zero, evaluations, zero, -lp), strict=True)
    )


def _lprior(target: Target, q: Array) -> Array:
    """Return the program's lprior: without the Jacobians of its transformations, truncated."""
    import torch

    where = target.penalised

    def of_one(row: Tensor) -> float:
        jacobian = target.split(row)[2].sum() + log_slope(target.bundle.design, row[where])
        return float(log_prior(target, row) - jacobian)

    return np.array([of_one(row) for row in torch.tensor(q)]) - _log_mass_above_zero(target)


def _constant(target: Target) -> float:
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


def _configuration(draws: int, origin: Origin) -> list[str]:
    major, minor, patch = LAYOUT
    return [
        f"stan_version_major = {major}",
        f"stan_version_minor = {minor}",
        f"stan_version_patch = {patch}",
        "model = program_model",
        f"semistan_version = {__version__}",
        "method = sample",
        "  sample",
        f"    num_samples = {draws}",
        f"    num_warmup = {origin.warmup}",
        "    save_warmup = 0",
        "    thin = 1",
        f"    algorithm = {origin.algorithm}",
        f"        max_depth = {MAX_DEPTH}",
        "      metric = unit_e",
        "      stepsize = 1",
        f"id = {origin.chain}",
        "data",
        "  file = data.json",
        "random",
        f"  seed = {origin.seed}",
        "output",
        f"  sig_figs = {SIGNIFICANT_DIGITS}",
        f"Not NUTS: {origin.about}",
    ]
