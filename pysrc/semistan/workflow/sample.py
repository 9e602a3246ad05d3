"""Draw the chains that a run lacks, and write its results."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from semistan.bundle.lock import held
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import FiledTask, chain_tasks, complete_all
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.methods import method_of
from semistan.infer.task import ChainTask
from semistan.model.modules import Given
from semistan.model.table.rows import Rows
from semistan.posterior.damaged_chains import set_aside
from semistan.posterior.orthogonal import STORED, write_gamma
from semistan.posterior.posterior import Mixture, Posterior, read_posterior
from semistan.posterior.run import (
    Run,
    read_run,
    record_chain,
    record_outputs,
    record_seconds,
    record_weights,
)
from semistan.posterior.scoring.stacking import stack
from semistan.posterior.summary import Summary, summarise, write_summary
from semistan.show.inference_data import inference_data, write_inference_data
from semistan.words import count
from semistan.workflow.compiled import toolchain_for
from semistan.workflow.extend import agreement_text, ask_for_more, settle, with_more
from semistan.workflow.modes import decided
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.smaller_steps import with_smaller_steps
from semistan.workflow.train_subspaces import going_on
from semistan.workflow.watch import NOBODY, Watch


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A finished run, its posterior and the summary of it."""

    run: Run
    posterior: Posterior
    summary: Summary


def sample(
    run: Run,
    toolchain: Toolchain | None = None,
    *,
    more: int | None = None,
    watch: Watch = NOBODY,
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
    watch : Watch, optional
        Who is told how the chains go on; by default nobody.
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
        return _sampled(run, toolchain, watch, backend)


def _sampled(run: Run, toolchain: Toolchain | None, watch: Watch, backend: Backend) -> Fitted:
    """Draw what is missing, and write the results; arguments as of ``sample``."""
    for finding in set_aside(run):
        watch.say(finding)
    drawn = bool(run.missing)  # here: finished runs, and chains of other machines, stay
    if drawn:
        watch.say(sampling_text(run))
    started = time.monotonic()
    try:
        draw_missing(run, toolchain, watch=watch, backend=backend)
        if drawn:
            run = with_smaller_steps(run, time.monotonic() - started, watch.say)
            draw_missing(run, toolchain, watch=watch, backend=backend)
        if run.manifest.planned is not None:
            run = decided(run, watch.say)
            draw_missing(run, toolchain, watch=watch, backend=backend)
        run = with_more(run, backend, watch)
    except KeyboardInterrupt:
        watch.say(f"interrupted; go on with: {going_on(run.path, run.bundle.modules)}")
        raise
    run = record_seconds(run, sample=time.monotonic() - started)
    posterior, rows = read_posterior(run), run.rows()
    if agreement := agreement_text(run, [member.draws for member in posterior.members]):
        watch.say(agreement)
    for member, learnt in zip(run.members, posterior.members, strict=True):
        draws = learnt.draws
        if draws.orthogonal and not draws.orthogonal.in_model:
            write_gamma(member.path / STORED, draws.phi, draws.orthogonal)
    if run.parts and run.config.subspace.weights == "stacking" and not run.weights:
        stacked = stack(posterior, rows)
        watch.say(stacked.text())
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
    watch: Watch = NOBODY,
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
    at_once, progress = run.plan.chains, watch.chains
    complete_all(filed, backend, at_once=at_once, progress=progress, before=record_chain)


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
