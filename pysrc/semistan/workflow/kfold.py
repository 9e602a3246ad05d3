"""K-fold cross-validation that trains the subspace anew in each fold.

Nothing of a fold's rows reaches its fit: not the design's state, nor the subspace, nor the
posterior. A fold is a task, and folds run side by side.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.files import atomic_folder, write_json
from semistan.bundle.foreign import pack, unpack
from semistan.errors import InputError, SemistanError, sentence
from semistan.infer.backends.backend import Backend, Report
from semistan.infer.backends.local import LOCAL
from semistan.model.config import ModelConfig
from semistan.model.design import apply_design
from semistan.model.modules import Modules, codes
from semistan.posterior.options import check_interval
from semistan.posterior.run import Run
from semistan.posterior.scoring.folds import (
    FOLDER,
    MANIFEST,
    SECONDS,
    KFold,
    assign_folds,
    fold_folder,
    read_fold_options,
    read_folds,
    read_kfold,
    record_fold,
    write_fold_options,
    write_folds,
    write_pointwise,
)
from semistan.posterior.scoring.scores import Pointwise, pointwise
from semistan.posterior.summary import Summary, write_summary
from semistan.workflow import prepare as preparation
from semistan.workflow.fit import fit_model
from semistan.workflow.runs import RunLike, opened
from semistan.workflow.watch import Say, silent
from semistan.workflow.whole_table import column_of

if TYPE_CHECKING:
    import pandas as pd


def kfold(
    run: RunLike,
    *,
    folds: int = 10,
    group: str | None = None,
    data: str | Path | None = None,
    seed: int = 1,
    interval: float = 0.9,
    jobs: int | None = None,
    save_fits: bool = False,
    overwrite: bool = False,
    say: Say = silent,
    backend: Backend = LOCAL,
) -> KFold:
    """Cross-validate a run's model; folds that are already there are kept.

    Parameters
    ----------
    run : Fit, Run or path
        A run, whose model and training rows are used.
    folds : int
        Number of folds K.
    group : str, optional
        Column whose groups stay together; it need not be in the formula.
    data : path, optional
        The training table, from which such a column is read; by default where it was.
    seed : int
        Seed of the assignment to folds, of replicated responses and of new levels.
    interval : float
        Probability of the predictive intervals.
    jobs : int, optional
        Folds at a time; by default one for each core.
    save_fits : bool
        Whether each fold's run is kept in ``fold-<i>/run``.
    overwrite : bool
        Whether cross-validation with other options is replaced.
    say : callable
        Receives one line for each fold.
    backend : Backend, optional
        What fits the folds; by default this machine.

    Raises
    ------
    InputError
        If the options cannot be used, differ from those of an unfinished cross-validation, or
        the model cannot be trained on a fold's rows.
    SemistanError
        If a fold fails; run it again to continue.
    """
    run = opened(run)
    check_interval(interval)
    folder = run.path / FOLDER
    options = {
        "folds": folds, "group": group, "seed": seed, "interval": interval,
        "save_fits": save_fits, "bundle_sha256": run.manifest.bundle_sha256,
    }  # fmt: skip
    _begin(run, folder, options, data, overwrite=overwrite)
    missing = [i for i in range(1, folds + 1) if not fold_folder(folder, i).is_dir()]
    if missing and len(missing) < folds:
        say(f"{folds - len(missing)} of {folds} folds are done already")
    complete_folds(folder, fold_tasks(run, missing, options), backend, jobs, say)
    return read_kfold(run)


@dataclass(frozen=True, slots=True, eq=False)
class FoldFit:
    """What the fit that did not see a fold found.

    Attributes
    ----------
    judged : Pointwise
        The fold's rows.
    summary : Summary
        The fit's coefficients and diagnostics.
    run : bytes
        The fit's run as a tar archive, if it is kept.
    seconds : float
        How long the fit took.
    """

    judged: Pointwise
    summary: Summary
    run: bytes
    seconds: float = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class FoldTask:
    """A fold to be left out.

    Attributes
    ----------
    number : int
        The fold, from 1.
    config : ModelConfig
        The model.
    modules : mapping
        The user's among the networks.
    table : pandas.DataFrame
        All training rows.
    inside : array of bool, shape (N,)
        Which of them are the fold's.
    seed : int
        Seed of replicated responses and of the effects of new levels.
    interval : float
        Probability of the predictive intervals.
    save_fit : bool
        Whether the fit's run is kept.
    """

    number: int
    config: ModelConfig
    modules: Modules
    table: pd.DataFrame
    inside: np.ndarray
    seed: int
    interval: float
    save_fit: bool

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"fold {self.number}"

    @property
    def in_thread(self) -> bool:
        """Training computes in this process."""
        return False

    def run(self, _: Report) -> FoldFit:
        """Fit all other folds' rows and judge this one's."""
        try:
            with tempfile.TemporaryDirectory(prefix="semistan-") as folder:
                return self._fit(Path(folder))
        except SemistanError as error:
            raise SemistanError(
                f"{self.name} failed: {sentence(error)} Run it again to continue."
            ) from None

    def _fit(self, folder: Path) -> FoldFit:
        started = time.monotonic()
        fit = fit_model(
            self.config, self.table[~self.inside], out=folder / "run", networks=codes(self.modules)
        )
        seconds = time.monotonic() - started
        rows = preparation.new_rows(
            fit.run.bundle, self.table[self.inside], response=True, allow_new_levels=True
        )
        judged = pointwise(
            fit.posterior.seeded(self.seed, self.number), rows, interval=self.interval,
            generator=np.random.default_rng((self.seed, self.number)),
        )  # fmt: skip
        packed = pack(folder / "run") if self.save_fit else b""
        return FoldFit(judged, fit.summary, packed, seconds)


def fold_tasks(run: Run, folds: Sequence[int], options: dict[str, Any]) -> list[FoldTask]:
    """Return the tasks of some folds of a run's cross-validation, whose folder is there."""
    config, table, assigned = fold_config(run), run.table(), read_folds(run.path / FOLDER)
    return [
        FoldTask(
            fold, config, run.bundle.modules, table, assigned == fold,
            options["seed"], options["interval"], options["save_fits"],
        )
        for fold in folds
    ]  # fmt: skip


