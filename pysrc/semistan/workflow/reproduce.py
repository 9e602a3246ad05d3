"""Run a fit once more from what its folder says, and compare: the same draws, or what differs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from semistan.bundle.bundle import library_versions
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.infer.cmdstan.compile import without_comments
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle, arrays_hash, as_sampled, bundle_arrays
from semistan.model.config import SampleConfig
from semistan.model.modules import codes
from semistan.posterior.manifest import NOT_USED
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import Run, create_run, recorded
from semistan.posterior.summary import summarise
from semistan.subspace.construction import training_epochs
from semistan.workflow.compiled import starts_of, toolchain_for
from semistan.workflow.extend import with_more
from semistan.workflow.modes import with_chains
from semistan.workflow.prepare import Prepared, prepare
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.sample import draw_missing
from semistan.workflow.train import train
from semistan.workflow.watch import NOBODY, Watch

COLUMNS = ("subspace", "what", "same", "finding")


def reproduce(
    run: RunLike,
    *,
    watch: Watch = NOBODY,
    backend: Backend = LOCAL,
) -> pd.DataFrame:
    """Train and sample a run once more, in a temporary folder, and compare.

    Rows, settings, seeds, the kernel and the plan for the cores are those that the run's folder
    has. The draws are compared byte for byte; times, comments and names of files are left out.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    watch, backend
        As of ``fit_model``.

    Returns
    -------
    pandas.DataFrame
        A line for each thing that was compared: the ``subspace``, from 1; ``what`` it is; whether
        it is the ``same``; and the ``finding``. Versions that differ are not a failure, but may
        explain one.

    Raises
    ------
    InputError
        If the run lacks chains, or CmdStan is missing.
    SemistanError
        If training or sampling fails.
    """
    run = opened(run)
    run.check_complete()
    toolchain = toolchain_for(run.options)
    lines: list[dict[str, object]] = []
    for number, member in enumerate(run.members, start=1):
        with tempfile.TemporaryDirectory(prefix="semistan-") as folder:
            again = _trained_again(member, Path(folder, "run"), toolchain, watch, backend)
            again = _drawn_again(member, again, toolchain, watch, backend)
            found = [*_versions(member, toolchain), *_compared(member, again)]
        lines += [{"subspace": number, **line} for line in found]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _trained_again(
    member: Run, out: Path, toolchain: Toolchain | None, watch: Watch, backend: Backend
) -> Run:
    """Train a run of one subspace anew, and make a folder whose chains are to be drawn."""
    prepared, options = _prepared(member), _first_options(member)
    training = watch.of_epochs(training_epochs(prepared.config))
    bundle = train(prepared, training, backend=backend)
    watch.say(f"trained again: loss {bundle.trained.history['loss'][-1]:.4f}")
    starts = starts_of(
        as_sampled(bundle, options), prepared.rows, options, prior_only=member.prior_only
    )
    return create_run(
        bundle, prepared.rows, out, options, starts, member.plan, toolchain,
        kernel=member.kernel, prior_only=member.prior_only,
    )  # fmt: skip


def _first_options(member: Run) -> SampleConfig:
    """Return how a run was sampled before its chains went on, or others joined them."""
    done, options = member.manifest, member.options
    draws = done.continued[0].before if done.continued else options.per_chain
    return options.model_copy(update={"draws": draws, "chains": done.first or options.chains})


def _drawn_again(
    member: Run, again: Run, toolchain: Toolchain | None, watch: Watch, backend: Backend
) -> Run:
    """Draw chains as those of a run were drawn, part by part."""
    draw_missing(again, toolchain, watch=watch, backend=backend)
    if member.manifest.first and (joined := with_chains(again, member.options.chain_count)):
        again = joined
        draw_missing(again, toolchain, watch=watch, backend=backend)
    for part in member.manifest.continued:
        again = with_more(recorded(again, more=part), backend, watch)
    return again


def _prepared(member: Run) -> Prepared:
    """Learn the design once more from the rows that the run keeps."""
    config = member.bundle.config.model_copy(update={"data": None})
    prepared = prepare(config, member.table(), codes(member.bundle.modules) or None)
    return replace(prepared, source=member.bundle.source)


def _versions(member: Run, toolchain: Toolchain | None) -> list[dict[str, object]]:
    """Name versions that are not those of the run; these are no failure by themselves."""
    now = library_versions() | {
        "cmdstan": toolchain.version_text if toolchain else NOT_USED,
        "compiler": toolchain.compiler if toolchain else NOT_USED,
    }
    then = member.bundle.versions | {
        "cmdstan": member.manifest.cmdstan,
        "compiler": member.manifest.compiler,
    }
    return [
        {"what": f"version of {name}", "same": True, "finding": f"was {then[name]}, is {now[name]}"}
        for name in then
        if now.get(name, then[name]) != then[name]
    ]


def _compared(member: Run, again: Run) -> list[dict[str, object]]:
    """Compare the trained arrays, Stan's files, the chains and the table."""
    lines = [_line("trained arrays", _arrays_differ(member.bundle, again.bundle))]
    for name, content in (("program.stan", without_comments), ("data.json", str)):
        then, now = (content((run.path / name).read_text("utf-8")) for run in (member, again))
        lines.append(_line(name, "" if then == now else "another content"))
    files = zip(member.csv_files(), again.csv_files(), strict=True)
    for chain, (old, new) in enumerate(files, start=1):
        lines.append(_line(f"draws of chain {chain}", _draws_differ(old, new)))
    return [*lines, _line("table", _tables_differ(member, again))]


def _line(what: str, difference: str) -> dict[str, object]:
    return {"what": what, "same": not difference, "finding": difference or "the same"}


def _arrays_differ(old: Bundle, new: Bundle) -> str:
    one, other = bundle_arrays(old), bundle_arrays(new)
    if arrays_hash(one) == arrays_hash(other):
        return ""
    if {name: x.shape for name, x in one.items()} != {name: x.shape for name, x in other.items()}:
        return "other shapes"
    apart = {name: _apart(x, other[name]) for name, x in one.items() if x.size}
    name = max(apart, key=lambda key: apart[key])
    return f"by up to {apart[name]:.2g} of the largest value of {name}"


def _apart(one: Array, other: Array) -> float:
    """Return the largest difference of two arrays relative to the largest value."""
    return float(
        np.max(np.abs(one - other)) / max(float(np.max(np.abs(one))), np.finfo(float).tiny)
    )


def _draws_differ(old: Path, new: Path) -> str:
    """Say from which draw on two chains differ."""
    one, other = _lines(old), _lines(new)
    if one == other:
        return ""
    first = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
                 min(len(one), len(other)))  # fmt: skip
    return "other columns" if first == 0 else f"from draw {first} of {len(one) - 1} on"


def _lines(path: Path) -> list[bytes]:
    """Return the lines of a chain, its header first, without comments."""
    lines = path.read_bytes().splitlines()
    return [line for line in lines if line and not line.startswith(b"#")]


def _tables_differ(member: Run, again: Run) -> str:
    """Say by how many standard errors a number of the table differs, at the most."""
    one, other = (summarise(read_posterior(run), run.rows()).rows for run in (member, again))
    if repr(one) == repr(other):  # figures that do not exist are equal too
        return ""
    apart = {
        row.name: abs(row.values[0] - twin.values[0]) / row.values[1]
        for row, twin in zip(one, other, strict=False)
    }
    name = max(apart, key=lambda key: apart[key])
    return f"estimates by up to {apart[name]:.2g} of their Est.Error ({name})"
