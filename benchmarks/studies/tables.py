"""The tables of Dold et al. (2024), section 4.3: test LPPD, tables 1 and 3.

Every CSV file in the folder ``--data`` is a data set, the response in the last column. As in the
paper, all other columns are inputs of the network, y ~ nn(...), without structured ones, and
response and inputs are standardised by the training rows. Split 1 is that of ``splits.json``, which
the paper has too; others are drawn with its sizes. A data set that has none is split at random,
with a fifth of its rows for testing.

Two networks with tanh: 3 hidden layers of 16 units (table 1), and one of 3 units (table 3).

    k=2, k=5         the paper's subspaces and chains, and the priors of its authors' code: phi ~
                     normal(0, 1) around the trained weights, sigma ~ lognormal(0, 1)
    defaults         fit_model with nothing set but the network
    defaults+sigma   the same with log sigma as a second output of the network
    mclmc            the defaults with sample.method = "mclmc", and mclmc+sigma
    ...-M=3, -M=4    the same with several subspaces, on split 1 alone
    bde              sklearn-contrib-bde, with silu instead of tanh and a second output for sigma

Nothing was chosen by test rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from studies.contenders import available
from studies.markdown import ABSENT, mean_se, number, table, verdict, with_se
from studies.own import own
from studies.problem import Facts, Problem
from studies.study import Cell, Options, Record, Study, main
from tables import read_split

TITLE = "The tables of the paper"
NETWORKS: Mapping[str, tuple[int, ...]] = {"16-16-16": (16, 16, 16), "3": (3,)}
PAPER = {  # chains as in its section C.2, priors as in its authors' code: it names no widths
    "priors.phi": "normal(0, 1)",
    "priors.sigma": "lognormal(0, 1)",
    "sample.chains": 10,
    "sample.warmup": 200,
    "sample.draws": 600,
}
MCLMC = {"sample.method": "mclmc"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "k=2": {"subspace.k": 2, **PAPER},
    "k=5": {"subspace.k": 5, **PAPER},
    "defaults": {},
    "defaults+sigma": {},
    "defaults-M=3": {"subspace.subspaces": 3},
    "mclmc": MCLMC,
    "mclmc+sigma": MCLMC,
    "mclmc-M=4": {**MCLMC, "subspace.subspaces": 4},
}
BDE, DEFAULT, HEAD = "bde", "defaults", "+sigma"
CONTENDERS = (*SETTINGS, BDE)
GIVEN, SPLITS = 1, 6  # the given split, and how many in all
ONCE = ("defaults-M=3", "mclmc-M=4")  # on the given split alone
QUICK, QUICK_TABLES = ("k=2", "k=5", DEFAULT, "mclmc", BDE), 2
INTERVAL = 0.9

Value = tuple[float, float]  # LPPD and its standard error over test rows
SUBSPACES = ("Subspace (k=2)", "Subspace (k=5)")
COLUMNS = ("MCMC", *SUBSPACES, "Deep Ens.", "Laplace Appr.")
PUBLISHED: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "16-16-16": {  # table 1
        "izmailov": ((0.91, 0.09), (0.82, 0.10), (0.77, 0.09), (-2.02, 0.02), (-1.81, 0.01)),
        "airfoil": ((0.92, 0.05), (-0.28, 0.12), (-0.19, 0.09), (-2.17, 0.01), (-3.57, 0.18)),
        "diabetes": ((-1.18, 0.08), (-2.40, 0.28), (-1.21, 0.08), (-2.09, 0.04), (-2.61, 0.00)),
        "energy": ((2.07, 0.46), (1.43, 0.14), (1.57, 0.15), (-1.99, 0.02), (-1.39, 0.06)),
        "yacht": ((3.31, 0.21), (-0.69, 1.90), (1.49, 0.51), (-2.18, 0.03), (-2.69, 0.00)),
    },
    "3": {  # table 3
        "sinusoidal": ((-0.53, 0.09), (-0.58, 0.11), (-0.60, 0.11), (-0.58, 0.11), (-0.57, 0.10)),
        "izmailov": ((0.79, 0.06), (0.51, 0.06), (0.60, 0.05), (0.56, 0.06), (0.53, 0.07)),
        "airfoil": ((-0.74, 0.04), (-0.88, 0.05), (-0.83, 0.06), (-1.62, 0.03), (-1.78, 0.13)),
        "diabetes": ((-1.20, 0.07), (-1.24, 0.09), (-1.17, 0.06), (-1.47, 0.07), (-1.46, 0.09)),
        "energy": ((0.92, 0.04), (-0.05, 0.07), (0.62, 0.08), (-1.76, 0.02), (-31.74, 1.88)),
        "yacht": ((1.90, 0.16), (1.13, 0.47), (1.20, 0.01), (-1.14, 0.14), (-5.60, 1.51)),
    },
}
NUMBER = {"16-16-16": 1, "3": 3}  # of the paper's table
TARGETS = {"airfoil": 0.8, "energy": 1.95, "yacht": 2.8, "diabetes": -1.18}  # of 16-16-16
WHAT = """\
Section 4.3 of Dold et al. (2024): all columns are inputs of the network, as in the paper, so
that there is no theta; response and inputs are standardised by the training rows, and LPPD is on
that scale, larger is better. `k=2` and `k=5` have phi ~ normal(0, 1) around the trained weights and
sigma ~ lognormal(0, 1), as in the authors' code (the paper names no widths), and the paper's 10
chains of 200 + 600 iterations; their training is semistan's. `defaults` is `semistan.fit` with
nothing set but the network, which samples as many weights as ten minutes allow; with
`+sigma` the network has a second output, for log sigma (`sigma ~ nn(..., shared = 'f')`);
`mclmc` is the defaults with `sample.method = "mclmc"`; with `M=...` several subspaces are trained
and pooled.
`bde` is sklearn-contrib-bde with its documentation's settings, silu and a second output for sigma.
Lines with "paper" are cited; all others were run. Nothing was chosen by test rows. Of yacht, 3
units and k = 5, the paper's table has a standard error of 0.01, and the authors' notebook one of
0.44."""
PICTURE = """\
In the picture, LPPD of the given split with its standard error over test rows; black is the paper's
(without deep ensembles and Laplace), small points are further splits."""


def cells(options: Options) -> list[Cell]:
    """Return the cells: split after split, table after table."""
    if options.data is None:
        raise SystemExit("--data FOLDER is needed: a folder of CSV files, the response last")
    tables = sorted(options.data.glob("*.csv"), key=lambda path: path.stat().st_size)
    wanted = QUICK if options.quick else CONTENDERS
    known = [name for name in wanted if name != BDE or available([BDE])]
    return [
        Cell(
            {"table": path.stem, "network": network, "split": split, "contender": name},
            partial(measure, options.data, path.stem, network, split, name, options.quick),
        )
        for split in range(GIVEN, GIVEN + 1 if options.quick else SPLITS + 1)
        for path in tables[: QUICK_TABLES if options.quick else None]
        for network in NETWORKS
        for name in known
        if split == GIVEN or name not in ONCE
    ]


def measure(data: Path, name: str, network: str, split: int, contender: str, quick: bool) -> Record:
    """Fit one contender to one split, and score it."""
    problem = split_problem(data, name, network, split, quick)
    if contender == BDE:
        found = available([BDE])[0].run(problem)
    else:
        found = own(SETTINGS[contender], problem, sigma=contender.endswith(HEAD))
    error = found.eta.mean(axis=0) - problem.new_y
    return {
        "lppd": float(found.lpd.mean()),
        "lppd_se": float(found.lpd.std(ddof=1) / np.sqrt(len(found.lpd))),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "n": len(problem.training),
        "n_test": len(problem.new),
        "rhat": found.rhat,
        "ess": found.ess,
        "sigma": None if found.sigma is None else float(found.sigma.mean()),
        "fit_seconds": found.seconds,
        **found.notes,
    }


def split_problem(data: Path, name: str, network: str, split: int, quick: bool) -> Problem:
    """Return a split's problem: columns u1, u2, ... but those that are constant, and y."""
    found = read_split(data, name, split)
    inputs = [column for column in found.training.columns[:-1] if _varies(found.training[column])]
    names = {column: f"u{j + 1}" for j, column in enumerate(inputs)} | {found.response: "y"}
    training, new = (
        part[list(names)].rename(columns=names) for part in (found.training, found.test)
    )
    facts = Facts("gaussian", "y", (), tuple(names[column] for column in inputs))
    return Problem(training, new, facts, split, quick, NETWORKS[network])


