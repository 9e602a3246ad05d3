"""Is the compiled C++ kernel right? A self-check on ten rows before it is trusted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from semistan.density.integral import integrated_constant, log_integrated
from semistan.density.target import log_effects, log_likelihood, make_target
from semistan.errors import SemistanError
from semistan.infer.cmdstan.process import Call, run_cmdstan
from semistan.infer.stan_json import write_stan_json
from semistan.infer.starts import initial_values
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.layout import column_names
from semistan.model.table.rows import Rows
from semistan.program.data import stan_data
from semistan.subspace.start_values import curve_states

ROWS = 10
STATES = 3
DIGITS = 18
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_stan_json(folder / "data.json", stan_data(bundle, some))
        start = initial_values(bundle, curve_states(bundle, 1)[0])
        write_stan_json(folder / "init.json", start)
        try:
            failure = _value_failure(bundle, some, executable, folder)
            return failure or _gradient_failure(executable, folder)
        except (SemistanError, ValueError, OSError) as error:
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


def _call(folder: Path) -> Call:
    data, start = folder / "data.json", folder / "init.json"
    return Call(data=data, start=start, seed=1, sig_figs=DIGITS)


def _value_failure(bundle: Bundle, rows: Rows, executable: Path, folder: Path) -> str | None:
    method = [
        "method=sample", f"num_samples={STATES}", "num_warmup=0", "adapt", "engaged=0",
        "algorithm=hmc", "engine=nuts", "max_depth=3", "stepsize=0.02",
    ]  # fmt: skip
    drawn = _table(run_cmdstan(executable, method, _call(folder), folder / "chain.csv"))
    expected = _log_density(bundle, rows, drawn)
    got = drawn["lp__"]
    error = float(np.max(np.abs(got - expected) / np.abs(expected)))
    if error < VALUE_TOLERANCE:
        return None
    return f"its log density is off by {error:.2g}, expected below {VALUE_TOLERANCE:g}"


def _table(csv: bytes) -> dict[str, Array]:
    """Return the columns of a Stan CSV by name, each of shape (STATES,)."""
    header, *lines = (line for line in csv.decode().splitlines() if not line.startswith("#"))
    values = np.array([line.split(",") for line in lines], dtype=float)
    return dict(zip(header.split(","), values.T, strict=True))


def _log_density(bundle: Bundle, rows: Rows, drawn: dict[str, Array]) -> Array:
    """Return log prior, tempered log-likelihood and log Jacobian of each draw, shape (S,).

    Where something is integrated out, it is out of their sum too.
    """
    target, layout = make_target(bundle, rows), bundle.layout
    states = [torch.tensor(layout.pack(values)) for values in _drawn_parameters(bundle, drawn)]
    if bundle.model.integral:
        constant, sampled = integrated_constant(target), layout.sampled
        return np.array([float(log_integrated(target, q[sampled])) + constant for q in states])
    log_lik = [float(log_likelihood(target, q)) for q in states]
    jacobian = [float(layout.log_jacobian(q)) + layout.log_units for q in states]
    effects = [float(log_effects(target, layout.unpack(q))) for q in states]
    return np.asarray(drawn["lprior"] + effects + log_lik + jacobian)


def _drawn_parameters(bundle: Bundle, drawn: dict[str, Array]) -> list[dict[str, Array]]:
    """Return the parameters of each draw by name; an empty vector has no columns."""
    values = {p.name: np.zeros((STATES, *p.shape)) for p in bundle.layout.parameters}
    for p in bundle.layout.parameters:
        for column, at in column_names(p.name, p.shape).items():
            element: tuple[slice | int, ...] = (slice(None), *at)
            values[p.name][element] = drawn[column]
    return [{name: each[state] for name, each in values.items()} for state in range(STATES)]


def _gradient_failure(executable: Path, folder: Path) -> str | None:
    method = ["method=diagnose", "test=gradient", "error=1e300"]  # which is judged below
    printed = run_cmdstan(executable, method, _call(folder), folder / "gradient.csv").decode()
    lines = (line.lstrip("# ").split() for line in printed.splitlines())
    # Each line has the parameter's number, its value, both gradients and their difference.
    table = np.array([line for line in lines if len(line) == 5 and line[0].isdigit()], dtype=float)
    gradient, differences = table[:, 2], table[:, 3]
    error = float(np.max(np.abs(gradient - differences)) / np.max(np.abs(gradient)))
    if error < GRADIENT_TOLERANCE:
        return None
    return f"its gradient is off by {error:.2g}, expected below {GRADIENT_TOLERANCE:g}"
