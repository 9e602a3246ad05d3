"""The whole package as one story: check, compile, train, sample, summarise."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.bundle.lock import held
from semistan.data.frames import Table
from semistan.data.pixels import Reading
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.dask import backend_at
from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import ChainProgress, FiledTask, chain_tasks, complete_all
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import check_computable, method_named, method_of, suited
from semistan.infer.plan import default_plan
from semistan.infer.scripts import write_scripts
from semistan.infer.starts import find_starts
from semistan.infer.task import ChainTask
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import ModelConfig, SampleConfig, anywhere, with_overrides
from semistan.model.modules import Given
from semistan.model.orthogonal import announcement
from semistan.model.table.rows import Rows
from semistan.posterior.damaged_chains import set_aside
from semistan.posterior.manifest import MARKER
from semistan.posterior.orthogonal import STORED, write_gamma
from semistan.posterior.posterior import Mixture, Posterior, read_posterior
from semistan.posterior.run import (
    Run,
    create_run,
    read_run,
    record_chain,
    record_outputs,
    record_seconds,
    record_weights,
)
from semistan.posterior.scoring.loo import obstacle_of
from semistan.posterior.scoring.stacking import stack
from semistan.posterior.summary import Summary, summarise, write_summary
from semistan.program.parts import Kernel, has_kernel
from semistan.show.inference_data import inference_data, write_inference_data
from semistan.subspace.descent import Progress
from semistan.subspace.leading_layers import as_epochs
from semistan.words import count
from semistan.workflow.compiled import (
    compile_model,
    plan_of,
    starts_of,
    toolchain_for,
    trusted_kernel,
    without_kernel,
)
from semistan.workflow.dimension import resolved
from semistan.workflow.extend import agreement_text, ask_for_more, settle, with_more
from semistan.workflow.first_answer import first_answer
from semistan.workflow.modes import FIRST, decided, has_first_part
from semistan.workflow.prepare import Prepared, Say, configure, prepare, training_rows
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.saturation import warn_of_saturation
from semistan.workflow.train import (
    checkpoint_file,
    counted,
    goes_on,
    prior_text,
    train,
    training_text,
    warn_of_damage,
    warn_of_overfitting,
)
from semistan.workflow.train_subspaces import begin_run, going_on, train_missing


def _silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A finished run, its posterior and the summary of it."""

    run: Run
    posterior: Posterior
    summary: Summary


