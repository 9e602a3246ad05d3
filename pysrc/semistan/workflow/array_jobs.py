"""Chains as the jobs of any scheduler: a command for each, and their files taken in afterwards.

A job needs the run's folder, or a copy of it, and draws one chain into a file elsewhere. A chain
depends on the folder and its number alone, so that it has the draws that ``semistan sample`` gives.
Chains go by the names of their files in the run: ``chains/chain-2.csv``, and with several subspaces
``subspaces/3/chains/chain-2.csv``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from semistan.bundle.files import write_bytes
from semistan.errors import InputError
from semistan.infer.backends.backend import SILENT
from semistan.infer.chain_store import FiledTask, chain_file
from semistan.posterior.chain_csv import read_chain
from semistan.posterior.draws import chain_form
from semistan.posterior.run import Run, read_run, record_chain
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.sample import Fitted, missing_tasks, sample
from semistan.workflow.watch import Say, Watch, silent

JOBS = Path("jobs")


def tasks(run: RunLike, out: Path | str = JOBS) -> dict[str, str]:
    """Return a shell command for each chain that a run lacks.

    Parameters
    ----------
    run : Fit, Run or path
        A run that is not finished, as ``semistan sample BUNDLE --no-draws`` makes it.
    out : path
        The folder that the commands write into, for ``collect``.

    Returns
    -------
    dict of str
        The chains' files and the commands, for the working directory; the i-th job of an array runs
        the i-th.
    """
    run = opened(run)
    words, to = ("semistan", "jobs", "run", str(run.path)), ("--out", str(out))
    return {name: shlex.join([*words, name, *to]) for name in _missing(run)}


def task(run: RunLike, name: str, out: Path | str = JOBS) -> Path:
    """Draw one chain that a run lacks into a file elsewhere; the run stays as it is.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    name : str
        The chain's file in the run.
    out : path
        The folder in which a file of this name is written.

    Returns
    -------
    Path
        That file.

    Raises
    ------
    InputError
        If the run does not lack this chain.
    SemistanError
        If sampling fails.
    """
    run = opened(run)
    missing = _missing(run)
    if name not in missing:
        raise InputError(
            f"'{run.path}' does not lack '{name}'; it lacks {', '.join(missing) or 'no chain'}"
        )
    path = Path(out) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, missing[name].task.run(SILENT))
    return path


def collect(run: RunLike, folder: Path | str = JOBS, *, say: Say = silent) -> Fitted | None:
    """Take chains that ``task`` has drawn into the run that lacks them, and complete it.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    folder : path
        Where the chains are; they stay there.
    say : callable
        Takes a line for each chain.

    Returns
    -------
    Fitted or None
        The fit, or None while chains are missing.

    Raises
    ------
    InputError
        If a file is no whole chain of this run; those before it are taken in.
    """
    run = opened(run)
    if not Path(folder).is_dir():
        raise InputError(f"'{folder}' is no folder; 'semistan jobs run' writes chains into one")
    missing = _missing(run)
    found = [name for name in missing if (Path(folder) / name).is_file()]
    for name in found:
        _take_in(run, name, missing[name], Path(folder) / name)
        say(f"took in {name}")
    if left := [name for name in missing if name not in found]:
        say(f"still missing: {', '.join(left)}")
        return None
    return sample(read_run(run.path), watch=Watch(say))


def _missing(run: Run) -> dict[str, FiledTask]:
    """Return the chains that a run lacks by the names of their files."""
    found = ((chain_file(item.folder, item.task.number), item) for item in missing_tasks(run))
    return {path.relative_to(run.path).as_posix(): item for path, item in found}


def _take_in(run: Run, name: str, filed: FiledTask, path: Path) -> None:
    """Check a file, and put it where the chain belongs."""
    member = run.members[filed.before // run.options.chain_count]
    again = f"draw it anew: {shlex.join(['semistan', 'jobs', 'run', str(run.path), name])}"
    read_chain(path, chain_form(member), known=False, remedy=again)
    target, content = run.path / name, path.read_bytes()
    target.parent.mkdir(exist_ok=True)
    record_chain(target, content)
    write_bytes(target, content)
