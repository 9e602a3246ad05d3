"""Whether intervals of a treatment's effects hold the truth, where these vary through a network.

    y = g(u) + z tau(u) + normal(0, 1),    z ~ bernoulli(e(u))
    g(u) = sin(1.5 u1) + u2^2 / 2 + u3 u4 / 2,   e(u) = inverse logit(0.8 u1 + 0.8 sin(2 u2))
    tau: 1 (constant), 1 + u1 / 2 - u3 / 2 (linear), 1/2 + 1[u1 > 0] (step)

of 5 inputs u as in ``simulated.py``. Treated and untreated rows differ in what drives y, so that
the difference of their means is far from the average effect. 3 functions tau x N of 250 and 1000
rows x data sets, and on each

    semistan    y ~ nn(u1, ..., u5) + z:nn(u1, ..., u5), all else default
    fixed-scale the same with sd_w = "none": how much the effect varies has a prior, no scale
    bcf         stochtree's Bayesian causal forest, given the propensity of a logistic regression on
                u and u^2 (Hahn, Murray and Carvalho, 2020, Bayesian Analysis 15(3))
    bart        stochtree's BART of y on (u, z), whose predictions at z of 1 and 0 are compared

Measured: the average effect over the training rows, and the conditional effect tau(u) at 500 new
rows: error, coverage and width of 95% intervals.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import norm

from common import console
from semistan.model.arrays import Array
from semistan.model.design import apply_design
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_epred
from semistan.workflow.fit import fit_model
from studies.coverage_page import wilson
from studies.markdown import mean_se, table, with_se
from studies.own import QUICK
from studies.study import Cell, Options, Record, Study, main

INPUTS = tuple(f"u{j}" for j in range(1, 6))
NETWORK = f"nn({', '.join(INPUTS)})"
FORMULA = f"y ~ {NETWORK} + z:{NETWORK}"
ROWS, NEW_ROWS, DATA_SETS, SIGMA, LEVEL = (250, 1000), 500, 20, 1.0, 0.95
TREES = {"num_gfr": 10, "num_burnin": 500, "num_mcmc": 2000}  # grown from the root, then MCMC

TAU: Mapping[str, Callable[[Array], Array]] = {
    "constant": lambda u: np.ones(len(u)),
    "linear": lambda u: 1 + 0.5 * u[:, 0] - 0.5 * u[:, 2],
    "step": lambda u: 0.5 + (u[:, 0] > 0),
}


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows with a treatment z, and what it does.

    Attributes
    ----------
    training : pandas.DataFrame
        Columns u1, ..., u5, z and y.
    new : pandas.DataFrame
        New rows, with a z of 0.
    effect, new_effect : array, shape (N,)
        tau of the training rows and of the new ones.
    """

    training: pd.DataFrame
    new: pd.DataFrame
    effect: Array
    new_effect: Array


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a contender says: draws of the effect on each row.

    Attributes
    ----------
    training, new : array, shape (S, N)
        On the training rows, and on the new ones.
    notes : mapping
        What else is worth a record.
    """

    training: Array
    new: Array
    notes: Mapping[str, Any]


def simulate(name: str, rows: int, number: int) -> Trial:
    """Draw a data set of some number."""
    generator = np.random.default_rng([number, rows, list(TAU).index(name)])
    root = np.linalg.cholesky(0.3 + 0.7 * np.eye(5))  # the same on every processor
    scores = generator.normal(size=(rows + NEW_ROWS, 5)) @ root.T
    u = np.sqrt(12) * (norm.cdf(scores) - 0.5)
    effect = TAU[name](u)
    z = generator.binomial(1, expit(0.8 * u[:, 0] + 0.8 * np.sin(2 * u[:, 1])))
    without = np.sin(1.5 * u[:, 0]) + 0.5 * u[:, 1] ** 2 + 0.5 * u[:, 2] * u[:, 3]
    y = without + z * effect + SIGMA * generator.normal(size=len(u))
    frame = pd.DataFrame(u, columns=list(INPUTS)).assign(z=z, y=y)
    new = frame[rows:].assign(z=0).reset_index(drop=True)
    return Trial(frame[:rows], new, effect[:rows], effect[rows:])


def semistan(trial: Trial, seed: int, quick: bool) -> Found:
    """Fit two networks, one of which multiplies the treatment."""
    return _two_networks(trial, seed, quick, {})


def fixed_scale(trial: Trial, seed: int, quick: bool) -> Found:
    """Fit them under a prior that says how much the effect varies, as the network beside it."""
    return _two_networks(trial, seed, quick, {"priors.sd_w": "none"})


def _two_networks(trial: Trial, seed: int, quick: bool, settings: Mapping[str, str]) -> Found:
    overrides = {"train.seed": seed, "sample.seed": seed, **(QUICK if quick else {}), **settings}
    with tempfile.TemporaryDirectory() as folder:
        fit = fit_model(FORMULA, trial.training, out=Path(folder) / "run", overrides=overrides)
        first = fit.posterior.members[0]
        notes = {"k": first.bundle.subspace.k, "passed": fit.summary.passed}
        return Found(
            _effect(fit.posterior, trial.training), _effect(fit.posterior, trial.new), notes
        )


def _effect(posterior: Posterior, frame: pd.DataFrame) -> Array:
    """Return draws of the difference of the means with and without treatment."""
    treated, untreated = (
        posterior_epred(
            posterior, apply_design(posterior.design, frame.assign(z=z), response=False)
        )
        for z in (1, 0)
    )
    return treated - untreated


def bcf(trial: Trial, seed: int, quick: bool) -> Found:
    """Fit a Bayesian causal forest."""
    from stochtree import BCFModel

    u, new, z, y = _arrays(trial)
    propensity, new_propensity = _propensity(u, z, new)
    model = BCFModel()
    model.sample(
        X_train=u, Z_train=z, y_train=y, propensity_train=propensity, X_test=new,
        Z_test=np.zeros(len(new)), propensity_test=new_propensity, **_trees(quick),
        general_params={"random_seed": seed},
    )  # fmt: skip
    return Found(model.tau_hat_train.T, model.tau_hat_test.T, {})


def bart(trial: Trial, seed: int, quick: bool) -> Found:
    """Fit one forest to inputs and treatment."""
    from stochtree import BARTModel

    u, new, z, y = _arrays(trial)
    model = BARTModel()
    model.sample(
        X_train=np.column_stack([u, z]), y_train=y, **_trees(quick),
        general_params={"random_seed": seed},
    )  # fmt: skip

    def effect(rows: Array) -> Array:
        both = (np.column_stack([rows, np.full(len(rows), z)]) for z in (1.0, 0.0))
        treated, untreated = (np.asarray(model.predict(X, terms="y_hat")) for X in both)
        return (treated - untreated).T

    return Found(effect(u), effect(new), {})


def _arrays(trial: Trial) -> tuple[Array, Array, Array, Array]:
    inputs = list(INPUTS)
    z, y = (trial.training[name].to_numpy(dtype=float) for name in ("z", "y"))
    return trial.training[inputs].to_numpy(), trial.new[inputs].to_numpy(), z, y


def _propensity(u: Array, z: Array, new: Array) -> tuple[Array, Array]:
    """Return the probability of treatment by a logistic regression on u and u^2."""
    from sklearn.linear_model import LogisticRegression

    def columns(rows: Array) -> Array:
        return np.column_stack([rows, rows**2])

    fitted = LogisticRegression(max_iter=1000).fit(columns(u), z)
    return fitted.predict_proba(columns(u))[:, 1], fitted.predict_proba(columns(new))[:, 1]


def _trees(quick: bool) -> dict[str, int]:
    return {"num_gfr": 2, "num_burnin": 10, "num_mcmc": 50} if quick else TREES


CONTENDERS: Mapping[str, tuple[Callable[[Trial, int, bool], Found], str]] = {
    "semistan": (semistan, "semistan"),
    "fixed-scale": (fixed_scale, "semistan"),
    "bcf": (bcf, "stochtree"),
    "bart": (bart, "stochtree"),
}


def cells(options: Options) -> list[Cell]:
    """Return the study's cells: one data set of every setting, then the next of each."""
    torch.set_num_threads(1)
    return list(_cells(options))


