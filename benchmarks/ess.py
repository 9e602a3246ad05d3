"""Bulk-ESS per second of theta, sigma and 20 values of eta, warm-up included.

semistan samples as ``semistan fit`` does: its files are written and its draws are read within
the time taken. The others start at the same initial values. Chains fill the cores: each core
has a process that samples its share of them, one after the other. Compilation is left out. Where
all weights are sampled, NumPyro's diagonal metric is the only other contender: the rest would take
hours. Do the contenders agree on the posterior? Two records say it: the largest difference to
semistan's posterior means, in Monte Carlo standard errors of the difference, and the median ratio
of posterior standard deviations.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import arviz
import numpy as np

from cases import (
    config_of,
    initial_points,
    sample_run,
    smooth_table,
    unconstrained_point,
    write_data,
)
from common import AIRFOIL, Case, Options, Record, console, pin, read_options, record, report
from compiled import Process, build
from gradient import check_agreement
from peers import (
    Posterior,
    Sampler,
    Start,
    installed,
    numpyro_log_density,
    numpyro_sampler,
    posterior_of,
    pyro_log_density,
    pyro_sampler,
)
from semistan.density.predictor import linear_predictor
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows
from semistan.posterior.draws import read_draws
from semistan.posterior.run import Run
from semistan.program.parts import Kernel
from semistan.workflow.compiled import compile_model
from semistan.workflow.prepare import prepare
from semistan.workflow.train import train

VALUES = 20  # of eta, at rows spread over the table
LENGTH = (1000, 1000)  # warm-up and draws of each of a peer's chains
WHOLE_LENGTH = (500, 500)  # of all weights
PYRO_LENGTH = (200, 200)  # the rest would take hours
QUICK_LENGTHS = ((200, 200), (50, 50))  # of NumPyro and of Pyro
SEMISTAN = "semistan"
NUMPYRO = {"NumPyro, diagonal": False, "NumPyro, dense": True}  # is the metric dense?

Figures = dict[str, float]  # by metric
Draws = dict[str, Array]  # phi (C, S, k), theta (C, S, P) and sigma (C, S)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model, its program and how it is to be sampled."""

    case: Case
    bundle: Bundle
    rows: Rows
    kernel: Kernel
    options: SampleConfig
    toolchain: Toolchain


class Peer:
    """A sampler with one process for each core, and a share of the chains for each."""

    def __init__(
        self,
        cores: int,
        make: Callable[..., Sampler],
        posterior: Posterior,
        warmup: int,
        draws: int,
        *arguments: Any,
    ) -> None:
        self.warmup = warmup
        context = get_context("spawn")
        self._connections: list[Connection] = []
        for core in range(cores):
            ours, theirs = context.Pipe()
            target = (theirs, core, make, (posterior, warmup, draws, *arguments))
            context.Process(target=_serve, args=target, daemon=True).start()
            theirs.close()  # so that a process that fails ends the conversation
            self._connections.append(ours)
        for connection in self._connections:
            connection.recv()  # it is ready

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def sample(self, starts: Sequence[Start], seed: int) -> Draws:
        """Sample one chain from each start; the cores share them."""
        chains = [(start, 1000 * seed + number) for number, start in enumerate(starts)]
        shares = [chains[core :: len(self._connections)] for core in range(len(self._connections))]
        for connection, share in zip(self._connections, shares, strict=True):
            connection.send(share)
        sampled = [chain for connection in self._connections for chain in connection.recv()]
        return {name: np.stack([chain[name] for chain in sampled]) for name in sampled[0]}


def _serve(
    connection: Connection, core: int, make: Callable[..., Sampler], arguments: Sequence[Any]
) -> None:
    """Sample chains on one core until the other end is closed."""
    pin([core])
    sampler = make(*arguments)
    connection.send("ready")
    while True:
        try:
            chains = connection.recv()
        except EOFError:
            return
        connection.send([sampler(start, seed) for start, seed in chains])


def main() -> None:
    """Sample every case with every contender and report."""
    options = read_options(__doc__ or "", repeats=3, cores=2)
    toolchain = find_toolchain()
    for library in ("numpyro", "pyro"):
        if not installed(library):
            console.print(f"{library} is not installed and is left out")
    records: list[Record] = []
    for case in cases(options.quick):
        console.print(f"{case.name} ...")
        records += compare(train_model(case, toolchain), options)
    report("ess", options, records, toolchain)


def cases(quick: bool) -> list[Case]:
    """Return the airfoil's size in two subspaces, or a small table."""
    if quick:
        return [Case("300 rows, 1x8", 300, hidden=(8,), k=3)]
    return [
        Case("300 rows, 16-16, all weights", 300, hidden=(16, 16), k=None),
        replace(AIRFOIL, name="airfoil-size, all weights", k=None),
        *(replace(AIRFOIL, name=f"airfoil-size, k = {k}", k=k) for k in (5, 20)),
    ]


def train_model(case: Case, toolchain: Toolchain) -> Model:
    """Train a case's model and compile its program, both outside the time taken."""
    config = config_of(case)
    prepared = prepare(config, smooth_table(case))
    kernel = compile_model(prepared.model, toolchain, console.print)
    if kernel != "cpp":
        raise RuntimeError("the C++ kernel does not compile, and it is what is compared")
    return Model(case, train(prepared), prepared.rows, kernel, config.sample, toolchain)


