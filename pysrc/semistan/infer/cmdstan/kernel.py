"""Is the compiled C++ kernel right? A self-check on ten rows before it is trusted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from semistan.density.columns import unconstrained
from semistan.density.noncentred import log_slope, parts_of_design
from semistan.density.parameter_coordinates import parameters_log_slope
from semistan.density.target import Target, log_likelihood, make_target
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.stan_json import write_stan_json
from semistan.infer.starts import curve_states, initial_values
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.orthogonal import in_model, orthogonal_columns
from semistan.model.priors.prior import has_horseshoe
from semistan.model.table.rows import Rows
from semistan.model.varying import sampled_shapes
from semistan.program.data import stan_data

ROWS = 10
STATES = 3
VALUE_TOLERANCE = 1e-9  # relative, of the log density
WORST_CONDITION = 1e3  # of the columns onto which the program projects
GRADIENT_TOLERANCE = 1e-4  # relative, against finite differences


def kernel_failure(bundle: Bundle, rows: Rows, executable: Path) -> str | None:
    """Compare a program that uses the kernel with the network in PyTorch.

    Some states of a short trajectory must have the log density that PyTorch gives, and the
    gradient at the first must be that of finite differences.

    Returns
    -------
    str or None
        What is wrong, or None if nothing is.
    """
    some = kernel_rows(bundle, rows)
    model = quiet_cmdstanpy().CmdStanModel(exe_file=str(executable))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_stan_json(folder / "data.json", stan_data(bundle, some))
        start = initial_values(bundle, curve_states(bundle, 1)[0])
        write_stan_json(folder / "init.json", start)
        try:
            return _value_failure(bundle, some, model, folder) or _gradient_failure(model, folder)
        except (RuntimeError, ValueError, OSError) as error:
            return str(error).splitlines()[0]


def kernel_rows(bundle: Bundle, rows: Rows) -> Rows:
    """Return the first ten rows, or more if columns onto which the program projects need them."""
    if not in_model(bundle.config, bundle.design):
        return rows.first(ROWS)
    columns = list(orthogonal_columns(bundle.config, bundle.design))
    Z = ((rows.X - bundle.units.x_loc) / bundle.units.x_scale)[:, columns]
    n = ROWS
    while n < len(rows) and np.linalg.cond(Z[:n]) > WORST_CONDITION:
        n *= 2
    return rows.first(n)


def _value_failure(bundle: Bundle, rows: Rows, model: Any, folder: Path) -> str | None:
    fit = model.sample(
        data=str(folder / "data.json"), inits=str(folder / "init.json"), chains=1,
        iter_warmup=0, iter_sampling=STATES, adapt_engaged=False, step_size=0.02,
        max_treedepth=3, seed=1, sig_figs=18, output_dir=str(folder), show_progress=False,
    )  # fmt: skip
    expected = _log_density(bundle, rows, fit)
    got = fit.method_variables()["lp__"][:, 0]
    error = float(np.max(np.abs(got - expected) / np.abs(expected)))
    if error < VALUE_TOLERANCE:
        return None
    return f"its log density is off by {error:.2g}, expected below {VALUE_TOLERANCE:g}"


def _log_density(bundle: Bundle, rows: Rows, fit: Any) -> Array:
    """Return log prior, tempered log-likelihood and log Jacobian of each draw, shape (S,)."""
    target = make_target(bundle, rows)
    states = [unconstrained(target, draw) for draw in _drawn_parameters(target, fit)]
    log_lik = [float(log_likelihood(target, torch.tensor(q))) for q in states]
    jacobian = [_log_jacobian(target, q) for q in states] + _log_horseshoe(bundle, fit)
    return np.asarray(fit.stan_variable("lprior") + log_lik + jacobian)


def _drawn_parameters(target: Target, fit: Any) -> list[dict[str, Any]]:
    """Return the parameters of each draw by name; an empty vector has no columns."""
    bundle = target.bundle
    names = [name for part in parts_of_design(bundle.design) for name in part.names if name]
    names += sampled_shapes(bundle.design)
    names += ["phi", *target.sampled]
    names += ["theta"] if bundle.design.coefficients else []
    empty = {} if bundle.design.coefficients else {"theta": np.zeros(0)}
    return [
        empty | {name: fit.stan_variable(name)[state] for name in names} for state in range(STATES)
    ]


def _log_jacobian(target: Target, q: Array) -> float:
    """Return the log Jacobian of the parameters by the unconstrained coordinates."""
    bundle, x = target.bundle, torch.tensor(q)
    total = np.log(bundle.subspace.phi_scale).sum() + float(target.split(x)[2].sum())
    if not bundle.subspace.holds_theta and not has_horseshoe(bundle.config):
        total += np.log(bundle.units.theta_scale).sum()
    total += parameters_log_slope(bundle)
    return float(total) + float(log_slope(bundle.design, x[target.penalised]))


def _log_horseshoe(bundle: Bundle, fit: Any) -> Array:
    """Return the log Jacobian of the horseshoe's positive parameters, shape (S,)."""
    names = ("hs_local", "hs_global", "hs_slab") if has_horseshoe(bundle.config) else ()
    logs = (np.log(fit.stan_variable(name)).reshape(STATES, -1).sum(axis=1) for name in names)
    return np.asarray(sum(logs, start=np.zeros(STATES)))


def _gradient_failure(model: Any, folder: Path) -> str | None:
    table = model.diagnose(
        data=str(folder / "data.json"), inits=str(folder / "init.json"), require_gradients_ok=False
    )
    gradient, differences = (table[name].to_numpy() for name in ("model", "finite_diff"))
    error = float(np.max(np.abs(gradient - differences)) / np.max(np.abs(gradient)))
    if error < GRADIENT_TOLERANCE:
        return None
    return f"its gradient is off by {error:.2g}, expected below {GRADIENT_TOLERANCE:g}"
