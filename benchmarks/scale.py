"""Many rows: time per gradient, memory, and what writing the data costs.

Memory is the largest resident memory of a process, as it is and over the bytes of the data
(network inputs, X and y in double precision). It includes the libraries of the process.
"""

from __future__ import annotations

import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from cases import unconstrained_point, untrained, write_data
from common import Case, Record, Run, console, interleave, read_options, record, records_of, report
from compiled import Process, build, forget_peak_memory, peak_memory
from gradient import check_agreement
from peers import JaxGradient, installed, posterior_of
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain

ROWS = (10_000, 100_000, 1_000_000)
MIB = 2**20


def main() -> None:
    """Measure every size and report."""
    options = read_options(__doc__ or "", repeats=5, cores=1)
    toolchain = find_toolchain()
    if not installed("jax"):
        console.print("JAX is not installed and is left out")
    records: list[Record] = []
    for n in ROWS[: 1 if options.quick else None]:
        console.print(f"{n} rows ...")
        case = Case(f"{n} rows", n, hidden=(32, 32), k=8, inputs=8)
        records += measure(case, options.repeats, toolchain)
    report("scale", options, records, toolchain)


def measure(case: Case, repeats: int, toolchain: Toolchain) -> list[Record]:
    """Write the data in another process, then let the contenders take turns."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.json"
        written = [_in_new_process(case, data) for _ in range(repeats)]
        d, gradients, kernel_peak = time_gradients(case, data, repeats, toolchain)
    seconds, peaks = (list(values) for values in zip(*written, strict=True))
    memory = {"kernel": [kernel_peak], "writing the data": peaks}
    return [
        *records_of(case, "ms per gradient", gradients, d=d, reference="kernel"),
        *_memory_records(case, memory, d),
        record(case, "writing the data", "seconds", seconds, d=d),
    ]


def time_gradients(
    case: Case, data: Path, repeats: int, toolchain: Toolchain
) -> tuple[int, dict[str, list[float]], float]:
    """Return d, milliseconds per gradient by contender, and the kernel process's peak memory."""
    bundle, rows = untrained(case)
    q = unconstrained_point(bundle)
    with Process(build(bundle, "cpp", toolchain), data, threads=1) as process:
        runs: dict[str, Run] = {"kernel": process.seconds}
        answers = {"kernel": process.evaluate(q)}
        if installed("jax"):
            jax = JaxGradient(posterior_of(bundle, rows), q)
            runs |= {"JAX": jax.seconds, "JAX, compiled loop": jax.seconds_in_loop}
            answers["JAX"] = jax.evaluate(q)
        check_agreement(answers)
        samples = interleave(runs, repeats)
        return bundle.subspace.d, samples, process.peak_memory()


def time_writing(case: Case, data: Path) -> tuple[float, float]:
    """Return the seconds that writing takes, and this process's peak memory meanwhile."""
    bundle, rows = untrained(case)
    forget_peak_memory()
    started = time.perf_counter()
    write_data(bundle, rows, data)
    return time.perf_counter() - started, peak_memory()


def _in_new_process(case: Case, data: Path) -> tuple[float, float]:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(time_writing, (case, data))


def _memory_records(case: Case, peaks: dict[str, list[float]], d: int) -> list[Record]:
    size = 8 * case.n * (case.inputs + 2)
    units = {"peak memory, MiB": MIB, "peak memory / data": size}
    return [
        record(case, name, metric, list(np.array(values) / unit), d=d)
        for metric, unit in units.items()
        for name, values in peaks.items()
    ]


if __name__ == "__main__":
    main()
