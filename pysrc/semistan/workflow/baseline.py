"""Does the network earn its keep: the same model with lines, and with smooths, in its place.

Both are fitted by the same program to the same folds as the run's cross-validation, so that their
densities compare row by row. The GLM has the network's inputs as lines, with the prior of a
network's weights; the GAM has a smooth ``s(u)`` of each input with values enough and lines of the
others, and so no interactions.

    RUN/baseline/GLM/kfold/   RUN/baseline/GAM/kfold/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.files import atomic_folder
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.model.config import ModelConfig, with_overrides
from semistan.model.families.family import Family
from semistan.model.formula.expression import variables
from semistan.model.formula.simpler import linear_formula, smooth_formula
from semistan.posterior.run import Run
from semistan.posterior.scoring.compare import compare_elpd
from semistan.posterior.scoring.folds import (
    FOLDER,
    MANIFEST,
    KFold,
    finished_kfold,
    fold_folder,
    fold_seconds,
    read_fold_options,
    read_folds,
    read_kfold,
    write_fold_options,
    write_folds,
)
from semistan.posterior.scoring.scores import scores
from semistan.posterior.written import table_text
from semistan.show.report.results import Comparison
from semistan.workflow.kfold import complete_folds, fold_config, fold_tasks, kfold
from semistan.workflow.runs import RunLike, posterior_run
from semistan.workflow.watch import Say, silent

if TYPE_CHECKING:
    import pandas as pd

BASELINES = "baseline"
NETWORK, GLM, GAM = "network", "GLM", "GAM"
FEWEST_VALUES = 20  # distinct values of an input that gets a smooth
EPOCHS = 500  # that a line and smooths are trained for at most: their modes are found in sampling
TITLE = "Does the network earn its keep?"
TEXT = (
    "The same model with lines (GLM), and with a smooth of each input (GAM), in place of the "
    "network, on the same folds. elpd_diff is the difference in expected log predictive density to "
    "the best; one of less than two of its standard errors se_diff says little. seconds are those "
    "of a fold's fit."
)


@dataclass(frozen=True, slots=True, eq=False)
class Baselines:
    """The run beside simpler models.

    Attributes
    ----------
    folds : mapping
        The cross-validation of each model, by its name.
    seconds : mapping
        How long a fold took in the mean; NaN if that is not known.
    family : Family
        Of the response.
    formulas : mapping
        The formula of each.
    """

    folds: Mapping[str, KFold]
    seconds: Mapping[str, float]
    family: Family
    formulas: Mapping[str, str]

    def table(self) -> pd.DataFrame:
        """Return one line for each model, best first.

        ``model``, ``elpd_diff`` and ``se_diff`` to the best, ``elpd``, ``se``, the stacking
        ``weight``, the scores that the response has, as ``RMSE`` and ``coverage``, and ``seconds``
        of a fold.
        """
        elpd = {name: found.rows.lpd for name, found in self.folds.items()}
        table = compare_elpd(elpd, self.folds[NETWORK].rows.weight)
        judged = {name: self._scores(name) for name in table["model"]}
        for score in judged[NETWORK]:
            table[score] = [judged[name][score] for name in table["model"]]
        return table.assign(seconds=[self.seconds[name] for name in table["model"]])

    def _scores(self, name: str) -> dict[str, float]:
        found = self.folds[name]
        several = scores(self.family, found.rows, found.interval)
        return {item.column: item.value for item in several if item.column}

    def __repr__(self) -> str:
        return table_text(self.table())


def baseline(
    run: RunLike,
    *,
    folds: int = 10,
    seed: int = 1,
    jobs: int | None = None,
    overwrite: bool = False,
    say: Say = silent,
    backend: Backend = LOCAL,
) -> Baselines:
    """Compare a run with lines and with smooths in place of its network, on the same folds.

    Folds that are already there are kept; the run's own cross-validation is made first if it was
    not.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    folds
        As of ``semistan.kfold``, where the run's own cross-validation is not there yet.
    seed
        As of ``semistan.kfold``, where the run's own cross-validation is not there yet.
    jobs : int, optional
        Folds at a time; by default one for each core.
    overwrite : bool
        Whether baselines of other folds are replaced.
    say : callable
        Receives one line for each fold.
    backend : Backend, optional
        What fits the folds; by default this machine.

    Raises
    ------
    InputError
        If the network takes images or is a module of the user's, or there are baselines of other
        folds.
    SemistanError
        If a fold fails; run it again to continue.
    """
    run = posterior_run(run)
    configs = baseline_configs(run)
    if finished_kfold(run) is None:
        kfold(run, folds=folds, seed=seed, jobs=jobs, say=say, backend=backend)
    options = read_fold_options(run.path / FOLDER) | {"save_fits": False}
    for name, config in configs.items():
        folder = run.path / BASELINES / name / FOLDER
        wanted = options | {"formula": config.formula}
        _begin(folder, wanted, read_folds(run.path / FOLDER), overwrite=overwrite)
        numbers = range(1, options["folds"] + 1)
        missing = [i for i in numbers if not fold_folder(folder, i).is_dir()]
        tasks = [replace(task, config=config) for task in fold_tasks(run, missing, options)]
        complete_folds(folder, tasks, backend, jobs, partial(_say_of, say, name))
    return _read(run, configs)


def _say_of(say: Say, name: str, line: str) -> None:
    say(f"{name}: {line}")


def read_baselines(run: RunLike) -> Baselines | None:
    """Return what ``baseline`` found of a run, or None if it is not there or not finished."""
    run = posterior_run(run)
    if not (run.path / BASELINES).is_dir():
        return None
    try:
        return _read(run, baseline_configs(run))
    except InputError:
        return None


def comparison_with(found: Baselines) -> Comparison:
    """Return the comparison as a run's page shows it."""
    formulas = "; ".join(
        f"{name}: `{text}`" for name, text in found.formulas.items() if name != NETWORK
    )
    caption = "By K-fold cross-validation, best model first"
    return Comparison(TITLE, f"{TEXT} {formulas}.", caption, found.table())