def _cells(options: Options) -> Iterator[Cell]:
    missing = [name for name, (_, library) in CONTENDERS.items() if not find_spec(library)]
    for name in missing:
        console.print(f"{name}: left out, {CONTENDERS[name][1]} is not installed")
    for number in range(1, 2 if options.quick else 1 + DATA_SETS):
        for effect in TAU:
            for rows in ROWS[: 1 if options.quick else None]:
                for contender in CONTENDERS:
                    if contender in missing:
                        continue
                    key = {
                        "effect": effect, "rows": rows, "number": number, "contender": contender
                    }  # fmt: skip
                    yield Cell(key, partial(measure, **key, quick=options.quick))


def measure(effect: str, rows: int, number: int, contender: str, quick: bool) -> Mapping[str, Any]:
    """Let a contender find the effects of a data set, and hold them against the truth."""
    trial, started = simulate(effect, rows, number), time.perf_counter()
    found = CONTENDERS[contender][0](trial, number, quick)
    seconds = time.perf_counter() - started
    average, truth = found.training.mean(axis=1), float(trial.effect.mean())
    y, z = trial.training["y"], trial.training["z"]
    lower, upper = np.quantile(found.new, _ends(), axis=0)
    least, most = np.quantile(average, _ends())
    error = found.new.mean(axis=0) - trial.new_effect
    return {
        "average": float(average.mean()),
        "sd": float(average.std(ddof=1)),
        "truth": truth,
        "naive": float(y[z == 1].mean() - y[z == 0].mean()),
        "held": bool(least <= truth <= most),
        "width": float(most - least),
        "each_held": float(((lower <= trial.new_effect) & (trial.new_effect <= upper)).mean()),
        "each_width": float((upper - lower).mean()),
        "each_rmse": float(np.sqrt(np.square(error).mean())),
        "fit_seconds": seconds,
        "quick": quick,
        **found.notes,
    }


def _ends() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2


