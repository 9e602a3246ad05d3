"""Milliseconds per gradient of the log density of (phi, theta, sigma) on one thread."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from cases import unconstrained_point, untrained, write_data
from common import AIRFOIL, Case, Record, Run, console, interleave, read_options, records_of, report
from compiled import CONTENDERS, Process, build
from peers import Evaluate, JaxGradient, installed, posterior_of, torch_gradient
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.table.rows import Rows

TOLERANCE = 1e-8  # relative, of the log density and of the largest entry of its gradient
ROWS = (200, 1200, 20_000)
HEAD = Case("head of images, 128 features", 50_000, (64, 64), inputs=128)
NETWORKS = {"1x3": (3,), "3x16": (16, 16, 16), "2x64": (64, 64), "2x128": (128, 128)}


def cases(quick: bool) -> list[Case]:
    """Return the grid of rows and networks, and variations of the airfoil's size."""
    if quick:
        return [Case("200 rows, 1x3", 200, (3,)), AIRFOIL]
    grid = [Case(f"{n} rows, {name}", n, hidden) for n in ROWS for name, hidden in NETWORKS.items()]
    activations = [
        Case(f"airfoil-size, {name}", AIRFOIL.n, activation=name)
        for name in ACTIVATIONS
        if name != AIRFOIL.activation
    ]
    return [*grid, HEAD, AIRFOIL, Case("airfoil-size, k = 20", AIRFOIL.n, k=20), *activations]


def main() -> None:
    """Time every case and report."""
    options = read_options(__doc__ or "", repeats=7, cores=1)
    toolchain = find_toolchain()
    if not installed("jax"):
        console.print("JAX is not installed and is left out")
    records: list[Record] = []
    for case in cases(options.quick):
        console.print(f"{case.name} ...")
        records += time_case(case, options.repeats, toolchain)
    report("gradient", options, records, toolchain)


def time_case(case: Case, repeats: int, toolchain: Toolchain) -> list[Record]:
    """Check that all contenders agree, then let them take turns."""
    bundle, rows = untrained(case)
    q = unconstrained_point(bundle)
    with ExitStack() as stack:
        runs, evaluations = _contenders(bundle, rows, q, toolchain, stack)
        check_agreement({name: evaluate(q) for name, evaluate in evaluations.items()})
        samples = interleave(runs, repeats)
    return records_of(case, "ms per gradient", samples, d=bundle.subspace.d, reference="kernel")


def check_agreement(answers: dict[str, tuple[float, Array]]) -> None:
    """Stop if a contender has another log density or gradient than the kernel.

    Raises
    ------
    AssertionError
        Naming the contender and its error.
    """
    value, gradient = answers["kernel"]
    for name, (other_value, other_gradient) in answers.items():
        errors = (
            abs(other_value / value - 1),
            np.abs(other_gradient - gradient).max() / np.abs(gradient).max(),
        )
        if not max(errors) < TOLERANCE:
            raise AssertionError(
                f"{name} has another log density than the kernel: relative errors of the value "
                f"{errors[0]:.2g} and of the gradient {errors[1]:.2g}, expected {TOLERANCE:g}"
            )


def _contenders(
    bundle: Bundle, rows: Rows, q: Array, toolchain: Toolchain, stack: ExitStack
) -> tuple[dict[str, Run], dict[str, Evaluate]]:
    """Return, by name, how each contender is timed and how it is evaluated."""
    data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data.json"
    write_data(bundle, rows, data)
    runs: dict[str, Run] = {}
    evaluations: dict[str, Evaluate] = {}
    for name, kernel in CONTENDERS.items():
        process = stack.enter_context(Process(build(bundle, kernel, toolchain), data, threads=1))
        runs[name], evaluations[name] = process.seconds, process.evaluate
    posterior = posterior_of(bundle, rows)
    if installed("jax"):
        jax = JaxGradient(posterior, q)
        runs |= {"JAX": jax.seconds, "JAX, compiled loop": jax.seconds_in_loop}
        evaluations["JAX"] = jax.evaluate
    evaluations["PyTorch"] = torch_gradient(posterior)
    runs["PyTorch"] = _timed(evaluations["PyTorch"], q)
    return runs, evaluations


def _timed(evaluate: Evaluate, q: Array) -> Run:
    def seconds(evaluations: int) -> float:
        started = time.perf_counter()
        for _ in range(evaluations):
            evaluate(q)
        return time.perf_counter() - started

    return seconds


if __name__ == "__main__":
    main()