def complete_folds(
    folder: Path,
    tasks: Sequence[FoldTask],
    backend: Backend,
    jobs: int | None,
    say: Say,
) -> None:
    """Let a backend fit the folds, and write what it finds as soon as it is there."""
    try:
        for index, found in backend.map(tasks, at_once=jobs):
            _write_fold(folder, tasks[index], found)
            say(f"{tasks[index].name} is done")
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        raise


def _write_fold(folder: Path, task: FoldTask, found: FoldFit) -> None:
    with atomic_folder(fold_folder(folder, task.number)) as target:
        write_pointwise(found.judged, np.flatnonzero(task.inside) + 1, target)
        write_summary(found.summary, target / "summary.csv")
        failed = [c.name + ": " + c.finding for c in found.summary.failed]
        write_json(target / "checks.json", failed)
        write_json(target / SECONDS, found.seconds)
        if found.run:
            unpack(found.run, target)
        record_fold(folder, target, task.number)


def fold_config(run: Run) -> ModelConfig:
    """Return the model with the run's own sampling options."""
    return run.config.model_copy(update={"data": None})


def _begin(
    run: Run,
    folder: Path,
    options: dict[str, Any],
    data: str | Path | None,
    *,
    overwrite: bool,
) -> None:
    """Write the manifest and the folds, unless the same cross-validation is there already."""
    if run.prior_only:
        raise InputError(f"'{run.path}' draws from the prior: there is nothing to cross-validate")
    if (folder / MANIFEST).is_file():
        before = read_fold_options(folder)
        if before == options:
            return
        if not overwrite:
            changed = ", ".join(
                f"{key} was {before.get(key)!r}"
                for key in options
                if before.get(key) != options[key]
            )
            raise InputError(
                f"'{folder}' was made with other options ({changed}); "
                "give the same ones to continue, or --overwrite"
            )
    table = run.table()
    generator = np.random.default_rng(options["seed"])
    groups = _groups(run, options["group"], data)
    assigned = assign_folds(len(table), options["folds"], generator, groups)
    _check_folds(run, table, assigned)
    with atomic_folder(folder) as temporary:
        write_folds(assigned, temporary)
        write_fold_options(temporary, options)


def _check_folds(run: Run, table: pd.DataFrame, assigned: np.ndarray) -> None:
    """Refuse folds on which the model cannot be trained or judged, before any is trained."""
    config = fold_config(run)
    for fold in range(1, int(assigned.max()) + 1):
        try:
            networks = codes(run.bundle.modules)
            prepared = preparation.prepare(config, table[assigned != fold], networks)
            apply_design(
                prepared.design, table[assigned == fold], response=True, allow_new_levels=True
            )
        except InputError as error:
            raise InputError(
                f"fold {fold} cannot be left out: {sentence(error)} Choose another --seed, a "
                "larger K, or merge rare levels."
            ) from None


def _groups(run: Run, group: str | None, data: str | Path | None) -> np.ndarray | None:
    """Return each row's group."""
    return None if group is None else column_of(run, group, "--group", data).astype(str)