def _varies(column: pd.Series) -> bool:
    return column.nunique() > 1


def section(records: Sequence[Record]) -> str:
    """Return the section: for each network the given split, further splits, seconds, targets."""
    scored = [item for item in records if "lppd" in item]
    parts = [part for network in NETWORKS for part in _network(scored, network)]
    return "\n\n".join([WHAT, *parts, PICTURE])


def _network(scored: Sequence[Record], network: str) -> list[str]:
    own_records = [item for item in scored if item["key"]["network"] == network]
    if not own_records:
        return []
    tables = list(dict.fromkeys(item["key"]["table"] for item in own_records))
    first, others = (
        [item for item in own_records if (item["key"]["split"] == GIVEN) == given]
        for given in (True, False)
    )
    parts = [
        f"**Network {network}, tanh; the given split.** LPPD with its standard error over the test"
        f" rows; cited from the paper's table {NUMBER[network]}:",
        table(["", *tables], [*_cited(network, tables), *_lines(first, tables, _given)]),
    ]
    if others:
        splits = len({item["key"]["split"] for item in others})
        parts += [
            f"Up to {splits} further splits, mean LPPD with its standard error over splits:",
            table(["", *tables], _lines(others, tables, _mean)),
        ]
    parts += [
        "Mean seconds, the largest Rhat of eta over 50 test rows, and the smallest dimension k that"
        " was sampled, over all splits:",
        table(["", *tables], _lines(own_records, tables, _cost)),
        "\n".join(_targets(first, network, tables)),
    ]
    return parts