def fit_model(
    model: str | Path | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    out: str | Path,
    networks: Given | None = None,
    overwrite: bool = False,
    overrides: dict[str, Any] | None = None,
    progress: Progress | None = None,
    chain_progress: ChainProgress | None = None,
    reading: Reading | None = None,
    say: Say = _silent,
    backend: Backend | None = None,
) -> Fitted:
    """Fit a model: everything from a formula and a table to a posterior.

    Parameters
    ----------
    model, data, networks, overwrite
        As of ``semistan.fit``.
    out : path
        The run's folder.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"subspace.k": 8, "sample.seed": 3}``.
    progress : callable, optional
        Called during training with the epoch, the training and the validation loss.
    chain_progress : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    reading : callable, optional
        Called with how many images of a column have been read, and how many there are.
    say : callable, optional
        Receives one line for each step.
    backend : Backend, optional
        What trains and draws the chains; by default what the configuration says.

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
    with nullcontext(backend) if backend else backend_at(config.sample.where) as chosen:
        prepared = prepare(config, frame, networks, reading)
        progress = progress and counted(progress, prepared.config, config)
        for note in prepared.notes:
            say(note)
        return fit_prepared(
            prepared, Path(out),
            overwrite=overwrite, progress=progress, chain_progress=chain_progress, say=say,
            backend=chosen,
        )  # fmt: skip


def fit_prepared(
    prepared: Prepared,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    chain_progress: ChainProgress | None = None,
    say: Say = _silent,
    backend: Backend = LOCAL,
) -> Fitted:
    """Fit a model that was checked against its rows; other arguments as of ``fit_model``."""
    config = prepared.config
    if orthogonal := announcement(config, prepared.design):
        say(orthogonal)
    _check_weights(prepared)
    toolchain, asked = toolchain_for(config.sample), config.sample
    prepared = resolved(prepared, say=say)
    if progress and (trainings := prepared.config.subspace.trainings) > 1:
        progress = as_epochs(progress, trainings, config.subspace.trainings)
    config = prepared.config
    kernel = compile_model(prepared.model, toolchain, say)
    if config.subspace.trainings > 1:
        begin_run(prepared, out, toolchain, overwrite=overwrite)
        run = train_missing(
            out, prepared, toolchain, kernel, progress=progress, say=say, backend=backend
        )
    else:
        run = _trained_run(
            prepared, out, toolchain, kernel,
            compares=has_first_part(prepared.model, asked),
            overwrite=overwrite, progress=progress, say=say, backend=backend,
        )  # fmt: skip
    return sample(run, toolchain, progress=chain_progress, say=say, backend=backend)


def _check_weights(prepared: Prepared) -> None:
    """Refuse, before anything is trained, stacking by a PSIS-LOO that cannot be computed."""
    config = prepared.config
    obstacle = obstacle_of(method_of(config.sample), config, prepared.design)
    if config.subspace.trainings > 1 and config.subspace.weights == "stacking" and obstacle:
        raise InputError(f"subspace.weights is 'stacking', but {obstacle}, or weights = 'equal'")


def _trained_run(
    prepared: Prepared,
    out: Path,
    toolchain: Toolchain | None,
    kernel: Kernel,
    *,
    compares: bool,
    overwrite: bool,
    progress: Progress | None,
    say: Say,
    backend: Backend,
) -> Run:
    """Train one subspace and make the run's folder; ``compares`` as of ``new_run``."""
    started, checkpoint = time.monotonic(), checkpoint_file(out)
    warn_of_damage(checkpoint, say)
    if goes_on(prepared, checkpoint):
        say("training goes on where it was interrupted")
    try:
        bundle = train(prepared, progress, checkpoint=checkpoint, backend=backend)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on with the training")
        raise
    seconds = {"train": time.monotonic() - started}
    say(training_text(bundle, seconds["train"]))
    say(prior_text(bundle, prepared.rows))
    warn_of_overfitting([bundle], say)
    warn_of_saturation([bundle], prepared.rows, say)
    kernel = trusted_kernel(kernel, bundle, prepared.rows, toolchain, say)
    run = new_run(
        bundle, prepared.rows, out, prepared.config.sample, toolchain,
        kernel=kernel, compares=compares, overwrite=overwrite, timings=seconds, say=say,
    )  # fmt: skip
    checkpoint.unlink(missing_ok=True)
    return run


