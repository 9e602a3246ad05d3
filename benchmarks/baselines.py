"""semistan's constructions and what else people use, on the papers' tables, by the same scores.

Every contender fits E[y] = x' theta + f(u) to the same training rows (``tables.py``), with the
same network, epochs and learning rate, and is judged on the same held-out rows: log predictive
density (LPPD) on the scale of the standardised response, RMSE, CRPS, coverage of the 90%
predictive interval, and the seconds from the table to the posterior, compilation left out.

The small network is there for ``full``, which samples all its weights: the standard to which
the others are held.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.table import Table

import semistan
from approximations import Predictive, contenders, log_density, make_task
from common import console, write_results
from semistan.errors import SemistanError
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.mlp import FullyConnected
from semistan.posterior.predictive import posterior_epred
from semistan.posterior.scoring.compare import compare_elpd
from semistan.posterior.scoring.scores import crps
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows
from semistan.workflow.sample import Fitted
from tables import Split, TableOptions, read_split, read_table_options

NETWORKS = ((16, 16), (3,))
INTERVAL = 0.9
REPLICATED = 2000  # responses drawn for CRPS and coverage
CHAINS, DRAWS = 2, 500
SEED = 1
MOST_FULL = 50  # weights up to which all of them are sampled
QUICK = {"train.epochs": 300, "sample.draws": 100}

Configuration = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A contender's held-out rows, each array of shape (N,), and what it took.

    Attributes
    ----------
    contender : str
        Its name.
    k : int
        Dimension of the subspace, or the number of uncertain weights; 0 if there are none.
    lpd, error, crps, covered : array
        Log predictive density, error of the mean, score, and whether the interval covers.
    seconds : float
        From the table to the posterior.
    rhat : float
        The largest of coefficients, sigma and linear predictor; nan where nothing is sampled.
    divergences : int
        Of the draws.
    """

    contender: str
    k: int
    lpd: Array
    error: Array
    crps: Array
    covered: Array
    seconds: float
    rhat: float
    divergences: int


def main() -> None:
    """Judge every contender on every split, write what there is after each, and report."""
    options = read_table_options(__doc__ or "")
    torch.set_num_threads(1)
    toolchain, records = find_toolchain(), []
    for table in options.tables:
        for number in range(1, options.splits + 1):
            split = read_split(options.data, table, number)
            for hidden in NETWORKS:
                judged = list(judge_all(split, hidden, options))
                records += records_of(split, hidden, judged)
                write_results("baselines", options.quick, 1, records, toolchain)
    console.print(_table(records))


def judge_all(split: Split, hidden: tuple[int, ...], options: TableOptions) -> Iterator[Judged]:
    """Fit and judge the libraries' contenders, then semistan's constructions."""
    common = {
        "network.hidden": hidden,
        "sample.chains": CHAINS,
        "sample.draws": DRAWS,
        "train.seed": SEED,
        "sample.seed": SEED,
    } | (QUICK if options.quick else {})
    d = FullyConnected(len(split.inputs), hidden).d
    yield from judge_libraries(split, hidden, several(d), common.get("train.epochs"))
    with tempfile.TemporaryDirectory() as folder:
        for name, overrides in constructions(d).items():
            found = judge_semistan(split, name, common | overrides, Path(folder))
            if found is not None:
                yield found


def judge_libraries(
    split: Split, hidden: tuple[int, ...], size: int, epochs: int | None
) -> Iterator[Judged]:
    """Fit and judge what other libraries offer."""
    train = TrainConfig() if epochs is None else TrainConfig(epochs=epochs)
    task, P = make_task(split, hidden, train), len(split.structured)
    uncertain = {"last-layer Laplace": P + hidden[-1] + 1, "subnetwork Laplace": P + size}
    for name, contender in contenders(P + size).items():
        started = time.perf_counter()
        predictive = contender(task, SEED)
        seconds = time.perf_counter() - started
        yield judge(split, name, predictive, uncertain.get(name, 0), seconds)


def several(d: int) -> int:
    """Return the k of subnetworks and low-rank directions, Laplace's subnetwork included."""
    return 20 if d > MOST_FULL else 8


def constructions(d: int) -> dict[str, Configuration]:
    """Return the constructions that a network of d weights allows, by the name in the table."""
    wanted = [
        ("bezier", {"k": 8}),
        ("bezier", {"k": several(d)}),
        ("naive", {"k": 8}),
        ("curve", {"k": 2}),
        ("pca", {"k": 8}),
        ("random", {"k": 8}),
        ("subnetwork", {"k": several(d)}),
        ("low_rank_laplace", {"k": several(d), "curvature": "diagonal"}),
        ("low_rank_laplace", {"k": several(d), "curvature": "kronecker"}),
    ]
    known = SubspaceConfig.model_json_schema()["properties"]["construction"]["enum"]
    found = {
        _name(name, settings): _keys(name, settings)
        for name, settings in wanted
        if name in known and settings["k"] < d
    }
    return found | ({"full": _keys("full", {})} if d <= MOST_FULL else {})


