"""Bulk-ESS of theta, sigma and 20 values of eta: by CPU second, warm-up included, and by gradient.

semistan samples as ``semistan fit`` does: its files are written and its draws are read within the
time taken. By default it integrates out what is linear; the same with everything sampled, with
microcanonical chains, and, where all weights are sampled, with static HMC on the integrated
program (CmdStan's, trajectories of a quarter of a period of a standard normal). NumPyro and nutpie
start at the same initial values. Chains fill the cores: each core has a process that samples its
share of them, one after the other. Compilation is left out of the time, and told by itself.
Gradients are those of the draws that are kept.

Do the contenders agree on the posterior? Two records say it: the largest difference to semistan's
posterior means, in Monte Carlo standard errors of the difference, and the median ratio of posterior
standard deviations.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import arviz
import numpy as np
import pandas as pd

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
    Chain,
    Cost,
    Posterior,
    Sampler,
    Start,
    installed,
    numpyro_log_density,
    numpyro_sampler,
    nutpie_sampler,
    posterior_of,
)
from semistan.density.predictor import linear_predictor
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.process import Call, run_cmdstan
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.infer.methods import method_of
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import ModelConfig, SampleConfig
from semistan.model.table.rows import Rows
from semistan.posterior.run import Run
from semistan.program.program import bundle_program
from semistan.workflow.prepare import configure, prepare
from semistan.workflow.train import train

DIABETES = Path(__file__).parents[1] / "models" / "diabetes" / "model.toml"
VALUES = 20  # of eta, at rows spread over the table
LENGTH = (1000, 1000)  # warm-up and draws of each of a peer's chains
WHOLE_LENGTH = (500, 500)  # of all weights
QUICK_LENGTH = (200, 200)
QUARTER = np.pi / 2  # of a period of a standard normal: static HMC's trajectory
SEMISTAN, SAMPLED, STATIC = "semistan", "semistan, all sampled", "CmdStan, static HMC"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    SEMISTAN: {},
    SAMPLED: {"integrate": "none"},
    "semistan, mclmc": {"method": "mclmc"},
}
NUMPYRO = {"NumPyro, diagonal": False, "NumPyro, dense": True}  # is the metric dense?
NUTPIE = "nutpie"

Figures = dict[str, float]  # by metric
Draws = dict[str, Array]  # phi (C, S, k), theta (C, S, P) and sigma (C, S)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model and its rows."""

    case: Case
    bundle: Bundle
    rows: Rows
    toolchain: Toolchain

    def options(self, settings: Mapping[str, Any]) -> SampleConfig:
        """Return the defaults with some options set."""
        return self.bundle.config.sample.model_copy(update=dict(settings))

    def executable(self, options: SampleConfig) -> Path:
        """Return the program with the kernel that these options sample."""
        program = bundle_program(as_sampled(self.bundle, options), "cpp")
        return compile_program(program, self.toolchain, "cpp", method_of(options).main).executable


class Peer:
    """A sampler with one process for each core, and a share of the chains for each.

    Attributes
    ----------
    compiled : float
        Seconds after which the first of them was ready.
    """

    def __init__(
        self, cores: int, make: Callable[..., Sampler], posterior: Posterior, *arguments: Any
    ) -> None:
        context = get_context("spawn")
        self._connections: list[Connection] = []
        for core in range(cores):
            ours, theirs = context.Pipe()
            target = (theirs, core, make, (posterior, *arguments))
            context.Process(target=_serve, args=target, daemon=True).start()
            theirs.close()  # so that a process that fails ends the conversation
            self._connections.append(ours)
        self.compiled = min([connection.recv() for connection in self._connections])

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def sample(self, starts: Sequence[Start], seed: int) -> tuple[Draws, Cost]:
        """Sample one chain from each start; the cores share them."""
        chains = [(start, 1000 * seed + number) for number, start in enumerate(starts)]
        shares = [chains[core :: len(self._connections)] for core in range(len(self._connections))]
        for connection, share in zip(self._connections, shares, strict=True):
            connection.send(share)
        return together([pair for connection in self._connections for pair in connection.recv()])


def together(sampled: Sequence[tuple[Chain, Cost]]) -> tuple[Draws, Cost]:
    """Stack chains, and add what they took."""
    chains, costs = zip(*sampled, strict=True)
    draws = {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}
    return draws, sum(costs, Cost(0, 0, 0))


