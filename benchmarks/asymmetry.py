"""Does the trained theta depend on the learning rate? Figures 20 and 23 of Dold et al. (2024).

The models of ``models/`` are trained with several seeds, which draw the weights and the rows held
out, at two learning rates. Three estimates of theta are taken from each training: where Adam leaves
it, the solution given the trained network and the rows it was trained on, and the solution given
all rows, which semistan hands over. theta starts at 0, as semistan's does, or where PyTorch draws
a linear layer's weights. Estimates are compared with the posterior of models/*/reference.json, a
long run of NUTS, and spreads are in its standard deviations.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from common import RESULTS, console, read_options, write_results
from semistan.bundle.files import read_json
from semistan.density.problem import make_problem
from semistan.subspace.coefficients import settle
from semistan.subspace.descent import (
    descend,
    initial_parameters,
    mean_loss,
    split_rows,
)
from semistan.subspace.trajectory import replica
from semistan.workflow.prepare import Prepared, configure, prepare

MODELS = Path(__file__).parents[1] / "models"
NAMES = ("diabetes", "fair", "anes96")
RATES = (5e-3, 1e-4)
STARTS = ("zero", "random")
ESTIMATES = ("Adam", "training rows", "solved")


@dataclass(frozen=True, slots=True)
class Setting:
    """One training."""

    model: str
    start: str
    rate: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What one training and the solution after it gave, by the name of the estimate.

    ``theta`` is the distance from the posterior mean in posterior standard deviations.
    ``validation_loss`` is that of the rows held out from training, which "solved" has seen.
    """

    theta: dict[str, np.ndarray]
    validation_loss: dict[str, float]
    seconds: dict[str, float]


def main() -> None:
    """Train in every setting and report."""
    options = read_options(__doc__ or "", repeats=8, cores=1)
    torch.set_num_threads(1)
    outcomes: dict[Setting, Outcome] = {}
    labels = {name: _prepared(Setting(name, "zero", 1.0, 1)).design.coefficients for name in NAMES}
    for seed in range(1, options.repeats + 1):
        for name in NAMES:
            for start in STARTS:
                for rate in RATES:
                    setting = Setting(name, start, rate, seed)
                    outcomes[setting] = measure(setting, quick=options.quick)
    records = [
        summarise(outcomes, name, start, estimate)
        for name in NAMES
        for start in STARTS
        for estimate in ESTIMATES
    ]
    path = write_results("asymmetry", options.quick, options.cores, records)
    draw(outcomes, labels, RESULTS / f"asymmetry{'-quick' * options.quick}.png")
    console.print(_table(records))
    console.print(f"written to {path.relative_to(RESULTS.parents[1])}")


def measure(setting: Setting, *, quick: bool) -> Outcome:
    """Train once and solve for theta."""
    prepared = _prepared(setting, quick=quick)
    units, train = prepared.model.units, prepared.config.train
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    generator = torch.Generator().manual_seed(setting.seed)
    start = initial_parameters(problem, prepared.config.subspace.k + 1, generator)
    if setting.start == "random":
        start = replace(start, theta=_random_theta(setting.seed, len(start.theta)))
    training, held_out = split_rows(problem, train.validation, replica(generator))
    begun = time.perf_counter()
    best, _ = descend(problem, start, train, generator)
    trained = time.perf_counter()
    without, solved = settle(training, best), settle(problem, best)
    solving = (time.perf_counter() - trained) / 2
    mean, sd = _posterior(setting.model, prepared.design.coefficients)
    states = dict(zip(ESTIMATES, (best, without, solved), strict=True))
    return Outcome(
        {key: (state.theta.numpy() * units.theta_scale - mean) / sd
         for key, state in states.items()},
        {key: mean_loss(held_out, state) for key, state in states.items()},
        dict(zip(ESTIMATES, (trained - begun, solving, solving), strict=True)),
    )  # fmt: skip


def _prepared(setting: Setting, *, quick: bool = False) -> Prepared:
    folder = MODELS / setting.model
    overrides = {
        "data": str(folder / "data.csv"),
        "train.learning_rate": setting.rate,
        "train.seed": setting.seed,
        "train.device": "cpu",
    }
    if quick:
        overrides["train.epochs"] = 200
    return prepare(configure(folder / "model.toml", overrides))


