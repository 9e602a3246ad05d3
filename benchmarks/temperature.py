"""Does theta's posterior stay put when phi is tempered? The question of Supplement A (figure 7).

The data are those of section 4.1 of Dold et al. (2024): a noisy nonlinear function of u, to which
each row adds x' theta* of a category, x in {(0, 0), (1, 0), (0, 1)} drawn at random and
theta* = (-0.5, 1); 35 rows are for training, the others for the test LPPD. The function is
``--data FILE`` with the columns u and y (as the synthetic data of Izmailov et al., 2020), or by
default one that is like it: three clusters of u. One subspace is trained and sampled at several
temperatures, with equation 7 (``likelihood``) and equation 8 (``subspace``), which leaves theta
given phi and sigma as it is; with sigma sampled, and with sigma fixed at its trained value.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.table import Table

import semistan
from common import RESULTS, console, pin, write_results
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.model.bundle import Bundle
from semistan.model.config import with_overrides
from semistan.model.table.rows import Rows
from semistan.posterior.arviz import mcse, rhat
from semistan.workflow.compiled import compile_model, trusted_kernel
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import configure, prepare
from semistan.workflow.sample import Fitted, sample
from semistan.workflow.train import train

THETA = (-0.5, 1.0)  # of the categories
TRAINING = 35  # rows, as in the paper
TEMPERATURES = (0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
TEMPERS = ("likelihood", "subspace")
NAMES = ("b_x1", "b_x2")
MODEL = {"network.hidden": (16, 16), "network.activation": "relu"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One posterior: k, whether sigma is fixed, what is tempered and by how much."""

    k: int
    sigma: str
    temper: str
    temperature: float


def main() -> None:
    """Sample every setting and report."""
    options = _options()
    pin(range(options.cores))
    torch.set_num_threads(1)
    training, test = adapted(_function(options.data), np.random.default_rng(1))
    toolchain, records, draws = find_toolchain(), [], {}
    for k in options.k:
        overrides = {
            **MODEL, "subspace.k": k, "subspace.completion": "none", "train.device": "cpu",
        }  # fmt: skip
        prepared = prepare(configure("y ~ x1 + x2 + nn(u)", overrides), training)
        bundle = train(prepared)
        for setting in settings(k, quick=options.quick):
            record, theta = measure(bundle, prepared.rows, test, setting, toolchain)
            records.append(record)
            draws[setting] = theta
        write_results("temperature", options.quick, options.cores, records, toolchain)
        draw(draws, RESULTS / f"temperature{'-quick' * options.quick}.png")
    console.print(_table(records))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="CSV file with the columns u and y")
    parser.add_argument("--quick", action="store_true", help="two temperatures only")
    parser.add_argument("--k", type=int, nargs="+", default=[2], help="dimensions of subspaces")
    parser.add_argument("--cores", type=int, default=2, help="cores to which everything is pinned")
    return parser.parse_args()


def _function(path: Path | None) -> pd.DataFrame:
    """Read the rows of the function, or draw some in three clusters of u."""
    if path is not None:
        return pd.read_csv(path)[["u", "y"]]
    generator = np.random.default_rng(0)
    centre = generator.choice((-1.25, 0.0, 1.15), size=400)
    u = centre + generator.uniform(-0.25, 0.25, size=400)
    y = np.tanh(3 * u + 2) - 0.8 * np.sin(2.5 * u) ** 2 + generator.normal(scale=0.08, size=400)
    return pd.DataFrame({"u": u, "y": (y - y.mean()) / y.std()})


