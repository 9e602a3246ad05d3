"""More draws for a run: its chains go on, and are one chain each afterwards.

The manifest says what was asked for as soon as it is asked for, so that an interrupted continuation
is completed as any run. Continuations are kept as CmdStan wrote them in ``chains/more/`` until all
are there; then ``manifest.json`` and the chains' files take their draws, in an order that can be
taken up again wherever it stops.

Of several subspaces one is continued after the other, each as the run that it is. The manifest of
the whole says what was asked for until all are.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from semistan.bundle.files import write_bytes
from semistan.bundle.seal import Stamp, stamp_of_bytes
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.chain_store import (
    FiledTask,
    chain_file,
    chain_tasks,
    complete_all,
)
from semistan.infer.continuation import continued_task, joined, rows_of
from semistan.infer.methods import METHODS, method_named, method_of
from semistan.posterior.diagnostics import RHAT_LIMIT, convergence
from semistan.posterior.draws import Draws
from semistan.posterior.generated import FOLDER
from semistan.posterior.manifest import Continuation, record_files
from semistan.posterior.run import Run, recorded
from semistan.workflow.watch import NOBODY, Watch

MORE, JOINED = "more", "joined"  # folders in chains/


def ask_for_more(run: Run, draws: int, *, planned: bool = False) -> Run:
    """Note in the manifest that each chain is to have so many more draws.

    ``planned`` says that they follow the first part of a fit.

    Raises
    ------
    InputError
        If the run cannot be continued, lacks chains, or is being continued by another number.
    """
    method, pending = method_of(run.options), run.manifest.more
    if draws < 1:
        raise InputError(f"--more takes a number of draws of at least 1, got {draws}")
    if method.continued is None:
        able = [f"'{name}'" for name in METHODS if method_named(name).continued]
        raise InputError(
            f"--more continues chains of {' and '.join(able)}, this run's method is "
            f"'{method.name}'; sample its bundle into a new run: "
            f"semistan sample {run.path / 'bundle'} --draws N --out NAME"
        )
    if pending is not None and pending.draws != draws:
        raise InputError(
            f"'{run.path}' is being continued by {pending.draws} draws; complete that first: "
            f"semistan sample {run.path}"
        )
    if pending is not None:
        return run
    run.check_complete()
    before, times = run.options.per_chain, len(run.manifest.continued)
    seed = int(np.random.SeedSequence((run.options.seed, 10**6 + times)).generate_state(1)[0]) >> 1
    asked = Continuation(before=before, draws=draws, seed=seed, planned=planned)
    return recorded(run, more=asked, planned=None)


def settle(run: Run) -> Run:
    """Finish what an interruption left between the manifest and the chains' files."""
    if run.parts:
        return replace(run, parts=tuple(map(settle, run.parts)))
    staged, folder = run.path / "chains" / JOINED, run.path / "chains"
    if run.manifest.more is None and staged.is_dir():
        for path in sorted(staged.glob("chain-*.csv")):
            path.replace(folder / path.name)
        shutil.rmtree(folder / MORE, ignore_errors=True)
        shutil.rmtree(staged)
    return run


def with_more(run: Run, backend: Backend, watch: Watch = NOBODY) -> Run:
    """Draw what a run's chains are to be continued by, and append it."""
    pending = run.manifest.more
    if pending is None:
        return run
    if run.parts:
        parts = tuple(_part_with_more(part, pending, backend, watch) for part in run.parts)
        return _recorded(replace(run, parts=parts), pending, {})
    folder = run.path / "chains" / MORE
    files = {
        chain: chain_file(run.path / "chains", chain).read_bytes()
        for chain in range(1, run.options.chain_count + 1)
    }
    _complete(run, pending, files, folder, backend, watch)
    joints = {
        chain: joined(before, chain_file(folder, chain).read_bytes())
        for chain, before in files.items()
    }
    return _taken(run, pending, joints)


def _part_with_more(part: Run, whole: Continuation, backend: Backend, watch: Watch) -> Run:
    """Continue one of several subspaces, unless it has all draws already."""
    if part.options.per_chain == whole.total:
        return part
    return with_more(ask_for_more(part, whole.draws, planned=whole.planned), backend, watch)


def _complete(
    run: Run,
    pending: Continuation,
    files: dict[int, bytes],
    folder: Path,
    backend: Backend,
    watch: Watch,
) -> None:
    """Draw the continuations that are not there yet, or not whole."""
    method = method_of(run.options)
    assert method.continued
    missing = [chain for chain in files if not _is_whole(folder, chain, pending.draws)]
    tasks = chain_tasks(
        run.path, method, run.bundle, run.options, kernel=run.kernel,
        threads=run.plan.threads, keep_metric=run.keep_metric, prior_only=run.prior_only,
        chains=missing,
    )  # fmt: skip
    filed = [
        FiledTask(
            continued_task(task, method.continued, files[task.number], pending.draws, pending.seed),
            folder,
        )
        for task in tasks
    ]
    complete_all(filed, backend, at_once=run.plan.chains, progress=watch.chains)


def _is_whole(folder: Path, chain: int, draws: int) -> bool:
    path = chain_file(folder, chain)
    return path.is_file() and rows_of(path.read_bytes()) == draws


def _taken(run: Run, pending: Continuation, joints: dict[int, bytes]) -> Run:
    """Let the manifest and the chains' files have all draws."""
    staged = run.path / "chains" / JOINED
    stamps = {}
    for chain, content in joints.items():
        path = chain_file(staged, chain)
        write_bytes(path, content)
        rows = pending.total
        stamps[f"chains/{path.name}"] = stamp_of_bytes(content, rows)
    return settle(_recorded(run, pending, stamps))


def _recorded(run: Run, pending: Continuation, stamps: dict[str, Stamp]) -> Run:
    """Let the manifest say that the draws are there."""
    shutil.rmtree(run.path / FOLDER, ignore_errors=True)  # quantities of the draws before
    manifest = record_files(
        run.path,
        stamps,
        sample=run.options.model_copy(update={"draws": pending.total}),
        continued=[*run.manifest.continued, pending],
        more=None,
    )
    return replace(run, manifest=manifest)


def agreement_text(run: Run, several: Sequence[Draws]) -> str | None:
    """Say whether the draws of the last continuation agree with those before; None without one.

    The last draws before it and its own last ones, as many of either, are taken for chains of their
    own: Rhat of these must be as small as that of chains, in each subspace.
    """
    if not run.manifest.continued or run.manifest.continued[-1].planned:
        return None
    last = run.manifest.continued[-1]
    size, before = min(last.before, last.draws), last.before
    rhat = max(
        convergence(np.concatenate([x[:, before - size : before], x[:, -size:]])).rhat
        for draws in several
        for x in draws.identified.values()
    )
    said = (
        f"the {last.draws} draws by which each chain was continued and the {before} before: "
        f"largest Rhat {rhat:.4f} (limit {RHAT_LIMIT})"
    )
    return said if rhat <= RHAT_LIMIT else f"warning: they do not agree: {said}; draw more"
