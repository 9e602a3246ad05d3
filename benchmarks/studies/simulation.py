"""The simulation of Dold et al. (2024), section 4.2 and figures 4, 5 and 11 to 19.

    u_i ~ N(0, I_4),  x_i ~ N(0, I_3),   eta_i = f(u_i; w*) + x_i' theta*
    y_i ~ N(eta_i, 1)   or   y_i ~ Poisson(exp(eta_i))

f is a network of two hidden layers of 16 units with ReLU (369 weights), and the same network is
fitted. Each run draws w*, theta* and the rows anew. How well does the posterior of theta in a
subspace of k dimensions agree with that of all weights?

Where the paper is silent: N = 75 rows, as in its authors' code; w* and theta* are drawn as PyTorch
draws linear layers, uniform within 1 / sqrt(inputs) (that code has theta* ~ normal(0, 1)). The
prior has three series, each with its own posterior of all weights to compare with:

    paper      as in the authors' code, for the paper names no widths: phi ~ normal(0, 5) around the
               trained weights, w ~ normal(0, 1) of all weights, sigma fixed at 1; and the paper's
               10 chains of 400 + 800 iterations of the subspaces
    narrow     phi ~ normal(0, 1), w ~ normal(0, 1) of all weights
    weights    semistan's prior of the weights, carried into the subspace

theta has semistan's prior in all; training and all other sampling are semistan's defaults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from semistan.model.arrays import Array
from semistan.workflow.fit import fit_model
from semistan.workflow.sample import Fitted
from studies.markdown import number, table, verdict
from studies.own import QUICK
from studies.study import Cell, Options, Record, Study, main

TITLE = "The simulation of the paper"
FAMILIES, HIDDEN, ROWS, INPUTS, COEFFICIENTS = ("gaussian", "poisson"), (16, 16), 75, 4, 3
NAMES = tuple(f"b_x{j}" for j in range(1, COEFFICIENTS + 1))
FORMULA = "y ~ x1 + x2 + x3 + nn(u1, u2, u3, u4)"
DIMENSIONS, ALL = (2, 4, 8, 12, 16), "all"
RUNS, QUICK_RUNS, QUICK_DIMENSIONS = 20, 2, (2, 16)
PRIORS = ("paper", "narrow", "weights")
CHAINS = {"sample.chains": 10, "sample.warmup": 400, "sample.draws": 800}  # the paper's
FIXED = {"priors.sigma": "constant(1)"}  # of a gaussian response
LEVELS = tuple(np.round(np.arange(0.1, 1, 0.1), 1).tolist())
NOMINAL = 0.9  # the level in the table
FOLLOWED, KEPT = 10, 40  # runs whose curve is followed in training, and epochs of each
LARGEST_DIFFERENCE, RATIO = 0.05, (0.95, 1.05)  # targets at the largest k
WHAT = """\
Section 4.2 of Dold et al. (2024): u ~ N(0, I_4), x ~ N(0, I_3), eta = f(u; w*) + x' theta*, 75
rows, y ~ N(eta, 1) or Poisson(exp(eta)); f is a network of two hidden layers of 16 units with
ReLU (369 weights), which is also what is fitted, by y ~ x1 + x2 + x3 + nn(u1, u2, u3, u4).
Up to {runs} runs (50 in the paper), of which each draws w* and theta* anew, as PyTorch draws linear
layers. The paper says neither that nor the number of rows; its authors' code has 75, and theta* ~
normal(0, 1). Three priors, each with its own posterior of all weights: `paper` has those of the
authors' code, since the paper names no widths, phi ~ normal(0, 5) around the trained weights, w ~
normal(0, 1) of all weights, sigma fixed at 1, and the paper's 10 chains of 400 + 800 iterations of
the subspaces; `narrow` has phi ~ normal(0, 1), and w ~ normal(0, 1) of all weights; `weights` is
semistan's prior of the weights, carried into the subspace. theta has semistan's prior in all;
training and all other sampling are semistan's defaults. A series that was not run has no line.

Figures are medians over runs and the three coefficients: the absolute difference of posterior
means to all weights in standard deviations of the latter (signed difference in brackets), the
ratio of posterior standard deviations, the share of 90% intervals that hold theta* with Wilson's
95% interval, bulk-ESS and Rhat of theta (the largest of all), and the length of the curve."""
PICTURE = """\
In the picture, from the top: differences of means and ratios of standard deviations by k, a box
for each coefficient (figures 4 and 11 of the paper); share of central intervals that hold theta*
by their level, with Wilson intervals (figures 5, 12, 13); ESS and Rhat (figures 14 to 17);
length of the curve (figure 18), and during training, a line for each run and bold their mean
(figure 19)."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """One run's table and the theta, shape (3,), that it was drawn with."""

    table: pd.DataFrame
    theta: Array