def baseline_configs(run: Run) -> dict[str, ModelConfig]:
    """Return the models with which a run is compared; no GAM where no input can bend.

    Raises
    ------
    InputError
        If the network takes images or is a module of the user's.
    """
    config, table = fold_config(run), run.table()
    texts = {
        GLM: linear_formula(config.formula),
        GAM: smooth_formula(config.formula, lambda item: _bends(table, item)),
    }
    if "s(" not in texts[GAM] or texts[GAM] == texts[GLM]:
        del texts[GAM]
    return {name: _simple(config, text) for name, text in texts.items()}


def _simple(config: ModelConfig, formula: str) -> ModelConfig:
    """Return the model with another formula, whose networks have no hidden layers."""
    settings: dict[str, Any] = {
        "formula": formula, "network.hidden": [], "network.frozen": 0, "network.skip": False,
        "network.norm": False, "subspace.construction": "full", "subspace.subspaces": 1,
        "subspace.weights": "equal", "subspace.free": "none", "priors.phi": None,
        "train.epochs": min(EPOCHS, config.train.epochs),
    }  # fmt: skip
    return with_overrides(config, settings)


def _bends(table: pd.DataFrame, item: str) -> bool:
    """Say whether an input is numeric and has values enough for a smooth."""
    names = variables(item)
    if len(names) != 1 or item.lstrip().startswith("C(") or names[0] not in table:
        return False
    column = table[names[0]]
    return column.dtype.kind in "iuf" and column.nunique() >= FEWEST_VALUES


def _begin(folder: Path, options: dict[str, Any], assigned: np.ndarray, *, overwrite: bool) -> None:
    """Write the folds, unless the same ones are there."""
    if (folder / MANIFEST).is_file():
        if read_fold_options(folder) == options:
            return
        if not overwrite:
            raise InputError(
                f"'{folder}' was made with other folds or another formula than those of the run; "
                "--overwrite makes it anew"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder) as temporary:
        write_folds(assigned, temporary)
        write_fold_options(temporary, options)


def _read(run: Run, configs: Mapping[str, ModelConfig]) -> Baselines:
    paths = {NETWORK: run.path} | {name: run.path / BASELINES / name for name in configs}
    found = {name: read_kfold(path) for name, path in paths.items()}
    for name, each in found.items():
        if not np.array_equal(each.fold, found[NETWORK].fold):
            raise InputError(
                f"'{paths[name]}' has other folds than the run: 'semistan baseline {run.path} "
                "--overwrite' makes it anew"
            )
    formulas = {NETWORK: run.config.formula} | {name: c.formula for name, c in configs.items()}
    seconds = {name: fold_seconds(path / FOLDER) for name, path in paths.items()}
    return Baselines(found, seconds, run.bundle.family, formulas)