def _cited(network: str, tables: Sequence[str]) -> list[list[str]]:
    found = PUBLISHED[network]
    return [
        [
            f"paper: {column}",
            *(_value(found[name][i]) if name in found else ABSENT for name in tables),
        ]
        for i, column in enumerate(COLUMNS)
    ]


def _value(value: Value) -> str:
    return with_se(*value)


def _lines(records: Sequence[Record], tables: Sequence[str], show: Any) -> list[list[str]]:
    """Return a line for each contender that has records, a cell for each table."""
    lines = []
    for name in CONTENDERS:
        own_records = [item for item in records if item["key"]["contender"] == name]
        if own_records:
            by_table = [[i for i in own_records if i["key"]["table"] == each] for each in tables]
            lines.append([name, *(show(found) if found else ABSENT for found in by_table)])
    return lines


def _given(records: Sequence[Record]) -> str:
    return with_se(records[0]["lppd"], records[0]["lppd_se"])


def _mean(records: Sequence[Record]) -> str:
    return with_se(*mean_se([item["lppd"] for item in records]))


def _cost(records: Sequence[Record]) -> str:
    seconds = f"{np.mean([item['fit_seconds'] for item in records]):.0f} s"
    rhat = [item["rhat"] for item in records if np.isfinite(item["rhat"])]
    sizes = [item["k"] for item in records if "k" in item]
    return ", ".join(
        [
            seconds,
            *([f"Rhat {number(max(rhat))}"] if rhat else []),
            *([f"k = {min(sizes)}"] if sizes else []),
        ]
    )


def _targets(first: Sequence[Record], network: str, tables: Sequence[str]) -> list[str]:
    """Say, of the default, which targets are met on the given split."""
    lppd = {i["key"]["table"]: i["lppd"] for i in first if i["key"]["contender"] == DEFAULT}
    lines = []
    for name in tables:
        value, cited = lppd.get(name, np.nan), PUBLISHED[network].get(name)
        if cited is not None:
            best = max(cited[COLUMNS.index(column)][0] for column in SUBSPACES)
            text = f"{name}, defaults above both subspace columns of the paper ({number(best)})"
            lines.append(verdict(text, value, value > best))
        if network == "16-16-16" and name in TARGETS:
            text = f"{name}, defaults at least {number(TARGETS[name])}"
            lines.append(verdict(text, value, value >= TARGETS[name]))
    return lines


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw LPPD of what ran: a row of panels for each network, a panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scored = [item for item in records if "lppd" in item]
    tables = list(dict.fromkeys(item["key"]["table"] for item in scored)) or [""]
    figure, axes = plt.subplots(
        len(NETWORKS), len(tables), figsize=(2 + 2.3 * len(tables), 7), sharey=True, squeeze=False
    )
    ran = {item["key"]["contender"] for item in scored}
    contenders = [name for name in CONTENDERS if name in ran]
    names = [f"paper: {column}" for column in COLUMNS[:3]] + contenders
    for panels, network in zip(axes, NETWORKS, strict=True):
        for axis, name in zip(panels, tables, strict=True):
            where = (network, name)
            own_records = [i for i in scored if (i["key"]["network"], i["key"]["table"]) == where]
            _panel(axis, own_records, contenders, PUBLISHED[network].get(name, ())[:3])
            axis.set_visible(bool(own_records))
            axis.set_title(f"{name}, {network}", fontsize="medium")
        panels[0].set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    for axis in axes[-1]:
        axis.set_xlabel("test LPPD")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(
    axis: Any, records: Sequence[Record], contenders: Sequence[str], cited: Sequence[Value]
) -> None:
    for place, (value, se) in enumerate(cited):
        axis.errorbar(value, place, xerr=se, fmt="s", color="k", ms=4)
    for item in records:
        place = 3 + contenders.index(item["key"]["contender"])
        if item["key"]["split"] == GIVEN:
            axis.errorbar(item["lppd"], place, xerr=item["lppd_se"], fmt="o", color="C0", ms=5)
        else:
            axis.plot(item["lppd"], place + 0.25, ".", color="C0", ms=3, alpha=0.6)
    axis.grid(axis="x", color="0.9")


STUDY = Study("tables", TITLE, cells, section, draw)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(STUDY, __doc__ or "")
