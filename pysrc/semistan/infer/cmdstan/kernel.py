"""Is the compiled C++ kernel right? A self-check on ten rows before it is trusted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from semistan.density.integral import integrated_constant, log_integrated
from semistan.density.target import log_likelihood, make_target
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.stan_json import write_stan_json
from semistan.infer.starts import initial_values
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.table.rows import Rows
from semistan.program.data import stan_data
from semistan.subspace.start_values import curve_states

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
    if not bundle.model.samples_orthogonal:
        return rows.first(ROWS)
    columns = list(bundle.model.orthogonal)
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
    """Return log prior, tempered log-likelihood and log Jacobian of each draw, shape (S,).

    Where something is integrated out, it is out of their sum too.
    """
    target, layout = make_target(bundle, rows), bundle.layout
    states = [torch.tensor(layout.pack(values)) for values in _drawn_parameters(bundle, fit)]
    if bundle.model.integral:
        constant, sampled = integrated_constant(target), layout.sampled
        return np.array([float(log_integrated(target, q[sampled])) + constant for q in states])
    log_lik = [float(log_likelihood(target, q)) for q in states]
    jacobian = [float(layout.log_jacobian(q)) + layout.log_units for q in states]
    return np.asarray(fit.stan_variable("lprior") + log_lik + jacobian)


def _drawn_parameters(bundle: Bundle, fit: Any) -> list[dict[str, Any]]:
    """Return the parameters of each draw by name; an empty vector has no columns."""
    drawn = {
        p.name: fit.stan_variable(p.name) if np.prod(p.shape) else np.zeros((STATES, *p.shape))
        for p in bundle.layout.parameters
    }
    return [{name: values[state] for name, values in drawn.items()} for state in range(STATES)]


def _gradient_failure(model: Any, folder: Path) -> str | None:
    table = model.diagnose(
        data=str(folder / "data.json"), inits=str(folder / "init.json"), require_gradients_ok=False
    )
    gradient, differences = (table[name].to_numpy() for name in ("model", "finite_diff"))
    error = float(np.max(np.abs(gradient - differences)) / np.max(np.abs(gradient)))
    if error < GRADIENT_TOLERANCE:
        return None
    return f"its gradient is off by {error:.2g}, expected below {GRADIENT_TOLERANCE:g}"