def _serve(
    connection: Connection, core: int, make: Callable[..., Sampler], arguments: Sequence[Any]
) -> None:
    """Sample chains on one core until the other end is closed."""
    pin([core])
    started = time.perf_counter()
    sampler = make(*arguments)
    connection.send(time.perf_counter() - started)
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
    for library in ("numpyro", "nutpie"):
        if not installed(library):
            console.print(f"{library} is not installed and is left out")
    records: list[Record] = []
    for case, config, table in problems(options.quick):
        console.print(f"{case.name} ...")
        records += compare(train_model(case, config, table, toolchain), options)
        report("ess", options, records, toolchain)  # what is there, should it be stopped


def problems(quick: bool) -> Iterator[tuple[Case, ModelConfig, pd.DataFrame | None]]:
    """Return cases with their models and tables; a worked model names its own."""
    if quick:
        simulated = [Case("300 rows, 1x8", 300, hidden=(8,), k=3)]
    else:
        diabetes = Case("models/diabetes, all weights", 442, hidden=(16,), k=None, inputs=7)
        yield diabetes, configure(DIABETES), None
        simulated = [
            Case("300 rows, 16-16, all weights", 300, hidden=(16, 16), k=None),
            *(replace(AIRFOIL, name=f"airfoil-size, k = {k}", k=k) for k in (5, 20)),
            replace(AIRFOIL, name="airfoil-size, all weights", k=None),
        ]
    for case in simulated:
        yield case, config_of(case), smooth_table(case)


def train_model(
    case: Case, config: ModelConfig, table: pd.DataFrame | None, toolchain: Toolchain
) -> Model:
    """Train a case's model."""
    prepared = prepare(config, table)
    return Model(case, train(prepared), prepared.rows, toolchain)


