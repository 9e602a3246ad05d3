"""How chains, threads within chains and slices of rows share the cores."""

from __future__ import annotations

import math
import re
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from semistan.infer.environment import environment
from semistan.infer.method import Method
from semistan.infer.processors import usable_cores
from semistan.infer.stan_json import write_stan_json
from semistan.infer.starts import initial_values
from semistan.infer.task import ONE_THREAD_ACTIVATIONS
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows
from semistan.program.data import stan_data
from semistan.subspace.start_values import curve_states

SLICES = (1, 2, 4, 8)  # per thread, tried at the start
TIMED_ROWS = 20_000
TIMED_STEPS = 200  # at the least
WORTH_A_PROCESS = 5_000  # gradients or iterations of a chain, of a small problem
LEAPFROG_STEPS = 7  # that an iteration of Hamiltonian Monte Carlo takes at the least, about
TIMED_TIMES = 3  # of which the fastest counts: other programs on the machine only slow it down


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run uses the cores.

    Attributes
    ----------
    chains : int
        Chains at a time.
    threads : int
        Threads within each chain.
    grainsize : int
        Rows per slice of ``reduce_sum``.
    milliseconds : dict
        Time per gradient that was measured for each grain size, on at most ``TIMED_ROWS``
        rows and scaled to all; empty if there was no choice.
    """

    chains: int
    threads: int
    grainsize: int
    milliseconds: dict[int, float] = field(default_factory=dict)

    def text(self) -> str:
        """Say how a chain uses its cores, with the times that decided it."""
        if self.threads == 1:
            return "1 thread each"
        times = ", ".join(f"{grain}: {ms:.3g}" for grain, ms in self.milliseconds.items())
        timed = f" (ms per gradient by rows per slice: {times})" if times else ""
        return f"{self.threads} threads each on slices of {self.grainsize} rows{timed}"


def plan_threads(options: SampleConfig, cores: int | None = None) -> tuple[int, int]:
    """Return (chains at a time, threads within each): chains fill the cores first."""
    cores = cores or usable_cores()
    threads = max(1, cores // options.chain_count) if options.threads == "auto" else options.threads
    return max(1, min(options.chain_count, cores // threads)), threads


def default_grainsize(rows: int, threads: int) -> int:
    """Return all rows for one thread, else half of a thread's share, at least 100."""
    return rows if threads == 1 else max(100, rows // (2 * threads))


def default_plan(options: SampleConfig, rows: int) -> Plan:
    """Plan without timing anything."""
    chains, threads = plan_threads(options)
    return Plan(chains, threads, default_grainsize(rows, threads))


def plan_in_torch(options: SampleConfig, method: Method, activations: int) -> int:
    """Return how many of PyTorch's chains run at a time.

    Parameters
    ----------
    options : SampleConfig
        Chains and draws.
    method : Method
        Its gradients say whether a chain is worth a process of its own, which takes seconds to
        start.
    activations : int
        Rows times the width of the widest layer, with which the time of a gradient grows.
    """
    gradients = method.gradients or (LEAPFROG_STEPS if method.hamiltonian else 1)
    work = options.per_chain * gradients * max(1.0, activations / ONE_THREAD_ACTIVATIONS)
    alone = not method.has_warmup or work < WORTH_A_PROCESS
    return 1 if alone else min(options.chain_count, usable_cores())


def timed_plan(bundle: Bundle, rows: Rows, options: SampleConfig, executable: Path) -> Plan:
    """Plan a run; with several threads, time some grain sizes and take the fastest."""
    plan = default_plan(options, len(rows))
    if plan.threads == 1:
        return plan
    timed = min(len(rows), TIMED_ROWS)
    grains = sorted({math.ceil(timed / (plan.threads * slices)) for slices in SLICES})
    times = gradient_milliseconds(bundle, rows, executable, plan.threads, grains)
    return Plan(plan.chains, plan.threads, min(times, key=times.__getitem__), times)


def gradient_milliseconds(
    bundle: Bundle, rows: Rows, executable: Path, threads: int, grains: Sequence[int] = ()
) -> dict[int, float]:
    """Time a gradient on some rows at the start of the curve, scaled to all of them.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Of which ``TIMED_ROWS`` are taken.
    executable : Path
        The compiled program.
    threads : int
        Within a chain.
    grains : sequence of int
        Rows per slice to be tried; all by default.

    Returns
    -------
    dict
        Milliseconds by the rows per slice that these are of all rows.
    """
    some = rows.first(TIMED_ROWS)
    scale, times = len(rows) / len(some), {}
    with tempfile.TemporaryDirectory() as folder:
        start = initial_values(bundle, curve_states(bundle, 1)[0])
        write_stan_json(Path(folder, "init.json"), start)
        for grain in grains or (len(some),):
            data = stan_data(bundle, some, grainsize=grain)
            write_stan_json(Path(folder, "data.json"), data)
            steps = max(TIMED_STEPS, 500_000 // len(some) // 10 * 10)
            least = min(
                _milliseconds(executable, Path(folder), threads, steps) for _ in range(TIMED_TIMES)
            )
            times[math.ceil(scale * grain)] = scale * least
    return times


def _milliseconds(executable: Path, folder: Path, threads: int, steps: int) -> float:
    """Time steps of a trajectory too short to move, from what CmdStan writes.

    On a busy machine that is too long, and the process's own time, with its start in it, is less.
    """
    arguments = (
        f"sample num_samples=10 num_warmup=0 adapt engaged=0 algorithm=hmc engine=static "
        f"int_time={steps // 10 * 1e-6:g} stepsize=1e-6 data file=data.json init=init.json "
        "random seed=1 output file=timing.csv refresh=0"
    )
    before = _children_seconds()
    subprocess.run(
        [executable, *arguments.split()],
        cwd=folder, env=environment() | {"STAN_NUM_THREADS": str(threads)}, capture_output=True,
        check=True,
    )  # fmt: skip
    own = (_children_seconds() - before) / threads
    seconds = re.search(r"([\d.e-]+) seconds \(Sampling\)", (folder / "timing.csv").read_text())
    return 1e3 * min(float(seconds[1]), own) / steps if seconds else math.inf


def _children_seconds() -> float:
    """Return the processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