HEADER = (
    "effect", "rows", "", "data sets", "average: held", "error", "width", "each row: held", "RMSE",
    "width", "seconds",
)  # fmt: skip
INTRODUCTION = """\
Simulated trials without randomisation: y = g(u) + z tau(u) + normal(0, 1), where z, 0 or 1, depends
on what y depends on: the difference of the means of both groups is off by {bias} on average. tau is
constant (1), linear in two of five inputs, or a step of 1 in one; the average is over the training
rows, and the effect on each of 500 new ones is compared with tau. `semistan` is
`{formula}` with defaults, by which how much the effect varies is sampled, and `fixed-scale` the
same with `sd_w = "none"`; `bcf` is stochtree's Bayesian causal forest, `bart` its BART with z among
the inputs; the data are in [effects.py](../benchmarks/studies/effects.py).

*Held* is the share of 95% intervals with the truth in them, of the average effect with Wilson's 95%
interval of that share; *error* is the root mean square of the posterior mean's. Both groups' sizes
and z's own variance limit what any method can say: the widths tell."""


def section(records: Sequence[Record]) -> str:
    """Return the section's Markdown."""
    frame = _frame(records)
    if frame.empty:
        return "No cell has been measured."
    groups = frame.groupby(["effect", "rows", "contender"], sort=False)
    ordered = sorted(groups, key=lambda item: (list(TAU).index(item[0][0]), item[0][1]))
    bias = (frame["naive"] - frame["truth"]).mean()
    quick = "**Quick cells: their figures mean nothing.**\n\n" if frame["quick"].any() else ""
    lines = [_line(*map(str, key), part) for key, part in ordered]
    lines += [
        _line("all", "all", str(name), part)
        for name, part in frame.groupby("contender", sort=False)
    ]
    introduction = INTRODUCTION.format(bias=f"{bias:.2f}", formula=FORMULA)
    return f"{quick}{introduction}\n\n{table(HEADER, lines)}{_of_all(frame)}{_failed(records)}"


def _of_all(frame: pd.DataFrame) -> str:
    """Compare the contenders on the data sets that all of them ran on, where these are some."""
    ran = frame.groupby(["effect", "rows", "number"])["contender"].transform("nunique")
    both = frame[ran == frame["contender"].nunique()]
    if len(both) in (0, len(frame)):
        return ""
    each = [
        f"{name} {part['each_rmse'].mean():.2f} and {part['each_width'].mean():.2f}"
        for name, part in both.groupby("contender", sort=False)
    ]
    number = len(both) // len(each)
    return (
        f"\n\nAll contenders ran on {number} of the data sets. RMSE and width of the effect on "
        f"each row there: {', '.join(each)}."
    )


def _frame(records: Sequence[Record]) -> pd.DataFrame:
    return pd.DataFrame(
        [{**record["key"], **record} for record in records if "error" not in record]
    )


def _line(effect: str, rows: str, contender: str, part: pd.DataFrame) -> list[str]:
    low, high = wilson(part["held"].sum(), len(part))
    error = np.sqrt(np.square(part["average"] - part["truth"]).mean())
    return [
        effect, rows, contender, str(len(part)),
        f"{part['held'].mean():.2f} ({low:.2f}-{high:.2f})", f"{error:.3f}",
        f"{part['width'].mean():.2f}", with_se(*mean_se(part["each_held"])),
        with_se(*mean_se(part["each_rmse"])), f"{part['each_width'].mean():.2f}",
        f"{part['fit_seconds'].median():.0f}",
    ]  # fmt: skip


def _failed(records: Sequence[Record]) -> str:
    failed = [record for record in records if "error" in record]
    verdicts = [record["passed"] for record in records if "passed" in record]
    said = f"\n\nsemistan's diagnostics passed in {sum(verdicts)} of {len(verdicts)} fits."
    return said + (f" {len(failed)} cells failed." if failed else "")


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw coverage, error and width of the effect on each row."""
    frame = _frame(records)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    settings = [(effect, rows) for effect in TAU for rows in ROWS]
    panels = figure.subplots(1, 3)
    names = ("each_held", "each_rmse", "each_width")
    titles = ("95% intervals that hold tau(u)", "RMSE of tau(u)", "mean width")
    for axes, name, title in zip(panels, names, titles, strict=True):
        for i, (contender, part) in enumerate(frame.groupby("contender", sort=False)):
            means = part.groupby(["effect", "rows"])[name].mean()
            shown = [j for j, setting in enumerate(settings) if setting in means.index]
            axes.plot(
                [j + 0.15 * (i - 1) for j in shown], [means[settings[j]] for j in shown], "o",
                label=contender,
            )  # fmt: skip
        axes.set_xticks(
            range(len(settings)), [f"{effect}\n{rows}" for effect, rows in settings],
            fontsize="x-small",
        )  # fmt: skip
        axes.set_title(title, fontsize="medium")
    panels[0].axhline(LEVEL, color="grey", linewidth=0.8)
    panels[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


STUDY = Study(
    name="effects",
    title="Do intervals of a treatment's effects hold it?",
    cells=cells,
    section=section,
    draw=draw,
)

if __name__ == "__main__":
    main(STUDY, __doc__ or "")
