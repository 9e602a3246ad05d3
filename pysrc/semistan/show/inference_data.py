"""The posterior in the groups of ArviZ's InferenceData, for ``posterior.nc``.

They are a tree of data sets of xarray, which ArviZ 1 takes as it is; earlier releases make their
own ``InferenceData`` of it, and read the same file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.files import write_bytes
from semistan.infer.methods import reservations
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.formula.formula import parse_formula
from semistan.model.priors.weight_scales import SD_W
from semistan.model.table.rows import Rows
from semistan.model.terms.term import element_labels
from semistan.posterior.categories import category_names
from semistan.posterior.draws import Draws
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import log_lik, posterior_predict
from semistan.posterior.run import Run
from semistan.version import __version__

POINTWISE_LIMIT = 20_000_000  # S * N above which the pointwise groups are left out
FROM_1 = ("subspace", "subspace_dim")  # dims that are numbered from 1; others are from 0


def inference_data(run: Run, posterior: Posterior, rows: Rows) -> Any:
    """Collect a run as a tree of groups.

    The response has the same name in ``observed_data``, ``posterior_predictive`` and
    ``log_likelihood``; the last two are left out above ``POINTWISE_LIMIT`` elements. The
    log-likelihood of a tempered run is left out too: ``az.loo`` would take the draws as those of
    temperature 1. ``log_prior`` has the log prior density of each draw, with which ``az.psense``
    (``az.psens`` before ArviZ 1) says how sensitive the posterior is to the prior and, with
    ``log_likelihood``, to the data; it is left out where the draws of several subspaces stand side
    by side, because ArviZ would weight them together. Draws from the prior are in ``prior`` instead
    of ``posterior``. Categories are numbered from 1, the attribute ``categories`` has their names.

    With several subspaces, ``posterior`` and ``sample_stats`` have the dim ``subspace`` after
    ``chain`` and ``draw``, so that ArviZ judges chains within a subspace. What is said of rows is
    pooled: there the chains of the subspaces follow each other, and ``az.loo`` is that of the
    mixture.

    Returns
    -------
    xarray.DataTree
        With dims ``coef``, ``subspace_dim``, ``__obs__`` and, if there are several, ``subspace``;
        effects of levels, as ``r_g``, by ``r_g_level`` and ``r_g_term``; the groups of sampled
        scales of the weights are ``weights_of``, and counted categories ``category``.
    """
    from xarray import DataTree

    group = "prior" if run.prior_only else "posterior"
    # netCDF has no slash in a name: that of 'I(z / 3)' is written as the sign of a fraction.
    response = parse_formula(run.bundle.config.formula).response.replace("/", "\N{DIVISION SLASH}")
    levels = _levels(run.bundle.design)
    variables = _by_subspace(lambda draws: _variables(draws, levels), posterior)
    sampler = _by_subspace(_sampler, posterior)
    groups: dict[str, dict[str, Array]] = {
        group: variables,
        "sample_stats_prior" if run.prior_only else "sample_stats": sampler,
        "observed_data": {response: np.asarray(rows.y)},
    }
    if posterior.size * len(rows) <= POINTWISE_LIMIT:
        groups |= _pointwise(run, posterior, rows, group, response)
    subspace = ["subspace"] if len(posterior.members) > 1 else []
    if not run.prior_only and not subspace:
        groups["log_prior"] = {"lprior": posterior.lprior}
    dims = {
        **dict.fromkeys([*variables, *sampler], subspace),
        "theta": [*subspace, "coef"],
        "theta_raw": [*subspace, "coef"],
        "phi": [*subspace, "subspace_dim"],
        SD_W: [*subspace, "weights_of"],
        **{level.name: [*subspace, *level.dims] for level in levels},
        response: ["__obs__", "category"],
    }
    names = _names_along(run.bundle, levels)
    made = {name: _group(name, arrays, dims, names) for name, arrays in groups.items()}
    tree = DataTree.from_dict(made)
    tree.attrs = _attributes(run, posterior)
    return tree


def _names_along(bundle: Bundle, levels: list[_Levels]) -> dict[str, list[str]]:
    """Return what stands along dims that are not numbered."""
    scales = bundle.model.weight_scales
    return {
        "coef": list(bundle.design.coefficients),
        "weights_of": list(scales.names) if scales else [],
        "category": list(bundle.design.categories) if bundle.family.counted else [],
        **{dim: texts for level in levels for dim, texts in level.dims.items()},
    }


def _group(
    name: str, arrays: dict[str, Array], dims: dict[str, list[str]], names: dict[str, list[str]]
) -> Any:
    """Return arrays as a data set; all but observed data have chains and draws first."""
    from xarray import Dataset

    first = [] if name == "observed_data" else ["chain", "draw"]
    along = {key: [*first, *dims.get(key, [])][: np.ndim(x)] for key, x in arrays.items()}
    sizes = {
        dim: n for key, x in arrays.items() for dim, n in zip(along[key], np.shape(x), strict=True)
    }
    coords = {dim: names.get(dim) or np.arange(n) + (dim in FROM_1) for dim, n in sizes.items()}
    return Dataset({key: (along[key], x) for key, x in arrays.items()}, coords)


def write_inference_data(data: Any, path: Path) -> None:
    """Write a tree of groups as netCDF.

    It is made in memory: on a full disk, HDF5 would end the whole process.

    Raises
    ------
    SemistanError
        If the file cannot be written.
    """
    compressed = {  # numbers alone
        group.path: {
            name: {"zlib": True} for name, x in group.data_vars.items() if x.dtype.kind in "iufb"
        }
        for group in data.subtree
    }
    write_bytes(path, data.to_netcdf(engine="h5netcdf", encoding=compressed))


def _by_subspace(of: Callable[[Draws], dict[str, Array]], posterior: Posterior) -> dict[str, Array]:
    """Return arrays (C, S, ...) by name, of several subspaces (C, S, M, ...)."""
    first, *others = (of(member.draws) for member in posterior.members)
    if not others:
        return first
    return {name: np.stack([each[name] for each in (first, *others)], axis=2) for name in first}


@dataclass(frozen=True, slots=True)
class _Levels:
    """Effects of levels: the array that has them, its name, and what is along its dims."""

    made: str
    name: str
    dims: dict[str, list[str]]

    def of(self, draws: Draws) -> Array:
        """Return them, without axes that have no names."""
        found = draws.terms[self.made]
        return found.reshape(*found.shape[:2], *map(len, self.dims.values()))


def _levels(design: Design) -> list[_Levels]:
    """Return the effects of levels that stand in no table of coefficients."""
    found = []
    for term in design.terms:
        labels = element_labels(term).items()
        for made, elements in term.elements.items():
            own = {shown for column, shown in labels if column.partition(".")[0] == made}
            if own and own.isdisjoint(term.reported):
                names = (f"{elements.name}_level", f"{elements.name}_term")
                axes = zip(names, elements.axes, strict=False)
                dims = {name: list(axis) for name, axis in axes if any(axis)}
                found.append(_Levels(made, elements.name, dims))
    return found


def _variables(draws: Draws, levels: list[_Levels]) -> dict[str, Array]:
    theta = {"theta": draws.theta} if draws.theta.shape[-1] else {}
    if draws.orthogonal and draws.orthogonal.in_model:
        theta = {"theta": draws.effects, "theta_raw": draws.theta}
    sd_w = {} if draws.sd_w is None else {SD_W: draws.sd_w}
    effects = {level.name: level.of(draws) for level in levels}
    return {**draws.interpreted, **effects, **theta, "phi": draws.phi, **sd_w,
            "lprior": draws.lprior}  # fmt: skip


def _sampler(draws: Draws) -> dict[str, Array]:
    integer = {"tree_depth": np.int64, "n_steps": np.int64, "diverging": np.bool_}
    return {name: x.astype(integer.get(name, float)) for name, x in draws.sampler.items()}


def _pointwise(
    run: Run, posterior: Posterior, rows: Rows, group: str, response: str
) -> dict[str, dict[str, Array]]:
    def by_chain(values: Array) -> Array:
        return values.reshape(posterior.chains, -1, *values.shape[1:])

    generator = np.random.default_rng(run.options.seed)
    replicated = posterior_predict(posterior, rows, generator)
    groups = {f"{group}_predictive": {response: by_chain(replicated)}}
    if not run.prior_only and run.options.temperature == 1:
        groups["log_likelihood"] = {response: by_chain(log_lik(posterior, rows))}
    return groups


def _attributes(run: Run, posterior: Posterior) -> dict[str, Any]:
    bundle = run.bundle
    hashes = [member.bundle.sha256 for member in posterior.members]
    names = category_names(bundle.family, bundle.design)
    return {
        **({"categories": list(names)} if names else {}),
        "formula": bundle.config.formula,
        "family": bundle.family.name,
        "k": bundle.subspace.k,
        "construction": bundle.subspace.origin,
        "method": run.options.method,
        "reservations": "; ".join(reservations(run.options)),
        "seed": run.options.seed,
        "semistan_version": __version__,
        "cmdstan_version": run.manifest.cmdstan,
        "bundle_sha256": hashes if len(hashes) > 1 else hashes[0],
        **({"weights": list(run.weights)} if run.weights else {}),
        "note": _note(run),
    }


def _note(run: Run) -> str:
    given = "Conditional on a subspace trained on the same response"
    if run.options.temperature == 1:
        if run.bundle.model.moves == "all":
            return "All weights of the network are sampled."
        return f"{given}: PSIS-LOO computed from log_likelihood is optimistic."
    return (
        f"{given}. The draws are tempered, so log_likelihood is left out: PSIS-LOO computed from "
        "it would be wrong; 'semistan loo' knows the temperature."
    )