def _random_theta(seed: int, P: int) -> torch.Tensor:
    """Draw as ``torch.nn.Linear(P, 1)`` does, from a stream of its own."""
    values = np.random.default_rng(seed).uniform(-1, 1, size=P) / np.sqrt(P)
    return torch.tensor(values).requires_grad_()


def _posterior(name: str, coefficients: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mean and standard deviation of each coefficient."""
    reference = read_json(MODELS / name / "reference.json")
    mean, sd = (
        np.array([reference[label][key] for label in coefficients]) for key in ("mean", "sd")
    )
    return mean, sd


def summarise(
    outcomes: dict[Setting, Outcome], name: str, start: str, estimate: str
) -> dict[str, object]:
    """Return the spread over the seeds at each rate, and over all seeds and rates."""
    chosen = {key: out for key, out in outcomes.items() if (key.model, key.start) == (name, start)}

    def spread(rates: tuple[float, ...], of: str = estimate) -> float:
        theta = [out.theta[of] for key, out in chosen.items() if key.rate in rates]
        return float(np.sqrt(np.var(theta, axis=0, ddof=1).mean()))

    def mean_of(field: str, rate: float) -> float:
        values = [getattr(o, field)[estimate] for key, o in chosen.items() if key.rate == rate]
        return float(np.mean(values))

    record: dict[str, object] = {"model": name, "start": start, "estimate": estimate,
                                 "seeds": len(chosen) // len(RATES)}  # fmt: skip
    for rate in RATES:
        record |= {f"spread at {rate:g}": spread((rate,)),
                   f"validation loss at {rate:g}": mean_of("validation_loss", rate)}  # fmt: skip
    record |= {"spread": spread(RATES), "ratio": spread(RATES) / spread(RATES, ESTIMATES[0])}
    everything = [{**asdict(key), "theta": out.theta[estimate].tolist()}
                  for key, out in chosen.items()]  # fmt: skip
    seconds = float(np.median([out.seconds[estimate] for out in chosen.values()]))
    return record | {"seconds": seconds, "estimates": everything}


def _table(records: list[dict]) -> Table:
    title = "spread of theta in posterior standard deviations, and validation loss"
    table = Table(title=title, title_justify="left")
    columns = [key for key in records[0] if key != "estimates"]
    for column in columns:
        table.add_column(column, justify="right")
    for item in records:
        cells = (item[column] for column in columns)
        table.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells))
    return table


def draw(outcomes: dict[Setting, Outcome], labels: dict[str, tuple[str, ...]], path: Path) -> None:
    """Draw every estimate: a panel for each coefficient, a column for each estimate and rate."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(name, j, label) for name, all_of in labels.items() for j, label in enumerate(all_of)]
    rows = -(-len(panels) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(11, 3 * rows), squeeze=False)
    columns = [(estimate, rate) for estimate in ESTIMATES for rate in RATES]
    for axis, (name, j, label) in zip(axes.flat, panels, strict=False):
        axis.axhspan(-1, 1, color="0.9")
        for x, (estimate, rate) in enumerate(columns):
            for start, marker in zip(STARTS, "o+", strict=True):
                shown = [(key.seed, out.theta[estimate][j]) for key, out in outcomes.items()
                         if (key.model, key.start, key.rate) == (name, start, rate)]  # fmt: skip
                seeds, values = np.array(shown).T
                place = x + 0.6 * (seeds - 0.5) / len(seeds) - 0.3
                axis.plot(place, values, marker, ms=4, color=f"C{x % 2}", label=f"from {start}")
        ticks = ["\n".join([*estimate.split(), f"{rate:g}"]) for estimate, rate in columns]
        axis.set_xticks(range(len(columns)), ticks, fontsize="small")
        axis.set_title(f"{name}: {label}", fontsize="medium")
    for axis in axes[:, 0]:
        axis.set_ylabel("posterior sd from the mean")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    axes[0, 0].legend(*(part[:2] for part in axes[0, 0].get_legend_handles_labels()))
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
