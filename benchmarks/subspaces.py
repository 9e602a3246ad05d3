"""How much of the predictive uncertainty each construction keeps, by the dimension k.

Each subspace is trained on the training rows of the papers' tables (``tables.py``) and measured
there as ``semistan subspace`` does: against the Laplace approximation of all weights, linearised
at the construction's own network,

    relative error    |Sigma - Sigma_P| / |Sigma| (eq. 20 of Faller and Martin, 2025): 0 is best
    share of trace    trace Sigma_P / trace Sigma (eq. 25): 1 is best

A curve is linearised at its p_bar, where Sigma is another than at a single trained network. So
both are also given for the best subspace of dimension k at the same network, from the full
curvature, and the efficiency is the share of trace over the best one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from rich.table import Table

from common import RESULTS, console, write_results
from semistan.density.ggn import full_ggn, linearise
from semistan.density.problem import make_problem
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.table.rows import Rows
from semistan.subspace.measures import state_of
from semistan.workflow.prepare import configure, prepare
from semistan.workflow.subspace import subspace_measures
from semistan.workflow.train import train
from tables import Split, TableOptions, read_split, read_table_options

DIMENSIONS = (2, 8, 32)
HIDDEN = (16, 16)
SNAPSHOTS = 40  # of the path, more than the largest k
BEST = "best possible, one network"
NETWORK = "low_rank_laplace, diagonal"  # linearised at a single trained network
BEST_STYLE = {"color": "black", "linestyle": "--", "linewidth": 1}
MARKERS = "osD^v<>Pp*"
CONSTRUCTIONS = {
    "bezier": {},
    "curve": {},
    "pca": {"snapshots": SNAPSHOTS},
    "random": {"snapshots": SNAPSHOTS},
    "subnetwork, variance": {"select": "variance"},
    "subnetwork, magnitude": {"select": "magnitude"},
    "subnetwork, swag": {"select": "swag", "snapshots": SNAPSHOTS},
    "subnetwork, last_layer": {"select": "last_layer"},
    "low_rank_laplace, diagonal": {"curvature": "diagonal"},
    "low_rank_laplace, kronecker": {"curvature": "kronecker"},
}
LAST_LAYER = 17  # weights of the output layer of a network of 16-16 units
SEED = 1


def main() -> None:
    """Train and measure every construction, write what there is after each table, and report."""
    options = read_table_options(__doc__ or "")
    torch.set_num_threads(1)
    records: list[dict] = []
    for table in options.tables:
        for number in range(1, options.splits + 1):
            records += measure_all(read_split(options.data, table, number), options)
            write_results("subspaces", options.quick, 1, records)
    console.print(_table(records))
    draw(records, RESULTS / f"subspaces{'-quick' * options.quick}.png")


def measure_all(split: Split, options: TableOptions) -> Iterator[dict]:
    """Measure every construction at every k that it can have."""
    for name in CONSTRUCTIONS:
        for k in dimensions(name):
            started = time.perf_counter()
            prepared = prepare(config_of(split, name, k, options), split.training)
            bundle = train(prepared)
            seconds = time.perf_counter() - started
            found = subspace_measures(bundle, prepared.rows)
            values = {name: float(value) for name, value in found.itertuples(index=False)}
            best_error, best_share = best_possible(eigenvalues_of(bundle, prepared.rows), k)
            share = values["trace in the subspace"] / values["trace in all weights"]
            record = {
                "table": split.table,
                "split": split.number,
                "contender": name,
                "n": len(split.training),
                "d": bundle.subspace.d,
                "k": k,
                "relative_error": values["relative error"],
                "best_relative_error": best_error,
                "trace_share": share,
                "best_trace_share": best_share,
                "efficiency": share / best_share,
                "full_trace": values["trace in all weights"],
                "seconds": seconds,
            }
            console.print(f"{split.table}, {name}, k = {k}: {record['relative_error']:.3f}")
            yield record


def dimensions(name: str) -> tuple[int, ...]:
    """Return the k at which a construction is measured."""
    if name == "curve":
        return DIMENSIONS[:1]
    if name == "subnetwork, last_layer":
        return tuple(k for k in DIMENSIONS if k <= LAST_LAYER)
    return DIMENSIONS


def config_of(split: Split, name: str, k: int, options: TableOptions) -> ModelConfig:
    """Return the configuration of one construction."""
    overrides = {
        "network.hidden": HIDDEN,
        "subspace.construction": name.split(",")[0],
        "subspace.k": k,
        "subspace.completion": "none",
        "train.seed": SEED,
        **({"train.epochs": 300} if options.quick else {}),
    }
    settings = {f"subspace.{key}": value for key, value in CONSTRUCTIONS[name].items()}
    return configure(split.formula, overrides | settings)


def eigenvalues_of(bundle: Bundle, rows: Rows) -> Array:
    """Return the eigenvalues of Sigma, largest first, at a construction's network."""
    problem = make_problem(bundle.model, rows, "cpu")
    state = state_of(problem, bundle.units, bundle.trained)
    L = torch.linalg.cholesky(full_ggn(problem, state))
    root = torch.linalg.solve_triangular(L, linearise(problem, state).J.T, upper=False)
    return torch.linalg.svdvals(root).square().numpy()


