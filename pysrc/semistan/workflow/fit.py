"""The whole package as one story: check, compile, train, sample, summarise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.bundle.bundle import library_versions, read_bundle
from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.density.problem import make_problem
from semistan.errors import InputError, ToolchainError
from semistan.infer.backends.backend import SILENT, Backend, Report
from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import ChainProgress, chain_tasks, complete
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import check_version, method_of
from semistan.infer.plan import Plan, default_plan, timed_plan
from semistan.infer.scripts import write_scripts
from semistan.infer.starts import find_starts
from semistan.infer.task import torch_threads
from semistan.lazy import torch
from semistan.model.bundle import Bundle, with_temper
from semistan.model.config import ModelConfig, SampleConfig, with_overrides
from semistan.model.model import Model
from semistan.model.orthogonal import announcement
from semistan.model.table.rows import Rows
from semistan.posterior.orthogonal import STORED, write_gamma
from semistan.posterior.posterior import One, read_posterior
from semistan.posterior.run import MARKER, Run, create_run, read_run, record_seconds
from semistan.posterior.summary import Summary, summarise, write_summary
from semistan.program.program import Kernel, bundle_program, stan_program
from semistan.show.inference_data import inference_data, write_inference_data
from semistan.subspace.construction import construction
from semistan.subspace.descent import Progress
from semistan.workflow.prepare import Prepared, Say, configure, prepare, training_rows

if TYPE_CHECKING:
    import pandas as pd


def _silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A finished fit: the run's folder, its posterior and the summary of it."""

    run: Run
    posterior: One
    summary: Summary

    def __repr__(self) -> str:
        return f"{self.run!r}\n\n{self.summary!r}"

    def _repr_html_(self) -> str:
        return self.run._repr_html_() + self.summary._repr_html_()


@dataclass(frozen=True, slots=True, eq=False)
class TrainTask:
    """The training of one subspace."""

    prepared: Prepared

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return "training"

    @property
    def in_thread(self) -> bool:
        """PyTorch computes in this process."""
        return False

    def run(self, report: Report) -> Bundle:
        """Train, and report each epoch with its losses."""
        model, config = self.prepared.model, self.prepared.config
        problem = make_problem(model, self.prepared.rows, _device(config.train.device))
        generator = torch.Generator().manual_seed(config.train.seed)
        with torch_threads(len(problem) * model.network.widest):
            construct = construction(config.subspace.construction)
            trained = construct(
                problem, model.units, config.subspace, config.train, generator, report.step
            )
        return Bundle(
            config, model.design, model.units, trained, self.prepared.source, library_versions()
        )


def train(
    prepared: Prepared, progress: Progress | None = None, *, backend: Backend = LOCAL
) -> Bundle:
    """Train the subspace of a prepared model."""
    report = SILENT if progress is None else Report(progress)
    ((_, bundle),) = backend.map([TrainTask(prepared)], report=lambda _: report)
    return bundle


def fit(
    model: str | Path | ModelConfig,
    data: pd.DataFrame | str | Path | None = None,
    *,
    out: str | Path,
    overwrite: bool = False,
    overrides: dict[str, Any] | None = None,
    progress: Progress | None = None,
    chain_progress: ChainProgress | None = None,
    say: Say = _silent,
    backend: Backend = LOCAL,
) -> Fit:
    """Fit a model: everything from a formula and a table to a posterior.

    Parameters
    ----------
    model : str, Path or ModelConfig
        A formula, the path of a ``model.toml``, or a configuration.
    data : pandas.DataFrame or path, optional
        The table; by default the one that ``model.toml`` names.
    out : path
        The run's folder.
    overwrite : bool
        Whether an older run there may be replaced.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"subspace.k": 8, "sample.seed": 3}``.
    progress : callable, optional
        Called during training with the epoch, the training and the validation loss.
    chain_progress : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    say : callable, optional
        Receives one line for each step.
    backend : Backend, optional
        What trains and draws the chains; by default this machine.

    Raises
    ------
    InputError
        Before anything is trained or written, if the model or the data cannot be used or
        CmdStan is missing.
    SemistanError
        If training or sampling fails.
    """
    frame, overrides = data, dict(overrides or {})
    if isinstance(data, str | Path):
        frame, overrides["data"] = None, str(data)
    config = configure(model, overrides)
    check_output_folder(Path(out), MARKER, overwrite=overwrite)
    prepared = prepare(config, frame)
    config = prepared.config
    for note in prepared.notes:
        say(note)
    if orthogonal := announcement(config, prepared.design):
        say(orthogonal)
    toolchain = toolchain_for(config.sample)
    kernel = compile_model(prepared.model, toolchain, say)
    started = time.monotonic()
    bundle = train(prepared, progress, backend=backend)
    seconds = {"train": time.monotonic() - started}
    say(training_text(bundle, seconds["train"]))
    kernel = trusted_kernel(kernel, bundle, prepared.rows, toolchain, say)
    run = new_run(
        bundle, prepared.rows, Path(out), config.sample, toolchain,
        kernel=kernel, overwrite=overwrite, timings=seconds, say=say,
    )  # fmt: skip
    return sample(run, toolchain, progress=chain_progress, say=say, backend=backend)


