"""Time per gradient with 1, 2, ... threads, up to the cores that may be used."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from cases import planned_grainsize, unconstrained_point, untrained, write_data
from common import Case, Record, Run, console, interleave, read_options, record, report
from compiled import CONTENDERS, Process, build
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain

ROWS = (1200, 20_000, 100_000)


def main() -> None:
    """Time every size and report; ratios are over one thread of the same contender."""
    options = read_options(__doc__ or "", repeats=7, cores=None)
    toolchain = find_toolchain()
    records: list[Record] = []
    for n in ROWS[: 2 if options.quick else None]:
        console.print(f"{n} rows ...")
        records += time_case(Case(f"{n} rows", n), options.cores, options.repeats, toolchain)
    report("threads", options, records, toolchain)


def thread_counts(cores: int) -> list[int]:
    """Return 1, 2, 4, ... and the number of cores."""
    powers = (2**exponent for exponent in range(cores.bit_length()))
    return sorted({*powers, cores})


def time_case(case: Case, cores: int, repeats: int, toolchain: Toolchain) -> list[Record]:
    """Let all numbers of threads, of the kernel and of pure Stan, take turns."""
    bundle, rows = untrained(case)
    q, counts = unconstrained_point(bundle), thread_counts(cores)
    runs: dict[str, Run] = {}
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data.json"
        for (name, kernel), threads in product(CONTENDERS.items(), counts):
            grainsize = planned_grainsize(bundle, rows, kernel, threads, toolchain)
            write_data(bundle, rows, data, grainsize)
            executable = build(bundle, kernel, toolchain)
            process = stack.enter_context(Process(executable, data, threads))
            process.evaluate(q)  # it has read the data once it answers
            runs[f"{name} {threads}"] = process.seconds
        samples = interleave(runs, repeats)
    return [
        record(
            case, name, "ms per gradient", samples[f"{name} {threads}"],
            d=bundle.subspace.d, threads=threads, reference=samples[f"{name} 1"],
        )
        for name, threads in product(CONTENDERS, counts)
    ]  # fmt: skip


if __name__ == "__main__":
    main()