def compare(model: Model, options: Options) -> list[Record]:
    """Let the contenders take turns, with a new seed in every round."""
    check_densities(model)
    compiled, samples = compilation(model), defaultdict[str, list[Figures]](list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = peers(model, options, stack)
        compiled |= {name: peer.compiled for name, peer in found.items()}
        for seed in range(1, options.repeats + 1):
            runs, drawn = dict[str, Run](), dict[str, Any]()  # draws and what they took
            for name in (name for name in compiled if name in SETTINGS):
                path = folder / f"{name}-{seed}"
                runs[name], *drawn[name] = sample_semistan(model, SETTINGS[name], path, seed)
            if STATIC in compiled:
                drawn[STATIC] = static_hmc(model, runs[SEMISTAN], seed, options.cores)
            whole = runs.get(SAMPLED, runs[SEMISTAN])  # whose starts are of all that peers sample
            starts = initial_points(whole.path, whole.options.chains)
            drawn |= {name: peer.sample(starts, seed) for name, peer in found.items()}
            ours = quantities(model, drawn[SEMISTAN][0])
            for name, (draws, cost) in drawn.items():
                samples[name].append(summarise(quantities(model, draws), ours, cost))
    for name, figures in samples.items():
        for item in figures:
            item["compilation, seconds"] = compiled[name]
    return _records(model, samples, options.cores)


def check_densities(model: Model) -> None:
    """Stop unless every sampler sees the same log density and gradient."""
    q, posterior = unconstrained_point(model.bundle), posterior_of(model.bundle, model.rows)
    bundle = as_sampled(model.bundle, model.options({"integrate": "none"}))
    executable = build(bundle, "cpp", model.toolchain)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.json"
        write_data(bundle, model.rows, data)
        with Process(executable, data, threads=1) as process:
            answers = {"kernel": process.evaluate(q)}
    if installed("numpyro"):
        answers["NumPyro"] = numpyro_log_density(posterior)(q)
    check_agreement(answers)


def compilation(model: Model) -> dict[str, float]:
    """Return the seconds that each of semistan's programs takes to compile, in a new cache.

    In a subspace nothing is integrated out of these models, and one program is enough.
    """
    seconds, whole = {}, model.case.k is None
    for name, settings in SETTINGS.items():
        if name == SAMPLED and not whole:
            continue
        with new_cache():
            started = time.perf_counter()
            model.executable(model.options(settings))
            seconds[name] = time.perf_counter() - started
        model.executable(model.options(settings))  # where it stays
    return seconds | ({STATIC: seconds[SEMISTAN]} if whole else {})


@contextmanager
def new_cache() -> Iterator[None]:
    """Have programs compiled in an empty folder."""
    name, given = "SEMISTAN_CACHE", os.environ.get("SEMISTAN_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            if given is None:
                del os.environ[name]
            else:
                os.environ[name] = given


def peers(model: Model, options: Options, stack: ExitStack) -> dict[str, Peer]:
    """Start the processes of the peers that are installed, by the contender's name."""
    posterior = posterior_of(model.bundle, model.rows)
    few = model.case.k is not None
    length = QUICK_LENGTH if options.quick else LENGTH if few else WHOLE_LENGTH
    found: dict[str, Peer] = {}
    if installed("numpyro"):
        for name, dense in NUMPYRO.items():
            if few or not dense:  # a dense metric of hundreds of dimensions would take hours
                found[name] = Peer(options.cores, numpyro_sampler, posterior, *length, dense)
    if installed("nutpie"):
        found[NUTPIE] = Peer(options.cores, nutpie_sampler, posterior, *length)
    for peer in found.values():
        stack.enter_context(peer)
    return found


def sample_semistan(
    model: Model, settings: Mapping[str, Any], path: Path, seed: int
) -> tuple[Run, Draws, Cost]:
    """Sample a run with some options set, and read its draws."""
    options = model.options({**settings, "seed": seed})
    clock = _processor_seconds()
    run = sample_run(model.bundle, model.rows, path, options, "cpp", model.toolchain)
    draws, cost = read_chains(run.csv_files())
    return run, draws, cost.of(_processor_seconds() - clock)


def static_hmc(model: Model, run: Run, seed: int, cores: int) -> tuple[Draws, Cost]:
    """Sample the program of a run by CmdStan's HMC with trajectories of one length."""
    executable = model.executable(run.options)
    words = [
        "method=sample", "num_samples=1000", f"num_warmup={run.options.warmup}", "adapt",
        "delta=0.8", "algorithm=hmc", "engine=static", f"int_time={QUARTER}", "metric=diag_e",
    ]  # fmt: skip

    def sample(chain: int) -> Path:
        data, start = run.path / "data.json", run.path / f"inits-{chain}.json"
        output = run.path / f"static-{chain}.csv"
        call = Call(data=data, start=start, seed=seed, chain=chain, sig_figs=10)
        output.write_bytes(run_cmdstan(executable, words, call, run.path / f"of-{chain}.csv"))
        return output

    clock = _processor_seconds()
    with ThreadPoolExecutor(cores) as pool:
        files = list(pool.map(sample, range(1, run.options.chains + 1)))
    draws, cost = read_chains(files)
    return draws, cost.of(_processor_seconds() - clock)


def read_chains(files: Sequence[Path]) -> tuple[Draws, Cost]:
    """Read draws, seconds and gradients from Stan's CSV files."""
    return together([_read_chain(path) for path in files])


def _read_chain(path: Path) -> tuple[Chain, Cost]:
    table = pd.read_csv(path, comment="#")
    warmup, sampling, _ = (
        float(line.replace("#", "").replace("Elapsed Time:", "").split()[0])
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("#") and " seconds (" in line
    )
    if "n_leapfrog__" in table:
        gradients = table["n_leapfrog__"].sum()
    else:
        gradients = np.maximum(1, table["int_time__"] // table["stepsize__"]).sum()
    chain = {
        "phi": table.filter(regex=r"^phi\.\d+$").to_numpy(),
        "theta": table.filter(regex=r"^theta\.\d+$").to_numpy(),
        "sigma": table["sigma"].to_numpy(),
    }
    return chain, Cost(warmup, sampling, int(gradients))


def _processor_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def summarise(values: Array, ours: Array, cost: Cost) -> Figures:
    """Return a contender's figures in one round, by metric; ``ours`` are semistan's quantities."""
    ess = [float(arviz.ess(values[..., j], method="bulk")) for j in range(values.shape[-1])]
    rhat = [float(arviz.rhat(values[..., j])) for j in range(values.shape[-1])]
    (mean, sd, error), (our_mean, our_sd, our_error) = moments(values), moments(ours)
    return {
        "min bulk-ESS per CPU second": min(ess) / cost.seconds,
        "median bulk-ESS per CPU second": median(ess) / cost.seconds,
        "min bulk-ESS per 1,000 gradients": 1e3 * min(ess) / cost.gradients,
        "median bulk-ESS per 1,000 gradients": 1e3 * median(ess) / cost.gradients,
        "CPU seconds of warm-up": cost.warmup,
        "CPU seconds of sampling": cost.sampling,
        "gradients of sampling": cost.gradients,
        "largest Rhat": max(rhat),
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
