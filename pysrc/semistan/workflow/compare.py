"""Runs side by side: their expected log predictive densities on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.model.formula.formula import parse_formula
from semistan.model.table.canonical import label
from semistan.posterior.run import Run
from semistan.posterior.scoring.compare import compare_elpd, compare_loo, unreliable_text
from semistan.posterior.scoring.folds import read_kfold
from semistan.posterior.scoring.loo import CONDITIONAL
from semistan.posterior.scoring.scores import Pointwise
from semistan.show.report.results import Comparison
from semistan.workflow.runs import RunLike, posterior_run
from semistan.workflow.score import judge, loo

if TYPE_CHECKING:
    import pandas as pd

DIFFERENCES = (
    "elpd_diff is the difference in expected log predictive density to the best model; one of less "
    "than two of its standard errors se_diff says little. weight is that of stacking."
)


def compare(
    runs: Sequence[RunLike] | Mapping[str, RunLike],
    *,
    by: str = "auto",
    newdata: Table | None = None,
) -> pd.DataFrame:
    """Compare runs on the same rows.

    Parameters
    ----------
    runs : sequence of fits, runs or paths, or mapping of names to them
        At least two. Without names, they have those of their folders.
    by : str
        ``loo`` (PSIS-LOO, conditional on each subspace), ``kfold`` (cross-validation that
        'semistan kfold' has made), or ``auto``, as ``resolved_by`` chooses.
    newdata : pandas.DataFrame or a table of another library, optional
        Rows with a known response, by whose log predictive density the runs are compared
        instead.

    Returns
    -------
    pandas.DataFrame
        ``model``, ``elpd_diff``, ``se_diff``, ``elpd``, ``se`` and the stacking ``weight``; by
        ``loo`` also ``largest_k`` and ``k_above``, the largest Pareto k and the number of rows in
        which it is above its limit: unless that is 0 for all models, none of it is reliable.

    Raises
    ------
    InputError
        If the runs' responses or folds differ, or one of them cannot be judged: approximations
        and a tempered p(y | phi) have no PSIS-LOO.
    """
    if isinstance(runs, Mapping):
        judged, names = [posterior_run(run) for run in runs.values()], list(runs)
    else:
        judged = [posterior_run(run) for run in runs]
        names = names_of(judged)
    by = resolved_by(judged) if by == "auto" else by
    if newdata is not None:
        rows = [judge(run, newdata) for run in judged]
    elif by == "kfold":
        rows = _kfold_rows(judged, names)
    elif by == "loo":
        check_same_response(judged, names)
        return compare_loo({name: loo(run) for name, run in zip(names, judged, strict=True)})
    else:
        raise InputError(f"--by is auto, loo or kfold, got '{by}'")
    _check_same_weights(rows, names)
    elpd = {name: item.lpd for name, item in zip(names, rows, strict=True)}
    return compare_elpd(elpd, rows[0].weight)


def comparison(run: RunLike, others: Sequence[RunLike]) -> Comparison:
    """Compare a run with others for its page.

    Raises
    ------
    InputError
        As ``compare`` does.
    """
    runs = [posterior_run(item) for item in (run, *others)]
    by = resolved_by(runs)
    table = compare(runs, by=by)
    warning = unreliable_text(table) if by == "loo" else None
    said = (f"{text[0].upper()}{text[1:]}" for text in (warning, caveat(runs, by)) if text)
    text = " ".join([DIFFERENCES, *(f"{item.rstrip('.')}." for item in said)])
    how = "K-fold cross-validation" if by == "kfold" else "PSIS-LOO"
    return Comparison("Comparison", text, f"By {how}, best model first", table)


def resolved_by(runs: Sequence[RunLike]) -> str:
    """Choose ``kfold`` where a run is conditional on a subspace and all have it, else ``loo``.

    A subspace was trained on the rows that PSIS-LOO leaves out. The folds must be the same.
    """
    judged = [posterior_run(run) for run in runs]
    return "kfold" if _conditional(judged) and _same_folds(judged) else "loo"


def caveat(runs: Sequence[RunLike], by: str) -> str:
    """Say what a comparison is conditional on; nothing if it is not."""
    if by == "loo" and _conditional([posterior_run(run) for run in runs]):
        return CONDITIONAL
    return "compared by K-fold cross-validation" if by == "kfold" else ""


def _same_folds(runs: Sequence[Run]) -> bool:
    """Say whether all runs were cross-validated, to the end and on the same folds."""
    try:
        folds = [read_kfold(run).fold for run in runs]
    except InputError:
        return False
    return all(np.array_equal(fold, folds[0]) for fold in folds)


def _conditional(runs: Sequence[Run]) -> bool:
    return any(run.bundle.model.moves != "all" for run in runs)


def names_of(runs: Sequence[Run]) -> list[str]:
    """Return the folders' names, or their paths where names are not unique."""
    names = [run.path.resolve().name for run in runs]
    paths = [str(run.path) for run in runs]
    for chosen in (names, paths):
        if len(set(chosen)) == len(runs):
            return chosen
    raise InputError(f"a run is named twice: {', '.join(paths)}")


def check_same_response(runs: list[Run], names: list[str]) -> None:
    """Refuse runs on different data: log densities of different responses do not compare.

    Raises
    ------
    InputError
        Naming the first row in which they differ.
    """
    first, *others = _responses(runs)
    for y, name in zip(others, names[1:], strict=True):
        if len(y) != len(first):
            raise InputError(
                f"'{names[0]}' has {len(first)} rows and '{name}' has {len(y)}: "
                "only runs on the same data can be compared"
            )
        different = np.flatnonzero(y != first)
        if different.size:
            i = different[0]
            raise InputError(
                f"'{names[0]}' and '{name}' were fitted to different responses: row {i + 1} is "
                f"{_shown(first[i])} and {_shown(y[i])}. Only runs on the same data, in the "
                "same units and order, can be compared."
            )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _responses(runs: list[Run]) -> list[np.ndarray]:
    """Return each run's response: as it is in the data if one of them has unordered categories.

    The same category has another number where the reference is another.
    """
    if not any(run.bundle.design.categories for run in runs):
        return [np.asarray(run.rows().y) for run in runs]
    return [_as_in_data(run) for run in runs]


def _as_in_data(run: Run) -> np.ndarray:
    table, name = run.table(), parse_formula(run.bundle.config.formula).response.strip("`")
    values = table[name].tolist() if name in table else np.asarray(run.rows().y).tolist()
    return np.array([label(value) for value in values], dtype=object)


def _check_same_weights(rows: list[Pointwise], names: list[str]) -> None:
    """Refuse runs whose rows have different weights: their sums do not compare."""
    for name, other in zip(names[1:], rows[1:], strict=True):
        if not np.array_equal(other.weight, rows[0].weight):
            raise InputError(
                f"'{names[0]}' and '{name}' weight the rows differently: only runs with the same "
                "weights() can be compared"
            )


def _kfold_rows(runs: list[Run], names: list[str]) -> list[Pointwise]:
    check_same_response(runs, names)
    found = [read_kfold(run) for run in runs]
    for name, other in zip(names[1:], found[1:], strict=True):
        if not np.array_equal(other.fold, found[0].fold):
            raise InputError(
                f"'{names[0]}' and '{name}' were cross-validated on different folds: use the "
                "same -K, --seed and --group"
            )
    return [item.rows for item in found]