def cells(options: Options) -> list[Cell]:
    """Return the cells, a run after the other: what was stopped has whole runs."""
    runs = QUICK_RUNS if options.quick else RUNS
    sizes = QUICK_DIMENSIONS if options.quick else DIMENSIONS
    return [
        Cell(
            {"family": family, "run": run, "prior": prior, "k": k},
            partial(measure, family, run, prior, k, options.quick),
        )
        for run in range(1, runs + 1)
        for family in FAMILIES
        for prior in PRIORS
        for k in (ALL, *sizes)
    ]


def simulate(family: str, run: int) -> Simulated:
    """Draw one run's table: a network, coefficients and rows."""
    generator = np.random.default_rng([run, FAMILIES.index(family)])
    U = generator.normal(size=(ROWS, INPUTS))
    X = generator.normal(size=(ROWS, COEFFICIENTS))
    eta, theta = network(U, generator), uniform(COEFFICIENTS, (COEFFICIENTS,), generator)
    eta = eta + X @ theta
    y = generator.normal(eta) if family == "gaussian" else generator.poisson(np.exp(eta))
    columns = {f"u{j + 1}": U[:, j] for j in range(INPUTS)}
    columns |= {f"x{j + 1}": X[:, j] for j in range(COEFFICIENTS)}
    return Simulated(pd.DataFrame(columns).assign(y=y), theta)


def network(U: Array, generator: np.random.Generator) -> Array:
    """Evaluate a network of random weights at inputs (N, Q), shape (N,)."""
    h = U
    for m, n in pairwise((INPUTS, *HIDDEN)):
        h = np.maximum(h @ uniform(m, (m, n), generator) + uniform(m, (n,), generator), 0)
    m = HIDDEN[-1]
    return h @ uniform(m, (m,), generator) + uniform(m, (), generator)