def best_possible(eigenvalues: Array, k: int) -> tuple[float, float]:
    """Return relative error and share of the trace of the k leading eigenvectors."""
    error = np.linalg.norm(eigenvalues[k:]) / np.linalg.norm(eigenvalues)
    return float(error), float(eigenvalues[:k].sum() / eigenvalues.sum())


def draw(records: list[dict], path: Path) -> None:
    """Draw the relative error and the efficiency against k, a column for each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = list(dict.fromkeys(item["table"] for item in records))
    figure, axes = plt.subplots(
        2, len(tables), figsize=(2.6 * len(tables) + 2.6, 6), sharex=True, sharey="row",
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for column, table in zip(axes.T, tables, strict=True):
        found = [item for item in records if item["table"] == table]
        column[0].set_title(f"{table} (d = {found[0]['d']})")
        for ax, measure in zip(column, ("relative_error", "efficiency"), strict=True):
            _panel(ax, measure, found)
        _line(column[0], BEST, "best_relative_error", _of(found, NETWORK), BEST_STYLE)
        column[1].set_xlabel("k")
    axes[0, 0].set_ylabel("relative error (0 is best)")
    axes[1, 0].set_ylabel("trace kept, over the best\npossible trace (1 is best)")
    for row in axes:
        row[0].set_ylim(0, 1.03)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    console.print(f"written to {path.relative_to(RESULTS.parents[1])}")


def _panel(ax: Axes, measure: str, records: list[dict]) -> None:
    for i, name in enumerate(CONSTRUCTIONS):
        style = {"color": f"C{i}", "marker": MARKERS[i], "markersize": 4, "linewidth": 1.2}
        _line(ax, name, measure, _of(records, name), style)
    ax.set_xscale("log")
    ax.set_xticks(DIMENSIONS, [str(k) for k in DIMENSIONS])
    ax.minorticks_off()
    ax.grid(alpha=0.3)


def _line(ax: Axes, name: str, measure: str, records: list[dict], style: dict) -> None:
    """Draw means over the splits."""
    ks = sorted({record["k"] for record in records})
    values = [np.mean([item[measure] for item in records if item["k"] == k]) for k in ks]
    ax.plot(ks, values, label=name, **style)


def _of(records: list[dict], name: str) -> list[dict]:
    return [record for record in records if record["contender"] == name]


def _table(records: list[dict]) -> Table:
    table = Table(title="subspaces", title_justify="left")
    for column in ("table", "construction"):
        table.add_column(column, no_wrap=True)
    for measure in ("error", "best", "eff."):
        for k in DIMENSIONS:
            table.add_column(f"{measure}, {k}", justify="right")
    previous = None
    for key in dict.fromkeys((r["table"], r["split"], r["contender"]) for r in records):
        if previous not in (None, key[:2]):
            table.add_section()
        previous = key[:2]
        found = {r["k"]: r for r in records if (r["table"], r["split"], r["contender"]) == key}
        cells = [
            f"{found[k][measure]:.3f}" if k in found else ""
            for measure in ("relative_error", "best_relative_error", "efficiency")
            for k in DIMENSIONS
        ]
        table.add_row(f"{key[0]} {key[1]}", key[2], *cells)
    return table


if __name__ == "__main__":
    main()