def toolchain_for(options: SampleConfig) -> Toolchain | None:
    """Find CmdStan if the method needs it.

    Raises
    ------
    ToolchainError
        If it is missing, or too old for the method.
    """
    method = method_of(options)
    if not method.by_stan:
        return None
    toolchain = find_toolchain()
    check_version(method, toolchain.version)
    return toolchain


def sample(
    run: Run,
    toolchain: Toolchain | None = None,
    *,
    progress: ChainProgress | None = None,
    say: Say = _silent,
    backend: Backend = LOCAL,
) -> Fit:
    """Sample the chains that a run does not have yet, and write its results.

    Parameters
    ----------
    run : Run
        The run.
    toolchain : Toolchain, optional
        CmdStan and the compiler; by default they are found if the run's method needs them.
    progress : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    say : callable, optional
        Receives one line for each step.
    backend : Backend, optional
        What draws the chains; by default this machine.
    """
    if run.missing:
        say(sampling_text(run))
    started = time.monotonic()
    try:
        draw_missing(run, toolchain, progress=progress, backend=backend)
    except KeyboardInterrupt:
        say(f"interrupted; go on with: semistan sample {run.path}")
        raise
    run = record_seconds(run, sample=time.monotonic() - started)
    posterior, rows = read_posterior(run), run.rows()
    draws = posterior.draws
    if draws.orthogonal and not draws.orthogonal.in_model:
        write_gamma(run.path / STORED, draws.phi, draws.orthogonal)
    summary = summarise(posterior, rows)
    write_summary(summary, run.path / "summary.csv")
    write_inference_data(inference_data(run, posterior, rows), run.path / "posterior.nc")
    return Fit(run, posterior, summary)


def draw_missing(
    run: Run,
    toolchain: Toolchain | None = None,
    *,
    progress: ChainProgress | None = None,
    backend: Backend = LOCAL,
) -> None:
    """Let the run's method draw the chains that are missing; arguments as of ``sample``."""
    if not run.missing:
        return
    method = method_of(run.options)
    tasks = chain_tasks(
        run.path, method, run.bundle, run.options,
        kernel=run.kernel, threads=run.plan.threads, keep_metric=run.keep_metric,
        prior_only=run.prior_only, rows=None if method.by_stan else run.rows(),
    )  # fmt: skip
    toolchain = toolchain or toolchain_for(run.options)
    if toolchain is not None:  # before any chain begins, in case that it fails
        compile_program(tasks[0].program, toolchain, run.kernel)
    complete(run.path / "chains", tasks, backend, at_once=run.plan.chains, progress=progress)


def read_fit(run: Run | str | Path) -> Fit:
    """Read a finished run's posterior and summarise it."""
    run = run if isinstance(run, Run) else read_run(run)
    posterior = read_posterior(run)
    return Fit(run, posterior, summarise(posterior, run.rows()))


def new_run(
    bundle: Bundle,
    rows: Rows,
    out: Path,
    options: SampleConfig,
    toolchain: Toolchain | None,
    *,
    kernel: Kernel = "stan",
    prior_only: bool = False,
    overwrite: bool = False,
    timings: dict[str, float] | None = None,
    say: Say = _silent,
) -> Run:
    """Find the chains' starts, plan the cores, and write the run's folder."""
    started, sampled = time.monotonic(), with_temper(bundle, options)
    method = method_of(options)
    method.check(bundle.config.model_copy(update={"sample": options}))
    starts = find_starts(sampled, rows, options, prior_only=prior_only, from_mode=method.from_mode)
    seconds = {**(timings or {}), "starts": time.monotonic() - started}
    say(starts.text(starts.resolve(options), with_metric=method.hamiltonian))
    plan = _plan(sampled, rows, options, toolchain, kernel)
    return create_run(
        bundle, rows, out, options, starts, plan, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, timings=seconds,
    )  # fmt: skip


def _plan(
    bundle: Bundle, rows: Rows, options: SampleConfig, toolchain: Toolchain | None, kernel: Kernel
) -> Plan:
    """Plan the cores: PyTorch takes one chain at a time, and Hamiltonian chains have threads."""
    if toolchain is None:
        return Plan(1, 1, len(rows))
    if not method_of(options).hamiltonian or bundle.model.integrates_theta:
        return default_plan(options.model_copy(update={"threads": 1}), len(rows))
    compiled = compile_program(bundle_program(bundle, kernel), toolchain, kernel)
    return timed_plan(bundle, rows, options, compiled.executable)


def start_run(
    source: Path,
    data: str | None,
    out: Path,
    overrides: dict[str, Any],
    *,
    prior_only: bool = False,
    overwrite: bool = False,
    say: Say = _silent,
) -> Run:
    """Make a run's folder from a bundle's, ready to be sampled."""
    check_output_folder(out, MARKER, overwrite=overwrite)
    bundle = read_bundle(source)
    config, rows = with_overrides(bundle.config, overrides), training_rows(bundle, data)
    toolchain = toolchain_for(config.sample)
    model = bundle.model.replace(config=config)
    kernel = compile_model(model, toolchain, say)
    kernel = trusted_kernel(kernel, with_temper(bundle, config.sample), rows, toolchain, say)
    return new_run(
        bundle, rows, out, config.sample, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, say=say,
    )  # fmt: skip