def adapted(
    function: pd.DataFrame, generator: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add each row's category, and split into training and test rows."""
    category = generator.integers(3, size=len(function))
    x1, x2 = ((category == number).astype(float) for number in (1, 2))
    table = function.assign(x1=x1, x2=x2, y=function["y"] + THETA[0] * x1 + THETA[1] * x2)
    table = table.sample(frac=1, random_state=generator)
    return table[:TRAINING], table[TRAINING:]


def settings(k: int, *, quick: bool) -> Iterator[Setting]:
    """Yield what is sampled; at T = 1 both equations are the same posterior."""
    for sigma in ("sampled", "fixed"):
        for temperature in (1.0, 10.0) if quick else TEMPERATURES:
            for temper in TEMPERS[:1] if temperature == 1 else TEMPERS:
                yield Setting(k, sigma, temper, temperature)


def measure(
    bundle: Bundle, rows: Rows, test: pd.DataFrame, setting: Setting, toolchain: Toolchain
) -> tuple[dict, np.ndarray]:
    """Sample one setting; return its record and theta's draws (C, S, 2)."""
    overrides = {"sample.temperature": setting.temperature, "sample.temper": setting.temper}
    if setting.sigma == "fixed":
        overrides["priors.sigma"] = f"constant({bundle.trained.dispersion['sigma']!r})"
    config = with_overrides(bundle.config, overrides)
    bundle = replace(bundle, config=config)
    kernel = compile_model(bundle.model, toolchain, _silent)
    kernel = trusted_kernel(kernel, bundle, rows, toolchain, _silent)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = new_run(bundle, rows, Path(folder) / "run", config.sample, toolchain, kernel=kernel)
        fit = sample(run, toolchain)
        seconds = time.perf_counter() - started
        lppd = semistan.score(fit.run, test).set_index("score")["Estimate"]["LPPD"]
    return _record(setting, fit, float(lppd), seconds), fit.posterior.members[0].draws.theta


def _record(setting: Setting, fit: Fitted, lppd: float, seconds: float) -> dict:
    """Summarise theta's posterior, with what is needed to judge the chains."""
    theta = fit.posterior.members[0].draws.theta
    record = {**asdict(setting), "lppd": lppd, "seconds": round(seconds, 1)}
    for j, name in enumerate(NAMES):
        draws = theta[..., j]
        record |= {
            f"mean_{name}": float(draws.mean()),
            f"sd_{name}": float(draws.std()),
            f"mcse_mean_{name}": mcse(draws),
            f"mcse_sd_{name}": mcse(draws, "sd"),
            f"rhat_{name}": rhat(draws),
        }
    return record | {
        "mean_sigma": float(fit.posterior.members[0].draws.dispersion["sigma"].mean()),
        "divergent": int(fit.posterior.members[0].draws.sampler["diverging"].sum()),
        "leapfrog_steps": float(fit.posterior.members[0].draws.sampler["n_steps"].mean()),
    }


def _table(records: list[dict]) -> Table:
    table = Table(title="theta by temperature: mean (sd)", title_justify="left")
    for column in (
        "k",
        "sigma",
        "tempered",
        "T",
        *NAMES,
        "mean sigma",
        "LPPD",
        "Rhat",
        "div.",
        "s",
    ):
        table.add_column(column, justify="right")
    for item in records:
        table.add_row(
            str(item["k"]), item["sigma"], item["temper"], f"{item['temperature']:g}",
            *(f"{item[f'mean_{name}']:.3f} ({item[f'sd_{name}']:.3f})" for name in NAMES),
            f"{item['mean_sigma']:.3f}", f"{item['lppd']:.3f}",
            f"{max(item[f'rhat_{name}'] for name in NAMES):.3f}",
            str(item["divergent"]), f"{item['seconds']:.0f}",
        )  # fmt: skip
    return table


def draw(draws: dict[Setting, np.ndarray], path: Path) -> None:
    """Draw theta's 50 % regions, normal ones, by temperature: a panel for each k, sigma, temper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = list(dict.fromkeys((item.k, item.sigma) for item in draws))
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(9, 3.6 * len(rows)), sharex="row", sharey="row", squeeze=False
    )
    for panels, (k, sigma) in zip(axes, rows, strict=True):
        for axis, temper in zip(panels, TEMPERS, strict=True):
            shown = [item for item in draws if (item.k, item.sigma) == (k, sigma)
                     and (item.temper == temper or item.temperature == 1)]  # fmt: skip
            for item in shown:
                colour = plt.get_cmap("viridis")(np.log10(2 * item.temperature) / 2.5)
                label = f"T = {item.temperature:g}"
                axis.plot(*ellipse(draws[item].reshape(-1, 2)), color=colour, label=label)
            axis.plot(*THETA, "k+")
            axis.set(title=f"{temper}; k = {k}, sigma {sigma}", xlabel="b_x1", ylabel="b_x2")
    axes[0, 1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def ellipse(draws: np.ndarray) -> np.ndarray:
    """Return the outline (2, 100) of the normal 50 % region of draws (S, 2)."""
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = np.sqrt(2 * np.log(2)) * np.stack([np.cos(angle), np.sin(angle)])
    return draws.mean(axis=0)[:, None] + np.linalg.cholesky(np.cov(draws.T)) @ circle


def _silent(_: str) -> None:
    """Say nothing."""


if __name__ == "__main__":
    main()