def train_bundle(
    config: ModelConfig,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    reading: Reading | None = None,
    say: Say = _silent,
) -> Bundle:
    """Train one subspace and export it as a bundle; arguments as of ``fit_model``."""
    check_output_folder(out, BUNDLE, overwrite=overwrite)
    prepared = prepare(config, reading=reading)
    for note in prepared.notes:
        say(note)
    if config.subspace.trainings > 1:
        say(
            f"a bundle holds one subspace, the first of {config.subspace.trainings}; "
            "'semistan fit' trains and samples all"
        )
    prepared = resolved(prepared, say=say)
    checkpoint = checkpoint_file(out)
    warn_of_damage(checkpoint, say)
    progress = progress and counted(progress, prepared.config, config)
    bundle = train(prepared, progress, checkpoint=checkpoint)
    say(prior_text(bundle, prepared.rows))
    warn_of_overfitting([bundle], say)
    warn_of_saturation([bundle], prepared.rows, say)
    write_bundle(bundle, out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    return bundle


def sample(
    run: Run,
    toolchain: Toolchain | None = None,
    *,
    more: int | None = None,
    progress: ChainProgress | None = None,
    say: Say = _silent,
    backend: Backend = LOCAL,
) -> Fitted:
    """Sample the chains that a run does not have yet, and write its results.

    A chain that was changed, or is not whole, is set aside and drawn anew, with the same draws.

    Parameters
    ----------
    run : Run
        The run.
    toolchain : Toolchain, optional
        CmdStan and the compiler; by default they are found if the run's method needs them.
    more : int, optional
        So many more draws for each chain of a finished run: it goes on from its last draw, with its
        step size and metric.
    progress : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    say : callable, optional
        Receives one line for each step.
    backend : Backend, optional
        What draws the chains; by default this machine.

    Raises
    ------
    InputError
        If a run cannot be continued.
    SemistanError
        If a chain fails, or another process is at work on this run.
    """
    with held(run.path):
        run = settle(run)
        if more is not None:
            run = ask_for_more(run, more)
        return _sampled(run, toolchain, progress, say, backend)


def _sampled(
    run: Run,
    toolchain: Toolchain | None,
    progress: ChainProgress | None,
    say: Say,
    backend: Backend,
) -> Fitted:
    """Draw what is missing, and write the results; arguments as of ``sample``."""
    for finding in set_aside(run):
        say(finding)
    if run.missing:
        say(sampling_text(run))
    started = time.monotonic()
    try:
        draw_missing(run, toolchain, progress=progress, backend=backend)
        if run.manifest.planned is not None:
            run = decided(run, say)
            draw_missing(run, toolchain, progress=progress, backend=backend)
        run = with_more(run, backend, progress)
    except KeyboardInterrupt:
        say(f"interrupted; go on with: {going_on(run.path, run.bundle.modules)}")
        raise
    run = record_seconds(run, sample=time.monotonic() - started)
    posterior, rows = read_posterior(run), run.rows()
    if agreement := agreement_text(run, posterior.members[0].draws):
        say(agreement)
    for member, learnt in zip(run.members, posterior.members, strict=True):
        draws = learnt.draws
        if draws.orthogonal and not draws.orthogonal.in_model:
            write_gamma(member.path / STORED, draws.phi, draws.orthogonal)
    if run.parts and run.config.subspace.weights == "stacking" and not run.weights:
        stacked = stack(posterior, rows)
        say(stacked.text())
        run = record_weights(run, stacked.weights)
        posterior = Mixture(posterior.members, stacked.weights)
    summary = summarise(posterior, rows)
    write_summary(summary, run.path / "summary.csv")
    write_inference_data(inference_data(run, posterior, rows), run.path / "posterior.nc")
    record_outputs(run)
    return Fitted(run, posterior, summary)


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
    filed = missing_tasks(run)
    toolchain = toolchain or toolchain_for(run.options)
    if toolchain is not None:  # before any chain begins, in case that it fails
        program = (run.path / "program.stan").read_text("utf-8")
        compile_program(program, toolchain, run.kernel, method_of(run.options).main)
    complete_all(filed, backend, at_once=run.plan.chains, progress=progress, before=record_chain)


def missing_tasks(run: Run) -> list[FiledTask]:
    """Return the tasks of the chains that a run lacks, and where their files go."""
    rows, C = None if method_of(run.options).by_stan else run.rows(), run.options.chain_count
    return [
        FiledTask(task, member.path / "chains", i * C)
        for i, member in enumerate(run.members)
        for task in _tasks(member, rows, f" of subspace {i + 1}" if run.parts else "")
    ]


def _tasks(member: Run, rows: Rows | None, where: str) -> list[ChainTask]:
    """Return the tasks of the chains that a run of one subspace lacks."""
    return chain_tasks(
        member.path, method_of(member.options), member.bundle, member.options,
        kernel=member.kernel, threads=member.plan.threads, keep_metric=member.keep_metric,
        prior_only=member.prior_only, rows=rows, where=where,
    )  # fmt: skip


def read_fitted(run: RunLike, networks: Given | None = None) -> Fitted:
    """Read a finished run's posterior and summarise it; ``networks`` as of ``read_run``."""
    run = read_run(run, networks) if isinstance(run, str | Path) else opened(run)
    posterior = read_posterior(run)
    return Fitted(run, posterior, summarise(posterior, run.rows()))


def new_run(
    bundle: Bundle,
    rows: Rows,
    out: Path,
    options: SampleConfig,
    toolchain: Toolchain | None,
    *,
    kernel: Kernel = "stan",
    prior_only: bool = False,
    compares: bool = False,
    overwrite: bool = False,
    timings: dict[str, float] | None = None,
    say: Say = _silent,
) -> Run:
    """Find the chains' starts, plan the cores, and write the run's folder.

    With ``compares``, chains are compared after a first part (``modes.py``).
    """
    planned = options.per_chain if compares else None
    if compares:
        options = options.model_copy(update={"draws": FIRST})
    started, sampled = time.monotonic(), as_sampled(bundle, options)
    method = method_of(options)
    method.check(bundle.config.model_copy(update={"sample": options}))
    check_computable(method, bundle.network)
    starts = starts_of(sampled, rows, options, prior_only=prior_only, say=say)
    seconds = {**(timings or {}), "starts": time.monotonic() - started}
    say(starts.text(starts.resolve(options), with_metric=method.hamiltonian))
    wanted = say is not _silent and not prior_only
    if wanted and (answer := first_answer(sampled, rows, options, starts.found)):
        say(answer.text())
    plan = plan_of(sampled, rows, options, toolchain, kernel)
    return create_run(
        bundle, rows, out, options, starts, plan, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, timings=seconds,
        planned=planned,
    )  # fmt: skip


def start_run(
    source: Path,
    data: str | None,
    out: Path,
    overrides: dict[str, Any],
    *,
    prior_only: bool = False,
    at_once: bool = False,
    overwrite: bool = False,
    reading: Reading | None = None,
    say: Say = _silent,
) -> Run:
    """Make a run's folder from a bundle's, ready to be sampled.

    With ``at_once``, chains are drawn to their end, whether they agree or not.
    """
    check_output_folder(out, MARKER, overwrite=overwrite)
    bundle = read_bundle(source)
    config = anywhere(with_overrides(bundle.config, overrides))
    config = config.model_copy(update={"sample": suited(config.sample, bundle.network)})
    rows = training_rows(bundle, data, reading)
    toolchain = toolchain_for(config.sample)
    model = bundle.model.replace(config=config)
    kernel = compile_model(model, toolchain, say)
    kernel = trusted_kernel(kernel, as_sampled(bundle, config.sample), rows, toolchain, say)
    return new_run(
        bundle, rows, out, config.sample, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, say=say,
        compares=not (prior_only or at_once) and has_first_part(model, config.sample),
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
    say: Say = _silent,
) -> None:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts and scripts.

    With ``include``, the hand-written functions are in a file that the program includes. Where the
    C++ kernel is asked for and cannot compute the network, that is said.
    """
    if (out / MARKER).is_file():
        raise InputError(f"'{out}' is a run, which has its program already; choose another name")
    check_output_folder(out, "program.stan", overwrite=overwrite)
    check_computable(method_named("nuts"), bundle.network)
    bundle = as_sampled(bundle, options)
    starts = find_starts(bundle, rows, options, prior_only=prior_only)
    resolved = starts.resolve(options)
    kernel: Kernel = "cpp" if options.kernel == "cpp" and has_kernel(bundle.model) else "stan"
    if options.kernel == "cpp" and kernel == "stan":
        say(without_kernel(bundle.model))
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


def sampling_text(run: Run) -> str:
    """Say what is about to be sampled."""
    options, missing, plan = run.options, len(run.missing), run.plan
    method = method_of(options)
    if not method.has_warmup:
        return f"{method.text}: {count(missing, 'approximation')} x {options.per_chain} draws"
    return (
        f"sampling {count(missing, 'chain')} x ({run.manifest.warmup_text} + "
        f"{options.per_chain}) draws, {min(missing, plan.chains)} at a time, {plan.text()}"
    )