def judge_semistan(
    split: Split, name: str, overrides: Configuration, folder: Path
) -> Judged | None:
    """Fit and judge one construction; say so and return None where it cannot be had."""
    try:
        fit = fit_model(
            split.formula, split.training, out=folder / name.replace(" ", "-"), overrides=overrides
        )
    except SemistanError as error:
        console.print(f"{split.table}, {name}: left out, {error}")
        return None
    seconds = sum(fit.run.manifest.seconds.values())
    rows = new_rows(fit.run.bundle, split.test, response=True)
    mean = posterior_epred(fit.posterior, rows)
    sigma = fit.posterior.members[0].draws.flat(fit.posterior.members[0].draws.dispersion["sigma"])[
        :, None
    ]
    predictive = Predictive(mean, np.broadcast_to(sigma, mean.shape))
    found = judge(split, name, predictive, fit.run.bundle.subspace.k, seconds, fit)
    _check(found, semistan.score(fit.run, split.test, interval=INTERVAL))
    return found


def judge(
    split: Split,
    name: str,
    predictive: Predictive,
    k: int,
    seconds: float,
    fit: Fitted | None = None,
) -> Judged:
    """Judge a predictive distribution of the held-out rows."""
    y, generator = split.test[split.response].to_numpy(), np.random.default_rng(SEED)
    component = np.arange(REPLICATED) % len(predictive.mean)
    mean, sd = predictive.mean[component], predictive.sd[component]
    replicated = np.sort(mean + sd * generator.normal(size=mean.shape), axis=0)
    lower, upper = np.quantile(replicated, ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2), axis=0)
    found = Judged(
        contender=name,
        k=k,
        lpd=log_density(predictive, y),
        error=predictive.mean.mean(axis=0) - y,
        crps=crps(replicated, y),
        covered=((lower <= y) & (y <= upper)).astype(float),
        seconds=seconds,
        rhat=_rhat(fit) if fit else np.nan,
        divergences=int(fit.posterior.members[0].draws.sampler["diverging"].sum()) if fit else 0,
    )
    console.print(f"{split.table} {name}: LPPD {found.lpd.mean():.3f}, {seconds:.0f} s")
    return found


def records_of(split: Split, hidden: tuple[int, ...], judged: list[Judged]) -> list[dict]:
    """Summarise the contenders, best first, with paired differences to the best."""
    compared = compare_elpd({item.contender: item.lpd for item in judged}).set_index("model")
    n = len(split.test)
    ranked = sorted(judged, key=lambda item: -item.lpd.mean())
    return [
        {
            "table": split.table,
            "split": split.number,
            "network": "-".join(map(str, hidden)),
            "n": len(split.training),
            "n_test": n,
            "d": FullyConnected(len(split.inputs), hidden).d,
            "contender": item.contender,
            "k": item.k,
            "lppd": float(item.lpd.mean()),
            "lppd_se": _se(item.lpd),
            "lppd_diff": float(compared.loc[item.contender, "elpd_diff"]) / n,
            "lppd_diff_se": float(compared.loc[item.contender, "se_diff"]) / n,
            "rmse": float(np.sqrt(np.square(item.error).mean())),
            "crps": float(item.crps.mean()),
            "crps_se": _se(item.crps),
            "coverage": float(item.covered.mean()),
            "seconds": item.seconds,
            "rhat": item.rhat if np.isfinite(item.rhat) else None,
            "divergences": item.divergences,
        }
        for item in ranked
    ]


def _name(name: str, settings: Configuration) -> str:
    text = f"{name}, {settings['curvature']}" if "curvature" in settings else name
    return f"{text}, k = {settings['k']}" if settings else text


def _keys(name: str, settings: Configuration) -> Configuration:
    """Return the keys of a subspace that is not completed."""
    named = {"subspace.construction": name, "subspace.completion": "none"}
    return named | {f"subspace.{k}": v for k, v in settings.items()}


def _rhat(fit: Fitted) -> float:
    rows = [row.rhat for row in fit.summary.rows]
    return float(np.nanmax([*rows, fit.summary.eta.rhat]))


def _check(judged: Judged, scores: pd.DataFrame) -> None:
    """Refuse to go on if semistan's own scores are not those of the other contenders."""
    own = scores.set_index("score")["Estimate"]
    rmse = np.sqrt(np.square(judged.error).mean())
    np.testing.assert_allclose(
        [judged.lpd.mean(), rmse], [own["LPPD"], own["RMSE"]], rtol=1e-9, atol=1e-9
    )


def _se(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _table(records: list[dict]) -> Table:
    table = Table(title="baselines", title_justify="left")
    for column in ("table", "network", "contender", "k"):
        table.add_column(column)
    for column in ("LPPD", "SE", "to the best", "SE", "RMSE", "CRPS", "90%", "s", "Rhat"):
        table.add_column(column, justify="right")
    previous = None
    for item in records:
        case = (item["table"], item["split"], item["network"])
        if previous not in (None, case):
            table.add_section()
        previous = case
        table.add_row(*_cells(item))
    return table


def _cells(item: dict) -> list[str]:
    names = ("lppd", "lppd_se", "lppd_diff", "lppd_diff_se", "rmse", "crps", "coverage")
    return [
        f"{item['table']} {item['split']}", item["network"], item["contender"], str(item["k"]),
        *(f"{item[name]:.3f}" for name in names), f"{item['seconds']:.0f}",
        f"{item['rhat']:.2f}" if item["rhat"] else "",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
