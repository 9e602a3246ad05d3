"""ArviZ as an oracle, by whichever release is installed: release 1 has other names and answers."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray

from semistan.posterior.arviz import as_installed, has_release_1

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # a notice of release 1 in those before
    import arviz


# Release 1 smooths both tails of the weights, and leaves one draw out of its distances.
SENSITIVITY_ERROR = 2e-2 if has_release_1() else 1e-6


class Loo(NamedTuple):
    elpd: float
    p: float
    se: float
    elpd_i: Any
    pareto_k: Any


def read(path):
    """Read a netCDF file as ArviZ's users do."""
    return arviz.from_netcdf(str(path))


def group_names(data):
    """Return the names of the groups, without slashes."""
    names = data.groups() if callable(data.groups) else data.groups
    return {name.strip("/") for name in names} - {""}


def collected(**groups):
    """Return arrays (chains, draws, ...) by group and name as what ArviZ takes."""
    tree = {}
    for group, arrays in groups.items():
        first = () if group == "observed_data" else ("chain", "draw")
        tree[group] = xarray.Dataset(
            {name: ((*first, "row")[: np.ndim(x)], np.asarray(x)) for name, x in arrays.items()},
            {
                dim: np.arange(n)
                for dim, n in zip(first, np.shape(next(iter(arrays.values()))), strict=False)
            },
        )
    return as_installed(xarray.DataTree.from_dict(tree))


def loo(data):
    """Return PSIS-LOO of draws that are held to be independent."""
    found = arviz.loo(data, reff=1, pointwise=True)
    if has_release_1():
        return Loo(found.elpd, found.p, found.se, found.elpd_i.values, found.pareto_k.values)
    n = found.n_data_points  # by which the variance is divided here, in release 1 and R by n - 1
    error = found.se * np.sqrt(n / (n - 1))
    return Loo(found.elpd_loo, found.p_loo, error, found.loo_i.values, found.pareto_k.values)


def sensitivity(data, component):
    """Return power-scaling sensitivities by name, to 'prior' or 'likelihood'."""
    if has_release_1():
        return arviz.psense(data, group=component)
    return arviz.psens(data, component=component)


def stacking(elpd):
    """Return weights by model of pointwise elpd (N,) by model."""
    compared = {name: _elpd_data(values) for name, values in elpd.items()}
    unrounded = {"round_to": "none"} if has_release_1() else {}
    return arviz.compare(compared, method="stacking", **unrounded)["weight"]


def _elpd_data(values):
    n, rows = len(values), xarray.DataArray(values, dims="obs")
    error, k = np.sqrt(n * values.var()), xarray.zeros_like(rows)
    if has_release_1():
        from arviz_stats.utils import ELPDData

        return ELPDData(
            elpd=values.sum(), se=error, p=0.0, n_samples=4000, n_data_points=n, scale="log",
            warning=False, good_k=0.7, elpd_i=rows, pareto_k=k,
        )  # fmt: skip
    return arviz.ELPDData(
        data=[values.sum(), error, 0.0, 4000, n, False, "log", rows, k, 0.7],
        index=["elpd_loo", "se", "p_loo", "n_samples", "n_data_points", "warning", "scale",
               "loo_i", "pareto_k", "good_k"],
    )  # fmt: skip


def loo_pit(y, y_rep, log_lik, log_weights):
    """Return LOO-PIT of responses (N,), of replicates and log-likelihoods (S, N)."""
    if has_release_1():
        data = collected(
            posterior={"mu": np.zeros((1, len(y_rep)))}, observed_data={"y": y},
            posterior_predictive={"y": y_rep[None]}, log_likelihood={"y": log_lik[None]},
        )  # fmt: skip
        dims = ("row", "chain", "draw")
        given = xarray.Dataset({"y": (dims, log_weights[:, None])})
        k = xarray.Dataset({"y": ("row", np.zeros(len(y)))})
        return arviz.loo_pit(data, log_weights=given, pareto_k=k)["y"].values
    return arviz.loo_pit(y=y, y_hat=y_rep.T, log_weights=log_weights)


def uniform_band(n, at, prob):
    """Return the bounds in which the ecdf of n uniform numbers stays with a probability."""
    from arviz.stats.ecdf_utils import ecdf_confidence_band

    return ecdf_confidence_band(n, at, at, prob=prob, method="optimized")


def summary(data):
    """Return ArviZ's table of moments and diagnostics, unrounded."""
    return arviz.summary(data, round_to="none")


def pareto_smoothed(log_ratios):
    """Return smoothed log weights (N, S) and Pareto k (N,) of log ratios (N, S)."""
    if has_release_1():  # which takes log-likelihoods
        from arviz_stats.base import array_stats

        return array_stats.psislw(-log_ratios)
    return arviz.psislw(log_ratios.copy())
