"""A whole fit of very many rows by the defaults: seconds, memory, and what its intervals hold.

    y ~ normal(eta, 1),   eta = f(u1, ..., u8) + 0.5 x1 - 0.5 x2

f has mean 0 and standard deviation 1, with interactions of pairs; u are correlated, and x1 and x2
vary with two of them. The network has 32-32 units. Intervals are judged at 5,000 new rows, by the
share of rows whose eta they hold. Memory is the largest resident memory of Python, and of any
process that it starts.
"""

from __future__ import annotations

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
from scipy import stats

import semistan
from common import Case, Record, console, read_options, record, report
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.model.arrays import Array

ROWS = (10_000, 100_000, 1_000_000)
NEW_ROWS = 5000
INPUTS = tuple(f"u{j + 1}" for j in range(8))
FORMULA = f"y ~ x1 + x2 + nn({', '.join(INPUTS)})"
THETA = {"b_x1": 0.5, "b_x2": -0.5}
HIDDEN = (32, 32)
OF = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main() -> None:
    """Fit every size, each in a process of its own, and report."""
    options = read_options(__doc__ or "", repeats=1, cores=None)
    records: list[Record] = []
    for n in ROWS[: 1 if options.quick else None]:
        console.print(f"{n} rows ...")
        case = Case(f"{n} rows", n, hidden=HIDDEN, k=2, inputs=len(INPUTS))
        found = [in_new_process(case, seed) for seed in range(1, options.repeats + 1)]
        records += [
            record(case, "defaults", metric, [each[metric] for each in found], d=int(found[0]["d"]))
            for metric in found[0]
            if metric != "d"
        ]
    report("fit", options, records, find_toolchain())


def in_new_process(case: Case, seed: int) -> dict[str, float]:
    """Fit in another process, whose memory is that of this fit alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, case, seed).result()


def measure(case: Case, seed: int) -> dict[str, float]:
    """Fit a table, and judge the intervals of eta at new rows and of the coefficients."""
    table, eta = simulated(case.n + NEW_ROWS, seed)
    new = table[case.n :].reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fit = semistan.fit(
            FORMULA, table[: case.n], hidden=case.hidden, seed=seed, out=f"{folder}/run"
        )
        seconds = time.perf_counter() - started
        draws, coefficients = fit.linpred(new), fit.draws()[list(THETA)].to_numpy()
        passed, d = fit.passed, fit.run.bundle.network.d
    resident = {who: resource.getrusage(who).ru_maxrss / 1024 for who in OF}
    return {
        "seconds": seconds,
        "95% intervals of eta hold": holds(draws, eta[case.n :], 0.95),
        "50% intervals of eta hold": holds(draws, eta[case.n :], 0.5),
        "RMSE of eta": float(np.sqrt(np.square(draws.mean(axis=0) - eta[case.n :]).mean())),
        "95% intervals of theta hold": holds(coefficients, np.array([*THETA.values()]), 0.95),
        "diagnostics pass": float(passed),
        "Python's memory, MiB": resident[resource.RUSAGE_SELF],
        "other processes' memory, MiB": resident[resource.RUSAGE_CHILDREN],
        "d": float(d),
    }


def simulated(rows: int, seed: int) -> tuple[pd.DataFrame, Array]:
    """Draw a table and its linear predictor."""
    generator, Q = np.random.default_rng([seed, rows]), len(INPUTS)
    correlation = np.full((Q, Q), 0.3) + 0.7 * np.eye(Q)
    scores = generator.multivariate_normal(np.zeros(Q), correlation, size=rows, method="cholesky")
    u = np.sqrt(12) * (stats.norm.cdf(scores) - 0.5)
    x1 = 0.5 * u[:, 0] + generator.normal(size=rows)
    x2 = (u[:, 1] + generator.normal(size=rows) > 0) - 0.5
    f = np.sin(u[:, 0] * u[:, 1]) + 0.5 * (u[:, 2] - 0.3) ** 2 + 0.5 * u[:, 3] + 0.25 * u[:, 4]
    f += 0.5 * np.tanh(2 * u[:, 5]) * u[:, 6] + 0.3 * np.cos(2 * u[:, 7])
    eta = (f - f.mean()) / f.std() + THETA["b_x1"] * x1 + THETA["b_x2"] * x2
    table = pd.DataFrame(u, columns=list(INPUTS)).assign(x1=x1, x2=x2)
    return table.assign(y=eta + generator.normal(size=rows)), eta


def holds(draws: Array, truth: Array, probability: float) -> float:
    """Return the share of N quantities whose central interval of draws (S, N) holds the truth."""
    lower, upper = np.quantile(draws, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    return float(((lower < truth) & (truth < upper)).mean())


if __name__ == "__main__":
    main()
