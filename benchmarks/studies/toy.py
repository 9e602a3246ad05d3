"""The toy data of Dold et al. (2024), section 4.1 and figures 1, 3, 9 and 10.

    y_i = f(u_i) + x_i' theta*,    x_i in {(0, 0), (1, 0), (0, 1)} at random,  theta* = (-0.5, 1)

with f(u_i) the noisy responses of ``izmailov.csv`` in the folder ``--data``. 35 rows are for
training, the other 365 for the test; a seed draws categories, rows, weights and chains. The network
has two hidden layers of 16 units and ReLU, and the inputs u and u^2, as in Izmailov et al. (2020):
the paper does not say so, but the 337 weights that it counts are those of two inputs.

    k=2, k=12, naive-k=4    the paper's subspaces, with phi ~ normal(0, 5) around the trained
                            weights: the width is that of its authors' code, the paper names none
    k=12-weights            k = 12 with semistan's prior of the weights, carried into the subspace
    all-weights             semistan's construction ``full``, for the paper's HMC
    defaults                fit_model with nothing set but the network
    last-layer-laplace      laplace-torch
    bound                   theta* known, and f from a smooth of all 400 rows

The file's response has standard deviation 1 and noise of sd 0.1, which bounds the test LPPD (the
last contender). Differences between contenders compare with the paper's; levels do so only if its
response is on the same scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from studies.contenders import available
from studies.markdown import mean_se, number, table, verdict, with_se
from studies.own import own
from studies.problem import Facts, Found, Problem, predictive_density
from studies.study import Cell, Options, Record, Study, main
from temperature import THETA, adapted, ellipse

TITLE = "The toy data of the paper"
FACTS = Facts("gaussian", "y", ("x1", "x2"), ("u", "u_squared"))
SEEDS, SHOWN = 5, 1  # the seed that is drawn
LEVEL = 0.95  # of the bands
PAPER_PRIOR = {"priors.phi": "normal(0, 5)"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "k=2": {"subspace.k": 2, **PAPER_PRIOR},
    "k=12": {"subspace.k": 12, **PAPER_PRIOR},
    "naive-k=4": {"subspace.construction": "naive", "subspace.k": 4, **PAPER_PRIOR},
    "k=12-weights": {"subspace.k": 12, "subspace.completion": "none"},
    "all-weights": {"subspace.construction": "full"},
    "defaults": {},
}
LAPLACE, KNOWN, REFERENCE = "last-layer-laplace", "bound", "all-weights"
CONTENDERS = (*SETTINGS, LAPLACE, KNOWN)
PUBLISHED = {"k=2": 1.14, "k=12": 1.27, REFERENCE: 1.26, LAPLACE: 1.0}  # section 4.1
TARGET = 1.27  # of k = 12
QUICK = ("k=2", "k=12", "naive-k=4", REFERENCE, LAPLACE, KNOWN)
WHAT = """\
The data of section 4.1 of Dold et al. (2024): 35 training rows, 365 test rows, y ~ x1 + x2 +
nn(u, u^2), a network of two hidden layers of 16 units with ReLU, whose 337 weights, the paper's
number, are those of two inputs. Each of {seeds} seeds draws categories, rows, weights and chains
anew. LPPD is the mean over the test rows, its standard error, in brackets, is over the seeds;
the column after it is the paper's, of one data set. `k=2`, `k=12` and `naive-k=4` have phi ~
normal(0, 5) around the trained weights, as in the authors' code (the paper names no width), which
fixes sigma at 0.05, where it is sampled here; all others of semistan have its prior of the weights.
Training and sampling are semistan's defaults.
"To all weights" is the difference in LPPD to all weights of the same seed."""
PICTURE = f"""\
In the picture, of seed {SHOWN}: bands of {LEVEL:.0%} of a new response of the category (0, 0),
darker those of its mean, with the training rows less x' theta*; and draws of theta, with the 50%
and 95% regions of the normal with the moments of all weights."""
BOUND = """\
In the file, f(u) has standard deviation 1 and noise of sd 0.1: an oracle that knows
theta* and smooths all 400 rows, test rows included, has an LPPD of {bound:.2f}. The paper's levels
are above that, so that its y must have been on another scale (y / c instead of y adds log c to
every LPPD). Differences between contenders compare."""
GRID = np.linspace(-2.2, 2.0, 85)  # u of the bands
GAPS = (-0.85, 0.6)  # between the three clusters of u
DEGREE = 5  # of the smooth in each cluster, from which on its residuals stay as large
KEPT = 400  # draws of theta


def cells(options: Options) -> list[Cell]:
    """Return the cells, a seed after the other."""
    if options.data is None:
        raise SystemExit("--data FOLDER is needed: the folder that has izmailov.csv")
    function = pd.read_csv(options.data / "izmailov.csv")[["u", "y"]]
    laplace = {item.name: item.run for item in available([LAPLACE])}
    known = [name for name in CONTENDERS if name != LAPLACE or laplace]
    chosen = [name for name in known if name in QUICK or not options.quick]
    return [
        Cell(
            {"contender": name, "seed": seed},
            partial(measure, function, name, seed, options.quick),
        )
        for seed in range(1, 2 if options.quick else SEEDS + 1)
        for name in chosen
    ]


def measure(function: pd.DataFrame, name: str, seed: int, quick: bool) -> Record:
    """Fit one contender to one seed's rows, and score it."""
    training, test = adapted(function, np.random.default_rng(seed))
    if name == KNOWN:
        return {"lppd": bound(function, test.index), "n_test": len(test)}
    grid = pd.DataFrame({"u": GRID, "y": 0.0, "x1": 0.0, "x2": 0.0})
    training, new = (
        part.assign(u_squared=part["u"] ** 2)
        for part in (training.reset_index(drop=True), pd.concat([test, grid], ignore_index=True))
    )
    problem = Problem(training, new, FACTS, seed, quick, (16, 16), "relu")
    found = contender(name)(problem)
    error = (found.eta.mean(axis=0) - problem.new_y)[: len(test)]
    record = {
        "lppd": float(found.lpd[: len(test)].mean()),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "n_test": len(test),
        "sigma": float(found.sigma.mean()),
        "rhat": found.rhat,
        "ess": found.ess,
        "fit_seconds": found.seconds,
        "theta_mean": found.theta.mean(axis=0).tolist(),
        "theta_sd": found.theta.std(axis=0).tolist(),
        **found.notes,
    }
    return record | (shown(training, found) if seed == SHOWN else {})