def compare(model: Model, options: Options) -> list[Record]:
    """Let the contenders take turns, with a new seed in every round."""
    check_densities(model)
    samples: dict[str, list[Figures]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = peers(model, options, stack)
        for seed in range(1, options.repeats + 1):
            started = time.perf_counter()
            run, draws = sample_semistan(model, folder / f"run-{seed}", seed)
            seconds = time.perf_counter() - started
            warmup = int(run.manifest.sample.warmup)
            ours = quantities(model, draws)
            samples[SEMISTAN].append(summarise(ours, ours, seconds, warmup))
            starts = initial_points(run.path, model.options.chains)
            for name, peer in contenders.items():
                started = time.perf_counter()
                draws = peer.sample(starts, seed)
                seconds = time.perf_counter() - started
                theirs = quantities(model, draws)
                samples[name].append(summarise(theirs, ours, seconds, peer.warmup))
    return _records(model, samples, options.cores)


def check_densities(model: Model) -> None:
    """Stop unless every sampler sees the same log density and gradient."""
    q, posterior = unconstrained_point(model.bundle), posterior_of(model.bundle, model.rows)
    executable = build(model.bundle, model.kernel, model.toolchain)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.json"
        write_data(model.bundle, model.rows, data)
        with Process(executable, data, threads=1) as process:
            answers = {"kernel": process.evaluate(q)}
    if installed("numpyro"):
        answers["NumPyro"] = numpyro_log_density(posterior)(q)
    if installed("pyro"):
        answers["Pyro"] = pyro_log_density(posterior)(q)
    check_agreement(answers)


def peers(model: Model, options: Options, stack: ExitStack) -> dict[str, Peer]:
    """Start the processes of the peers that are installed, by the contender's name."""
    posterior = posterior_of(model.bundle, model.rows)
    length, pyro_length = QUICK_LENGTHS if options.quick else (LENGTH, PYRO_LENGTH)
    few = model.case.k is not None
    if not few:
        length = WHOLE_LENGTH
    found: dict[str, Peer] = {}
    if installed("numpyro"):
        for name, dense in NUMPYRO.items():
            if few or not dense:
                found[name] = Peer(options.cores, numpyro_sampler, posterior, *length, dense)
    if installed("pyro") and few:
        found["Pyro"] = Peer(options.cores, pyro_sampler, posterior, *pyro_length)
    for peer in found.values():
        stack.enter_context(peer)
    return found


def sample_semistan(model: Model, path: Path, seed: int) -> tuple[Run, Draws]:
    """Sample a run and read its draws."""
    options = model.options.model_copy(update={"seed": seed})
    run = sample_run(model.bundle, model.rows, path, options, model.kernel, model.toolchain)
    draws = read_draws(run)
    return run, {"phi": draws.phi, "theta": draws.theta, "sigma": draws.dispersion["sigma"]}


def summarise(values: Array, ours: Array, seconds: float, warmup: int) -> Figures:
    """Return a contender's figures in one round, by metric; ``ours`` are semistan's quantities."""
    ess = [float(arviz.ess(values[..., j], method="bulk")) for j in range(values.shape[-1])]
    rhat = [float(arviz.rhat(values[..., j])) for j in range(values.shape[-1])]
    (mean, sd, error), (our_mean, our_sd, our_error) = moments(values), moments(ours)
    return {
        "min bulk-ESS per second": min(ess) / seconds,
        "median bulk-ESS per second": median(ess) / seconds,
        "seconds": seconds,
        "largest Rhat": max(rhat),
        "warm-up per chain": warmup,
        "draws per chain": values.shape[1],
        "largest difference of means, in errors": float(
            np.max(np.abs(mean - our_mean) / np.hypot(error, our_error))
        ),
        "median ratio of sds": float(np.median(sd / our_sd)),
    }


def moments(values: Array) -> tuple[Array, Array, Array]:
    """Return means, standard deviations and the means' Monte Carlo errors, each (quantities,)."""
    error = [float(arviz.mcse(values[..., j])) for j in range(values.shape[-1])]
    return values.mean(axis=(0, 1)), values.std(axis=(0, 1), ddof=1), np.array(error)


def quantities(model: Model, draws: Draws) -> Array:
    """Return theta, sigma and some values of eta, shape (C, S, P + 1 + VALUES)."""
    bundle, rows = model.bundle, model.rows
    some = np.linspace(0, len(rows) - 1, VALUES).astype(int)
    phi, theta = (draws[name].reshape(-1, draws[name].shape[-1]) for name in ("phi", "theta"))
    eta = linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X[some], rows.U[some], phi, theta
    )
    shape = (*draws["sigma"].shape, VALUES)
    parts = (draws["theta"], draws["sigma"][..., None], eta.reshape(shape))
    return np.concatenate(parts, axis=-1)


def _records(model: Model, samples: Mapping[str, Sequence[Figures]], cores: int) -> list[Record]:
    def values(name: str, metric: str) -> list[float]:
        return [figures[metric] for figures in samples[name]]

    return [
        record(
            model.case, name, metric, values(name, metric), d=model.bundle.subspace.d,
            threads=cores, reference=values(SEMISTAN, metric),
        )
        for metric in samples[SEMISTAN][0]
        for name in samples
    ]  # fmt: skip


if __name__ == "__main__":
    main()