def export_stan(
    bundle: Bundle,
    rows: Rows,
    out: Path,
    options: SampleConfig,
    *,
    prior_only: bool = False,
    overwrite: bool = False,
    include: bool = False,
) -> None:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts and scripts.

    With ``include``, the hand-written functions are in a file that the program includes.
    """
    if (out / MARKER).is_file():
        raise InputError(f"'{out}' is a run, which has its program already; choose another name")
    check_output_folder(out, "program.stan", overwrite=overwrite)
    bundle = with_temper(bundle, options)
    starts = find_starts(bundle, rows, options, prior_only=prior_only)
    resolved = starts.resolve(options)
    in_cpp = options.kernel == "cpp" and not bundle.model.integrates_theta
    kernel: Kernel = "cpp" if in_cpp else "stan"
    with atomic_folder(out) as folder:
        write_stan_folder(
            bundle, rows, folder, starts,
            grainsize=default_plan(options, len(rows)).grainsize,
            kernel=kernel, prior_only=prior_only, include=include,
        )  # fmt: skip
        write_scripts(
            folder, resolved, keep_metric=starts.keeps_metric, kernel=kernel, include=include
        )


def run_options(bundle: Bundle, overrides: dict[str, Any]) -> SampleConfig:
    """Return a bundle's sampling options with some replaced."""
    return with_overrides(bundle.config, overrides).sample


def compile_model(model: Model, toolchain: Toolchain | None, say: Say) -> Kernel:
    """Compile the program, with the C++ kernel unless it is refused, and return which.

    Without a toolchain nothing is compiled; pure Stan is what is written then.
    """
    if toolchain is None:
        return "stan"
    integrated, chosen = model.integrates_theta, model.config.sample.kernel
    wanted: Kernel = "stan" if chosen == "stan" or integrated else "cpp"
    if integrated and chosen != "stan":
        say("pure Stan is used, on one thread for each chain, because theta is integrated out")
    try:
        compiled = compile_program(stan_program(model, kernel=wanted), toolchain, wanted)
    except ToolchainError as error:
        if wanted == "stan":
            raise
        say(f"warning: pure Stan is used, because the C++ kernel fails: {error}")
        return compile_model(_in_stan(model), toolchain, say)
    state = "already compiled" if compiled.cached else "compiled"
    with_kernel = " with the C++ kernel" if wanted == "cpp" else ""
    say(f"Stan program{with_kernel} {state} (CmdStan {toolchain.version_text})")
    return wanted


def trusted_kernel(
    kernel: Kernel, bundle: Bundle, rows: Rows, toolchain: Toolchain | None, say: Say
) -> Kernel:
    """Check the kernel on ten rows; fall back on pure Stan if it disagrees with the network."""
    if kernel == "stan" or toolchain is None:
        return kernel
    program = compile_program(bundle_program(bundle, kernel), toolchain, kernel)
    failure = kernel_failure(bundle, rows, program.executable)
    if failure is None:
        return kernel
    say(f"warning: pure Stan is used, because the C++ kernel fails its self-check: {failure}")
    return compile_model(_in_stan(bundle.model), toolchain, say)


def _in_stan(model: Model) -> Model:
    """Return the model whose program has no C++ kernel."""
    return model.replace(config=with_overrides(model.config, {"sample.kernel": "stan"}))


def training_text(bundle: Bundle, seconds: float) -> str:
    """Say what was trained and how it went."""
    trained, d = bundle.trained, bundle.subspace.d
    number = len(bundle.network.parts)
    networks = f"{number} networks" if number > 1 else "a network"
    if not trained.curve:
        return (
            f"trained {networks} of {d} weights and its subspace ({bundle.subspace.origin}) in "
            f"{seconds:.0f} s, loss {trained.history['loss'][-1]:.4f}"
        )
    return (
        f"trained a curve of length {trained.arc_length:.3g} through "
        f"{len(trained.control_points)} points of {d} weights in {seconds:.0f} s, "
        f"loss {trained.curve['loss'].mean():.4f} along it"
    )


def sampling_text(run: Run) -> str:
    """Say what is about to be sampled."""
    options, missing, plan = run.options, len(run.missing), run.plan
    method = method_of(options)
    if not method.has_warmup:
        return (
            f"{method.text}: {missing} approximation{'s' * (missing != 1)} x {options.draws} draws"
        )
    return (
        f"sampling {missing} chain{'s' * (missing != 1)} x ({options.warmup} + {options.draws}) "
        f"draws, {min(missing, plan.chains)} at a time, {plan.text()}"
    )


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("train.device is 'cuda', but PyTorch finds no CUDA device; use 'auto'")
    return name