def contender(name: str) -> Callable[[Problem], Found]:
    """Return what fits under this name."""
    if name != LAPLACE:
        return partial(own, SETTINGS[name])
    return available([LAPLACE])[0].run


def bound(function: pd.DataFrame, test: pd.Index) -> float:
    """Return the test LPPD of who knows theta*, and f and sigma from a smooth of all rows.

    The smooth is a polynomial in each cluster of u. It has seen the test rows, so that no
    contender can be expected to do better.
    """
    u, y = function["u"].to_numpy(), function["y"].to_numpy()
    residual, cluster = np.empty(len(y)), np.digitize(u, GAPS)
    for rows in (cluster == each for each in np.unique(cluster)):
        residual[rows] = y[rows] - np.polynomial.Chebyshev.fit(u[rows], y[rows], DEGREE)(u[rows])
    sigma = np.sqrt(np.sum(residual**2) / (len(y) - (len(GAPS) + 1) * (DEGREE + 1)))
    lpd = predictive_density("gaussian", residual[test], np.zeros((1, 1)), float(sigma))
    return float(lpd.mean())


def shown(training: pd.DataFrame, found: Found) -> Record:
    """Return what the picture needs: rows, the band of the category (0, 0), draws of theta."""
    eta = found.eta[:, -len(GRID) :]
    noise = np.random.default_rng(0).normal(size=eta.shape)
    lower, upper = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    band = np.quantile(eta + found.sigma * noise, (lower, upper), axis=0)
    inner = np.quantile(eta, (lower, upper), axis=0)
    every = max(1, len(found.theta) // KEPT)
    return {
        "rows": training.round(4).to_dict("list"),
        "mean": eta.mean(axis=0).round(4).tolist(),
        "band": band.round(4).tolist(),
        "band_of_mean": inner.round(4).tolist(),
        "theta": found.theta[::every].round(4).tolist(),
    }


def section(records: Sequence[Record]) -> str:
    """Return the section: what was fitted, the table, and how it compares with the paper."""
    lppd = _by_contender(records, "lppd")
    found = [name for name in CONTENDERS if lppd.get(name)]
    header = [
        "contender", "LPPD", "paper", "to all weights", "paper", "RMSE", "sigma", "sd of theta",
        "Rhat of eta", "seconds",
    ]  # fmt: skip
    seeds = max((len(values) for values in lppd.values()), default=0)
    return "\n\n".join(
        [
            WHAT.format(seeds=seeds),
            table(header, [_row(name, records) for name in found]),
            _bound_text(lppd),
            "\n".join(_targets(records)),
            PICTURE,
        ]
    )


def _row(name: str, records: Sequence[Record]) -> list[str]:
    own_records = [item for item in _fitted(records) if item["key"]["contender"] == name]
    difference = _differences(records, name)
    published = PUBLISHED.get(name)
    apart = None if published is None else published - PUBLISHED[REFERENCE]
    theta = [sd for item in own_records for sd in item.get("theta_sd", [])]
    return [
        name,
        with_se(*mean_se([item["lppd"] for item in own_records])),
        number(published),
        with_se(*mean_se(difference)),
        number(apart),
        *(_mean(own_records, key, digits) for key, digits in (("rmse", 3), ("sigma", 3))),
        number(np.mean(theta) if theta else None, 3),
        _mean(own_records, "rhat", 2, np.max),
        _mean(own_records, "fit_seconds", 0),
    ]


def _bound_text(lppd: Mapping[str, Sequence[float]]) -> str:
    """Say what can be reached at all."""
    if not lppd.get(KNOWN):
        return ""
    return BOUND.format(bound=np.mean(lppd[KNOWN]))


def _targets(records: Sequence[Record]) -> list[str]:
    lppd = _by_contender(records, "lppd")
    twelve = np.mean(lppd["k=12"]) if lppd.get("k=12") else np.nan
    apart = _differences(records, "k=12")
    paper = PUBLISHED["k=12"] - PUBLISHED[REFERENCE]
    mean = float(np.mean(apart)) if apart else np.nan
    return [
        verdict(f"LPPD of k = 12 at least {TARGET}, mean of the seeds", twelve, twelve >= TARGET),
        verdict(f"k = 12 less all weights at least the paper's {paper:.2f}", mean, mean >= paper),
    ]


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw the bands of each contender, and theta: figures 1, 3, 9 and 10 of the paper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = {item["key"]["contender"]: item for item in records if "band" in item}
    names = [name for name in CONTENDERS if name in drawn]
    columns = max(len(names), 1)
    figure, axes = plt.subplots(
        2, columns, figsize=(2.9 * columns, 6), sharex="row", sharey="row", squeeze=False
    )
    for (upper, lower), name in zip(axes.T, names, strict=False):
        _draw_band(upper, drawn[name])
        upper.set(title=name, xlabel="u")
        _draw_theta(lower, drawn[name], drawn.get(REFERENCE))
        lower.set(xlabel="b_x1")
    axes[0, 0].set(ylabel="y", ylim=(-4, 3))
    axes[1, 0].set(ylabel="b_x2")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_band(axis: Any, record: Record) -> None:
    axis.fill_between(GRID, *record["band"], color="C0", alpha=0.25, lw=0)
    axis.fill_between(GRID, *record["band_of_mean"], color="C0", alpha=0.35, lw=0)
    axis.plot(GRID, record["mean"], color="C0")
    rows = {name: np.array(values) for name, values in record["rows"].items()}
    shift = THETA[0] * rows["x1"] + THETA[1] * rows["x2"]
    for category, colour in enumerate(("k", "C1", "C3")):
        own_rows = rows["x1"] + 2 * rows["x2"] == category
        axis.plot(rows["u"][own_rows], (rows["y"] - shift)[own_rows], "o", ms=3, color=colour)


def _draw_theta(axis: Any, record: Record, reference: Record | None) -> None:
    axis.plot(*np.array(record["theta"]).T, ".", ms=2, color="C0", alpha=0.5)
    axis.plot(*THETA, "k+", ms=10)
    if reference is None:
        return
    draws = np.array(reference["theta"])
    half, centre = ellipse(draws), draws.mean(axis=0)[:, None]
    wider = np.sqrt(np.log(0.05) / np.log(0.5))  # 95% region of two normals, over that of 50%
    for outline in (half, centre + wider * (half - centre)):
        axis.plot(*outline, color="k", lw=0.8)


def _fitted(records: Sequence[Record]) -> list[Record]:
    return [item for item in records if "lppd" in item]


def _by_contender(records: Sequence[Record], figure: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for item in _fitted(records):
        found.setdefault(item["key"]["contender"], []).append(item[figure])
    return found


def _differences(records: Sequence[Record], name: str) -> list[float]:
    """Return LPPD less that of all weights, of the seeds that have both."""
    lppd = {(i["key"]["contender"], i["key"]["seed"]): i["lppd"] for i in _fitted(records)}
    return [
        value - lppd[REFERENCE, seed]
        for (contender_of, seed), value in lppd.items()
        if contender_of == name and (REFERENCE, seed) in lppd
    ]


def _mean(
    records: Sequence[Record], figure: str, digits: int, of: Callable[..., Any] = np.mean
) -> str:
    values = [item[figure] for item in records if np.isfinite(item.get(figure, np.nan))]
    return number(float(of(values)) if values else None, digits)


STUDY = Study("toy", TITLE, cells, section, draw)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(STUDY, __doc__ or "")