def uniform(inputs: int, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Draw weights of a linear layer with so many inputs, as PyTorch does."""
    return np.asarray(generator.uniform(-1, 1, size=shape) / np.sqrt(inputs))


def measure(family: str, run: int, prior: str, k: int | str, quick: bool) -> Record:
    """Fit one subspace, or all weights, to one run's table."""
    simulated = simulate(family, run)
    within = {"subspace.k": k, "subspace.completion": "none"}
    where = {"subspace.construction": "full"} if k == ALL else within
    overrides = {
        "family": family,
        "network.hidden": HIDDEN,
        "network.activation": "relu",
        "train.seed": run,
        "sample.seed": run,
        **where,
        **_priors(prior, family, k),
        **(QUICK if quick else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        fit = fit_model(FORMULA, simulated.table, out=Path(folder) / "run", overrides=overrides)
    return figures(fit, simulated.theta) | (_followed(fit) if run <= FOLLOWED else {})


def _priors(prior: str, family: str, k: int | str) -> dict[str, Any]:
    """Return what a series sets; the paper's chains are those of the subspaces alone."""
    if prior == "weights":
        return {}
    if prior == "narrow" or k == ALL:
        around: dict[str, Any] = {"priors.phi": "normal(0, 1)"}
    else:
        around = {"priors.phi": "normal(0, 5)", **CHAINS}
    return around | (FIXED if prior == "paper" and family == "gaussian" else {})


def figures(fit: Fitted, theta: Array) -> Record:
    """Return what is kept of a fit; lists have an element for each coefficient.

    ``below`` is the share of draws below the true coefficient: a central interval of level a holds
    it if |2 below - 1| < a.
    """
    draws = np.stack([fit.posterior.coefficients[name].ravel() for name in NAMES])
    rows = {row.name: row for row in fit.summary.rows}
    return {
        "theta": theta.tolist(),
        "mean": draws.mean(axis=1).tolist(),
        "sd": draws.std(axis=1, ddof=1).tolist(),
        "skewness": stats.skew(draws, axis=1).tolist(),
        "kurtosis": stats.kurtosis(draws, axis=1).tolist(),
        "below": (draws < theta[:, None]).mean(axis=1).tolist(),
        "ess": [rows[name].bulk_ess for name in NAMES],
        "rhat": [rows[name].rhat for name in NAMES],
        "eta_rhat": fit.summary.eta.rhat,
        "d": fit.run.bundle.network.d,
        "arc_length": fit.run.bundle.trained.arc_length,
        "divergences": int(fit.posterior.sampler["diverging"].sum()),
        "fit_seconds": sum(fit.run.manifest.seconds.values()),
    }


def _followed(fit: Fitted) -> Record:
    """Return the curve's length during training."""
    history = fit.run.bundle.trained.history
    every = max(1, len(history["epoch"]) // KEPT)
    return {
        "epochs": history["epoch"][::every].tolist(),
        "lengths": history["arc_length"][::every].tolist(),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A family's runs with one prior and k, each array of shape (runs, 3).

    Attributes
    ----------
    difference : array
        Of posterior means to all weights, in standard deviations of the latter.
    ratio : array
        Of posterior standard deviations to that of all weights.
    below, ess, rhat : array
        As the records have them.
    lengths, seconds : array, shape (runs,)
        Of the curve, and of the fit.
    """

    difference: Array
    ratio: Array
    below: Array
    ess: Array
    rhat: Array
    lengths: Array
    seconds: Array

    def covered(self, level: float, which: slice = slice(None)) -> tuple[float, float, float]:
        """Return the share of central intervals that hold theta*, and its Wilson interval."""
        return wilson(np.abs(2 * self.below[:, which] - 1) < level)


def wilson(held: Array) -> tuple[float, float, float]:
    """Return a share and its 95% Wilson interval.

    Coefficients of one run count as independent.
    """
    found = stats.binomtest(int(held.sum()), held.size).proportion_ci(method="wilson")
    return float(held.mean()), float(found.low), float(found.high)


def compare(records: Sequence[Record], family: str, prior: str, k: int | str) -> Compared | None:
    """Put the runs that have both this k and all weights side by side."""
    own, whole = (
        {
            item["key"]["run"]: item
            for item in records
            if "mean" in item and _series(item) == (family, prior, wanted)
        }
        for wanted in (k, ALL)
    )
    pairs = [(own[run], whole[run]) for run in sorted(own) if run in whole]
    if not pairs:
        return None
    mean, sd, below, ess, rhat = (
        np.array([[item[name] for item in pair] for pair in pairs]).transpose(1, 0, 2)
        for name in ("mean", "sd", "below", "ess", "rhat")
    )
    return Compared(
        difference=(mean[0] - mean[1]) / sd[1],
        ratio=sd[0] / sd[1],
        below=below[0],
        ess=ess[0],
        rhat=rhat[0],
        lengths=np.array([item["arc_length"] for item, _ in pairs]),
        seconds=np.array([item["fit_seconds"] for item, _ in pairs]),
    )


def section(records: Sequence[Record]) -> str:
    """Return the section: what was fitted, the table, targets."""
    header = [
        "family", "prior", "k", "difference of means, sd", "ratio of sds",
        f"{NOMINAL:.0%} holds theta*", "ESS", "Rhat", "length", "seconds",
    ]  # fmt: skip
    found = list(_all(records))
    runs = max((len(item.ratio) for *_, item in found), default=0)
    parts = [WHAT.format(runs=runs), table(header, [_row(*item) for item in found])]
    return "\n\n".join([*parts, "\n".join(_targets(found)), _monte_carlo(found), PICTURE])


Series = tuple[str, str, int | str, Compared]


def _all(records: Sequence[Record]) -> Iterator[Series]:
    for family in FAMILIES:
        for prior in PRIORS:
            for k in (*DIMENSIONS, ALL):
                compared = compare(records, family, prior, k)
                if compared is not None:
                    yield family, prior, k, compared


def _row(family: str, prior: str, k: int | str, item: Compared) -> list[str]:
    share, low, high = item.covered(NOMINAL)
    apart = f"{_median(abs(item.difference), 3)} ({_median(item.difference, 3)})"
    return [
        family, prior, str(k),
        *(["-", "-"] if k == ALL else [apart, _median(item.ratio, 2)]),
        f"{share:.2f} ({low:.2f}-{high:.2f})",
        _median(item.ess, 0), number(float(item.rhat.max()), 2),
        "-" if k == ALL else _median(item.lengths, 1),
        _median(item.seconds, 0),
    ]  # fmt: skip


def _targets(found: Sequence[Series]) -> Iterator[str]:
    low, high = RATIO
    for family, prior, k, item in found:
        if k != DIMENSIONS[-1]:
            continue
        name = f"{family}, {prior}, k = {k}"
        apart, ratio = float(np.median(abs(item.difference))), float(np.median(item.ratio))
        text = f"{name}: absolute difference of means below {LARGEST_DIFFERENCE} sd at the median"
        yield verdict(text, apart, apart < LARGEST_DIFFERENCE, 3)
        yield verdict(f"{name}: ratio of sds {low}-{high}", ratio, low <= ratio <= high)


def _monte_carlo(found: Sequence[Series]) -> str:
    """Say how large differences are by chance alone."""
    by_name = {(family, prior, k): item for family, prior, k, item in found}
    chance = [
        np.sqrt(1 / item.ess + 1 / by_name[family, prior, ALL].ess[: len(item.ess)])
        for (family, prior, k), item in by_name.items()
        if k == DIMENSIONS[-1] and (family, prior, ALL) in by_name
    ]
    if not chance:
        return ""
    size = stats.norm.ppf(0.75) * float(np.median(np.concatenate(chance)))
    return (
        f"Two samplings of one posterior with these ESS would differ by {size:.3f} sd at the"
        " median, by chance alone."
    )


def _median(values: Array, digits: int) -> str:
    return number(float(np.median(values)), digits)


def _series(record: Record) -> tuple[str, str, int | str]:
    key = record["key"]
    return key["family"], key["prior"], key["k"]


Painter = Callable[[Any, Sequence[Series]], None]


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw figures 4, 5 and 11 to 19 of the paper: a column for each family and prior."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = list(_all(records))
    painters: Mapping[str, Painter] = {
        "difference of means, sd": partial(_boxes, of=lambda item: item.difference, line=0.0),
        "ratio of sds": partial(_boxes, of=lambda item: item.ratio, line=1.0),
        "share that holds theta*": _coverage,
        "bulk-ESS of theta": partial(_boxes, of=lambda item: item.ess, whole=True),
        "Rhat of theta": partial(_boxes, of=lambda item: item.rhat, line=1.01, whole=True),
        "length of the curve": partial(_boxes, of=lambda item: item.lengths[:, None]),
    }
    columns = [(family, prior) for family in FAMILIES for prior in PRIORS]
    figure, axes = plt.subplots(
        len(painters) + 1, len(columns), figsize=(16, 19), sharey="row", squeeze=False
    )
    for panels, (family, prior) in zip(axes.T, columns, strict=True):
        own = [item for item in found if item[:2] == (family, prior)]
        panels[0].set_title(f"{family}, prior: {prior}")
        for axis, paint in zip(panels[:-1], painters.values(), strict=True):
            paint(axis, own)
        _training(panels[-1], [r for r in records if _series(r)[:2] == (family, prior)])
    for axis, name in zip(axes[:, 0], [*painters, "length in training"], strict=True):
        axis.set_ylabel(name)
    axes[0, 0].legend(handles=[_patch(j) for j in range(COEFFICIENTS)], fontsize="small")
    axes[2, 0].legend(fontsize="small")
    axes[-1, 0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _patch(j: int) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=f"C{j}", label=NAMES[j])


def _boxes(
    axis: Any,
    found: Sequence[Series],
    of: Callable[[Compared], Array],
    line: float | None = None,
    whole: bool = False,
) -> None:
    """Draw a box for each k and each column of what ``of`` returns."""
    shown = [(k, of(item)) for *_, k, item in found if whole or k != ALL]
    for place, (_, values) in enumerate(shown):
        count = values.shape[1]
        for j in range(count):
            axis.boxplot(
                values[:, j], positions=[place + 0.25 * (j - (count - 1) / 2)], widths=0.2,
                patch_artist=True, boxprops={"facecolor": f"C{j}"}, sym=".",
                medianprops={"color": "k"}, manage_ticks=False,
            )  # fmt: skip
    if line is not None:
        axis.axhline(line, color="0.5", lw=0.8)
    axis.set_xticks(range(len(shown)), [str(k) for k, _ in shown])
    axis.set_xlabel("k")


def _coverage(axis: Any, found: Sequence[Series]) -> None:
    """Draw the share of central intervals of theta_1 that hold it, by level."""
    axis.plot([0, 1], [0, 1], color="0.5", lw=0.8)
    for number_of, (*_, k, item) in enumerate(found):
        share, low, high = np.array([item.covered(level, slice(0, 1)) for level in LEVELS]).T
        axis.errorbar(
            np.array(LEVELS) + 0.008 * (number_of - len(found) / 2), share,
            yerr=np.clip([share - low, high - share], 0, None),
            fmt=".-", lw=1, elinewidth=0.6, color="k" if k == ALL else f"C{number_of}",
            label=f"k = {k}",
        )  # fmt: skip
    axis.set_xlabel("level of the interval of theta_1")


def _training(axis: Any, records: Sequence[Record]) -> None:
    """Draw the curve's length during training."""
    for number_of, k in enumerate(DIMENSIONS):
        own = [r for r in records if r["key"]["k"] == k and "lengths" in r]
        for item in own:
            axis.plot(item["epochs"], item["lengths"], color=f"C{number_of}", lw=0.3)
        if own:
            mean = np.mean([item["lengths"] for item in own], axis=0)
            axis.plot(own[0]["epochs"], mean, color=f"C{number_of}", lw=2, label=f"k = {k}")
    axis.set_xlabel("epoch")


STUDY = Study("simulation", TITLE, cells, section, draw)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(STUDY, __doc__ or "")
